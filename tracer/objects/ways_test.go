package objects

import (
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
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

// leftBehind is a program whose lists are in dicts. Their addresses are in memory of C as well, once
// or twelve times each, and no reference count includes that. Other lists are kept by memory of C
// alone, which counts its references. gc shows that only the dicts refer to the first ones.
const leftBehind = `
import ctypes, gc
c = ctypes.pythonapi
c.PyMem_RawMalloc.restype = ctypes.c_void_p
c.PyMem_RawMalloc.argtypes = [ctypes.c_size_t]
c.PyCapsule_New.restype = ctypes.py_object
c.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

class Held: pass

def memory_with(held): # the object that owns a block of C
    block = c.PyMem_RawMalloc(100)
    ctypes.memset(block, 0, 100)
    ctypes.c_void_p.from_address(block + 16).value = id(held)
    return c.PyCapsule_New(block, None, None)

def lists(): # so far from a variable that stale words would be nearer
    return {"of": {"all": {"layers": {i: [Held()] for i in range(8)}}}}
def within(variable):
    return variable["of"]["all"]["layers"]
hooks, more_hooks = lists(), lists()
stale = [memory_with(held) for held in within(hooks).values()]
repeated = [memory_with(held) for held in within(more_hooks).values() for _ in range(12)]
counted = [[Held()] for i in range(8)]
addresses = [id(held[0]) for held in counted]
owners = [memory_with(held) for held in counted]
for held in counted:
    c.Py_IncRef(ctypes.py_object(held))

gc.collect()
for name in "hooks", "more_hooks":
    layers = within(globals()[name])
    for held in layers.values():
        assert [r for r in gc.get_referrers(held) if r is not globals()] == [layers]
    print("lists", name, *[id(held[0]) for held in layers.values()])
print("others owners", *addresses)
del held, layers, counted
print("ready", flush=True)
import time
time.sleep(600)
`

// TestLeftBehind searches with an index of all memory, and with one that is said to be cut. An object
// that has as many references as it counts has no others, whether or not all memory was read.
func TestLeftBehind(t *testing.T) {
	tracertest.NeedsRoot(t)
	target := tracertest.Start(t, "/usr/bin/python3", "-c", leftBehind)
	names, wants, suspects := readSuspects(t, target.Await("ready"))
	if len(suspects) != 3 {
		t.Fatalf("%d kinds of objects", len(suspects))
	}
	h := openHeap(t, target.PID())
	for _, isCut := range []bool{false, true} {
		for i, found := range searchCut(t, h, suspects, isCut) {
			if roots := rootsOf(found); !slices.Equal(roots, wants[i:i+1]) {
				t.Errorf("%s, cut: %t: kept by %q, want %q", names[i], isCut, roots, wants[i])
			}
		}
	}
}

// numbered is a program with memory of C that one object owns. The version of a dict is an address
// in that memory, as it is by chance where a process has changed its dicts often enough. CPython
// itself shows that the word is a version: it grows with each change.
const numbered = `
import ctypes, time
c = ctypes.pythonapi
c.PyMem_RawMalloc.restype = ctypes.c_void_p
c.PyMem_RawMalloc.argtypes = [ctypes.c_size_t]
c.PyCapsule_New.restype = ctypes.py_object
c.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
WATCHERS = 0xff # the bits of the version that are none

def version(of):
    return ctypes.c_uint64.from_address(id(of) + 24)

changed = {}
before = version(changed).value & ~WATCHERS
for i in range(1000):
    changed[i] = i
assert before < version(changed).value & ~WATCHERS < before + 2**24

blocks = [c.PyMem_RawMalloc(5000) for _ in range(8)]
counts = [{} for _ in blocks]
owners = {"of": {"all": [c.PyCapsule_New(block, None, None) for block in blocks]}}
for count, block in zip(counts, blocks):
    version(count).value = (block | WATCHERS) + 1
print("blocks owners", *blocks)
print("ready", flush=True)
time.sleep(600)
`

// named is a program with memory of C that one object owns, and with functions of C without a name.
// Their names are empty: one byte of a word. The others are of an address in that memory. Functions
// and their records, as pybind11 has them, lead to the same name; CPython shows what it is.
const named = `
import ctypes, time
c = ctypes.pythonapi
c.PyMem_RawMalloc.restype = ctypes.c_void_p
c.PyMem_RawMalloc.argtypes = [ctypes.c_size_t]
c.PyCapsule_New.restype = ctypes.py_object
c.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
c.PyCFunction_NewEx.restype = ctypes.py_object
c.PyCFunction_NewEx.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
METH_NOARGS = 4

def words(*values):
    at = c.PyMem_RawMalloc(8 * len(values) + 1)
    for i, value in enumerate(values):
        ctypes.c_uint64.from_address(at + 8 * i).value = value
    return at

def function(block):
    name = words((block | 0xff) + 1, 0)
    method = words(name, ctypes.cast(c.PyList_New, ctypes.c_void_p).value, METH_NOARGS, 0)
    record = c.PyCapsule_New(words(name, 0, 0, method), None, None)
    return c.PyCFunction_NewEx(method, record, None)

blocks = [c.PyMem_RawMalloc(5000) for _ in range(8)]
functions = [function(block) for block in blocks]
assert [f.__name__ for f in functions] == [""] * 8
owners = {"of": {"all": {"layers": {"of": [c.PyCapsule_New(block, None, None) for block in blocks]}}}}
print("blocks owners", *blocks)
print("ready", flush=True)
time.sleep(600)
`

// TestNoReference searches for memory of C whose address is in words that are none.
func TestNoReference(t *testing.T) {
	t.Run("version of a dict", func(t *testing.T) { mustFindOwners(t, numbered) })
	t.Run("name of a function of C", func(t *testing.T) { mustFindOwners(t, named) })
}

func mustFindOwners(t *testing.T, program string) {
	t.Helper()
	tracertest.NeedsRoot(t)
	target := tracertest.Start(t, "/usr/bin/python3", "-c", program)
	_, wants, suspects := readSuspects(t, target.Await("ready"))
	if len(suspects) != 1 {
		t.Fatalf("%d kinds of objects", len(suspects))
	}
	found := searchCut(t, openHeap(t, target.PID()), suspects, false)
	if roots := rootsOf(found[0]); !slices.Equal(roots, wants) {
		t.Errorf("kept by %q, want %q", roots, wants)
	}
}

// rootsOf returns the names of the variables that keep the samples of a search.
func rootsOf(found keeper.Search) (names []string) {
	for _, p := range found.Paths {
		names = append(names, p.Root.Name)
	}
	return names
}

// searchCut is Heap.Search, once, by an index that was read to its end, and may be said to be cut.
func searchCut(t *testing.T, h *Heap, suspects []Suspect, isCut bool) (all []keeper.Search) {
	t.Helper()
	tracertest.NoError(t, h.refresh())
	h.memory.budget = newBudget(t.Context(), time.Minute)
	s := newSearch(h)
	var samples [][]*node
	var addresses []uint64
	for _, suspect := range suspects {
		samples = append(samples, s.findSamples(suspect))
		addresses = append(addresses, suspect.Objects...)
	}
	tracertest.NoError(t, s.readIndex(addresses, false))
	s.index.isCut = isCut
	tracertest.NoError(t, s.climb(samples))
	rep := &reporter{heap: h, ways: s.ways, chains: s.chains, late: isCut}
	for i, suspect := range suspects {
		all = append(all, rep.result(suspect, samples[i]))
	}
	return all
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
	const slot, hasObject = 48, 1 << 63 // PyTorch 2.14
	shared := func(slot, counts uint64) edge {
		from := &node{block: impl.block, address: table, second: counts}
		return edge{at: table + slot, value: held.address, from: from}
	}
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
		{"C++ shares it", 1, []edge{shared(slot, hasObject|1<<32|2)}, true},
		{"C++ and an object share it", 2, []edge{shared(slot, hasObject|1<<32|3), item}, true},
		{"only its object refers to C++", 1, []edge{shared(slot, hasObject|1<<32|1)}, false},
		{"C++ without an object", 1, []edge{shared(slot, 1<<32|2)}, false},
		{"freed", 1, []edge{shared(slot, 0)}, false},
		{"another word of C++", 1, []edge{shared(slot+8*8, hasObject|1<<32|2)}, false},
	} {
		held.refcnt, held.edges = c.refcnt, c.edges
		in := shore{isWhole: true}
		in.add(&way{node: held}, []edge{owned}, true)
		if held.hasAllOwners() != c.want || in.isWhole != c.want {
			t.Errorf("%s: %t, and whole: %t, want %t", c.name, held.hasAllOwners(), in.isWhole,
				c.want)
		}
	}
}

// TestSharedTensor counts the references to a tensor that C++ shares: the words that are left over
// are none.
func TestSharedTensor(t *testing.T) {
	const slot, counts = 48, 1<<63 | 1<<32 | 2 // PyTorch 2.14
	impl := &node{address: 0x1000, second: counts, isFollowed: true}
	stale := edge{at: 0x3000, from: &node{address: 0x3000, isFollowed: true}}
	shared := edge{at: impl.address + slot, from: impl}
	variable := edge{root: &keeper.Root{Kind: keeper.RootStatic}}

	for _, c := range []struct {
		name   string
		refcnt uint64
		edges  []edge
		want   int // references that count
		isAll  bool
	}{
		{"C++ alone", 1, []edge{shared, stale}, 1, true},
		{"C++ and a variable", 2, []edge{shared, stale, variable}, 2, true},
		{"one was not found", 3, []edge{shared, stale, variable}, 3, false},
	} {
		held := &node{typ: &typeInfo{isTensor: true}, refcnt: c.refcnt, edges: c.edges, isFollowed: true}
		kept, isAll := newWayFinder(&Heap{pages: &pageCache{}}, nil).references(held)
		if len(kept) != c.want || isAll != c.isAll {
			t.Errorf("%s: %d references, all: %t", c.name, len(kept), isAll)
		}
	}
}

// TestTracked closes ways. The garbage collector sees the grad_fn and the hooks of a tensor, and no
// other memory of C++.
func TestTracked(t *testing.T) {
	const alone, shared = 1<<63 | 1<<32 | 1, 1<<63 | 1<<32 | 2 // combined_refcount_
	tensor := &typeInfo{name: "torch.Tensor", isTensor: true, flags: cpython.FlagHaveGC}
	function := &typeInfo{name: "Smooth", flags: cpython.FlagHaveGC}
	number := &typeInfo{name: "float"}
	impl := func(counts uint64) *node { return &node{second: counts} }
	block := func() *node { return &node{} }
	object := func(t *typeInfo) *node { return &node{typ: t} }

	for _, c := range []struct {
		name      string
		ring      []*node // each refers to the next, the last one to the first
		isTracked bool
	}{
		{"grad_fn", []*node{
			object(tensor), impl(alone), block(), block(), object(function),
		}, true},
		{"grad_fn, begun elsewhere", []*node{
			block(), object(function), object(tensor), impl(alone), block(),
		}, true},
		{"hook", []*node{
			object(tensor), impl(alone), block(), block(), block(), object(function),
		}, true},
		{"another pointer of C++ to the tensor", []*node{
			object(tensor), impl(shared), block(), block(), object(function),
		}, false},
		{"gradient", []*node{
			object(tensor), impl(alone), block(), impl(alone), block(), block(), object(function),
		}, false},
		{"another tensor", []*node{
			object(tensor), impl(alone), block(), object(tensor), object(function),
		}, false},
		{"saved by a function", []*node{
			object(function), block(), impl(shared), block(), block(),
		}, false},
		{"C++ alone", []*node{impl(alone), block(), block()}, false},
		{"no object that is tracked", []*node{
			object(tensor), impl(alone), block(), object(number),
		}, false},
	} {
		last := len(c.ring) - 1
		var closed *way
		for _, n := range slices.Backward(append(slices.Clone(c.ring), block())) { // the sample last
			closed = &way{node: n, below: closed}
		}
		path := rootPath{way: closed, word: &edge{from: c.ring[last]}}

		if got := path.tracked(); (got != nil) != c.isTracked ||
			got != nil && got.node.typ != function {
			t.Errorf("%s: %+v, want one: %t", c.name, got, c.isTracked)
		}
		for _, isOwned := range []bool{false, true} {
			in := shore{isWhole: true, tensor: tensor, closing: path, isOwned: isOwned}
			cycle, tracked := in.cycle()
			if (cycle.way == nil) != c.isTracked || (tracked != nil) != (c.isTracked && !isOwned) {
				t.Errorf("%s, owned by C++ %t: cycle %t, tracked %t",
					c.name, isOwned, cycle.way != nil, tracked != nil)
			}
		}
	}
}
