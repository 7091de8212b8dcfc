module wiretape

go 1.26.0

require (
	github.com/SaveTheRbtz/zstd-seekable-format-go/pkg v0.10.0
	github.com/andybalholm/brotli v1.3.0
	github.com/cenkalti/backoff/v5 v5.0.3
	github.com/klauspost/compress v1.20.4
	golang.org/x/sys v0.50.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
)
