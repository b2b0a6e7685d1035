package objects

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/torch"
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

// TestOwners follows the words around a tensor whose memory of C++ leads back to it. It is in a cycle
// where its owners are as many as it counts: a list that has moved meanwhile may be another one.
func TestOwners(t *testing.T) {
	const table = 0x1000
	tensor := &typeInfo{name: "torch.Tensor", isTensor: true}
	held := &node{address: 0x2000, typ: tensor}
	impl := &node{block: block{Span: mem.Span{Start: table, End: table + 200}}}
	borrowed := edge{at: table, value: held.address, from: impl}
	owned := edge{at: table, value: held.address | torch.OwnsObject, from: impl}
	item := edge{at: table, value: held.address, from: &node{typ: &typeInfo{kind: kindList}}}
	variable := edge{at: table, value: held.address, root: &keeper.Root{Kind: keeper.RootStatic}}

	for _, c := range []struct {
		name   string
		refcnt uint64
		edges  []edge
		want   bool
	}{
		{"its memory owns it", 1, []edge{owned}, true},
		{"its memory leads to it", 1, []edge{borrowed}, false},
		{"one owner of two was found", 2, []edge{owned, borrowed}, false},
		{"an object owns it, too", 2, []edge{owned, item}, true},
		{"a variable owns it, too", 2, []edge{variable, owned}, true},
	} {
		held.refcnt, held.edges = c.refcnt, c.edges
		in := shore{isWhole: true}
		in.add(&way{node: held}, []edge{owned}, true)
		if held.hasAllOwners() != c.want || in.isWhole != c.want {
			t.Errorf("%s: %t, and whole: %t, want %t", c.name, held.hasAllOwners(), in.isWhole, c.want)
		}
	}
}
