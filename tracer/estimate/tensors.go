package estimate

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/torch"
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

	err := eachTensor(k, func(key *bpf.Address, a *bpf.Allocation, weight float64) {
		total, ok := totals[key.Tgid]
		if !ok {
			return
		}
		total.objects += weight
		total.bytes += int64(math.Round(weight * float64(a.Size)))
		totals[key.Tgid] = total
	})
	if err != nil {
		return nil
	}
	return totals
}

// eachTensor calls visit for each sampled tensor that is alive, with the number of tensors that it
// represents.
func eachTensor(
	k *kernel.Kernel, visit func(key *bpf.Address, a *bpf.Allocation, weight float64),
) error {
	sizes := make(believedBytes)
	return kernel.ReadMap(k.Tensors, func(key *bpf.Address, a *bpf.Allocation) {
		sizes.limit(key.Tgid, a)
		visit(key, a, weightOf(a))
	})
}

// ReadSampledTensors returns the sampled tensors of a process that are alive, and the bytes that
// each represents.
func ReadSampledTensors(k *kernel.Kernel, pid int) (map[torch.SampledTensor]float64, error) {
	tensors := make(map[torch.SampledTensor]float64)
	err := eachTensor(k, func(key *bpf.Address, a *bpf.Allocation, weight float64) {
		if key.Tgid == uint32(pid) {
			tensors[torch.SampledTensor{Address: key.Address, Born: a.Born}] = weight * float64(a.Size)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read live tensors: %w", err)
	}
	return tensors, nil
}

// Set sets the tensors of a process's sample if they are known.
func (t TensorTotals) Set(sample *growth.Sample, pid int) {
	if total, ok := t[uint32(pid)]; ok {
		sample.Tensors, sample.TensorBytes = int64(math.Round(total.objects)), total.bytes
	}
}
