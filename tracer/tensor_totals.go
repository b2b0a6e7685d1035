package tracer

import (
	"math"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// tensorTotal is how many tensors' blocks of a process are alive, and what they asked for: estimates.
type tensorTotal struct {
	objects float64
	bytes   int64
}

// tensorTotals are those of each process whose tensors have been watched all the time; one reading of the kernel's map, and
// none where there is no such process.
func tensorTotals(k *kernel.Kernel, targets []*target) map[uint32]tensorTotal {
	totals := make(map[uint32]tensorTotal)
	for _, t := range targets {
		if t.tensors.Complete() {
			totals[uint32(t.process.PID)] = tensorTotal{}
		}
	}
	if len(totals) == 0 {
		return nil
	}
	err := kernel.ReadMap(k.Tensors, func(key *bpf.Address, a *bpf.Allocation) {
		total, ok := totals[key.Tgid]
		if !ok {
			return
		}
		weight := growth.Weight(a.Size, uint64(a.Interval))
		total.objects += weight
		total.bytes += int64(math.Round(weight * float64(a.Size)))
		totals[key.Tgid] = total
	})
	if err != nil {
		return nil
	}
	return totals
}

// setTensors writes what is known of a process's tensors into its sample, where anything is.
func setTensors(sample *growth.Sample, totals map[uint32]tensorTotal, pid int) {
	if total, ok := totals[uint32(pid)]; ok {
		sample.Tensors, sample.TensorBytes = int64(math.Round(total.objects)), total.bytes
	}
}
