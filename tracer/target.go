package tracer

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/allocscope/allocscope/tracer/torch/caching"
)

// A target is a traced process with its sources.
type target struct {
	process  *process.Process
	kernel   *kernel.Kernel
	sources  *source.Libraries
	stacks   *stack.Table
	unwinder *stack.Unwinder
	space    *addrspace.IntervalSet
	breaks   addrspace.Breaks
	pages    *residency.Tracker // nil: the page map cannot be read, for the reason pagesErr
	pagesErr error

	fromStart   bool          // it is traced from its first allocation on
	from        time.Duration // between the start of the trace and the start of this target
	tracedSince uint64        // the same moment, ns, CLOCK_MONOTONIC; probing.mu guards it
	vanished    int64         // bytes of the mappings that were gone without a call
	// folded are the tallies that foldTallies has taken out of the kernel, by stack; foldedGPU are
	// the tallies of GPU memory.
	folded    map[uint64]*estimate.StackTotals
	foldedGPU map[gpu.Key]*estimate.StackTotals
	// cacheReader reads PyTorch's caching allocator of GPU memory; listing is held meanwhile.
	cacheReader caching.Reader
	listing     sync.Mutex
	cacheLists  int                    // that it has read
	listed      map[uint64]listedBlock // of the latest, by address; of all GPUs, which share no addresses
	// tensorsOnGPUs are the tensors of the newest census, by the address of their storage; nil: there
	// was none.
	tensorsOnGPUs atomic.Pointer[map[uint64]*growth.GPUTensor]

	tid     int            // the thread by which the kernel knows the process, for its probes
	image   process.Image  // the program when it was first read
	parent  int            // the parent's PID then
	stop    chan struct{}  // closed to stop the target's goroutines
	watcher sync.WaitGroup // awaitExit, end where the process lives on, and samples of GPU totals

	outOfMemory atomic.Bool // the kernel has killed the process for want of memory

	mu     sync.Mutex // guards ending, and is held while stop is closed
	ending error      // the reason of the end; nil: the target is traced
}

// check returns an error if the process has exited or executed another program since prepare.
// Later changes are noticed by the BPF programs.
func (t *target) check() error {
	stat, err := t.process.Stat()
	if err != nil || t.process.IsExiting() {
		return exitedError(t.process)
	}
	if stat.Image != t.image {
		return fmt.Errorf("pid %d: %w meanwhile", t.process.PID, process.ErrExecuted)
	}
	return nil
}

// err returns the reason why the target has ended: ErrExited, process.ErrExecuted or
// errAllocatorNotLoaded; nil: it has not.
func (t *target) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ending
}

// isAlive reports whether the process is alive and, as far as is known, still executes the traced
// program.
func (t *target) isAlive() bool { return t.err() == nil && t.process.Alive() }

// reattach attaches the probes again. The BPF programs forget the calls whose return they have missed
// meanwhile.
func (t *target) reattach(p *probing) {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()

	t.sources.Reattach()
	if p.schedule.IsOpen() {
		_ = p.nextEpoch() // else their returns count for the calls that come next
	}
}

// noticeExecution ends the target if the BPF programs have seen an execve. Its event may still be
// in the ring buffer, or lost.
func (t *target) noticeExecution() {
	var state bpf.TargetState
	err := t.kernel.Targets.Lookup(uint32(t.process.PID), &state)
	if err == nil && state == bpf.TargetGone && t.process.Alive() {
		t.end(process.ErrExecuted)
	}
}

// A targetSet is the targets of a session in the order in which they were attached to. Its methods
// may be called concurrently.
type targetSet struct {
	mu      sync.Mutex
	targets []*target
}

// find returns the target with a PID, or nil.
func (s *targetSet) find(pid uint32) *target {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, t := range s.targets {
		if uint32(t.process.PID) == pid {
			return t
		}
	}
	return nil
}

// traced returns the target that traces a process; nil: there is none, or it has ended.
func (s *targetSet) traced(pid int) *target {
	if t := s.find(uint32(pid)); t != nil && t.err() == nil {
		return t
	}
	return nil
}

// list returns a copy.
func (s *targetSet) list() []*target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.targets)
}

func (s *targetSet) insert(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = append(s.targets, t)
}

func (s *targetSet) drop(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = slices.DeleteFunc(s.targets, func(other *target) bool { return other == t })
}

// sweep removes the breakpoints that other processes have inherited from the targets by fork(2).
func (s *targetSet) sweep() {
	var calls []func() error
	for _, t := range s.list() {
		calls = append(calls, t.sources.Sweep)
	}
	_ = source.InParallel(calls) // the rest costs the processes time until the probes are detached
}
