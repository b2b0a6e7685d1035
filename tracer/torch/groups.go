package torch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth/census"
)

// A Storage is memory that one or more tensors share: of the CPU, or of a CUDA device.
type Storage struct {
	Data   uint64 // its address
	Bytes  int64
	Group  int // index of its group in the result of Groups
	OnCUDA bool
}

// Groups returns the distinct storages of tensors by dtype, shape and device, the most bytes first,
// and the ones with memory of the CPU or of a CUDA device one by one.
func Groups(tensors []Tensor) ([]census.TensorGroup, []Storage) {
	type group struct {
		census.TensorGroup
		storages []Storage
	}
	groups := make(map[string]*group)
	for _, s := range storages(tensors) {
		key := fmt.Sprint(s.largest.DType, s.largest.Shape, s.largest.Device)
		g := groups[key]
		if g == nil {
			g = &group{TensorGroup: census.TensorGroup{
				DType: s.largest.DType, Shape: s.largest.Shape, Device: s.largest.Device,
			}}
			groups[key] = g
		}
		g.Storages++
		g.Tensors += s.tensors
		g.WithGradFn += s.withGradFn
		g.Bytes += s.bytes
		onCUDA := strings.HasPrefix(s.largest.Device, deviceTypes[cuda])
		if s.bytes > 0 && (onCUDA || s.largest.Device == deviceTypes[cpu]) {
			one := Storage{Data: s.largest.Data, Bytes: s.bytes, OnCUDA: onCUDA}
			g.storages = append(g.storages, one)
		}
	}

	sorted := slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		return cmp.Or(
			cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.DType, b.DType),
			cmp.Compare(a.Device, b.Device), slices.Compare(a.Shape, b.Shape),
		)
	})
	counted, single := make([]census.TensorGroup, 0, len(sorted)), []Storage(nil)
	for i, g := range sorted {
		counted = append(counted, g.TensorGroup)
		for _, s := range g.storages {
			s.Group = i
			single = append(single, s)
		}
	}

	return counted, single
}

// SetStacks sets the stack of each group that allocated most of its storages. stacks has the stack
// that allocated the memory at an address, by ID, where that is known. A Storage of no group is
// left out.
func SetStacks(groups []census.TensorGroup, storages []Storage, stacks map[uint64]uint64) {
	type part struct {
		group int
		stack uint64
	}
	bytesOf := make(map[part]int64)
	for _, s := range storages {
		stack := stacks[s.Data]
		if stack == 0 || s.Group < 0 || s.Group >= len(groups) {
			continue
		}
		of := part{s.Group, stack}
		bytesOf[of] += s.Bytes

		g := &groups[s.Group]
		bytes, most := bytesOf[of], bytesOf[part{s.Group, g.Stack}]
		if bytes > most || bytes == most && stack < g.Stack {
			g.Stack = stack
		}
	}
}

// A storage is memory that one or more tensors share.
type storage struct {
	largest             *Tensor
	tensors, withGradFn int
	bytes               int64
}

// storages returns the distinct storages. Storages with memory are one by its address: several
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
		cmp.Compare(a.span, b.span),
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
