// Package protocols lists the protocols that Wiretape knows.
package protocols

import (
	"wiretape/wire"
	"wiretape/wire/aewr"
	"wiretape/wire/dendro"
	"wiretape/wire/melin"
)

// All is every protocol, in the order of detection: the ones with a magic
// number first, so that a weak match never hides a sure one.
func All() wire.Registry {
	return wire.Registry{
		dendro.Protocol{},
		aewr.Protocol,
		melin.Protocol{},
	}
}
