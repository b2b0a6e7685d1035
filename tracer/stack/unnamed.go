package stack

import (
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	// maxUnnamedBytes bounds the memory of the unnamed stacks of a process.
	maxUnnamedBytes = 8 << 20
	// maxGenerations bounds how many states of the mappings unnamed stacks keep, 40 KiB each beside
	// PyTorch. A program that compiles maps code once a second: a snapshot should come first, or
	// stacks are named that nothing asks for.
	maxGenerations = 64
)

// unnamedStacks are the stacks of one process that nothing has asked for yet, in the order in which
// they were reported. The data that name them later are kept: the mappings of then, whose files
// stay open, and the code objects. Code objects themselves are read at once.
type unnamedStacks struct {
	stacks     map[uint64]unnamedStack
	order      []uint64 // IDs; some may have been taken
	bytes      int
	generation int // of the mappings
	limit      duty.Account
	givenUp    []uint64 // IDs
}

type unnamedStack struct {
	raw        Raw
	maps       []process.Mapping // executable ones
	generation int               // of maps
}

func newUnnamed(limit duty.Account) unnamedStacks {
	return unnamedStacks{stacks: make(map[uint64]unnamedStack), limit: limit}
}

// size is the memory that a stack takes here, in bytes.
func (u unnamedStack) size() int { return 8*len(u.raw.words) + 256 }

func (n *unnamedStacks) add(raw Raw, maps []process.Mapping) {
	if _, ok := n.stacks[raw.ID]; ok {
		return
	}
	u := unnamedStack{raw, maps, n.generation}
	n.stacks[raw.ID] = u
	n.order = append(n.order, raw.ID)
	n.bytes += u.size()
}

// take removes a stack.
func (n *unnamedStacks) take(id uint64) (unnamedStack, bool) {
	u, ok := n.stacks[id]
	if ok {
		delete(n.stacks, id)
		n.bytes -= u.size()
	}
	return u, ok
}

// oldest removes the stack that was reported first; false: there is none.
func (n *unnamedStacks) oldest() (unnamedStack, bool) {
	for len(n.order) > 0 {
		id := n.order[0]
		n.order = n.order[1:]
		if u, ok := n.take(id); ok {
			return u, true
		}
	}
	return unnamedStack{}, false
}

// oldestGeneration is the first generation of the mappings that a stack needs.
func (n *unnamedStacks) oldestGeneration() int {
	for len(n.order) > 0 {
		if u, ok := n.stacks[n.order[0]]; ok {
			return u.generation
		}
		n.order = n.order[1:]
	}
	return n.generation
}

// exceed reports whether the oldest stack can wait no longer.
func (n *unnamedStacks) exceed() bool {
	for len(n.order) > 0 {
		u, ok := n.stacks[n.order[0]]
		if ok {
			return n.bytes > maxUnnamedBytes || u.generation <= n.generation-maxGenerations
		}
		n.order = n.order[1:]
	}
	return false
}
