// Package torch reads the tensors of a running PyTorch from outside: dtype, shape, device and
// storage of each torch.Tensor that the process has. It sets no probe, stops nothing and writes
// nothing.
//
// PyTorch publishes no offsets, and nothing of its binaries says how its structures are laid out.
// So no layout is believed: each known one is checked against the tensors of the process, by
// conditions that every tensor meets, and PyTorch is refused unless one layout fits nearly all of
// them. All memory that the package reads is hostile input: any contents cost bounded work and
// yield some answer. Names follow the PyTorch sources.
package torch

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// ErrNotLoaded is why a process without PyTorch has no tensors.
var ErrNotLoaded = errors.New("PyTorch is not loaded")

// A LayoutError is why the tensors of a process are not known: no layout fits them.
type LayoutError struct {
	// Fitting of the Checked tensors fit the likeliest layout.
	Fitting, Checked int
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("the likeliest layout of PyTorch fits %d of %d tensors", e.Fitting, e.Checked)
}

// OwnsObject is a bit of the address of a PyObject in its TensorImpl: no object of Python refers to
// the tensor, and PyTorch owns it (owns_pyobj of c10/core/impl/PyObjectSlot.h). Since 2.10 there is
// no such bit: see SharesObject.
const OwnsObject = 1

// A Tensor is a torch.Tensor of Python whose elements are in memory.
type Tensor struct {
	// Object, Impl and Storage are the addresses of the PyObject, its TensorImpl and its
	// StorageImpl.
	Object, Impl, Storage uint64
	// Data is the storage's data_ptr, of which Bytes is the size. Views share it, or have a
	// StorageImpl of their own with the same Data.
	Data uint64
	// Bytes of the whole storage, views or not.
	Bytes int64

	DType  string // as PyTorch prints it, without "torch.": "float32"
	Shape  []int64
	Device string // "cpu", "cuda:0"

	// HasGradFn is set if the tensor has a grad_fn: it keeps the autograd graph that computed it.
	// It is known where PyTorch was built with the C++11 ABI of std::string.
	HasGradFn bool

	// extent is the number of bytes from the start of the storage to the end of the last element.
	extent int64
	// span is the number of bytes from the first to the last element.
	span int64
	// numel is the number of elements, and contiguous that they follow each other as in C.
	numel      int64
	contiguous bool
}

// Tensors is the result of Read.
type Tensors struct {
	// Known are the tensors whose elements are in memory.
	Known []Tensor
	// Skipped is the number of tensors without memory of their own, or with elements in another
	// form: sparse and quantized ones, tensors on the meta device, FakeTensors, wrappers of
	// functorch and of subclasses, storages that were resized to nothing.
	Skipped int
	// Inconsistent is the number of objects that did not add up twice, or are not in RAM. Most were
	// freed meanwhile.
	Inconsistent int
}

// Loaded reports whether PyTorch for Python is mapped.
func Loaded(maps []process.Mapping) bool {
	return slices.ContainsFunc(maps, func(m process.Mapping) bool {
		return m.IsFile() && strings.HasPrefix(path.Base(m.Path), LibTorchPython)
	})
}

// batchTensors is how many tensors are read at a time: few, so that little changes meanwhile.
const batchTensors = 512

// maxBytes bounds the sum of the storages of a process: that is how much it can address.
const maxBytes = 1 << 47

// A Process is one whose memory is read, as process.Process.
type Process interface {
	mem.Reader
	// Maps returns the memory map in address order.
	Maps() ([]process.Mapping, error)
}

// Read reads the tensors at the addresses of Python objects of type torch.Tensor and its
// subclasses. Objects that are none any more count as inconsistent. The error is ErrNotLoaded or
// a *LayoutError, or comes from ctx or from reading.
func Read(ctx context.Context, p Process, objects []uint64) (*Tensors, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	if !Loaded(maps) {
		return nil, ErrNotLoaded
	}
	r := &reader{memory: p, maps: maps, libraries: libraries(maps)}
	if err := r.chooseLayout(objects); err != nil {
		return nil, err
	}

	tensors := &Tensors{}
	for batch := range slices.Chunk(objects, batchTensors) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		again, err := r.readInto(tensors, batch)
		if err == nil {
			again, err = r.readInto(tensors, again)
		}
		if err != nil {
			return nil, err
		}
		tensors.Inconsistent += len(again)
	}

	return tensors, nil
}

// libraries returns the mappings of PyTorch's own files, in which the vtables of its classes are.
func libraries(maps []process.Mapping) []process.Mapping {
	var own []process.Mapping
	for _, m := range maps {
		name := path.Base(m.Path)
		if m.IsFile() &&
			(strings.HasPrefix(name, "libtorch") || strings.HasPrefix(name, LibC10)) {
			own = append(own, m)
		}
	}

	return own
}
