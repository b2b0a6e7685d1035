package torch

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A reader reads the tensors of one process.
type reader struct {
	memory    Process
	maps      []process.Mapping
	libraries []process.Mapping // PyTorch's own
	layout    layout
}

// An object is the tensor read at one address.
type object struct {
	Tensor
	state      state
	pythonType uint64

	impl, storage []byte // as they were read; nil: they were not
	changed       bool   // since they were read

	offset   uint64 // in the storage, in elements
	itemSize int64
	device   device
}

type state uint8

const (
	pending      state = iota // not all of it has been read yet
	unread                    // not all of it is in RAM, it changed meanwhile, or it is not alive
	inconsistent              // its data contradict each other
	skipped                   // a tensor without memory of its own
	known
)

// maxDims bounds the dimensions of a tensor; PyTorch's operators take 64 at most.
const maxDims = 64

// readInto adds the tensors at some addresses, and returns the addresses that failed: unread or
// inconsistent.
func (r *reader) readInto(tensors *Tensors, addresses []uint64) (failed []uint64, err error) {
	found, err := r.read(addresses)
	if err != nil {
		return nil, err
	}
	for i := range found {
		switch o := &found[i]; o.state {
		case known:
			tensors.Known = append(tensors.Known, o.Tensor)
		case skipped:
			tensors.Skipped++
		default:
			failed = append(failed, o.Object)
		}
	}

	return failed, nil
}

// read reads and checks the objects at some addresses, in their order.
func (r *reader) read(addresses []uint64) ([]object, error) {
	objects := make([]object, len(addresses))
	all := make([]*object, len(objects))
	for i := range objects {
		objects[i].Object, all[i] = addresses[i], &objects[i]
	}

	// From the PyObject to its TensorImpl and the StorageImpl. Each step goes on with the objects
	// that passed the one before it.
	headBytes := int(r.layout.cdata + 8)
	left, err := r.step(all, headBytes,
		func(o *object) uint64 { return o.Object },
		func(o *object, head []byte) bool {
			o.pythonType, o.Impl = mem.Word(head, 8), mem.Word(head, r.layout.cdata)
			if refcount := uint32(mem.Word(head, 0)); refcount == 0 || o.Impl == 0 {
				o.state = unread // it has been freed
			}
			return o.state == pending && aligned(o.Impl)
		})
	if err != nil {
		return nil, err
	}
	left, err = r.step(left, r.layout.tensorBytes,
		func(o *object) uint64 { return o.Impl }, r.setImpl)
	if err != nil {
		return nil, err
	}
	if left, err = r.readSizes(left); err != nil {
		return nil, err
	}
	left, err = r.step(left, r.layout.storageBytes,
		func(o *object) uint64 { return o.Storage }, r.setStorage)
	if err != nil {
		return nil, err
	}

	for _, o := range left {
		o.state = known
	}

	if err := r.readAutograd(left); err != nil {
		return nil, err
	}
	return objects, r.confirm(all)
}

// step reads size bytes for each object, and returns those that set accepts. The others become
// inconsistent, or unread where memory is mapped but not in RAM, unless set has given them a state.
func (r *reader) step(
	objects []*object, size int, address func(*object) uint64, set func(*object, []byte) bool,
) (left []*object, err error) {
	addresses := make([]uint64, len(objects))
	for i, o := range objects {
		addresses[i] = address(o)
	}
	contents, err := r.memory.Peek(addresses, size)
	if err != nil {
		return nil, err
	}
	for i, o := range objects {
		switch {
		case contents[i] != nil && set(o, contents[i]):
			left = append(left, o)
		case o.state != pending:
		case contents[i] == nil && r.isMapped(addresses[i], int64(size)):
			o.state = unread
		default:
			o.state = inconsistent
		}
	}
	return left, nil
}

// setImpl takes from a TensorImpl the fields that do not depend on other memory.
func (r *reader) setImpl(o *object, impl []byte) bool {
	l := &r.layout
	o.impl = impl
	if mem.Word(impl, l.pyobj)&^OwnsObject != o.Object || !r.isClass(impl) {
		return false
	}

	var engaged bool
	o.device, engaged = l.deviceOf(impl)
	itemType := binary.LittleEndian.Uint16(impl[l.dataType:])
	if !engaged || !o.device.valid() || int(itemType) >= len(scalarTypes) {
		return false
	}

	o.DType, o.itemSize = scalarTypes[itemType].name, scalarTypes[itemType].size
	o.Storage = mem.Word(impl, l.storage)
	o.Device = o.device.name(l)
	if o.Storage == 0 || o.DType == "" || o.Device == "" || o.device.kind == meta ||
		l.hasPolicy(impl) {
		o.state = skipped
		return false
	}
	o.offset, o.numel = mem.Word(impl, l.storageOffset), int64(mem.Word(impl, l.numel))
	return aligned(o.Storage)
}

// isClass reports whether an instance of an intrusive_ptr_target is alive: its vtable is in a file
// of PyTorch, and its counts are not 0.
func (r *reader) isClass(instance []byte) bool {
	vtable := mem.Word(instance, 0)
	if _, ok := process.FindMapping(r.libraries, vtable); !ok || !aligned(vtable) {
		return false
	}
	if r.layout.refcounts == 8 {
		return uint32(mem.Word(instance, 8)) != 0
	}
	strong, weak := mem.Word(instance, 8), mem.Word(instance, 16)
	return strong != 0 && strong>>32 == 0 && weak != 0 && weak>>32 == 0
}

// readSizes sets shape and strides. With more than inlineDims dimensions they are elsewhere.
func (r *reader) readSizes(objects []*object) (left []*object, err error) {
	sizes := r.layout.sizes
	outOfLine := make(map[uint64][]*object) // by number of dimensions
	for _, o := range objects {
		switch dims := mem.Word(o.impl, sizes); {
		case dims <= inlineDims:
			inline := o.impl[sizes+8:]
			if o.setSizes(inline[:dims*8], inline[inlineDims*8:][:dims*8]) {
				left = append(left, o)
			} else {
				o.state = inconsistent
			}
		case dims <= maxDims:
			outOfLine[dims] = append(outOfLine[dims], o)
		default:
			o.state = inconsistent
		}
	}

	for dims, group := range outOfLine {
		group, err := r.step(group, int(2*dims*8),
			func(o *object) uint64 { return mem.Word(o.impl, sizes+8) },
			func(o *object, both []byte) bool { return o.setSizes(both[:dims*8], both[dims*8:]) })
		if err != nil {
			return nil, err
		}
		left = append(left, group...)
	}

	return left, nil
}

// setSizes reports whether sizes and strides are possible, agree with numel_, and fit 63 bits.
func (o *object) setSizes(sizes, strides []byte) bool {
	o.Shape, o.contiguous = make([]int64, len(sizes)/8), true
	last, numel := o.offset, uint64(1) // last: position of the last element, in elements
	overflow, empty := o.offset>>63 != 0, false
	for i := len(o.Shape) - 1; i >= 0; i-- {
		size, stride := mem.Word(sizes, uint64(8*i)), mem.Word(strides, uint64(8*i))
		if size>>63 != 0 || stride>>63 != 0 {
			return false
		}
		o.Shape[i] = int64(size)
		if size == 0 {
			empty = true
			continue
		}
		o.contiguous = o.contiguous && (size == 1 || stride == numel)

		step, high := mul(size-1, stride)
		last += step
		product, high2 := mul(size, numel)
		numel = product
		overflow = overflow || high || high2 || last>>63 != 0
	}

	if empty {
		return o.numel == 0
	}

	extent, high := mul(last+1, uint64(o.itemSize))
	o.extent, o.span = int64(extent), int64(extent)-int64(o.offset)*o.itemSize
	return !overflow && !high && uint64(o.numel) == numel
}

// mul multiplies, and reports whether the product takes more than 63 bits.
func mul(a, b uint64) (product uint64, overflow bool) {
	high, low := bits.Mul64(a, b)
	return low, high != 0 || low>>63 != 0
}

// setStorage takes the memory from a StorageImpl.
func (r *reader) setStorage(o *object, storage []byte) bool {
	l := &r.layout
	o.storage = storage
	o.Data, o.Bytes = mem.Word(storage, l.data), int64(mem.Word(storage, l.sizeBytes))
	if !r.isClass(storage) || deviceAt(storage[l.device:]) != o.device {
		return false
	}

	if o.Data == 0 && o.numel > 0 {
		o.state = skipped
		return false
	}
	if o.extent > o.Bytes || o.Bytes > maxBytes {
		return false
	}
	if o.Bytes > 0 && o.device.kind == cpu && !r.isMapped(o.Data, o.Bytes) {
		o.state = unread // it is newer than maps
		return false
	}
	return true
}

// readAutograd sets which tensors have a grad_fn. Most have no AutogradMeta.
func (r *reader) readAutograd(objects []*object) error {
	var metas []*object
	for _, o := range objects {
		if mem.Word(o.impl, r.layout.autograd) != 0 {
			metas = append(metas, o)
		}
	}

	_, err := r.step(metas, metaBytes,
		func(o *object) uint64 { return mem.Word(o.impl, r.layout.autograd) },
		func(o *object, content []byte) bool {
			_, isMeta := process.FindMapping(r.libraries, mem.Word(content, 0))
			name := mem.Word(content, metaName)
			isMeta = isMeta && name == mem.Word(o.impl, r.layout.autograd)+metaShortText
			o.HasGradFn = isMeta && mem.Word(content, metaGradFn) != 0
			return true
		})
	return err
}

// isMapped reports whether both ends of some memory are mapped.
func (r *reader) isMapped(start uint64, size int64) bool {
	_, first := process.FindMapping(r.maps, start)
	_, last := process.FindMapping(r.maps, start+uint64(size)-1)
	return first && last
}

// confirm sets to unread the objects that are not as they were read: another tensor may have taken
// the place of one, and another StorageImpl the place of its StorageImpl.
func (r *reader) confirm(objects []*object) error {
	l := &r.layout
	err := r.recheck(objects, int(l.cdata+8),
		func(o *object) uint64 { return o.Object },
		func(o *object, head []byte) bool {
			return o.pythonType == mem.Word(head, 8) && o.Impl == mem.Word(head, l.cdata)
		})
	if err != nil {
		return err
	}

	objects = slices.DeleteFunc(objects, func(o *object) bool { return o.changed || o.impl == nil })
	err = r.recheck(objects, l.tensorBytes,
		func(o *object) uint64 { return o.Impl },
		func(o *object, impl []byte) bool {
			same := mem.Word(impl, l.storage) == mem.Word(o.impl, l.storage) &&
				mem.Word(impl, l.pyobj) == mem.Word(o.impl, l.pyobj)
			return same && string(impl[l.sizes:]) == string(o.impl[l.sizes:])
		})
	if err != nil {
		return err
	}

	objects = slices.DeleteFunc(
		objects,
		func(o *object) bool { return o.changed || o.storage == nil },
	)
	return r.recheck(
		objects,
		l.storageBytes,
		func(o *object) uint64 { return o.Storage },
		func(o *object, storage []byte) bool { return string(storage[l.data:]) == string(o.storage[l.data:]) },
	)
}

// recheck reads size bytes of each object again, and sets to unread those that are not the same.
func (r *reader) recheck(
	objects []*object, size int, address func(*object) uint64, same func(*object, []byte) bool,
) error {
	left, err := r.step(objects, size, address, same)
	for _, o := range objects {
		o.changed = true
	}
	for _, o := range left {
		o.changed = false
	}
	for _, o := range objects {
		if o.changed {
			o.state = unread
		}
	}
	return err
}

// hasPolicy reports whether sizes and strides are not the TensorImpl's: sizes_strides_policy_,
// has_symbolic_sizes_strides_ or custom_sizes_strides_ of the bit-fields behind device_opt_.
func (l *layout) hasPolicy(impl []byte) bool {
	return impl[l.dataType+6]&0b0111_1100 != 0
}

func aligned(pointer uint64) bool { return pointer != 0 && pointer%8 == 0 }
