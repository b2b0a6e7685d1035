package stack

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/allocscope/allocscope/growth"
)

// Bounds of the memory of named stacks, in bytes. A stack of 100 frames takes 7 KiB. Above a bound
// those are forgotten that hold nothing; above twice as much no stack is named.
const (
	maxNamedBytes    = 32 << 20  // of a process
	maxAllNamedBytes = 128 << 20 // of all processes
)

// Memory of a frame without its texts, and of an ID, in bytes.
const (
	frameBytes = int(unsafe.Sizeof(growth.Frame{}))
	idBytes    = 64
)

// A Memory is the memory of the named stacks of several tables.
type Memory struct{ bytes atomic.Int64 }

// namedStacks are the stacks of one process that have names.
type namedStacks struct {
	ids       map[uint64]*namedID
	byFrames  map[uint64]*namedStack // by hashFrames
	seed      maphash.Seed           // of hashFrames
	texts     map[*byte]int          // how many frames have a text, by its first byte
	snapshot  int                    // number of the snapshot that comes next
	bytes     int
	all       *Memory
	forgotten uint64 // stacks
}

// A namedStack may have several IDs. The growth.Stack has the ID of the first, which it keeps.
type namedStack struct {
	*growth.Stack
	hash uint64
	ids  int
}

// A namedID is an ID of a stack.
type namedID struct {
	*namedStack
	used int // the snapshot that was next when it was named, or when it last held memory
}

func newNamed(all *Memory) namedStacks {
	return namedStacks{
		ids:      make(map[uint64]*namedID),
		byFrames: make(map[uint64]*namedStack),
		seed:     maphash.MakeSeed(),
		texts:    make(map[*byte]int),
		all:      all,
	}
}

func (n *namedStacks) has(id uint64) bool {
	_, ok := n.ids[id]
	return ok
}

func (n *namedStacks) find(id uint64) (*growth.Stack, bool) {
	if found, ok := n.ids[id]; ok {
		return found.Stack, true
	}
	return nil, false
}

// use notes that a stack holds memory.
func (n *namedStacks) use(id uint64) {
	if found, ok := n.ids[id]; ok {
		found.used = n.snapshot
	}
}

// add gives an ID to a stack. It returns the stack that has these frames already, if there is one.
func (n *namedStacks) add(id uint64, s *growth.Stack) *growth.Stack {
	hash := n.hashFrames(s)
	of, ok := n.byFrames[hash]
	if !ok || of.Truncated != s.Truncated || !slices.Equal(of.Frames, s.Frames) {
		of = &namedStack{Stack: s, hash: hash}
		n.grow(n.count(s, 1))
		if !ok {
			n.byFrames[hash] = of
		}
	}

	of.ids++
	n.ids[id] = &namedID{of, n.snapshot}
	n.grow(idBytes)
	return of.Stack
}

// hashFrames is equal for stacks whose frames are. The seed keeps a process from making up others.
func (n *namedStacks) hashFrames(s *growth.Stack) uint64 {
	var h maphash.Hash
	h.SetSeed(n.seed)
	for _, f := range s.Frames {
		maphash.WriteComparable(&h, f)
	}
	_, _ = h.WriteString(s.Truncated) // never fails
	return h.Sum64()
}

// count adds a stack's uses of its texts (by 1) or drops them (by -1), and returns the bytes that the
// stack has taken or frees. Frames share the texts of their code object or symbol.
func (n *namedStacks) count(s *growth.Stack, by int) int {
	bytes := frameBytes * len(s.Frames)
	for i := range s.Frames {
		for _, text := range textsOf(&s.Frames[i]) {
			if text == "" {
				continue
			}
			first := unsafe.StringData(text)
			before := n.texts[first]
			n.texts[first] += by
			if min(before, before+by) > 0 { // others use it
				continue
			}
			bytes += len(text)
			if by < 0 {
				delete(n.texts, first)
			}
		}
	}
	return bytes
}

func (n *namedStacks) grow(bytes int) {
	n.bytes += bytes
	n.all.bytes.Add(int64(bytes))
}

// isOver reports whether the stacks take more than so many times their bounds.
func (n *namedStacks) isOver(times float64) bool {
	return float64(n.bytes) > times*maxNamedBytes ||
		float64(n.all.bytes.Load()) > times*maxAllNamedBytes
}

// isFull reports whether no more stacks may be named.
func (n *namedStacks) isFull() bool { return n.isOver(2) }

// forget forgets the stacks that have held nothing for longest, until a quarter of the bound is
// free, and returns its IDs. A new snapshot begins. A stack named since the snapshot before the
// last may yet be found to hold something.
func (n *namedStacks) forget() (ids []uint64) {
	const enough = 0.75
	n.snapshot++
	if !n.isOver(1) {
		return nil
	}

	for id, known := range n.ids {
		if known.used < n.snapshot-2 && id != UnobservedID {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(n.ids[a].used, n.ids[b].used), cmp.Compare(a, b))
	})

	forgotten := ids[:0]
	for _, id := range ids {
		if !n.isOver(enough) {
			break
		}
		if of := n.ids[id]; of.ID != id || of.ids == 1 {
			n.drop(id)
			forgotten = append(forgotten, id)
		}
	}
	return forgotten
}

func (n *namedStacks) drop(id uint64) {
	of := n.ids[id].namedStack
	delete(n.ids, id)
	n.grow(-idBytes)

	if of.ids--; of.ids > 0 {
		return
	}
	n.grow(-n.count(of.Stack, -1))
	n.forgotten++
	if n.byFrames[of.hash] == of {
		delete(n.byFrames, of.hash)
	}
}

// close gives the memory back to the other tables.
func (n *namedStacks) close() { n.grow(-n.bytes) }

func textsOf(f *growth.Frame) [2]string { return [...]string{f.Function, f.File} }
