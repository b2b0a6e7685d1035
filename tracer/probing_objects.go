package tracer

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/stack"
)

// CheckLiveness checks the tracked objects from outside if that is due, and deletes those that have
// died. It does so while the probes are closed: nothing is added to the live map meanwhile.
func (p *probing) CheckLiveness() {
	p.mu.Lock()
	byProcess := p.tracker.Due(time.Now(), p.schedule.IsOpen())
	p.mu.Unlock()
	if byProcess == nil {
		return
	}

	p.tracker.SpendOnCheck(process.MeasureCPUTime(func() {
		for tgid, objects := range byProcess {
			p.checkObjects(tgid, objects)
		}
	}))
}

// checkObjects checks the objects of a process if it still executes the traced program.
func (p *probing) checkObjects(tgid uint32, objects []heap.Object) {
	p.reading.Lock()
	defer p.reading.Unlock()

	t := p.targets.find(tgid)
	if t == nil || !t.isAlive() {
		return
	}

	checked, err := p.allocatorOf(t).CheckObjects(t.process, objects)
	if err != nil || t.check() != nil {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if p.targets.find(tgid) == t {
		// If the share is not updated, the process has less room than it may have.
		_ = p.kernel.DeleteObjects(p.kernel.Live, p.tracker.Apply(tgid, checked))
	}
}

// allocatorOf finds the allocator of a target, once.
func (p *probing) allocatorOf(t *target) liveness.ProcessAllocator {
	pid := uint32(t.process.PID)
	p.mu.Lock()
	known, ok := p.tracker.Allocators[pid]
	p.mu.Unlock()
	if ok {
		return known
	}

	found := liveness.AllocatorOf(t.process)
	p.mu.Lock()
	defer p.mu.Unlock()

	if t.check() == nil && p.targets.find(pid) == t { // else it may be another program's
		p.tracker.Allocators[pid] = found
	}
	return found
}

// inspectNew reads the contents of the objects that were allocated in a burst, as far as it can.
func (p *probing) inspectNew(burst estimate.ProbePeriod) {
	for tgid, objects := range p.tracker.NewSince(burst.From) {
		t := p.targets.find(tgid)
		if t != nil && t.isAlive() {
			_ = p.tracker.InspectNew(t.process, tgid, objects) // they are checked without
		}
	}
}

// handOverTensors tracks the tensors that are alive as objects of the heap, because their frees are
// not seen any more.
func (p *probing) handOverTensors() error {
	now := kernel.Monotonic()
	return p.moveObjects(p.kernel.Tensors, p.kernel.Live, func(key bpf.Address, a *bpf.Allocation) {
		p.tracker.Adopt(key, a, now)
	})
}

// moveObjects moves the objects of one of the kernel's maps to another, and counts those that are
// lost.
func (p *probing) moveObjects(
	from, to *ebpf.Map, moved func(bpf.Address, *bpf.Allocation),
) error {
	lost, err := p.kernel.MoveObjects(from, to, moved)
	p.untracked += uint64(lost)
	return err
}

// readTallies sums the allocations since tracing started by stack. The caller holds mu.
func (p *probing) readTallies(
	sums map[stack.Key]*estimate.StackTotals, onGPUs *gpu.Totals,
) error {
	tallies := p.kernel.Tallies
	entries := 0
	err := kernel.ReadMap(tallies, func(key *bpf.TallyKey, t *bpf.Tally) {
		entries++
		onGPUs.ForTally(sums, key).AddTally(key, t, 1)
	})
	if err != nil {
		return fmt.Errorf("read tallies: %w", err)
	}

	for _, t := range p.targets.list() {
		for id, folded := range t.folded {
			key := stack.Key{TGID: uint32(t.process.PID), ID: id}
			estimate.TotalsOf(sums, key).AddAllocated(folded)
		}
		for key, folded := range t.foldedGPU {
			estimate.TotalsOf(onGPUs.ByStack, key).AddAllocated(folded)
		}
	}

	// The factor of a burst is known at its end, when CloseHeap empties the map.
	if entries > int(tallies.MaxEntries()/2) && !p.schedule.InBurst() {
		return p.foldTallies(func(uint32) float64 { return 1 })
	}
	return nil
}

// foldTallies moves the kernel's tallies to user space: before the map is full, and at the end of
// a burst, whose counts are multiplied by the factor of the process. Counts that are added to an
// entry while it is being removed are lost. The caller holds mu.
func (p *probing) foldTallies(factor func(tgid uint32) float64) error {
	onHost, onGPUs := make(map[stack.Key]*estimate.StackTotals), gpu.NewTotals()
	totalsOf := func(key *bpf.TallyKey) *estimate.StackTotals {
		return onGPUs.ForTally(onHost, key)
	}
	factorOf := func(key *bpf.TallyKey) float64 {
		if !estimate.IsSampledInBursts(key.Kind, p.tensorsAlone) {
			return 1
		}
		return factor(key.Tgid)
	}
	err := estimate.TakeTallies(p.kernel.Tallies, totalsOf, factorOf)

	p.events.Flush() // so that each stack of the tallies has been reported
	for key, sum := range onHost {
		if t := p.targets.find(key.TGID); t != nil {
			estimate.TotalsOf(t.folded, t.stacks.GetUnheld(key.ID).ID).AddAllocated(sum)
		}
	}
	for key, sum := range onGPUs.ByStack {
		if t := p.targets.find(key.TGID); t != nil {
			key.ID = t.stacks.GetUnheld(key.ID).ID
			estimate.TotalsOf(t.foldedGPU, key).AddAllocated(sum)
		}
	}
	return err
}

// forgetStacks bounds the memory of the targets' stacks after a snapshot. The bytes that the
// forgotten ones have allocated are added to the stack of lost stacks.
func (p *probing) forgetStacks() {
	p.mu.Lock()
	defer p.mu.Unlock()

	forgotten := make(map[uint64]bool)
	for _, t := range p.targets.list() {
		for _, id := range t.stacks.Forget() {
			moveTotals(t.folded, id, stack.LostID)
			forgotten[id] = true
		}
		for key := range t.foldedGPU {
			if lost := key; forgotten[key.ID] {
				lost.ID = stack.LostID
				moveTotals(t.foldedGPU, key, lost)
			}
		}
		clear(forgotten)
	}
}

// moveTotals adds the totals of a key to another.
func moveTotals[K comparable](totals map[K]*estimate.StackTotals, from, to K) {
	if sum, ok := totals[from]; ok {
		delete(totals, from)
		estimate.TotalsOf(totals, to).AddAllocated(sum)
	}
}
