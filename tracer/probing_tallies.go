package tracer

import (
	"fmt"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/estimate"
	nvml "github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/stack"
)

// readTallies sums by stack what has been allocated since the attach.
func (w *probing) readTallies(sums map[stack.Key]*estimate.StackTotals, devices *nvml.Totals) error {
	tallies := w.kernel.Tallies
	entries := 0
	err := kernel.ReadMap(tallies, func(key *bpf.TallyKey, t *bpf.Tally) {
		entries++
		devices.ForTally(sums, key).AddTally(key, t, 1)
	})
	if err != nil {
		return fmt.Errorf("read tallies: %w", err)
	}
	for _, t := range w.targets.list() {
		for id, folded := range t.folded {
			estimate.TotalsOf(sums, stack.Key{uint32(t.process.PID), id}).AddAllocated(folded)
		}
		for of, folded := range t.foldedDevices {
			estimate.TotalsOf(devices.ByStack, of).AddAllocated(folded)
		}
	}
	if entries > int(tallies.MaxEntries()/2) && !w.schedule.InBurst() { // what its counts stand for is known at its end
		return w.foldTallies(func(uint32) float64 { return 1 })
	}
	return nil
}

// foldTallies empties the kernel's tallies into user space: before they are full, and at the end of a window, of which what has been
// counted stands for so much more, by process. What is added to an entry in the moment of its removal is lost.
func (w *probing) foldTallies(factor func(tgid uint32) float64) error {
	taken, devices := make(map[stack.Key]*estimate.StackTotals), nvml.NewTotals()
	err := estimate.TakeTallies(w.kernel.Tallies, func(key *bpf.TallyKey) *estimate.StackTotals { return devices.ForTally(taken, key) }, func(key *bpf.TallyKey) float64 {
		if !estimate.IsSampledInBursts(key.Kind, w.tensorsAlone) {
			return 1
		}
		return factor(key.Tgid)
	})
	w.events.flush() // and with it every stack that the above may name
	for from, sum := range taken {
		if t := w.targets.find(from.TGID); t != nil {
			estimate.TotalsOf(t.folded, t.stacks.Get(from.ID).ID).AddAllocated(sum)
		}
	}
	for of, sum := range devices.ByStack {
		if t := w.targets.find(of.TGID); t != nil {
			of.ID = t.stacks.Get(of.ID).ID
			estimate.TotalsOf(t.foldedDevices, of).AddAllocated(sum)
		}
	}
	return err
}
