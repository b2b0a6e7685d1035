package torch

import (
	"math"

	"github.com/allocscope/allocscope/tracer/estimate"
)

// InCPPOnly estimates the bytes of the CPU tensors to whose memory no tensor of Python refers, such
// as what autograd has saved for the backward pass. before and after are what was alive before and
// after the tensors were read, of the allocations of c10::alloc_cpu alone: an object counts if it
// is in both. So memory that was allocated or freed meanwhile does not.
//
// Memory of tensors that were skipped counts: C++ holds the indices and values of a sparse tensor.
func InCPPOnly(tensors []Tensor, before, after []estimate.LiveObject) int64 {
	type object struct{ address, size, stack uint64 }
	old := make(map[object]bool, len(before))
	for _, o := range before {
		old[object{o.Address, o.Size, o.Stack}] = true
	}
	referred := make(map[uint64]bool, len(tensors))
	for i := range tensors {
		referred[tensors[i].Data] = true
	}

	sum := 0.0
	for _, o := range after {
		if old[object{o.Address, o.Size, o.Stack}] && !referred[o.Address] {
			sum += o.Weight * float64(o.Size)
		}
	}
	return int64(math.Round(min(sum, maxBytes)))
}
