package kernel

import (
	"maps"
	"slices"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
)

// lossCounters are the kinds that the BPF programs count.
var lossCounters = []struct {
	kind    growth.LossKind
	counter bpf.Counter
}{
	{growth.LossLiveFull, bpf.DropLiveFull},
	{growth.LossFaultsFull, bpf.DropFaultsFull},
	{growth.LossTallyFull, bpf.DropTallyFull},
	{growth.LossEvents, bpf.DropEvents},
	{growth.LossThreadState, bpf.DropThreadState},
	{growth.LossNoMemory, bpf.DropNoMemory},
	{growth.LossOutPointer, bpf.DropOutPointer},
	{growth.LossMissedReturn, bpf.DropMissedReturn},
	{growth.LossMissedFree, bpf.DropMissedFree},
	{growth.LossGPUFull, bpf.DropGpuFull},
	{growth.LossMappingStacks, bpf.DropMappingWalks},
	{growth.LossSiteStacks, bpf.CountSiteStacks},
}

// Losses returns the losses among the values of the BPF programs' counters: the losses of the
// processes that have a share of the tables, by PID, and the rest.
func (k *Kernel) Losses(values []uint64) (lost growth.Losses) {
	of := k.lostByUser()
	for _, l := range lossCounters {
		rest := values[l.counter]
		for _, pid := range slices.Sorted(maps.Keys(of)) {
			if l.counter < bpf.FirstDrop {
				break
			}
			count, bytes := min(rest, of[pid].Lost[l.counter-bpf.FirstDrop]), uint64(0)
			if l.counter == bpf.DropLiveFull {
				bytes = of[pid].LostBytes
			}
			if rest -= count; count > 0 {
				lost = append(lost, growth.Loss{
					Kind: l.kind, Count: count, PID: int(pid), Bytes: bytes,
				})
			}
		}
		lost.Add(l.kind, "", rest)
	}
	return lost
}
