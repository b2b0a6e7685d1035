package torch

import (
	"reflect"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth/census"
)

func TestGroups(t *testing.T) {
	on := func(data uint64, bytes, span int64, shape ...int64) Tensor {
		numel := int64(1)
		for _, size := range shape {
			numel *= size
		}
		return Tensor{
			Storage: data + 1<<40, Data: data, Bytes: bytes, DType: "float32", Device: "cpu",
			Shape: shape, span: span, numel: numel, contiguous: true,
		}
	}
	otherImpl := on(0x1000, 400, 400, 100)
	otherImpl.Storage++
	transposed := on(0x2000, 800, 800, 20, 10)
	transposed.contiguous = false
	gpu := on(0x3000, 800, 800, 10, 20)
	gpu.Device = "cuda:0"
	withGraph := on(0x4000, 4, 4)
	withGraph.HasGradFn = true

	tensors := []Tensor{
		on(0x1000, 400, 40, 10), // the end of the next one
		on(0x1000, 400, 400, 100),
		otherImpl,
		transposed,
		on(0x2000, 800, 800, 10, 20),
		on(0x5000, 800, 800, 10, 20),
		on(0x6000, 800, 800, 10, 20),
		gpu,
		withGraph,
		on(0x7000, 4, 4),
		on(0x8000, 4, 4, 1000), // expanded
		on(0x8000, 4, 4, 1),
		on(0, 0, 0, 0), on(0x9000, 0, 0, 0), // empty ones: of two StorageImpls
	}
	stacks := map[uint64]uint64{0x1000: 7, 0x2000: 8, 0x5000: 9, 0x6000: 9, 0x9000: 1}
	want := []census.TensorGroup{
		{
			DType: "float32", Shape: []int64{10, 20}, Device: "cpu", Storages: 3, Tensors: 4,
			Bytes: 2400, Stack: 9,
		},
		{
			DType: "float32", Shape: []int64{10, 20}, Device: "cuda:0", Storages: 1, Tensors: 1,
			Bytes: 800,
		},
		{
			DType: "float32", Shape: []int64{100}, Device: "cpu", Storages: 1, Tensors: 3,
			Bytes: 400, Stack: 7,
		},
		{DType: "float32", Device: "cpu", Storages: 2, Tensors: 2, Bytes: 8, WithGradFn: 1},
		{DType: "float32", Shape: []int64{1}, Device: "cpu", Storages: 1, Tensors: 2, Bytes: 4},
		{DType: "float32", Shape: []int64{0}, Device: "cpu", Storages: 2, Tensors: 2},
	}

	for range 20 {
		got, storages := Groups(tensors)
		onCUDA := Storage{Data: 0x3000, Bytes: 800, Group: 1, OnCUDA: true}
		if len(storages) != 8 || !slices.Contains(storages, onCUDA) {
			t.Fatalf("%+v", storages)
		}
		for _, group := range []int{1000, -1} {
			storages = append(storages, Storage{Data: 0x2000, Bytes: 1 << 20, Group: group})
		}
		SetStacks(got, storages, stacks)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v\nwant %+v", got, want)
		}
		slices.Reverse(tensors)
	}
}

func TestGroupsOfForgedSizes(t *testing.T) {
	tensors := make([]Tensor, 1000)
	for i := range tensors {
		tensors[i] = Tensor{
			Data: uint64(i + 1), Bytes: maxBytes, DType: "uint8", Shape: []int64{int64(i % 2)},
		}
	}

	sum := int64(0)
	groups, _ := Groups(tensors)
	for _, g := range groups {
		sum += g.Bytes
	}

	if sum != maxBytes {
		t.Errorf("%d bytes", sum)
	}
}
