package cpython

// Structures are the offsets of the members of objects, in builds with the GIL.
type Structures struct {
	PoolSize uint64 // POOL_SIZE of pymalloc
	GCHead   uint64 // sizeof(PyGC_Head), which lies before an object
	// PreHeader is the size of the part before the GC head of an object whose type has
	// FlagManagedDict or FlagManagedWeakref: two words since 3.11.
	PreHeader uint64
	// HasManagedWeakref is set if types have FlagManagedWeakref.
	HasManagedWeakref bool
	// ManagedDict is where the pointer to the dict lies, from the object on: negative.
	// ManagedValues is where the pointer to the values lies in 3.11, which has both. In 3.12 they
	// share one word.
	ManagedDict, ManagedValues int64
	// TagsManagedDict is set in 3.12: the word points to the values if its lowest bit is set; the
	// pointer is the word plus 1.
	TagsManagedDict bool
	// InlineValues is set from 3.13 on: an object whose type has FlagInlineValues has its values
	// behind tp_basicsize.
	InlineValues bool
	// ImmortalRefcnt is the least that the low half of ob_refcnt has in an immortal object.
	// _Py_IMMORTAL_REFCNT and its variants are not less.
	ImmortalRefcnt uint64
	// HasLongTag is set if an int has lv_tag, with its sign, in place of a signed ob_size.
	HasLongTag bool

	// PyTypeObject and PyHeapTypeObject.
	TypeName, TypeBasicsize, TypeItemsize, TypeFlags, TypeDictoffset, TypeWeaklistoffset uint64
	TypeDict, TypeBase                                                                   uint64
	HTQualname, HTCachedKeys                                                             uint64

	// PyListObject and PyTupleObject: the pointer to the items, and the items.
	ListItem, TupleItem uint64

	// PyDictObject. Keys decodes its keys, ValuesItems its values.
	DictUsed, DictKeys, DictValues uint64
	// KeysHeader is the size of a PyDictKeysObject without its indices and entries.
	KeysHeader uint64
	// HasKeysKind is set if a PyDictKeysObject has dk_kind and logarithms of its sizes.
	HasKeysKind bool
	// ValuesForm is the form of the values of a split table. ValuesHeader is the size of the header
	// that ValuesItems decodes, and ValuesHeaderAt where it begins, from the pointer to the values
	// on: negative in 3.11 and 3.12.
	ValuesForm     ValuesForm
	ValuesHeader   uint64
	ValuesHeaderAt int64

	// PySetObject. An entry begins with the key, and the hash value follows.
	SetUsed, SetMask, SetTable, SetSmalltable, SetEntrySize uint64

	// dequeobject, and the blocks of its items.
	DequeLeftblock, DequeRightblock, DequeLeftindex, DequeRightindex uint64
	DequeMaxlen                                                      uint64
	BlockLeftlink, BlockData, BlockRightlink                         uint64

	// PyFunctionObject.
	FuncGlobals, FuncQualname, FuncCode, FuncDefaults, FuncKwdefaults uint64
	FuncClosure, FuncDict, FuncModule                                 uint64

	// PyCodeObject. The names of the variables are in three tuples before 3.11, in one since.
	CodeArgcount, CodeKwonlyargcount, CodeStacksize     uint64
	CodeVarnames, CodeCellvars, CodeFreevars            uint64
	CodeNlocalsplus, CodeNfreevars, CodeLocalsplusnames uint64

	// lru_cache_object: func, cache and maxsize.
	LRUFunc, LRUCache, LRUMaxsize uint64

	WeakrefSize uint64 // sizeof(PyWeakReference)
	ModuleDict  uint64 // PyModuleObject.md_dict

	// PyFrameObject. Before 3.11 it is the frame.
	FrameValuestack uint64 // f_valuestack
	FrameFStacktop  uint64 // f_stacktop: a pointer, 0 while the frame is executing
	FrameStackdepth uint64 // f_stackdepth: an int, negative while the frame is executing
	FrameGen        uint64 // f_gen: a generator that the frame does not keep, but is kept by
	// FrameFrame is f_frame, the pointer to the _PyInterpreterFrame. FrameData is _f_frame_data,
	// where that frame lies once it has ended.
	FrameFrame, FrameData uint64
	// _PyInterpreterFrame, before 3.11 PyFrameObject.
	FrameGlobals, FrameLocalsplus uint64
	// _PyInterpreterFrame.
	FrameObject       uint64 // frame_obj
	FrameStacktop     uint64 // stacktop: an index in localsplus, an int, negative while executing
	FrameStackpointer uint64 // stackpointer, 0 while the frame is executing
	// StackRefTags are the bits of a word of localsplus that are no part of the pointer. The word
	// is no pointer if all are set.
	StackRefTags uint64

	// PyGenObject.
	GenFrame      uint64 // gi_frame: a pointer to the frame, 0 if it has ended
	GenIframe     uint64 // gi_iframe: the _PyInterpreterFrame itself
	GenFrameState uint64 // gi_frame_state: a signed byte
	// FrameExecuting is the gi_frame_state of a generator that runs. FRAME_CREATED and
	// FRAME_SUSPENDED are less, FRAME_CLEARED is more.
	FrameExecuting uint64

	// struct _gc_runtime_state.
	GCEnabled                        uint64 // enabled, an int
	GCGenerations, GCGenerationStats uint64
	GCStatsForm                      StatsForm // of GCGenerationStats
	GCGeneration0                    uint64    // generation0: the pointer to the first of the lists
	GCLongLivedTotal                 uint64    // long_lived_total; long_lived_pending follows it
	// FirstFullGC is the PY_VERSION_HEX of the first release whose collector collects the old
	// objects at once; 0: all do.
	FirstFullGC uint32
}

// Offsets and sizes that are the same in every version, in bytes.
const (
	ObRefcnt           = 0   // PyObject.ob_refcnt
	ObType             = 8   // PyObject.ob_type
	FreeThreadedObType = 24  // behind ob_tid, flags, and the two reference counts
	ObSize             = 16  // PyVarObject.ob_size
	ObjectHead         = 16  // sizeof(PyObject)
	TypeMembers        = 240 // PyTypeObject.tp_members
	LongDigits         = 24  // PyLongObject.ob_digit
	SetMinsize         = 8   // PySet_MINSIZE: entries of smalltable
	WeakrefCallback    = 24  // PyWeakReference.wr_callback
	ContextVarCached   = 32  // PyContextVar.var_cached

	TypeHead = 424 // bytes of a PyTypeObject that all versions have, and a few more

	GCGenerationSize      = 24 // struct gc_generation
	GCGenerationThreshold = 16 // threshold, an int
	GCGenerationCount     = 20 // count, an int
	GCNumGenerations      = 3  // NUM_GENERATIONS
	GCPrev                = 8  // PyGC_Head._gc_prev
	GCFlags               = 3  // in the lowest bits of _gc_prev and _gc_next
)

// The debug hooks on the allocators put a head before each block. It ends with a byte several times.
// https://docs.python.org/3/c-api/memory.html#c.PyMem_SetupDebugHooks
const (
	ForbiddenByte  = 0xfd // PYMEM_FORBIDDENBYTE
	ForbiddenCount = 7
)

// PyMemberDef. MemberObject and MemberObjectEx are its types of references: _Py_T_OBJECT, and
// Py_T_OBJECT_EX.
// https://github.com/python/cpython/blob/v3.14.0/Include/descrobject.h
const (
	MemberName, MemberType, MemberOffset, MemberDefSize = 0, 8, 16, 40 // bytes
	MemberObject, MemberObjectEx                        = 6, 16
)

// PyMethodDef. ml_name and ml_doc are strings of C.
// https://github.com/python/cpython/blob/v3.14.0/Include/methodobject.h
const MethodName, MethodDoc = 0, 24 // bytes

// CDataObject of ctypes. The memory at b_ptr is data, which it owns by b_needsfree, or has from an
// object in b_base or b_objects. A small value is in the object itself.
// https://github.com/python/cpython/blob/v3.13.0/Modules/_ctypes/ctypes.h
const (
	CDataPtr       = 16 // b_ptr
	CDataNeedsfree = 24 // b_needsfree
	CDataBase      = 32 // b_base
	CDataObjects   = 64 // b_objects
	CDataValue     = 72 // b_value, or 8 bytes behind
	CDataValueEnd  = 96
)

// Flags of types: Py_TPFLAGS_...
// https://github.com/python/cpython/blob/v3.14.0/Include/object.h
const (
	FlagInlineValues   = 1 << 2 // since 3.13
	FlagManagedWeakref = 1 << 3 // since 3.12
	FlagManagedDict    = 1 << 4 // since 3.11
	FlagHeapType       = 1 << 9
	FlagReady          = 1 << 12
	FlagHaveGC         = 1 << 14
	FlagListSubclass   = 1 << 25
	FlagTupleSubclass  = 1 << 26
	FlagDictSubclass   = 1 << 29
	FlagTypeSubclass   = 1 << 31
)
