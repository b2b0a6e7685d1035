package objects

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

const (
	maxTypes      = 1 << 16
	maxBasicsize  = 1 << 20
	maxTypeName   = 200 // bytes
	maxBases      = 32
	maxMembers    = 256
	maxClassNames = 1 << 8  // entries of a type's dict that are read
	maxNamespace  = 1 << 12 // entries of a module's dict that are read
)

// A typeKind is how objects of a type refer to others.
type typeKind uint8

const (
	kindOther typeKind = iota
	kindList
	kindTuple
	kindDict
	kindSet
	kindDeque
	kindCell
	kindFunction
	kindModule
	kindType
	kindWeakref
	kindFrame
	kindGenerator
	kindCache
	kindCode
)

// kindsOfNames are the kinds of types that no flag shows, by the names of them or of a base.
var kindsOfNames = map[string]typeKind{
	"set": kindSet, "frozenset": kindSet, "frozendict": kindDict, "collections.deque": kindDeque,
	"cell":     kindCell,
	"function": kindFunction, "module": kindModule, "weakref": kindWeakref,
	"weakref.ReferenceType": kindWeakref,
	"weakproxy":             kindWeakref, "weakref.ProxyType": kindWeakref,
	"weakcallableproxy": kindWeakref, "weakref.CallableProxyType": kindWeakref,
	"frame": kindFrame, "generator": kindGenerator, "coroutine": kindGenerator,
	"async_generator": kindGenerator, "functools._lru_cache_wrapper": kindCache, "code": kindCode,
}

// opaqueTypes have data of their own in memory outside of their objects. A word in it that looks
// like a pointer is a number, or left from before. Objects of inlineTypes have it in themselves.
// Objects of dataTypes refer to structures of C that lead to data: no object is in them.
var (
	opaqueTypes = map[string]bool{
		"bytearray": true, "array.array": true, "mmap.mmap": true, "memoryview": true,
		"_ctypes._CData": true, "_io._BufferedIOBase": true, "_io.StringIO": true,
		"numpy.void": true,
	}
	dataTypes = map[string]bool{
		"ImagingCore": true, "zlib.Compress": true, "zlib.Decompress": true,
		"_bz2.BZ2Compressor": true, "_bz2.BZ2Decompressor": true,
		"_lzma.LZMACompressor": true, "_lzma.LZMADecompressor": true,
	}
	inlineTypes = map[string]bool{
		"bytes": true, "str": true, "int": true, "float": true, "complex": true,
		"numpy.number": true, "numpy.datetime64": true,
	}
	arrayTypes  = map[string]bool{"numpy.ndarray": true}
	ctypesTypes = map[string]bool{"_ctypes._CData": true}
	methodTypes = map[string]bool{
		"builtin_function_or_method": true, "method_descriptor": true, "classmethod_descriptor": true,
	}
)

// A typeInfo is a type of the process.
type typeInfo struct {
	address             uint64
	name                string // with its module, but for builtins
	module, qualname    string // of a type that was made at run time
	kind                typeKind
	basicsize, itemsize uint64
	flags               uint64
	dictoffset          int64
	weaklistoffset      int64
	base                uint64
	// head is the number of bytes before an object in its block: of the garbage collector's links,
	// and of the pointers to its dict and weak references.
	head uint64
	// members are the fields with a name, such as __slots__, by offset; nil: not read yet.
	members map[uint64]string
	// cachedKeys is the table of the names of attributes that instances share; 0: there is none.
	cachedKeys uint64
	counted    int // index in the counts of a census, plus 1
	named      int // 1: it can be reached by its name, -1: it cannot, 0: not known yet
	// isOpaque, isData and isInline are set for types that derive from opaqueTypes, dataTypes or
	// inlineTypes; isArray and isCtypes for arrays of NumPy and for objects of ctypes.
	isOpaque, isData, isInline, isArray, isCtypes bool
	isTensor                                      bool // torch.Tensor, or derived from it
	isMethod                                      bool // a function of C: it has a PyMethodDef

	identity uint64 // of the fields of the PyTypeObject, by typeTable.seed
}

// qualifiedName returns the name of a type within its module.
func (t *typeInfo) qualifiedName() string {
	if t.module != "" {
		return t.qualname
	}
	return t.name
}

// isLeaf reports whether objects of a type refer to nothing.
func (t *typeInfo) isLeaf() bool { return t.isInline && t.flags&cpython.FlagHaveGC == 0 }

// A typeTable reads the types of Python objects, and keeps them: each object leads to its type.
type typeTable struct {
	python   *interpreter.Runtime
	version  *cpython.Version
	heads    []uint64 // bytes that may lie before an object in its block
	hasHeaps bool     // heaps of glibc are known: types made at run time lie in them
	memory   *memory
	pages    *pageCache

	recent [1 << recentBits]recentType
	known  map[uint64]*typeInfo
	// before are the types of the last refresh, most of which are the same: the names of all types
	// take longer to read than a heap of 100 MiB. seed is of all refreshes.
	before map[uint64]*typeInfo
	seed   maphash.Seed
	none   *noTypes
	depth  int // of types that lead to each other, and are being read
}

// A recentType is a result of typeTable.at: most objects that lie near each other are of few types.
type recentType struct {
	address uint64
	t       *typeInfo // nil: there is none
}

const recentBits = 10

// noTypes remembers addresses that have no type, the last four of each place. There are as many as
// structures of C++, and most are met once.
type noTypes [1 << noTypesBits][4]uint64

const noTypesBits = 15

func (n *noTypes) has(address uint64) bool {
	place := &n[placeOf(address, noTypesBits)]
	return place[0] == address || place[1] == address || place[2] == address || place[3] == address
}

func (n *noTypes) add(address uint64) {
	place := &n[placeOf(address, noTypesBits)]
	place[0], place[1], place[2], place[3] = address, place[0], place[1], place[2]
}

// placeOf returns the place of an address in a table of 1 << bits: multiplicative hashing, Knuth,
// TAOCP 3, section 6.4.
func placeOf(address, bits uint64) uint64 { return address * 0x9e3779b97f4a7c15 >> (64 - bits) }

// hasBase reports whether a type, or one that it is derived from, is among some by name.
func (types *typeTable) hasBase(t *typeInfo, names map[string]bool) bool {
	for range maxBases {
		if names[t.name] {
			return true
		}
		if t.base == 0 {
			return false
		}
		if t = types.at(t.base); t == nil {
			return false
		}
	}
	return false
}

// at returns the type at an address, nil if there is none. It reads each address once. Types
// lead to other types, and forged ones in a circle: it follows maxBases.
func (types *typeTable) at(address uint64) *typeInfo {
	if address%wordSize != 0 { // most words of data
		return nil
	}
	recent := &types.recent[placeOf(address, recentBits)]
	if recent.address == address {
		return recent.t
	}
	t := types.known[address]
	if t != nil || types.none.has(address) {
		*recent = recentType{address, t}
		return t
	}
	if !types.mayBe(address) || types.depth >= maxBases ||
		types.memory.budget.isSpent() {
		return nil
	}

	// Its own type and its base are types, too, and are read on the way.
	types.depth++
	t = types.read(address)
	types.depth--
	if known := types.known[address]; known != nil { // it leads to itself
		return known
	}

	if t == nil || len(types.known) >= maxTypes {
		types.none.add(address)
		return nil
	}

	types.known[address] = t
	return t
}

// mayBe reports whether an address is where types are: in variables of files and in chunks of
// malloc, as they are larger than pymalloc's blocks.
func (types *typeTable) mayBe(address uint64) bool {
	if address%wordSize != 0 || address < process.PageSize || address >= maxAddress {
		return false
	}

	r, ok := types.memory.regionAt(address)
	return ok && (r.kind == regionHeap || r.kind == regionStatic ||
		r.kind == regionAnonymous && !types.hasHeaps)
}

// prepare reads the types of the objects of a batch of pieces. To read them one by one costs a call
// each.
func (types *typeTable) prepare(pieces []*piece) {
	var unknown []uint64
	for _, p := range pieces {
		switch p.region.kind {
		case regionAnonymous:
			size := p.memory.poolSize
			for start := mem.AlignUp(p.Start, size); start+size <= p.End(); start += size {
				for b := range pymalloc.Used(p.At(start, size), start) {
					unknown = types.appendUnknown(unknown, p.At(b.Start, b.Len()))
				}
			}
		case regionHeap:
			for _, k := range p.chunks {
				if user := k.User(); k.InUse {
					content := p.At(user.Start, min(user.Len(), chunkContents))
					unknown = types.appendUnknown(unknown, content)
				}
			}
		}
	}

	types.readAll(unknown)
}

// learn reads the memory of the possible types of the objects in some blocks, of which it has
// the start of each. To read it one by one, as at does, takes longer than all the rest of a
// census.
func (types *typeTable) learn(blocks [][]byte) {
	var unknown []uint64
	for _, content := range blocks {
		unknown = types.appendUnknown(unknown, content)
	}
	types.readAll(unknown)
}

// appendUnknown appends the addresses of the possible types of the object in a block that are
// neither known nor known not to be types.
func (types *typeTable) appendUnknown(unknown []uint64, content []byte) []uint64 {
	for _, head := range types.heads {
		if head+cpython.ObjectHead > uint64(len(content)) ||
			!types.version.IsRefcnt(mem.Word(content, head)) {
			continue
		}

		address := mem.Word(content, head+cpython.ObType)
		isPlausible := address%wordSize == 0 && address >= process.PageSize && address < maxAddress
		if !isPlausible || types.recent[placeOf(address, recentBits)].address == address {
			continue
		}
		if !types.none.has(address) && types.known[address] == nil && types.mayBe(address) {
			unknown = append(unknown, address)
		}
	}
	return unknown
}

// readAll reads the types at some addresses, many at once. Most words of C++ that look like an
// object with a type lead to no object at all, so that it reads the head of each before its pages.
func (types *typeTable) readAll(unknown []uint64) {
	slices.Sort(unknown)
	unknown = slices.Compact(unknown)
	heads, err := types.memory.reader.Peek(unknown, cpython.ObjectHead)
	if err != nil {
		return
	}
	var likely []uint64
	for i, address := range unknown {
		if head := heads[i]; head == nil || types.mayBeType(head) {
			likely = append(likely, address) // that are not in RAM may be in a file
		} else {
			types.none.add(address)
		}
	}

	page := func(address uint64) uint64 { return address &^ (process.PageSize - 1) }
	for some := range slices.Chunk(likely, int(bytesAtOnce/process.PageSize)/2) {
		var pages []uint64
		for _, address := range some {
			pages = append(pages, page(address), page(address+cpython.TypeHead))
		}
		slices.Sort(pages)
		types.pages.keep(slices.Compact(pages))
		for _, address := range some {
			types.at(address)
		}
	}
}

// mayBeType reports whether the head of an object may be of a type: then its own type is a type of
// types.
func (types *typeTable) mayBeType(head []byte) bool {
	meta := mem.Word(head, cpython.ObType)
	if !types.version.IsRefcnt(mem.Word(head, cpython.ObRefcnt)) {
		return false
	}
	if t := types.known[meta]; t != nil {
		return t.flags&cpython.FlagTypeSubclass != 0
	}
	return !types.none.has(meta) && types.mayBe(meta)
}

// mayBeHeader reports whether the numbers of a PyTypeObject are plausible.
func (types *typeTable) mayBeHeader(content []byte) bool {
	s := types.version
	basicsize, itemsize := mem.Word(content, s.TypeBasicsize), mem.Word(content, s.TypeItemsize)
	return mem.Word(content, s.TypeFlags)&cpython.FlagReady != 0 &&
		mem.Word(content, cpython.ObRefcnt) != 0 &&
		basicsize >= cpython.ObjectHead && basicsize < maxBasicsize && itemsize < 1<<16
}

// read reads the type at an address; nil: it is none.
func (types *typeTable) read(address uint64) *typeInfo {
	s := types.version
	content, ok := types.pages.peek(address, cpython.TypeHead)
	if !ok || !types.mayBeHeader(content) {
		return nil
	}

	// The type of a type is type itself, or derives from it. Few other words do.
	if meta := mem.Word(content, cpython.ObType); meta != types.python.TypeType() {
		if m := types.at(meta); m == nil || m.flags&cpython.FlagTypeSubclass == 0 {
			return nil
		}
	}

	// tp_version_tag is among these: a type that has been used has a tag of its own, and loses it
	// when it changes.
	identity := maphash.Bytes(types.seed, content[cpython.ObType:])
	if old := types.before[address]; old != nil && old.identity == identity {
		same := *old
		same.members, same.counted, same.named = nil, 0, 0
		return &same
	}

	t := &typeInfo{
		address: address, identity: identity,
		basicsize:      mem.Word(content, s.TypeBasicsize),
		itemsize:       mem.Word(content, s.TypeItemsize),
		flags:          mem.Word(content, s.TypeFlags),
		dictoffset:     int64(mem.Word(content, s.TypeDictoffset)),
		weaklistoffset: int64(mem.Word(content, s.TypeWeaklistoffset)),
		base:           mem.Word(content, s.TypeBase),
	}
	if t.flags&cpython.FlagHaveGC != 0 {
		t.head += s.GCHead
	}
	// PreHeader is 0 where neither flag exists.
	hasWeakref := s.HasManagedWeakref && t.flags&cpython.FlagManagedWeakref != 0
	if t.flags&cpython.FlagManagedDict != 0 || hasWeakref {
		t.head += s.PreHeader
	}

	name, ok := types.pages.cString(mem.Word(content, s.TypeName), maxTypeName)
	if !ok || name == "" {
		return nil
	}
	t.name = name
	if t.flags&cpython.FlagHeapType != 0 {
		t.module, t.qualname = types.heapTypeName(address, name)
		if t.name = t.qualname; t.module != "" {
			t.name = t.module + "." + t.qualname
		}
		t.cachedKeys, _ = types.pages.word(address + s.HTCachedKeys)
	}

	t.kind = types.kindOf(t)
	t.isOpaque, t.isData = types.hasBase(t, opaqueTypes), types.hasBase(t, dataTypes)
	t.isInline, t.isArray = types.hasBase(t, inlineTypes), types.hasBase(t, arrayTypes)
	t.isCtypes = types.hasBase(t, ctypesTypes)
	t.isMethod = types.hasBase(t, methodTypes)
	t.isTensor = types.hasBase(t, torch.TensorTypes)
	return t
}

// heapTypeName returns the module and the qualified name of a type that was made at run time. The
// module is empty for builtins, and where the name has it already.
func (types *typeTable) heapTypeName(address uint64, name string) (module, qualname string) {
	if strings.Contains(name, ".") { // made by C code
		return "", strings.TrimPrefix(name, "builtins.")
	}
	// tp_name is the name that the class had when it was made, and __qualname__ its place.
	if at, ok := types.pages.word(address + types.version.HTQualname); ok {
		if text, ok := types.python.Text(at); ok && text != "" {
			name = text
		}
	}

	dict, _ := types.pages.word(address + types.version.TypeDict)
	if value, ok := types.python.Lookup(dict, "__module__", maxClassNames); ok {
		module, _ = types.python.Text(value)
	}
	if module == "builtins" {
		module = ""
	}
	return module, name
}

// kindOf finds the kind of a type by its flags, its name, or the name of a base.
func (types *typeTable) kindOf(t *typeInfo) typeKind {
	switch {
	case t.flags&cpython.FlagListSubclass != 0:
		return kindList
	case t.flags&cpython.FlagTupleSubclass != 0:
		return kindTuple
	case t.flags&cpython.FlagDictSubclass != 0:
		return kindDict
	case t.flags&cpython.FlagTypeSubclass != 0:
		return kindType
	}

	// A class of the program may have the name of a type of CPython: only static types, and types
	// of C code with their module, are known by their names.
	for range maxBases {
		if t.flags&cpython.FlagHeapType == 0 || t.base == 0 || strings.Contains(t.name, ".") {
			if kind, ok := kindsOfNames[t.name]; ok {
				return kind
			}
		}
		if t.base == 0 {
			break
		}
		if t = types.at(t.base); t == nil {
			break
		}
		if t.kind != kindOther {
			return t.kind
		}
	}
	return kindOther
}

// baseSize returns the size of the objects of a base of a type.
func (types *typeTable) baseSize(t *typeInfo, name string) uint64 {
	for range maxBases {
		if t.name == name || t.base == 0 {
			break
		}
		base := types.at(t.base)
		if base == nil {
			break
		}
		t = base
	}
	return t.basicsize
}

// memberNames returns the fields of a type's objects that have a name and refer to objects: its
// members, and the members of its bases.
func (types *typeTable) memberNames(t *typeInfo) map[uint64]string {
	if t.members != nil {
		return t.members
	}

	t.members = make(map[uint64]string)
	for base, n := t, 0; base != nil && n < maxBases; n++ {
		if at, ok := types.pages.word(base.address + cpython.TypeMembers); ok && at != 0 {
			types.addMembers(t, at)
		}
		base = types.at(base.base)
	}
	return t.members
}

// addMembers adds the names in an array of PyMemberDef to a type. Names of an outer class win.
func (types *typeTable) addMembers(t *typeInfo, at uint64) {
	for i := uint64(0); i < maxMembers && !types.memory.budget.isSpent(); i++ {
		var def [cpython.MemberDefSize]byte
		if types.memory.process.ReadMemory(at+i*cpython.MemberDefSize, def[:]) != nil {
			return
		}
		nameAt := mem.Word(def[:], cpython.MemberName)
		if nameAt == 0 { // the end of the array
			return
		}

		kind := mem.Word32(def[:], cpython.MemberType)
		if kind != cpython.MemberObject && kind != cpython.MemberObjectEx {
			continue
		}
		name, ok := types.pages.cString(nameAt, maxTypeName)
		offset := mem.Word(def[:], cpython.MemberOffset)
		if _, has := t.members[offset]; ok && !has && !strings.HasPrefix(name, "__") {
			t.members[offset] = name
		}
	}
}

// isZombieFrame reports whether a block has a frame that has ended, and that its code object keeps
// for the next call: co_zombieframe, before 3.11.
func (types *typeTable) isZombieFrame(content []byte) bool {
	head := types.version.GCHead
	if !types.version.HasFrameObjects() || head+cpython.ObjectHead > uint64(len(content)) ||
		mem.Word(content, head) != 0 {
		return false
	}

	t := types.at(mem.Word(content, head+cpython.ObType))
	return t != nil && t.kind == kindFrame
}

// objectIn returns the object at the start of a block, and its type; nil: the block has none.
// content is at least the start of the block.
//
// It is an object if the word at ob_type leads to a type, and if the type has such a head and fits
// into the block. Random words never do. A block that was handed out again for other data may still
// have the head of an object that is gone.
func (types *typeTable) objectIn(b block, content []byte) (object uint64, t *typeInfo) {
	// Several heads may fit: the type decides, as it says how long the head of its objects is.
	for _, head := range types.heads {
		if head+cpython.ObjectHead > uint64(len(content)) || head+cpython.ObjectHead > b.Len() {
			break
		}
		if !types.version.IsRefcnt(mem.Word(content, head+cpython.ObRefcnt)) {
			continue
		}

		t := types.at(mem.Word(content, head+cpython.ObType))
		if t != nil && t.head == head && head+t.basicsize <= b.Len()+wordSize {
			return b.Start + head, t
		}
	}
	return 0, nil
}
