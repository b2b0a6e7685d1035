package tracer

import (
	"sync"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// IDs of stacks that the kernel side never gives: it gives hashes, of which these are as unlikely as any other.
const (
	notKept = 0
	unseen  = ^uint64(0)
)

// stackTable names each stack once, the moment it is first seen.
type stackTable struct {
	frames *ebpf.Map // stack ID -> program counters

	mu     sync.Mutex
	namer  *namer
	stacks map[uint64]*growth.Stack
}

func newStackTable(p *process.Process, frames *ebpf.Map) *stackTable {
	return &stackTable{
		frames: frames,
		namer:  newNamer(p),
		stacks: map[uint64]*growth.Stack{
			notKept: {ID: notKept, PID: p.PID, Truncated: "stack not kept: the stack map was full"},
			unseen:  {ID: unseen, PID: p.PID, Frames: []growth.Frame{{Function: "[mapped without a system call being seen]"}}},
		},
	}
}

// get gives the stack with that ID.
func (t *stackTable) get(id uint64) *growth.Stack {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.stacks[id]; ok {
		return s
	}
	var raw bpf.KernelStack
	if err := t.frames.Lookup(id, &raw); err != nil {
		return t.stacks[notKept]
	}
	s := t.namer.stack(raw.Frames[:min(int(raw.Length), len(raw.Frames))])
	s.ID = id
	t.stacks[id] = s
	return s
}

// invalidateMaps makes the next address that is not known look at the memory map again.
func (t *stackTable) invalidateMaps() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.namer.stale = true
}

func (t *stackTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.namer.close()
}
