package tracer

import (
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/process"
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

	maps, err := t.process.Maps()
	if err != nil {
		return
	}
	checked, err := p.allocatorOf(t, maps).CheckObjects(t.process, maps, objects)
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

// allocatorOf finds the allocator of a target, once for each set of libraries.
func (p *probing) allocatorOf(t *target, maps []process.Mapping) liveness.ProcessAllocator {
	pid := uint32(t.process.PID)
	p.mu.Lock()
	found := p.tracker.Allocators[pid]
	p.mu.Unlock()

	found = found.Renewed(t.process, maps)
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

// moveObjects moves the objects of one of the kernel's maps to another, and counts those that are
// lost.
func (p *probing) moveObjects(
	from, to *ebpf.Map, moved func(bpf.Address, *bpf.Allocation),
) error {
	lost, err := p.kernel.MoveObjects(from, to, moved)
	p.untracked += uint64(lost)
	return err
}
