package torch

import (
	"slices"
)

// A layout has offsets in bytes: where the fields of PyTorch's structures are on 64-bit systems
// with libstdc++.
type layout struct {
	// cdata of THPVariable: the pointer to the TensorImpl.
	cdata uint64

	// refcounts is the size of the counts of intrusive_ptr_target, behind the vtable.
	refcounts uint64

	// Fields of TensorImpl. sizes is the place of SizesAndStrides: the number of dimensions, then
	// sizes and strides in 10 words, or in the first of them a pointer to them.
	storage, autograd, pyobj, sizes, storageOffset, numel, dataType uint64
	tensorBytes                                                     int

	// engagedFirst is set where device_opt_ has its flag before the value, as the c10::optional of
	// C++14.
	engagedFirst bool

	// Fields of StorageImpl: the fields of data_ptr_, and size_bytes_.
	data, device, sizeBytes uint64
	storageBytes            int
}

// Fields of AutogradMeta: name_, a std::string whose short text is in itself, and grad_fn_. The
// vtable is first.
const (
	metaName, metaShortText = 8, 24
	metaGradFn              = 48
	metaBytes               = metaGradFn + 8
)

// inlineDims is C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE.
const inlineDims = 5

// newLayout returns the layout for the parameters that differ between versions: the size of the two
// counts of intrusive_ptr_target, the words of PyObjectSlot, of which pyobj_ is the last, and
// cdata.
func newLayout(refcounts, slotWords, cdata uint64, engagedFirst bool) layout {
	fields := 8 + refcounts // of both structures: behind vtable and counts
	l := layout{
		cdata: cdata, refcounts: refcounts, engagedFirst: engagedFirst,
		storage: fields, autograd: fields + 8,
		pyobj: fields + 4*8 + (slotWords-1)*8, // behind extra_meta_ and version_counter_
		data:  fields, device: fields + 3*8, sizeBytes: fields + 4*8,
	}
	l.sizes = l.pyobj + 8
	l.storageOffset = l.sizes + 8 + 2*inlineDims*8
	l.numel = l.storageOffset + 8
	l.dataType = l.numel + 8
	l.tensorBytes = int(l.dataType + 8)
	l.storageBytes = int(l.sizeBytes + 8)
	return l
}

// FirstField is the offset of the first field of THPVariable.
const FirstField = 16

// HooksAt names the dict of hooks to which a THPVariable refers at an offset, as Python does; empty:
// there is none. The word at FirstField shows which layout it is: before 2.10 it is the flag of a
// MaybeOwned, and the pointer to the TensorImpl is behind it.
func HooksAt(offset, first uint64) string {
	const owned, borrowed = 0, 1
	cdata := uint64(FirstField)
	if first == owned || first == borrowed {
		cdata += 8
	}
	switch offset {
	case cdata + 8:
		return "_backward_hooks"
	case cdata + 16:
		return "_post_accumulate_grad_hooks"
	}
	return ""
}

// mayBorrow reports whether cdata is a MaybeOwned, a flag before the pointer: one of the object and
// its TensorImpl owns the other then.
func (l *layout) mayBorrow() bool { return l.cdata > FirstField }

// layouts are the layouts of PyTorch 1.13 to 2.14, by
// https://github.com/pytorch/pytorch/blob/main/c10/core/TensorImpl.h, StorageImpl.h and
// torch/csrc/autograd/python_variable.h.
var layouts = []layout{
	newLayout(8, 1, 16, false),  // no pyobj_interpreter_ (pull request 181289)
	newLayout(8, 2, 16, false),  // since 2.10: cdata without MaybeOwned (166342)
	newLayout(8, 2, 24, false),  // since 2.3: counts of 32 bits (117986)
	newLayout(16, 2, 24, false), // std::optional
	newLayout(16, 2, 24, true),  // 1.13 to about 2.1
}

const (
	sampledTensors = 2048 // checked to choose the layout
	minFitShare    = 0.95 // of them must fit
)

// chooseLayout takes the layout that fits the objects. Objects that changed meanwhile do not count,
// nor do objects of a type of which none fits: an object may have been freed since it was found,
// and one of another type be in its place.
func (r *reader) chooseLayout(objects []uint64) error {
	if len(objects) == 0 {
		return nil
	}
	stride := (len(objects) + sampledTensors - 1) / sampledTensors
	var sample []uint64
	for i := 0; i < len(objects); i += stride {
		sample = append(sample, objects[i])
	}

	most, fitting := 0, false
	var best layout
	for _, l := range layouts {
		r.layout = l
		var found []object
		for batch := range slices.Chunk(sample, batchTensors) {
			objects, err := r.read(batch)
			if err != nil {
				return err
			}
			found = append(found, objects...)
		}
		if fit, share := fitOf(found); fit > most {
			most, fitting, best = fit, share >= minFitShare, l
		}
	}

	if !fitting {
		return &LayoutError{Fitting: most, Checked: len(sample)}
	}
	r.layout = best
	return nil
}

// fitOf counts the objects that fit, and returns their share among the objects of their types.
func fitOf(found []object) (fit int, share float64) {
	fits, all := make(map[uint64]int), make(map[uint64]int) // by type
	for _, o := range found {
		switch o.state {
		case known, skipped:
			fits[o.pythonType]++
			all[o.pythonType]++
		case inconsistent:
			all[o.pythonType]++
		}
	}

	of := 0
	for pythonType, n := range fits {
		fit += n
		of += all[pythonType]
	}

	return fit, float64(fit) / float64(max(of, 1))
}
