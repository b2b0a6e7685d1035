package tracer

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
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
	mu       sync.Mutex
	namer    *namer
	stacks   map[uint64]*growth.Stack // by the kernel's ID; several IDs may share a stack
	byFrames map[string]*growth.Stack // the same by what they look like
	refused  uint64                   // lookups of stacks that are not to be had
}

func newStackTable(p *process.Process, namer *namer) *stackTable {
	return &stackTable{
		namer:    namer,
		byFrames: make(map[string]*growth.Stack),
		stacks: map[uint64]*growth.Stack{
			notKept: {ID: notKept, PID: p.PID, Truncated: "not told, or too many different ones"},
			unseen:  {ID: unseen, PID: p.PID, Frames: []growth.Frame{{Function: rootUnseen}}},
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
	t.refused++
	return t.stacks[notKept]
}

// announced names a stack that the kernel side tells, for the first time or again.
func (t *stackTable) announced(raw rawStack) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.name(raw)
}

// told keeps a code object that a stack to come leads through.
func (t *stackTable) told(code *codeRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.namer.codes.told(code)
}

func (t *stackTable) name(raw rawStack) {
	if _, ok := t.stacks[raw.id]; ok || len(t.stacks) >= mostStacks {
		return
	}
	s := t.namer.stack(raw)
	key := framesKey(s)
	if same, ok := t.byFrames[key]; ok {
		s = same
	}
	t.byFrames[key], t.stacks[raw.id] = s, s
}

// toldStacks are those that the kernel side remembers to have told, of all processes. Only the reader of notices uses it.
type toldStacks struct {
	seen *ebpf.Map // where it remembers them
	ids  []uint64
}

// add makes the kernel side forget which it has told before its map gets full.
func (s *toldStacks) add(id uint64) {
	s.ids = append(s.ids, id)
	if len(s.ids) < int(s.seen.MaxEntries()/2) {
		return
	}
	for _, id := range s.ids {
		_ = s.seen.Delete(id) // it may have gone with its process
	}
	s.ids = s.ids[:0]
}

// lost counts the lookups of stacks that are not to be had.
func (t *stackTable) lost() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

// framesKey is the same for stacks that look the same.
func framesKey(s *growth.Stack) string {
	key := make([]byte, 0, 16*len(s.Frames)+len(s.Truncated))
	for _, f := range s.Frames {
		key = binary.NativeEndian.AppendUint64(key, f.Address)
		if f.Python {
			key = fmt.Appendf(key, "%s\x00%s\x00%d\x00%d\x00", f.Function, f.File, f.StartLine, f.Line)
		}
	}
	return string(append(key, s.Truncated...))
}

// take makes the namer know these maps.
func (t *stackTable) take(maps []process.Mapping) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.namer.take(maps)
}

// setInterpreter makes the namer know how to read code objects.
func (t *stackTable) setInterpreter(i *python.Interpreter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.namer.codes.interpreter = i
}

func (t *stackTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.namer.close()
}
