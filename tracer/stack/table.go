package stack

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
	"github.com/cilium/ebpf"
)

const UnobservedRoot = "[mapped without a system call being seen]"

// origin is a stack of a process.
type Key struct {
	TGID uint32
	ID   uint64
}

// IDs of stacks that the kernel side never gives: it gives hashes, of which these are as unlikely as any other.
const (
	lostID       = 0
	UnobservedID = ^uint64(0)
)

// mostStacks bounds what a process can make us remember: some 100 bytes each, more for those that look different.
const mostStacks = 1 << 20

// Table names each stack once, the moment it is first seen.
type Table struct {
	Mu            sync.Mutex
	Namer         *Namer
	stacks        map[uint64]*growth.Stack // by the kernel's ID; several IDs may share a stack
	byFrames      map[string]*growth.Stack // the same by what they look like
	lookupsFailed uint64                   // lookups of stacks that are not to be had
}

func NewTable(p *process.Process, namer *Namer) *Table {
	return &Table{
		Namer:    namer,
		byFrames: make(map[string]*growth.Stack),
		stacks: map[uint64]*growth.Stack{
			lostID:       {ID: lostID, PID: p.PID, Truncated: "not told, or too many different ones"},
			UnobservedID: {ID: UnobservedID, PID: p.PID, Frames: []growth.Frame{{Function: UnobservedRoot}}},
		},
	}
}

// get gives the stack with that ID.
func (t *Table) Get(id uint64) *growth.Stack {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if s, ok := t.stacks[id]; ok {
		return s
	}
	t.lookupsFailed++
	return t.stacks[lostID]
}

// announced names a stack that the kernel side tells, for the first time or again.
func (t *Table) Add(raw Raw) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.name(raw)
}

// told keeps a code object that a stack to come leads through.
func (t *Table) AddCode(code *CodeRecord) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.Namer.Codes.add(code)
}

func (t *Table) name(raw Raw) {
	if _, ok := t.stacks[raw.ID]; ok || len(t.stacks) >= mostStacks {
		return
	}
	s := t.Namer.stack(raw)
	key := framesKey(s)
	if same, ok := t.byFrames[key]; ok {
		s = same
	}
	t.byFrames[key], t.stacks[raw.ID] = s, s
}

// Reported are those that the kernel side remembers to have told, of all processes. Only the reader of notices uses it.
type Reported struct {
	Seen *ebpf.Map // where it remembers them
	ids  []uint64
}

// add makes the kernel side forget which it has told before its map gets full.
func (s *Reported) Add(id uint64) {
	s.ids = append(s.ids, id)
	if len(s.ids) < int(s.Seen.MaxEntries()/2) {
		return
	}
	for _, id := range s.ids {
		_ = s.Seen.Delete(id) // it may have gone with its process
	}
	s.ids = s.ids[:0]
}

// lost counts the lookups of stacks that are not to be had.
func (t *Table) Lost() uint64 {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	return t.lookupsFailed
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
func (t *Table) SetMappings(maps []process.Mapping) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.Namer.setMappings(maps)
}

// setInterpreter makes the namer know how to read code objects.
func (t *Table) SetInterpreter(i *python.Interpreter) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.Namer.Codes.interpreter = i
}

func (t *Table) Close() error {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	return t.Namer.close()
}
