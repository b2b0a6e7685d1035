package tracer

import (
	"encoding/binary"
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

// mostStacks bounds what a process can make us remember: some 100 bytes each, more for those that look different.
const mostStacks = 1 << 20

// stackTable names each stack once, the moment it is first seen.
type stackTable struct {
	kernel *ebpf.Map // stack ID -> program counters

	mu     sync.Mutex
	namer  *namer
	stacks map[uint64]*growth.Stack // by the kernel's ID; several IDs may share a stack
	// The same by frames: below the last frame that can be trusted the kernel side may have found anything, and hashed it.
	byFrames map[string]*growth.Stack
	// IDs that were announced and not taken out of the kernel's map since.
	inKernel []uint64
	refused  uint64 // lookups of stacks that are not to be had
}

func newStackTable(p *process.Process, kernel *ebpf.Map) *stackTable {
	return &stackTable{
		kernel:   kernel,
		namer:    newNamer(p),
		byFrames: make(map[string]*growth.Stack),
		stacks: map[uint64]*growth.Stack{
			notKept: {ID: notKept, PID: p.PID, Truncated: "too many different ones"},
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
	if len(t.stacks) >= mostStacks || t.kernel.Lookup(id, &raw) != nil {
		t.refused++
		return t.stacks[notKept]
	}
	s := t.namer.stack(raw.Frames[:min(int(raw.Length), len(raw.Frames))])
	s.ID = id
	key := framesKey(s)
	if same, ok := t.byFrames[key]; ok {
		s = same
	}
	t.byFrames[key], t.stacks[id] = s, s
	return s
}

// announced reads a stack that has just come into the kernel's map, for the first time or again, and empties that map of
// what has been read before it gets full.
func (t *stackTable) announced(id uint64) {
	t.get(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inKernel = append(t.inKernel, id)
	if len(t.inKernel) < int(t.kernel.MaxEntries()/2) {
		return
	}
	for _, id := range t.inKernel {
		_ = t.kernel.Delete(id) // one that cannot be deleted stays
	}
	t.inKernel = t.inKernel[:0]
}

// lost counts the lookups of stacks that are not to be had.
func (t *stackTable) lost() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

// framesKey is the same for stacks that look the same.
func framesKey(s *growth.Stack) string {
	key := make([]byte, 0, 8*len(s.Frames)+len(s.Truncated))
	for _, f := range s.Frames {
		key = binary.NativeEndian.AppendUint64(key, f.Address)
	}
	return string(append(key, s.Truncated...))
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
