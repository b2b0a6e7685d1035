package kernel

import (
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

// Losses returns the losses among the values of the BPF programs' counters.
func Losses(values []uint64) (lost growth.Losses) {
	for _, l := range lossCounters {
		lost.Add(l.kind, "", values[l.counter])
	}
	return lost
}
