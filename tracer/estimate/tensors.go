package estimate

import (
	"math"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// TensorTotals are the estimated numbers of live CPU tensors of processes, and their bytes, by PID.
type TensorTotals map[uint32]tensorTotal

type tensorTotal struct {
	objects float64
	bytes   int64
}

// ReadTensors sums the live tensors of some processes; nil: the map could not be read, or
// there are no processes.
func ReadTensors(k *kernel.Kernel, pids []int) TensorTotals {
	if len(pids) == 0 {
		return nil
	}
	totals := make(TensorTotals)
	for _, pid := range pids {
		totals[uint32(pid)] = tensorTotal{}
	}

	sizes := make(believed)
	err := kernel.ReadMap(k.Tensors, func(key *bpf.Address, a *bpf.Allocation) {
		total, ok := totals[key.Tgid]
		if !ok {
			return
		}
		a.Size = sizes.size(key.Tgid, a.Size)
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

// Set sets the tensors of a process's sample if they are known.
func (t TensorTotals) Set(sample *growth.Sample, pid int) {
	if total, ok := t[uint32(pid)]; ok {
		sample.Tensors, sample.TensorBytes = int64(math.Round(total.objects)), total.bytes
	}
}
