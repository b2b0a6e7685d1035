package objects

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/tracertest"
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

// borrowing is a program whose bytearrays are in a list. Code of C has their memory on its stack,
// and static variables lead to them by way of objects.
const borrowing = `
import ctypes
blocks = [bytearray(5000) for _ in range(8)]
memory = [ctypes.addressof(ctypes.c_char.from_buffer(block)) for block in blocks]
HOOKS = 32 # bytes before the data
print("buffers none", *[data - HOOKS for data in memory])
print("ready", flush=True)
SYS_pause = 34
ctypes.CDLL(None).syscall(SYS_pause, *map(ctypes.c_void_p, memory))
`

// Objects that cannot be read may be on the way from any variable of C.
func TestUnreadPython(t *testing.T) {
	tracertest.NeedsRoot(t)
	target := tracertest.Start(t, "/usr/bin/python3", "-X", "dev", "-c", borrowing)
	_, _, suspects := readSuspects(t, target.Await("ready"))
	found, err := openHeap(t, target.PID()).Search(t.Context(), suspects, time.Minute)
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if r := found[0]; r.Samples != 8 || len(r.Paths) > 0 || r.Reason != keeper.ReasonUnsupported {
		t.Errorf("%+v, want no keeper of 8 samples", r)
	}
}
