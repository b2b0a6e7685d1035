package tracer

import (
	"fmt"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/stack"
)

// tallies are the counts of allocations by stack and size class: the kernel's, and the targets'
// that have been taken out of it. The caller of each method holds probing.mu.
type tallies struct {
	kernel       *kernel.Kernel
	targets      *targetSet
	events       *eventReader
	tensorsAlone bool // as in probing
}

// read sums the allocations since tracing started by stack. If isBurst, the factor of their counts
// is known at the end of the burst, when CloseHeap empties the map. Else read empties it before it
// is full.
func (t *tallies) read(
	sums map[stack.Key]*estimate.StackTotals, onGPUs *gpu.Totals, isBurst bool,
) error {
	inKernel := t.kernel.Tallies
	entries := 0
	err := kernel.ReadMap(inKernel, func(key *bpf.TallyKey, tally *bpf.Tally) {
		entries++
		onGPUs.ForTally(sums, key).AddTally(key, tally, 1)
	})
	if err != nil {
		return fmt.Errorf("read tallies: %w", err)
	}

	for _, of := range t.targets.list() {
		for id, folded := range of.folded {
			key := stack.Key{TGID: uint32(of.process.PID), ID: id}
			estimate.TotalsOf(sums, key).AddAllocated(folded)
		}
		for key, folded := range of.foldedGPU {
			estimate.TotalsOf(onGPUs.ByStack, key).AddAllocated(folded)
		}
	}

	if entries > int(inKernel.MaxEntries()/2) && !isBurst {
		return t.fold(func(uint32) float64 { return 1 })
	}
	return nil
}

// fold moves the kernel's tallies to user space: before the map is full, and at the end of
// a burst, whose counts are multiplied by the factor of the process. Counts that are added to an
// entry while it is being removed are lost.
func (t *tallies) fold(factor func(tgid uint32) float64) error {
	onHost, onGPUs := make(map[stack.Key]*estimate.StackTotals), gpu.NewTotals()
	totalsOf := func(key *bpf.TallyKey) *estimate.StackTotals {
		return onGPUs.ForTally(onHost, key)
	}
	factorOf := func(key *bpf.TallyKey) float64 {
		if !estimate.IsSampledInBursts(key.Kind, t.tensorsAlone) {
			return 1
		}
		return factor(key.Tgid)
	}
	err := estimate.TakeTallies(t.kernel.Tallies, totalsOf, factorOf)

	t.events.Flush() // so that each stack of the tallies has been reported
	t.addFolded(onHost, onGPUs)
	return err
}

// foldBlocks is fold for blocks on GPUs alone, while none are sampled.
func (t *tallies) foldBlocks(factor float64) error {
	onGPUs := gpu.NewTotals()
	err := kernel.DeleteWhere(t.kernel.Tallies, func(key *bpf.TallyKey, tally *bpf.Tally) bool {
		if key.Kind != bpf.KindBlock {
			return false
		}
		onGPUs.ForTally(nil, key).AddTally(key, tally, factor)
		return true
	})
	t.events.Flush()
	t.addFolded(nil, onGPUs)
	if err != nil {
		return fmt.Errorf("fold tallies of blocks: %w", err)
	}
	return nil
}

// addFolded adds tallies that were taken out of the kernel to the targets'.
func (t *tallies) addFolded(onHost map[stack.Key]*estimate.StackTotals, onGPUs *gpu.Totals) {
	for key, sum := range onHost {
		if of := t.targets.find(key.TGID); of != nil {
			estimate.TotalsOf(of.folded, of.stacks.GetUnheld(key.ID).ID).AddAllocated(sum)
		}
	}
	for key, sum := range onGPUs.ByStack {
		if of := t.targets.find(key.TGID); of != nil {
			key.ID = of.stacks.GetUnheld(key.ID).ID
			estimate.TotalsOf(of.foldedGPU, key).AddAllocated(sum)
		}
	}
}

// forgetStacks bounds the memory of the targets' stacks after a snapshot. The bytes that the
// forgotten ones have allocated are added to the stack of lost stacks.
func (t *tallies) forgetStacks() {
	forgotten := make(map[uint64]bool)
	for _, of := range t.targets.list() {
		for _, id := range of.stacks.Forget() {
			moveTotals(of.folded, id, stack.LostID)
			forgotten[id] = true
		}
		for key := range of.foldedGPU {
			if lost := key; forgotten[key.ID] {
				lost.ID = stack.LostID
				moveTotals(of.foldedGPU, key, lost)
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
