package torch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/growth/census"
)

// Groups returns the distinct storages of tensors by dtype, shape and device, the most bytes first.
// stacks has the stack that allocated the memory at an address, by ID, where that is known.
func Groups(tensors []Tensor, stacks map[uint64]uint64) []census.TensorGroup {
	type group struct {
		census.TensorGroup
		bytesOf map[uint64]int64 // by stack
	}
	groups := make(map[string]*group)
	for _, s := range storages(tensors) {
		key := fmt.Sprint(s.largest.DType, s.largest.Shape, s.largest.Device)
		g := groups[key]
		if g == nil {
			g = &group{
				TensorGroup: census.TensorGroup{
					DType: s.largest.DType, Shape: s.largest.Shape, Device: s.largest.Device,
				},
				bytesOf: make(map[uint64]int64),
			}
			groups[key] = g
		}
		g.Storages++
		g.Tensors += s.tensors
		g.WithGradFn += s.withGradFn
		g.Bytes += s.bytes
		if stack := stacks[s.largest.Data]; stack != 0 {
			g.bytesOf[stack] += s.bytes
		}
	}

	sorted := make([]census.TensorGroup, 0, len(groups))
	for _, g := range groups {
		for stack, bytes := range g.bytesOf {
			most := g.bytesOf[g.Stack]
			if bytes > most || bytes == most && stack < g.Stack {
				g.Stack = stack
			}
		}
		sorted = append(sorted, g.TensorGroup)
	}
	slices.SortFunc(sorted, func(a, b census.TensorGroup) int {
		return cmp.Or(
			cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.DType, b.DType),
			cmp.Compare(a.Device, b.Device), slices.Compare(a.Shape, b.Shape),
		)
	})
	return sorted
}

// A storage is memory that one or more tensors share.
type storage struct {
	largest             *Tensor
	tensors, withGradFn int
	bytes               int64
}

// storages returns the distinct storages. Those with memory are one by its address: several
// StorageImpls may share it. The empty ones are distinct by their StorageImpl.
func storages(tensors []Tensor) map[uint64]*storage {
	found, left := make(map[uint64]*storage), int64(maxBytes)
	for i := range tensors {
		t := &tensors[i]
		key := t.Data
		if t.Bytes == 0 {
			key = t.Storage
		}

		s := found[key]
		if s == nil {
			s = &storage{largest: t}
			found[key] = s
		}
		s.tensors++
		if t.HasGradFn {
			s.withGradFn++
		}
		if t.Bytes > s.bytes {
			grown := min(t.Bytes-s.bytes, left)
			s.bytes, left = s.bytes+grown, left-grown
		}
		if compareSizes(t, s.largest) > 0 {
			s.largest = t
		}
	}
	return found
}

// compareSizes orders the tensors of one storage: by the memory that they span, then the ones
// before those that expand or transpose them.
func compareSizes(a, b *Tensor) int {
	return cmp.Or(
		cmp.Compare(a.extent, b.extent),
		cmp.Compare(b.numel, a.numel),
		compareBools(a.contiguous, b.contiguous),
		slices.Compare(b.Shape, a.Shape),
		cmp.Compare(b.DType, a.DType),
	)
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
