package torch

import "math"

// A SampledTensor identifies the allocation of a tensor: its address, and when it was made, in ns,
// CLOCK_MONOTONIC.
type SampledTensor struct{ Address, Born uint64 }

// InCPPOnly estimates the bytes of the CPU tensors to whose memory no tensor of Python refers, such
// as tensors that autograd has saved for the backward pass. storages are the storages of Python's
// tensors. before and after are the sampled tensors that were alive before and after these were
// read, with the bytes that each represents. An allocation counts if it is in both: memory that was
// allocated or freed meanwhile does not.
//
// Memory of tensors that were skipped counts: C++ holds the indices and values of a sparse tensor.
func InCPPOnly(storages []Storage, before, after map[SampledTensor]float64) int64 {
	referred := make(map[uint64]bool, len(storages))
	for _, s := range storages {
		referred[s.Data] = true
	}

	sum := 0.0
	for t, bytes := range after {
		if _, was := before[t]; was && !referred[t.Address] {
			sum += bytes
		}
	}

	return int64(math.Round(min(sum, maxBytes)))
}
