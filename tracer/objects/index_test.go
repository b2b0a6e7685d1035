package objects

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// forgeIndex returns the index of random words of which some lead into the memory, with the places
// of the words that lead to each address.
func forgeIndex(t *testing.T, seed uint64) (*index, map[uint64][]uint64) {
	t.Helper()
	const words = 3 * windowBytes / wordSize
	r := rand.New(rand.NewPCG(seed, 1))
	content, want := make([]byte, words*wordSize), make(map[uint64][]uint64)
	for i := range uint64(words) {
		if r.IntN(3) > 0 {
			continue
		}
		to := forgedAt + wordSize*r.Uint64N(words*5/4)
		if r.IntN(9) == 0 { // any number
			to = r.Uint64()
		}
		binary.LittleEndian.PutUint64(content[i*wordSize:], to)
		if to-forgedAt < words*wordSize && to%wordSize == 0 {
			want[to] = append(want[to], forgedAt+i*wordSize)
		}
	}

	forged := newImage(content)
	m := newMemory(nil, forged)
	m.regions = []region{{forged.span(), regionAnonymous}}
	m.spans = mem.Spans{forged.span()}
	m.findParts()
	return (&Heap{memory: m}).newIndex(m, nil), want
}

// TestIndex compares the words that an index has for each address with the truth.
func TestIndex(t *testing.T) {
	mustHave := func(t *testing.T, x *index, to uint64, want []uint64) {
		t.Helper()
		if got, areAll := x.referers(to); !slices.Equal(got, want) || !areAll {
			t.Fatalf("%x is referred to by %x, want %x", to, got, want)
		}
	}

	t.Run("all", func(t *testing.T) {
		x, want := forgeIndex(t, 1)
		if err := x.read(nil); err != nil || x.isCut {
			t.Fatal(err, x.isCut)
		}
		for to := forgedAt; to < forgedAt+3*windowBytes; to += wordSize {
			mustHave(t, x, to, want[to])
		}
		mustHave(t, x, forgedAt-wordSize, nil)
		mustHave(t, x, forgedAt+1<<40, nil)
	})

	t.Run("too many", func(t *testing.T) {
		x, want := forgeIndex(t, 2)
		x.most = 1000
		for to := range want {
			if x.samples = append(x.samples, to); len(x.samples) == 50 {
				break
			}
		}
		if err := x.read(nil); !errors.Is(err, errIndexFull) {
			t.Fatal(err)
		}
		for _, to := range x.samples { // of the whole memory
			mustHave(t, x, to, want[to])
		}
		for to, from := range want {
			if len(from) < 3 {
				continue
			}
			if err := x.read([]uint64{to}); err != nil || x.isCut {
				t.Fatal(err, x.isCut)
			}
			mustHave(t, x, to, from)
			return
		}
	})

	t.Run("without data", func(t *testing.T) {
		x, want := forgeIndex(t, 3)
		tracertest.NoError(t, x.read(nil))
		count, few := len(x.edges), 0
		for to, from := range want {
			if few++; few <= 100 && to%granule == 0 {
				x.leaves.add(x.wordOf(to) / 2)
				count -= len(from) + len(want[to+wordSize])
			}
		}
		if x.edges = x.withoutLeaves(x.edges); len(x.edges) != count {
			t.Errorf("%d references, want %d", len(x.edges), count)
		}
	})
}

// movingScript has a container whose table moves at a line of input.
const movingScript = `
class Kept:
    pass
objects = [Kept() for _ in range(60000)]
print("objects", *map(id, objects[::4000]))
kept = %s
del objects
print("ready", flush=True)
input()
kept.%s
print("moved", flush=True)
input()
`

// growing are containers, and how each grows.
var growing = map[string][2]string{
	"list": {"list(objects)", "extend(range(400000))"},
	"set":  {"set(objects)", "update(range(400000))"},
	"dict": {"dict(enumerate(objects))", "update((-n, None) for n in range(400000))"},
}

// headScript has a list whose head is replaced at a line of input: by nodes that lead to it, or by
// another list.
const headScript = `
import ctypes
class Node:
    def __init__(self, next):
        self.next = next
def main():
    head = None
    some = []
    for number in range(900):
        head = Node(head)
        if number % 100 == 0:
            some.append(id(head))
    print("objects", *some)
    print("ready", flush=True)
    if input() == "other":
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(head))
        head = None
    for number in range(900):
        head = Node(head)
    print("moved", flush=True)
    input()
main()
`

// A variable that has a newer head of a list keeps the list, and no variable keeps it that has
// another one.
func TestMovedHead(t *testing.T) {
	for order, want := range map[string]string{"grow": "head", "other": ""} {
		t.Run(order, func(t *testing.T) {
			r := searchMoved(t, headScript, order, false)
			name := ""
			if len(r.Paths) > 0 {
				name = r.Paths[0].Root.Name
			}
			if name != want {
				t.Errorf("kept by %q, want %q: %+v", name, want, r)
			}
		})
	}
}

// A table that moves after the index was made is found by its container; so is one that moved
// before, to memory that the index does not read.
func TestMovedTable(t *testing.T) {
	for name, container := range growing {
		script := fmt.Sprintf(movingScript, container[0], container[1])
		for when, isBefore := range map[string]bool{"after the index": false, "before": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				r := searchMoved(t, script, "grow", isBefore)
				if len(r.Paths) != 1 || r.Paths[0].Samples != r.Samples ||
					r.Paths[0].Root.Name != "kept" {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// searchMoved searches for the objects of a program that moves them after the memory was listed:
// after the index was made, or before.
func searchMoved(t *testing.T, script, order string, isBefore bool) keeper.Search {
	t.Helper()
	target := tracertest.Start(t, "/usr/bin/python3", "-c", script)
	var suspect Suspect
	_, suspect.Objects = NumbersOf(t, target.Await("ready")[0])
	h := openHeap(t, target.PID())
	tracertest.NoError(t, h.refresh())

	s := newSearch(h)
	h.memory.budget = newBudget(t.Context(), time.Minute)
	samples := [][]*node{s.findSamples(suspect)}
	move := func() {
		target.Say(order)
		target.Await("moved")
	}
	if isBefore {
		move()
	}
	if err := s.readIndex(suspect.Objects, false); err != nil || s.late {
		t.Fatal(err, s.late)
	}
	if !isBefore {
		move()
	}
	tracertest.NoError(t, s.climb(samples))
	s.findHeads(samples)

	rep := &reporter{heap: h, ways: s.ways, chains: s.chains}
	return rep.result(suspect, samples[0])
}

// largeScript has objects in containers, and values that the objects keep.
const largeScript = `
class Kept:
    def __init__(self, n):
        self.value = [n]
class Owner:
    pass
def made():
    return [Kept(n) for n in range(60000)]
objects = made()
print("objects", *map(id, objects[::4000]))
print("values", *(id(kept.value) for kept in objects[::4000]))
%s
`

// Where memory is so large that an index has not all references, a search begins with the large
// blocks, and goes on with the others where no variable of these keeps a suspect.
func TestLargeMemory(t *testing.T) {
	const wait = "print('ready', flush=True); input()"
	for name, c := range map[string]struct {
		script, root string
		isPart       bool
	}{
		"list of a module": {"kept = objects; del objects; " + wait, "kept", true},
		"dict of a module": {"kept = dict(enumerate(objects)); del objects; " + wait, "kept", true},
		"set of a function": {
			"def run(kept):\n    global objects\n    del objects\n    " + wait +
				"\nrun(set(objects))",
			"kept", true,
		},
		"attribute": {
			"owner = Owner(); owner.kept = objects; del objects; " + wait, "owner", false,
		},
		"small tables": {
			"kept = [objects[i:i + 9] for i in range(0, 60000, 9)]; del objects; " + wait,
			"kept", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			script := fmt.Sprintf(largeScript, c.script)
			target := tracertest.Start(t, "/usr/bin/python3", "-c", script)
			suspects := make([]Suspect, 2)
			for i, line := range target.Await("ready")[:2] {
				_, suspects[i].Objects = NumbersOf(t, line)
			}
			h := openHeap(t, target.PID())
			h.maxWhole = 1
			found := tracertest.Must(h.Search(t.Context(), suspects, time.Minute))(t)

			r := found[0]
			if len(r.Paths) != 1 || r.Paths[0].Samples != r.Samples || r.Samples != 15 ||
				r.Paths[0].Root.Name != c.root || r.Reason != keeper.ReasonNone {
				t.Errorf("%+v, want %s", r, c.root)
			}
			if isPart := h.memory.read < h.memory.spans.Len(); isPart != c.isPart {
				t.Errorf("%d bytes of %d were read", h.memory.read, h.memory.spans.Len())
			}
			values := found[1]
			if len(values.Paths) == 0 && values.Reason != keeper.ReasonBudget ||
				values.Garbage > 0 || len(values.Sweep.Lost) > 0 {
				t.Errorf("the values: %+v", values)
			}
		})
	}
}

// growingScript has a list that grows at a line of input, is freed at the next, and has its place
// taken by another one.
const growingScript = `
class Kept:
    pass
kept = [Kept() for _ in range(1000)]
print("objects", *map(id, kept[::100]))
print("ready", flush=True)
input()
kept.extend(Kept() for _ in range(500))
print("grown", flush=True)
input()
at = id(kept)
kept = None
print("freed", flush=True)
input()
other = [Kept()]
assert id(other) == at
print("replaced", flush=True)
input()
`

// The containers of a search are read once more, as long as they are the same ones.
func TestReread(t *testing.T) {
	target := tracertest.Start(t, "/usr/bin/python3", "-c", growingScript)
	suspect := Suspect{Type: "__main__.Kept"}
	_, suspect.Objects = NumbersOf(t, target.Await("ready")[0])
	h := openHeap(t, target.PID())
	found, err := h.Search(t.Context(), []Suspect{suspect}, time.Minute)
	if err != nil || len(found[0].Paths) != 1 || found[0].Paths[0].Links[0].Entries != 1000 {
		t.Fatalf("%+v, %v", found, err)
	}

	for _, step := range []struct {
		name string
		want int
	}{{"grown", 1}, {"freed", 0}, {"replaced", 0}} {
		target.Say("")
		target.Await(step.name)
		again, err := Reread(h, found)
		if err != nil || len(again) != step.want {
			t.Fatalf("%s: %+v, %v", step.name, again, err)
		}
		if len(again) > 0 && again[0].Paths[0].Links[0].Entries != 1500 {
			t.Errorf("%+v, want 1500 entries", again[0].Paths[0])
		}
	}
	if n := found[0].Paths[0].Links[0].Entries; n != 1000 {
		t.Errorf("the search that was read before has %d entries", n)
	}
}
