package torch

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Addresses of the forged process: a vtable, and the memory that is forged.
const (
	vtable = 0x7000_0000
	forged = 0x1000_0000
)

// A forgery is a process with some memory from forged on.
type forgery struct {
	t     testing.TB
	bytes []byte
}

// newForgery returns a process with such memory, and zeros up to the end of its last page.
func newForgery(t testing.TB, memory []byte) *forgery {
	return &forgery{t, append(slices.Clip(memory), make([]byte, mem.PeekSize-len(memory)%mem.PeekSize)...)}
}

// Maps has PyTorch's libraries besides.
func (f *forgery) Maps() ([]process.Mapping, error) {
	return []process.Mapping{
		{Start: forged, End: forged + uint64(len(f.bytes)), Read: true, Write: true},
		{Start: vtable, End: vtable + 0x1000, Inode: 1, Path: "/usr/lib/libc10.so"},
		{
			Start: vtable + 0x1000, End: vtable + 0x2000, Inode: 2,
			Path: "/usr/lib/libtorch_python.so",
		},
	}, nil
}

// Peek fails the test if too much is read.
func (f *forgery) Peek(addresses []uint64, size int) ([][]byte, error) {
	if size < 1 || size > 4096 || len(addresses) > 2*batchTensors {
		f.t.Fatalf("%d bytes are read at %d addresses", size, len(addresses))
	}
	contents := make([][]byte, len(addresses))
	for i, a := range addresses {
		if a >= forged && a-forged <= uint64(len(f.bytes)) &&
			uint64(len(f.bytes))-(a-forged) >= uint64(size) {
			contents[i] = slices.Clone(f.bytes[a-forged:][:size])
		}
	}

	return contents, nil
}

func (f *forgery) put(address uint64, values ...uint64) {
	for i, v := range values {
		binary.LittleEndian.PutUint64(f.bytes[address-forged+uint64(8*i):], v)
	}
}

// Where the parts of a forged tensor are, from its start. Each takes tensorSpan bytes.
const (
	implAt, storageAt, sizesAt, dataAt = 0x40, 0x140, 0x180, 0x200
	tensorSpan                         = 0x280
)

// putTensor forges a tensor of float32 with a storage of 128 bytes, which fits the layout.
func (f *forgery) putTensor(l *layout, object uint64, shape ...uint64) {
	impl, storage := object+implAt, object+storageAt
	f.put(object, 1, vtable+0x10)
	f.put(object+l.cdata, impl)

	for _, instance := range []uint64{impl, storage} {
		f.put(instance, vtable, 1<<32|1, 1)
		if l.refcounts == 16 {
			f.put(instance+8, 1, 1)
		}
	}

	f.put(impl+l.storage, storage)
	f.put(impl+l.pyobj, object)

	numel, at := uint64(1), impl+l.sizes+8
	f.put(impl+l.sizes, uint64(len(shape)))
	step := uint64(8 * inlineDims)
	if len(shape) > inlineDims {
		f.put(at, object+sizesAt)
		at, step = object+sizesAt, uint64(8*len(shape))
	}
	for i := len(shape) - 1; i >= 0; i-- {
		f.put(at+uint64(8*i), shape[i])
		f.put(at+step+uint64(8*i), numel)
		numel *= shape[i]
	}

	f.put(impl+l.numel, numel)
	f.put(impl+l.storageOffset, 0)
	option := uint64(0x01_ff_00) // cpu, no index, engaged
	if l.engagedFirst {
		option = 0xff_00_01
	}
	const float32Type = 6
	f.put(impl+l.dataType, float32Type|option<<16)

	f.put(storage+l.data, object+dataAt)
	f.put(storage+l.device, 0xff_00)
	f.put(storage+l.sizeBytes, 128)
}

// forge returns the memory of n tensors of a layout, and their addresses.
func forge(t testing.TB, l *layout, n int) (*forgery, []uint64) {
	f := newForgery(t, make([]byte, n*tensorSpan))
	var objects []uint64
	for i := range n {
		object := forged + uint64(i*tensorSpan)
		f.putTensor(l, object, 2, 3, 5)
		objects = append(objects, object)
	}
	return f, objects
}

// TestHostile changes a word of one tensor of many, whose layout is known.
func TestHostile(t *testing.T) {
	const self = forged + implAt // the TensorImpl
	l := &layouts[2]
	type want struct{ known, skipped, inconsistent int }
	for name, c := range map[string]struct {
		at, value uint64
		want
	}{
		"nothing":                    {self + l.numel, 30, want{known: 1}},
		"PyObject without tensor":    {forged + l.cdata, 0, want{inconsistent: 1}},
		"TensorImpl not mapped":      {forged + l.cdata, 1 << 62, want{inconsistent: 1}},
		"TensorImpl not aligned":     {forged + l.cdata, self + 4, want{inconsistent: 1}},
		"TensorImpl is the object":   {forged + l.cdata, forged, want{inconsistent: 1}},
		"of another object":          {self + l.pyobj, forged + tensorSpan, want{inconsistent: 1}},
		"owns the object":            {self + l.pyobj, forged | 1, want{known: 1}},
		"no vtable":                  {self, 0, want{inconsistent: 1}},
		"vtable elsewhere":           {self, forged, want{inconsistent: 1}},
		"freed":                      {self + 8, 0, want{inconsistent: 1}},
		"no storage":                 {self + l.storage, 0, want{skipped: 1}},
		"storage not mapped":         {self + l.storage, 8, want{inconsistent: 1}},
		"storage is the TensorImpl":  {self + l.storage, self, want{inconsistent: 1}},
		"too many elements":          {self + l.numel, 31, want{inconsistent: 1}},
		"2^60 elements":              {self + l.numel, 1 << 60, want{inconsistent: 1}},
		"a size of 2^60":             {self + l.sizes + 8, 1 << 60, want{inconsistent: 1}},
		"a size below 0":             {self + l.sizes + 8, ^uint64(0), want{inconsistent: 1}},
		"a stride of 2^60":           {self + l.sizes + 48, 1 << 60, want{inconsistent: 1}},
		"2^60 dimensions":            {self + l.sizes, 1 << 60, want{inconsistent: 1}},
		"64 dimensions in no memory": {self + l.sizes, 64, want{inconsistent: 1}},
		"an offset of 2^63":          {self + l.storageOffset, 1 << 63, want{inconsistent: 1}},
		"an offset behind the end":   {self + l.storageOffset, 3, want{inconsistent: 1}},
		"an offset before the end":   {self + l.storageOffset, 2, want{known: 1}},
		"no dtype":                   {self + l.dataType, 0x01_ff_00_ffff, want{inconsistent: 1}},
		"a quantized dtype":          {self + l.dataType, 0x01_ff_00_000c, want{skipped: 1}},
		"a dtype of 16 bytes":        {self + l.dataType, 0x01_ff_00_000a, want{inconsistent: 1}},
		"no device":                  {self + l.dataType, 0x00_ff_00_0006, want{inconsistent: 1}},
		"a device without name":      {self + l.dataType, 0x01_ff_7f_0006, want{inconsistent: 1}},
		"the storage's is another":   {self + l.dataType, 0x01_00_01_0006, want{inconsistent: 1}},
		"on meta":                    {self + l.dataType, 0x01_ff_0e_0006, want{skipped: 1}},
		"sizes by a policy":          {self + l.dataType, 0x04_00_01_ff_00_0006, want{skipped: 1}},
		"storage freed":              {forged + storageAt + 8, 0, want{inconsistent: 1}},
		"storage without memory":     {forged + storageAt + l.data, 0, want{skipped: 1}},
		"memory not mapped":          {forged + storageAt + l.data, 1 << 62, want{inconsistent: 1}},
		"storage of 2^62 bytes":      {forged + storageAt + l.sizeBytes, 1 << 62, want{inconsistent: 1}},
		"storage of -1 bytes":        {forged + storageAt + l.sizeBytes, ^uint64(0), want{inconsistent: 1}},
		"AutogradMeta not mapped":    {self + l.autograd, 8, want{known: 1}},
		"AutogradMeta is no such":    {self + l.autograd, self, want{known: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			const others = 99
			f, objects := forge(t, l, 1+others)
			f.put(c.at, c.value)

			got := tracertest.Must(Read(t.Context(), f, objects))(t)
			known := len(got.Known) - others
			if (want{known, got.Skipped, got.Inconsistent}) != c.want {
				t.Errorf("%d known, %d skipped, %d inconsistent, want %+v",
					known, got.Skipped, got.Inconsistent, c.want)
			}
			for _, k := range got.Known {
				if k.HasGradFn || k.DType != "float32" || k.Device != "cpu" || k.Bytes != 128 {
					t.Fatalf("%+v", k)
				}
			}
		})
	}
}

func TestLayouts(t *testing.T) {
	for i := range layouts {
		f, objects := forge(t, &layouts[i], 20)
		for _, wrong := range []int{0, 1, 2} {
			for o := range wrong {
				f.put(objects[o]+implAt, 0) // no vtable
			}
			got, err := Read(t.Context(), f, objects)
			if wrong > 1 {
				if _, ok := errors.AsType[*LayoutError](err); !ok {
					t.Errorf("layout %d: %v with %d of 20 wrong", i, err, wrong)
				}
				continue
			}
			if err != nil || len(got.Known) != 20-wrong || got.Inconsistent != wrong {
				t.Errorf("layout %d: %+v, %v with %d of 20 wrong", i, got, err, wrong)
			}
		}
	}
}

// withoutTorch is a process of C++ alone.
type withoutTorch struct{ *forgery }

func (w withoutTorch) Maps() ([]process.Mapping, error) {
	maps, err := w.forgery.Maps()
	return maps[:2], err
}

func TestReadWithout(t *testing.T) {
	f, objects := forge(t, &layouts[0], 2)
	if _, err := Read(t.Context(), withoutTorch{f}, objects); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("without libtorch_python: %v", err)
	}
	if got, err := Read(t.Context(), f, nil); err != nil || len(got.Known) != 0 {
		t.Errorf("without tensors: %+v, %v", got, err)
	}
	clear(f.bytes)
	_, err := Read(t.Context(), f, objects)
	if _, ok := errors.AsType[*LayoutError](err); !ok {
		t.Errorf("of zeros: %v", err)
	}
}

// FuzzRead reads tensors in forged memory.
func FuzzRead(f *testing.F) {
	for i := range layouts {
		forgery, _ := forge(f, &layouts[i], 3)
		forgery.putTensor(&layouts[i], forged+tensorSpan, 1, 2, 1, 2, 1, 2, 1)
		f.Add(forgery.bytes)
	}

	f.Fuzz(func(t *testing.T, memory []byte) {
		if len(memory) > 1<<16 {
			return
		}
		var objects []uint64
		for at := 0; at < len(memory); at += tensorSpan {
			objects = append(objects, forged+uint64(at))
		}
		objects = append(objects, 0, 1, forged-8, math.MaxUint64, 1<<63)

		got, err := Read(t.Context(), newForgery(t, memory), objects)
		if err != nil {
			return
		}
		if n := len(got.Known) + got.Skipped + got.Inconsistent; n != len(objects) {
			t.Errorf("%d of %d objects", n, len(objects))
		}
		for _, k := range got.Known {
			mustBePossible(t, k)
		}
		groups, _ := Groups(got.Known)
		for _, g := range groups {
			if g.Bytes < 0 || g.Bytes > maxBytes || g.Storages < 1 || g.Tensors < g.Storages ||
				g.WithGradFn > g.Tensors {
				t.Errorf("%+v", g)
			}
		}
	})
}

func mustBePossible(t *testing.T, k Tensor) {
	t.Helper()
	numel := int64(1)
	if slices.Contains(k.Shape, 0) {
		numel = 0
	}
	for _, size := range k.Shape {
		if size < 0 || numel > math.MaxInt64/max(size, 1) {
			t.Fatalf("%+v", k)
		}
		numel *= size
	}

	if len(k.Shape) > maxDims || k.Bytes < 0 || k.extent > k.Bytes || k.numel != numel ||
		k.DType == "" || k.Device == "" || k.Device == "meta" {
		t.Fatalf("%+v", k)
	}
}
