// Package stack names the stacks that the BPF programs report: native frames by symbols, Python
// frames by code objects.
package stack

import (
	"sync"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
)

// A Key identifies a stack of a process.
type Key struct {
	TGID uint32
	ID   uint64
}

// IDs of stacks that the BPF programs never report. Theirs are hashes, which are one of these with
// a probability of 2^-63.
const (
	LostID       = 0
	UnobservedID = ^uint64(0)
)

// maxCheap bounds the stacks that are named though they hold nothing: 10 KiB each where frames are
// many.
const maxCheap = 500

// A Table has the stacks of one process. It names each once, when it is first asked for: most stacks
// of page faults and short-lived mappings never are. Its methods may be called by several goroutines.
type Table struct {
	Mu            sync.Mutex // guards the fields below
	Namer         *Namer
	lost          *growth.Stack
	named         namedStacks
	unnamed       unnamedStacks
	cheap         int // stacks that GetCheap has named
	failedLookups uint64
}

// NewTable returns a table that uses, and closes, the Namer. All tables share the memory,
// and the budget of own, which may be nil.
func NewTable(p *process.Process, namer *Namer, memory *Memory, own *duty.Budget) *Table {
	t := &Table{
		Namer: namer,
		lost: &growth.Stack{
			ID: LostID, PID: p.PID, Truncated: growth.TruncatedUnknown,
		},
		named:   newNamed(memory),
		unnamed: newUnnamed(own.Account(duty.Names)),
	}
	unobserved := []growth.Frame{{Function: growth.RootUnobserved}}
	t.named.add(UnobservedID, &growth.Stack{ID: UnobservedID, PID: p.PID, Frames: unobserved})
	return t
}

// SetMappings sets the mappings that stacks are named by from now on.
func (t *Table) SetMappings(maps []process.Mapping) {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	if t.Namer.setMappings(maps, t.unnamed.oldestGeneration()) {
		t.unnamed.generation = t.Namer.generation
		t.settle()
	}
}

// Files returns the paths of the files whose code the process has mapped, each once.
func (t *Table) Files() (files []string) {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	seen := make(map[string]bool) // a process may map very many
	for _, m := range t.Namer.maps {
		if m.IsFile() && !seen[m.Path] {
			seen[m.Path] = true
			files = append(files, m.Path)
		}
	}
	return files
}

// SetInterpreter sets how code objects are read.
func (t *Table) SetInterpreter(i *python.Interpreter) {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	t.Namer.Codes.interpreter = i
}

// AddCode keeps a code object. The BPF programs report it before the first stack with its frames.
func (t *Table) AddCode(code *CodeRecord) {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	if t.Namer.Codes.isFull() { // the next one replaces those that unnamed stacks may have
		t.settleAll()
	}
	t.Namer.Codes.add(code)
}

// Add adds a stack. It does nothing if the table has the stack already.
func (t *Table) Add(raw Raw) {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	if raw.ID == LostID || t.named.has(raw.ID) {
		return
	}
	raw.check = t.Namer.generated.Check(t.Namer.maps)
	t.unnamed.add(raw, t.Namer.maps)
	t.settle()
}

// find returns the stack with an ID, which it names if it has no name yet and there is room.
func (t *Table) find(id uint64) (*growth.Stack, bool) {
	if s, ok := t.named.find(id); ok {
		return s, true
	}
	if t.named.isFull() {
		return nil, false
	}
	if u, ok := t.unnamed.take(id); ok {
		return t.name(u), true
	}
	return nil, false
}

// name names a stack, and charges the cost.
func (t *Table) name(u unnamedStack) (s *growth.Stack) {
	t.Namer.generated.Check(u.maps)
	t.unnamed.limit.Spend(process.MeasureCPUTime(func() {
		s = t.named.add(u.raw.ID, t.Namer.stack(u.raw, u.maps))
	}))
	return s
}

// settle names the oldest stacks until the rest may wait.
func (t *Table) settle() {
	for t.unnamed.exceed() {
		t.settleOldest()
	}
}

func (t *Table) settleAll() {
	for len(t.unnamed.stacks) > 0 {
		t.settleOldest()
	}
}

// settleOldest names the oldest stack, or gives it up where naming takes too much CPU time or memory.
func (t *Table) settleOldest() {
	u, ok := t.unnamed.oldest()
	switch {
	case !ok:
	case t.unnamed.limit.Allowed(time.Now()) && !t.named.isFull():
		t.name(u)
	default:
		t.unnamed.givenUp = append(t.unnamed.givenUp, u.raw.ID)
	}
}

// TakeGivenUp returns the stacks that have been given up since its last call. The BPF programs have
// to report them again.
func (t *Table) TakeGivenUp() []uint64 {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	ids := t.unnamed.givenUp
	t.unnamed.givenUp = nil
	return ids
}

// Find returns the stack with an ID; false: the table has none.
func (t *Table) Find(id uint64) (*growth.Stack, bool) {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	return t.find(id)
}

// Get returns the stack with an ID, which holds memory. If the table has no such stack, Get returns
// one without frames and counts it as lost.
func (t *Table) Get(id uint64) *growth.Stack {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	t.named.use(id)
	return t.get(id)
}

// GetUnheld is Get for a stack that may hold nothing. Forget may forget it.
func (t *Table) GetUnheld(id uint64) *growth.Stack {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	return t.get(id)
}

func (t *Table) get(id uint64) *growth.Stack {
	if id == LostID {
		return t.lost
	}
	if s, ok := t.find(id); ok {
		return s
	}
	t.failedLookups++
	return t.lost
}

// GetCheap is Get for a stack that holds nothing. It names maxCheap of them, within the CPU time of
// naming. For others it returns the stack of those that are lost, and counts nothing: the caller
// asks again.
func (t *Table) GetCheap(id uint64) *growth.Stack {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	if _, isUnnamed := t.unnamed.stacks[id]; isUnnamed {
		if t.cheap >= maxCheap || !t.unnamed.limit.Allowed(time.Now()) {
			return t.lost
		}
		t.cheap++
	}
	if s, ok := t.find(id); ok {
		return s
	}
	return t.lost
}

// Lost returns how many times Get did not find a stack.
func (t *Table) Lost() uint64 {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	return t.failedLookups
}

// Forget forgets named stacks that have held nothing since the snapshot before the last, if the names
// take too much memory: those first that have held nothing for longest. It is called after each
// snapshot, and returns the IDs of those that it forgets. The BPF programs have to report them again.
func (t *Table) Forget() (ids []uint64) {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	ids = t.named.forget()
	t.unnamed.givenUp = append(t.unnamed.givenUp, ids...)
	return ids
}

// Forgotten returns how many stacks Forget has forgotten.
func (t *Table) Forgotten() uint64 {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	return t.named.forgotten
}

// Close closes the files of the Namer.
func (t *Table) Close() error {
	t.Mu.Lock()
	defer t.Mu.Unlock()

	t.named.close()
	return t.Namer.close()
}

// Reported are the stacks of all processes that the BPF programs have reported, and report no more.
// It is used by one goroutine.
type Reported struct {
	Kernel *kernel.Kernel
	// processes are the processes of the stacks, by ID.
	processes map[uint64]uint32
}

// Forget has the BPF programs report stacks of a process again.
func (r *Reported) Forget(tgid uint32, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	gone := make(map[uint64]uint32)
	for _, id := range ids {
		gone[id] = tgid
	}
	_ = r.Kernel.ForgetStacks(gone) // fails if their process was detached
}

// Add adds a stack of a process. When the map is half full Add clears it: the BPF programs report all
// stacks again, but none is lost.
func (r *Reported) Add(tgid uint32, id uint64) {
	if r.processes == nil {
		r.processes = make(map[uint64]uint32)
	}
	r.processes[id] = tgid
	if len(r.processes) < int(r.Kernel.ReportedStacks.MaxEntries()/2) {
		return
	}

	_ = r.Kernel.ForgetStacks(r.processes)
	clear(r.processes)
}
