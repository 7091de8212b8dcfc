// Package interop holds Wiretape against the real dendro crate: the crate's
// publisher is recorded and rebuilt, and the crate opens, verifies, reads and
// dumps what came out.
//
// The tests need Rust, so they are built with the tag interop only; interop/run
// builds the crate's program (interop/rig) and runs them.
package interop
