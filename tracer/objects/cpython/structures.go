// Package cpython knows the structures of CPython 3.8 to 3.14, in builds with the GIL, and reads
// from outside the state of an interpreter: its modules, its frames, its functions and its garbage
// collector.
//
// All memory that it reads belongs to the traced process, so it is hostile input: sizes are
// bounded, and impossible values are refused. Names follow the CPython sources.
package cpython

// Structures are the offsets of the members of CPython's structures in one version, in bytes. A
// member that the version does not have is 0.
type Structures struct {
	Minor int // of Python 3: 8 to 14

	PoolSize uint64 // POOL_SIZE of pymalloc
	GCHead   uint64 // sizeof(PyGC_Head), which lies before an object
	// PreHeader is the part before the GC head of an object whose type has Py_TPFLAGS_MANAGED_DICT
	// or Py_TPFLAGS_MANAGED_WEAKREF: two words.
	PreHeader uint64
	// ManagedDict is where the pointer to the dict lies, from the object on: negative.
	// ManagedValues is where that to the values lies in 3.11, which has both. In 3.12 they share
	// one word.
	ManagedDict, ManagedValues int64
	// TagsManagedDict is set in 3.12: the word points to the values if its lowest bit is set; the
	// pointer is the word plus 1.
	TagsManagedDict bool
	// InlineValues is set from 3.13 on: an object whose type has Py_TPFLAGS_INLINE_VALUES has its
	// values behind tp_basicsize.
	InlineValues bool

	// PyTypeObject and PyHeapTypeObject.
	TypeName, TypeBasicsize, TypeItemsize, TypeFlags, TypeDictoffset, TypeWeaklistoffset uint64
	TypeDict, TypeBase, TypeMro                                                          uint64
	HTName, HTQualname, HTCachedKeys, HTModule, HeapTypeSize                             uint64

	// PyListObject and PyTupleObject: the pointer to the items, and the items.
	ListItem, TupleItem uint64

	// PyDictObject. Keys decodes its keys, ValuesItems its values.
	DictUsed, DictKeys, DictValues uint64
	// KeysHeader is the size of a PyDictKeysObject without its indices and entries.
	KeysHeader uint64
	// ValuesHeader is the size of the header that ValuesItems decodes, and ValuesHeaderAt where it
	// begins, from the pointer to the values on: negative in 3.11 and 3.12. Before that there is
	// none.
	ValuesHeader   uint64
	ValuesHeaderAt int64

	// PySetObject. An entry begins with the key, and the hash value follows.
	SetUsed, SetMask, SetTable, SetSmalltable, SetEntrySize uint64

	// dequeobject, and the blocks of its items.
	DequeLeftblock, DequeRightblock, DequeLeftindex, DequeRightindex uint64
	BlockLeftlink, BlockData, BlockRightlink, DequeBlockSize         uint64

	CellRef uint64 // PyCellObject.ob_ref

	// PyFunctionObject and PyMethodObject.
	FuncGlobals, FuncName, FuncQualname, FuncCode, FuncDefaults, FuncKwdefaults uint64
	FuncClosure, FuncDict, FuncModule                                           uint64
	MethodFunc, MethodSelf                                                      uint64

	// PyCodeObject. The names of the variables are in three tuples before 3.11, in one since.
	CodeArgcount, CodeKwonlyargcount, CodeStacksize     uint64
	CodeVarnames, CodeCellvars, CodeFreevars            uint64
	CodeNlocalsplus, CodeNfreevars, CodeLocalsplusnames uint64
	PartialFunc, PartialArgs, PartialKw                 uint64 // partialobject
	LRUFunc, LRUCache                                   uint64 // lru_cache_object
	LRUElemKey, LRUElemResult                           uint64 // lru_list_elem
	WeakrefObject, WeakrefSize                          uint64 // PyWeakReference
	ModuleDict, ModuleName                              uint64 // PyModuleObject
	ExceptionDict, ExceptionArgs, ExceptionTraceback    uint64 // PyBaseExceptionObject
	ExceptionContext, ExceptionCause                    uint64 // PyBaseExceptionObject
	TracebackNext, TracebackFrame                       uint64 // PyTracebackObject

	// PyFrameObject. Before 3.11 it is the frame.
	FrameValuestack uint64 // f_valuestack
	FrameStacktop   uint64 // f_stacktop: a pointer, 0 while the frame is executing; since 3.11 an index
	FrameStackdepth uint64 // f_stackdepth: an int, negative while the frame is executing
	// FrameFrame is f_frame, the pointer to the _PyInterpreterFrame, from 3.11 on. FrameData is
	// _f_frame_data, where that frame lies once it has ended.
	FrameFrame, FrameData uint64
	// _PyInterpreterFrame, before 3.11 PyFrameObject.
	FrameGlobals, FrameLocalsplus uint64
	// _PyInterpreterFrame.
	FrameObject       uint64 // frame_obj
	FrameOwner        uint64 // owner: a byte
	FrameStackpointer uint64 // stackpointer, 0 while the frame is executing
	// StackRefTags are the bits of a word of localsplus that are no part of the pointer. The word
	// is no pointer if all are set.
	StackRefTags uint64

	// PyGenObject.
	GenFrame      uint64 // gi_frame: a pointer to the frame, 0 if it has ended
	GenIframe     uint64 // gi_iframe: the _PyInterpreterFrame itself
	GenFrameState uint64 // gi_frame_state: a signed byte

	// struct _gc_runtime_state.
	GCGenerations, GCGenerationStats uint64
	// GCGeneration0 is where the pointer to the first of the lists lies, before 3.14.
	GCGeneration0 uint64
}

// Sizes that are the same in every version, in bytes.
const (
	headSize             = 16 // PyObject: ob_refcnt, ob_type
	sizeAt               = 16 // PyVarObject.ob_size
	gcGenerationSize     = 24 // struct gc_generation
	gcGenerationStatSize = 24 // struct gc_generation_stats
	gcGenerations        = 3  // NUM_GENERATIONS
)

// Flags of types.
// https://github.com/python/cpython/blob/v3.13.0/Include/object.h
const (
	FlagInlineValues   = 1 << 2  // Py_TPFLAGS_INLINE_VALUES, since 3.13
	FlagManagedWeakref = 1 << 3  // Py_TPFLAGS_MANAGED_WEAKREF, since 3.12
	FlagManagedDict    = 1 << 4  // Py_TPFLAGS_MANAGED_DICT, since 3.11
	FlagHeapType       = 1 << 9  // Py_TPFLAGS_HEAPTYPE
	FlagGC             = 1 << 14 // Py_TPFLAGS_HAVE_GC
)

// firstMinor is the oldest version whose structures are known.
const firstMinor = 8

// An offsets row has the value of each version from 3.8 to 3.14.
type offsets [7]uint64

// always is the row of a member that is at the same place in every version.
func always(offset uint64) (row offsets) {
	for i := range row {
		row[i] = offset
	}
	return row
}

// since is the row of a member that is at the same place in every version from a minor version on.
func since(minor int, offset uint64) (row offsets) {
	for i := range row {
		if firstMinor+i >= minor {
			row[i] = offset
		}
	}
	return row
}

// before is the row of a member that is at the same place in every version before a minor version.
func before(minor int, offset uint64) (row offsets) {
	for i := range row {
		if firstMinor+i < minor {
			row[i] = offset
		}
	}
	return row
}

// structuresOf returns the structures of a minor version; nil if it is not known.
func structuresOf(minor int) *Structures {
	version := minor - firstMinor
	if version < 0 || version >= len(offsets{}) {
		return nil
	}

	s := &Structures{
		Minor:           minor,
		TagsManagedDict: minor == 12,
		InlineValues:    minor >= 13,
	}
	switch {
	case minor == 11:
		s.ManagedDict, s.ManagedValues = -24, -32
	case minor >= 12:
		s.ManagedDict = -24 // MANAGED_DICT_OFFSET
	}
	if minor == 11 || minor == 12 {
		s.ValuesHeaderAt = -8
	}

	for _, row := range []struct {
		field *uint64
		of    offsets
	}{
		// https://github.com/python/cpython/blob/v3.10.0/Objects/obmalloc.c
		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_obmalloc.h
		{&s.PoolSize, offsets{4096, 4096, 16384, 16384, 16384, 16384, 16384}},
		{&s.GCHead, always(16)},
		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_object.h
		{&s.PreHeader, since(11, 16)},

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/object.h
		{&s.TypeName, always(24)},
		{&s.TypeBasicsize, always(32)},
		{&s.TypeItemsize, always(40)},
		{&s.TypeFlags, always(168)},
		{&s.TypeDictoffset, always(288)},
		{&s.TypeWeaklistoffset, always(208)},
		{&s.TypeDict, always(264)},
		{&s.TypeBase, always(256)},
		{&s.TypeMro, always(344)},
		{&s.HTName, offsets{848, 840, 848, 848, 856, 856, 856}},
		{&s.HTQualname, offsets{864, 856, 864, 864, 872, 872, 872}},
		{&s.HTCachedKeys, offsets{872, 864, 872, 872, 880, 880, 880}},
		{&s.HTModule, offsets{0, 872, 880, 880, 888, 888, 888}},
		{&s.HeapTypeSize, offsets{880, 880, 888, 904, 920, 928, 936}},

		// https://github.com/python/cpython/blob/v3.14.0/Include/cpython/tupleobject.h
		{&s.ListItem, always(24)},
		{&s.TupleItem, offsets{24, 24, 24, 24, 24, 24, 32}},

		// https://github.com/python/cpython/blob/v3.8.0/Objects/dict-common.h
		// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_dict.h
		{&s.DictUsed, always(16)},
		{&s.DictKeys, always(32)},
		{&s.DictValues, always(40)},
		{&s.KeysHeader, offsets{40, 40, 40, 32, 32, 32, 32}},
		{&s.ValuesHeader, since(11, 8)},

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/setobject.h
		{&s.SetUsed, always(24)},
		{&s.SetMask, always(32)},
		{&s.SetTable, always(40)},
		{&s.SetSmalltable, always(64)},
		{&s.SetEntrySize, always(16)},

		// https://github.com/python/cpython/blob/v3.12.0/Modules/_collectionsmodule.c
		{&s.DequeLeftblock, always(24)},
		{&s.DequeRightblock, always(32)},
		{&s.DequeLeftindex, always(40)},
		{&s.DequeRightindex, always(48)},
		{&s.BlockLeftlink, always(0)},
		{&s.BlockData, always(8)},
		{&s.BlockRightlink, always(520)},
		{&s.DequeBlockSize, always(528)},

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/funcobject.h
		{&s.CellRef, always(16)},
		{&s.FuncGlobals, offsets{24, 24, 16, 16, 16, 16, 16}},
		{&s.FuncName, offsets{64, 64, 32, 32, 32, 32, 32}},
		{&s.FuncQualname, offsets{104, 104, 40, 40, 40, 40, 40}},
		{&s.FuncCode, offsets{16, 16, 48, 48, 48, 48, 48}},
		{&s.FuncDefaults, offsets{32, 32, 56, 56, 56, 56, 56}},
		{&s.FuncKwdefaults, offsets{40, 40, 64, 64, 64, 64, 64}},
		{&s.FuncClosure, offsets{48, 48, 72, 72, 72, 72, 72}},
		{&s.FuncDict, offsets{72, 72, 88, 88, 88, 88, 88}},
		{&s.FuncModule, offsets{88, 88, 104, 104, 104, 104, 104}},
		{&s.MethodFunc, always(16)},
		{&s.MethodSelf, always(24)},

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/code.h
		{&s.CodeArgcount, offsets{16, 16, 16, 56, 52, 52, 52}},
		{&s.CodeKwonlyargcount, offsets{24, 24, 24, 64, 60, 60, 60}},
		{&s.CodeStacksize, offsets{32, 32, 32, 68, 64, 64, 64}},
		{&s.CodeVarnames, before(11, 72)},
		{&s.CodeCellvars, before(11, 88)},
		{&s.CodeFreevars, before(11, 80)},
		{&s.CodeNlocalsplus, offsets{0, 0, 0, 76, 72, 72, 72}},
		{&s.CodeNfreevars, offsets{0, 0, 0, 92, 88, 88, 88}},
		{&s.CodeLocalsplusnames, since(11, 96)},

		// https://github.com/python/cpython/blob/v3.12.0/Modules/_functoolsmodule.c
		{&s.PartialFunc, always(16)},
		{&s.PartialArgs, always(24)},
		{&s.PartialKw, always(32)},
		{&s.LRUFunc, always(88)},
		{&s.LRUCache, always(72)},
		{&s.LRUElemKey, always(40)},
		{&s.LRUElemResult, always(48)},

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/weakrefobject.h
		{&s.WeakrefObject, always(16)},
		{&s.WeakrefSize, offsets{56, 56, 56, 64, 64, 64, 64}},

		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_moduleobject.h
		{&s.ModuleDict, always(16)},
		{&s.ModuleName, always(48)},

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/pyerrors.h
		{&s.ExceptionDict, always(16)},
		{&s.ExceptionArgs, always(24)},
		{&s.ExceptionTraceback, offsets{32, 32, 32, 40, 40, 40, 40}},
		{&s.ExceptionContext, offsets{40, 40, 40, 48, 48, 48, 48}},
		{&s.ExceptionCause, offsets{48, 48, 48, 56, 56, 56, 56}},
		{&s.TracebackNext, always(16)},
		{&s.TracebackFrame, always(24)},

		// https://github.com/python/cpython/blob/v3.9.0/Include/cpython/frameobject.h
		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_frame.h
		// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h
		{&s.FrameValuestack, before(11, 64)},
		{&s.FrameStacktop, offsets{72, 72, 0, 64, 64, 64, 0}},
		{&s.FrameStackdepth, offsets{0, 0, 80, 0, 0, 0, 0}},
		{&s.FrameFrame, since(11, 24)},
		{&s.FrameData, offsets{0, 0, 0, 48, 48, 64, 72}},
		{&s.FrameGlobals, offsets{48, 48, 48, 8, 24, 24, 24}},
		{&s.FrameLocalsplus, offsets{360, 360, 352, 72, 72, 72, 80}},
		{&s.FrameObject, offsets{0, 0, 0, 40, 48, 48, 48}},
		{&s.FrameOwner, offsets{0, 0, 0, 69, 70, 70, 74}},
		{&s.FrameStackpointer, since(14, 64)},
		{&s.StackRefTags, since(14, 3)}, // Py_TAG_BITS
		{&s.GenFrame, before(11, 16)},
		{&s.GenIframe, offsets{0, 0, 0, 80, 72, 72, 72}},
		{&s.GenFrameState, offsets{0, 0, 0, 75, 67, 67, 67}},

		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_gc.h
		// https://github.com/python/cpython/blob/v3.14.5/Include/internal/pycore_interp_structs.h
		{&s.GCGenerations, always(24)},
		{&s.GCGeneration0, before(14, 96)},
		{&s.GCGenerationStats, offsets{128, 128, 128, 128, 128, 128, 120}},
	} {
		*row.field = row.of[version]
	}
	return s
}
