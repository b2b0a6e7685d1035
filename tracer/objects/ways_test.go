package objects

import (
	"testing"

	"github.com/allocscope/allocscope/growth/keeper"
)

func TestIsBorrower(t *testing.T) {
	for _, c := range []struct {
		root keeper.Root
		want bool
	}{
		{keeper.Root{Kind: keeper.RootThread}, true},
		{keeper.Root{Kind: keeper.RootStatic, Module: "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"}, true},
		{keeper.Root{Kind: keeper.RootStatic, Module: "/usr/lib/x86_64-linux-gnu/ld-linux-aarch64.so.1"}, true},
		{keeper.Root{Kind: keeper.RootStatic, Module: "/usr/lib/x86_64-linux-gnu/ld-2.31.so"}, true},
		{keeper.Root{Kind: keeper.RootStatic, Module: "/lib/ld-musl-x86_64.so.1"}, false},
		{keeper.Root{Kind: keeper.RootStatic, Module: "/usr/lib/x86_64-linux-gnu/libc.so.6"}, false},
		{keeper.Root{Kind: keeper.RootGlobal, Module: "ld-linux"}, false},
	} {
		if got := isBorrower(c.root); got != c.want {
			t.Errorf("%+v: %t, want %t", c.root, got, c.want)
		}
	}
}
