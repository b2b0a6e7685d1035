package objects

import (
	"bytes"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

const (
	maxTypes      = 1 << 16
	maxNotTypes   = 1 << 19 // addresses that are known not to be types
	maxBasicsize  = 1 << 20
	maxTypeName   = 200 // bytes
	maxBases      = 32
	maxMembers    = 256
	maxClassNames = 1 << 8  // entries of a type's dict that are read
	maxNamespace  = 1 << 12 // entries of a module's dict that are read
	staticTypeEnd = 424     // bytes of a PyTypeObject that all versions have, and a few more
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
	"set": kindSet, "frozenset": kindSet, "collections.deque": kindDeque, "cell": kindCell,
	"function": kindFunction, "module": kindModule, "weakref": kindWeakref,
	"weakref.ReferenceType": kindWeakref, "weakproxy": kindWeakref, "weakref.ProxyType": kindWeakref,
	"weakcallableproxy": kindWeakref, "weakref.CallableProxyType": kindWeakref,
	"frame": kindFrame, "generator": kindGenerator, "coroutine": kindGenerator,
	"async_generator": kindGenerator, "functools._lru_cache_wrapper": kindCache, "code": kindCode,
}

// opaqueTypes have data of their own in memory outside of their objects. A word in it that looks
// like a pointer is a number, or left from before. Objects of inlineTypes have it in themselves.
// Objects of dataTypes refer to structures of C that lead to data: no object is in them.
var (
	opaqueTypes = map[string]bool{
		"bytearray": true, "array.array": true, "mmap.mmap": true, "memoryview": true, "_ctypes._CData": true,
		"_io._BufferedIOBase": true, "_io.StringIO": true, "numpy.void": true,
	}
	dataTypes = map[string]bool{
		"ImagingCore": true, "zlib.Compress": true, "zlib.Decompress": true,
		"_bz2.BZ2Compressor": true, "_bz2.BZ2Decompressor": true,
		"_lzma.LZMACompressor": true, "_lzma.LZMADecompressor": true,
	}
	arrayTypes, ctypesTypes = map[string]bool{"numpy.ndarray": true}, map[string]bool{"_ctypes._CData": true}
	inlineTypes             = map[string]bool{
		"bytes":            true,
		"str":              true,
		"int":              true,
		"float":            true,
		"complex":          true,
		"numpy.number":     true,
		"numpy.datetime64": true,
	}
)

// hasBase reports whether a type, or one that it is derived from, is among some by name.
func (h *Heap) hasBase(t *typeInfo, names map[string]bool) bool {
	for range maxBases {
		if names[t.name] {
			return true
		}
		if t.base == 0 {
			return false
		}
		if t = h.typeOf(t.base); t == nil {
			return false
		}
	}
	return false
}

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
}

// typeOf returns the type at an address, nil if there is none. It reads each address once. Types
// lead to other types, and forged ones in a circle: it follows maxBases.
func (h *Heap) typeOf(address uint64) *typeInfo {
	if t, ok := h.types[address]; ok {
		return t
	}
	_, isNone := h.notTypes[address]
	if isNone || !h.mayBeType(address) || h.reading >= maxBases || h.memory.budget.isSpent() {
		return nil
	}
	h.reading++
	t := h.readType(address)
	h.reading--
	if known := h.types[address]; known != nil { // it leads to itself
		return known
	}
	if t == nil || len(h.types) >= maxTypes {
		if len(h.notTypes) >= maxNotTypes {
			clear(h.notTypes)
		}
		h.notTypes[address] = struct{}{}
		return nil
	}
	h.types[address] = t
	return t
}

// mayBeType reports whether an address is where types are: in variables of files and in chunks of
// malloc, as they are larger than pymalloc's blocks.
func (h *Heap) mayBeType(address uint64) bool {
	if address%wordSize != 0 || address < process.PageSize || address >= maxAddress {
		return false
	}
	r, ok := h.memory.regionAt(address)
	return ok && (r.kind == regionHeap || r.kind == regionStatic ||
		r.kind == regionAnonymous && len(h.heaps.Spans) == 0)
}

// learnTypes reads the memory of the possible types of the objects in some blocks, of which it has
// the start of each. To read it one by one, as typeOf does, takes longer than all the rest of a
// census.
func (h *Heap) learnTypes(blocks [][]byte) {
	var unknown []uint64 // pages
	for _, content := range blocks {
		for _, head := range h.heads {
			if head+cpython.ObjectHead > uint64(len(content)) || !h.isRefcnt(mem.Word(content, head)) {
				continue
			}
			address := mem.Word(content, head+cpython.ObType)
			_, isType := h.types[address]
			_, isNone := h.notTypes[address]
			if !isType && !isNone && h.mayBeType(address) {
				first := address &^ (process.PageSize - 1)
				unknown = append(unknown, first)
				if address+staticTypeEnd > first+process.PageSize {
					unknown = append(unknown, first+process.PageSize)
				}
			}
		}
	}
	slices.Sort(unknown)
	unknown = slices.DeleteFunc(slices.Compact(unknown), func(page uint64) bool {
		_, ok := h.pages[page]
		return ok
	})
	for batch := range slices.Chunk(unknown, int(bytesAtOnce/process.PageSize)) {
		h.keepPages(batch)
	}
}

// bytesAtOnce is how much keepPages reads at once, less than hostile.MaxBytes.
const bytesAtOnce = 1 << 20

// keepPages reads pages for peek.
func (h *Heap) keepPages(addresses []uint64) {
	if uint64(len(h.pages)+len(addresses))*process.PageSize > maxKeptBytes {
		h.forget()
	}
	content := make([]byte, uint64(len(addresses))*process.PageSize)
	present, err := h.memory.reader.PeekPagesAt(addresses, content)
	if err != nil {
		return
	}
	for i, address := range addresses {
		h.pages[address] = nil
		if present[i] {
			h.pages[address] = content[uint64(i)*process.PageSize:][:process.PageSize]
		}
	}
}

// mayBeHeader reports whether the numbers of a PyTypeObject are plausible.
func (h *Heap) mayBeHeader(content []byte) bool {
	s := h.structures
	basicsize, itemsize := mem.Word(content, s.TypeBasicsize), mem.Word(content, s.TypeItemsize)
	return mem.Word(content, s.TypeFlags)&cpython.FlagReady != 0 &&
		mem.Word(content, cpython.ObRefcnt) != 0 &&
		basicsize >= cpython.ObjectHead && basicsize < maxBasicsize && itemsize < 1<<16
}

// readType reads the type at an address; nil: it is none.
func (h *Heap) readType(address uint64) *typeInfo {
	s := h.structures
	content, ok := h.peek(address, staticTypeEnd)
	if !ok || !h.mayBeHeader(content) {
		return nil
	}
	if meta := mem.Word(content, cpython.ObType); meta != h.python.TypeType() {
		if m := h.typeOf(meta); m == nil || m.flags&cpython.FlagTypeSubclass == 0 {
			return nil
		}
	}
	t := &typeInfo{
		address: address, basicsize: mem.Word(content, s.TypeBasicsize), itemsize: mem.Word(content, s.TypeItemsize),
		flags: mem.Word(content, s.TypeFlags), dictoffset: int64(mem.Word(content, s.TypeDictoffset)),
		weaklistoffset: int64(mem.Word(content, s.TypeWeaklistoffset)), base: mem.Word(content, s.TypeBase),
	}
	if t.flags&cpython.FlagHaveGC != 0 {
		t.head += s.GCHead
	}
	hasWeakref := s.HasManagedWeakref && t.flags&cpython.FlagManagedWeakref != 0
	if t.flags&cpython.FlagManagedDict != 0 || hasWeakref { // PreHeader is 0 where neither flag exists
		t.head += s.PreHeader
	}
	name, ok := h.cString(mem.Word(content, s.TypeName), maxTypeName)
	if !ok || name == "" {
		return nil
	}
	t.name = name
	if t.flags&cpython.FlagHeapType != 0 {
		t.module, t.qualname = h.heapTypeName(address, name)
		if t.name = t.qualname; t.module != "" {
			t.name = t.module + "." + t.qualname
		}
		t.cachedKeys, _ = h.word(address + s.HTCachedKeys)
	}
	t.kind = h.kindOf(t)
	t.isOpaque, t.isData = h.hasBase(t, opaqueTypes), h.hasBase(t, dataTypes)
	t.isInline, t.isArray = h.hasBase(t, inlineTypes), h.hasBase(t, arrayTypes)
	t.isCtypes = h.hasBase(t, ctypesTypes)
	t.isTensor = h.hasBase(t, torch.TensorTypes)
	return t
}

// heapTypeName returns the module and the qualified name of a type that was made at run time. The
// module is empty for builtins, and where the name has it already.
func (h *Heap) heapTypeName(address uint64, name string) (module, qualname string) {
	if strings.Contains(name, ".") { // made by C code
		return "", strings.TrimPrefix(name, "builtins.")
	}
	if at, ok := h.word(address + h.structures.HTQualname); ok {
		if text, ok := h.python.Text(at); ok && text != "" {
			name = text
		}
	}
	dict, _ := h.word(address + h.structures.TypeDict)
	for _, e := range h.namespace(dict, maxClassNames) {
		if h.memory.budget.isSpent() {
			break
		}
		if key, ok := h.python.Text(e.key); ok && key == "__module__" {
			if module, _ = h.python.Text(e.value); module == "builtins" {
				module = ""
			}
			break
		}
	}

	return module, name
}

// kindOf finds the kind of a type by its flags, its name, or the name of a base.
func (h *Heap) kindOf(t *typeInfo) typeKind {
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
	for range maxBases {
		if t.flags&cpython.FlagHeapType == 0 || t.base == 0 || strings.Contains(t.name, ".") {
			if kind, ok := kindsOfNames[t.name]; ok {
				return kind
			}
		}
		base := t.base
		if base == 0 {
			break
		}
		if t = h.typeOf(base); t == nil {
			break
		}
		if t.kind != kindOther {
			return t.kind
		}
	}

	return kindOther
}

// cString returns the C string at an address, printable, of at most limit bytes.
func (h *Heap) cString(address uint64, limit int) (string, bool) {
	page := process.PageSize
	first := min(uint64(limit), page-address%page)
	text := make([]byte, first)
	if address == 0 || address >= maxAddress || h.memory.process.ReadMemory(address, text) != nil {
		return "", false
	}
	if end := bytes.IndexByte(text, 0); end >= 0 {
		return growth.Printable(string(text[:end])), true
	}
	rest := make([]byte, uint64(limit)-first)
	if len(rest) > 0 && h.memory.process.ReadMemory(address+first, rest) != nil {
		return "", false
	}
	text = append(text, rest...)
	end := bytes.IndexByte(text, 0)
	if end < 0 {
		return "", false
	}

	return growth.Printable(string(text[:end])), true
}

// word reads a word.
func (h *Heap) word(address uint64) (uint64, bool) {
	b, ok := h.peek(address, wordSize)
	if !ok {
		return 0, false
	}
	return mem.Word(b, 0), true
}

// peek reads bytes that are in RAM, of at most a page. It keeps the pages that it reads, until
// forget.
func (h *Heap) peek(address uint64, size int) ([]byte, bool) {
	page := process.PageSize
	if address < page || address >= maxAddress || uint64(size) > page {
		return nil, false
	}
	first, offset := h.page(address&^(page-1)), address%page
	if first == nil {
		return nil, false
	}
	if offset+uint64(size) <= page {
		return first[offset : offset+uint64(size)], true
	}
	second := h.page(address&^(page-1) + page)
	if second == nil {
		return nil, false
	}

	return slices.Concat(first[offset:], second[:offset+uint64(size)-page]), true
}

// page returns a page of memory; nil: it is not in RAM.
func (h *Heap) page(start uint64) []byte {
	if content, ok := h.pages[start]; ok {
		return content
	}
	content := make([]byte, process.PageSize)
	present, err := h.memory.reader.PeekPages(start, content)
	if err != nil || !present[0] {
		content = nil
	}
	if uint64(len(h.pages)+1)*process.PageSize > maxKeptBytes {
		h.forget()
	}
	h.pages[start] = content
	return content
}

// maxKeptBytes bounds the pages that peek keeps.
const maxKeptBytes = 16 << 20

// forget makes peek read again.
func (h *Heap) forget() {
	if h.pages == nil {
		h.pages = make(map[uint64][]byte)
	}
	clear(h.pages)
}

// memberNames returns the fields of a type's objects that have a name and refer to objects: its
// members, and the members of its bases. PyMemberDef is {name, type, offset, flags, doc}.
func (h *Heap) memberNames(t *typeInfo) map[uint64]string {
	if t.members != nil {
		return t.members
	}
	t.members = make(map[uint64]string)
	for base, n := t, 0; base != nil && n < maxBases; n++ {
		at, ok := h.word(base.address + cpython.TypeMembers)
		for i := uint64(0); ok && at != 0 && i < maxMembers && !h.memory.budget.isSpent(); i++ {
			var def [cpython.MemberDefSize]byte
			if h.memory.process.ReadMemory(at+i*cpython.MemberDefSize, def[:]) != nil {
				break
			}
			nameAt := mem.Word(def[:], cpython.MemberName)
			if nameAt == 0 {
				break
			}
			kind := mem.Word32(def[:], cpython.MemberType)
			if kind != cpython.MemberObject && kind != cpython.MemberObjectEx {
				continue
			}
			name, ok := h.cString(nameAt, maxTypeName)
			offset := mem.Word(def[:], cpython.MemberOffset)
			if _, has := t.members[offset]; ok && !has && !strings.HasPrefix(name, "__") {
				t.members[offset] = name
			}
		}
		base = h.typeOf(base.base)
	}

	return t.members
}

// isZombieFrame reports whether a block has a frame that has ended, and that its code object keeps
// for the next call: co_zombieframe, before 3.11.
func (h *Heap) isZombieFrame(content []byte) bool {
	head := h.structures.GCHead
	if !h.structures.HasFrameObjects() || head+cpython.ObjectHead > uint64(len(content)) ||
		mem.Word(content, head) != 0 {
		return false
	}
	t := h.typeOf(mem.Word(content, head+cpython.ObType))
	return t != nil && t.kind == kindFrame
}

// isRefcnt reports whether the first word of an object may be a reference count. From 3.12 on
// immortal objects have one of 2^30 and more, and in 3.14 the highest 16 bits are flags.
func (h *Heap) isRefcnt(ob uint64) bool {
	low := ob & 0xffffffff
	isImmortal := low >= h.structures.ImmortalRefcnt
	return low != 0 && ob>>32&0xffff == 0 && (low < maxRefcnt || isImmortal)
}

// maxRefcnt bounds the reference counts that are believed. Above it are addresses of programs and
// heaps.
const maxRefcnt = 1 << 24

// objectIn returns the object at the start of a block, and its type; nil: the block has none.
// content is at least the start of the block.
func (h *Heap) objectIn(b block, content []byte) (object uint64, t *typeInfo) {
	for _, head := range h.heads {
		if head+cpython.ObjectHead > uint64(len(content)) || head+cpython.ObjectHead > b.Len() {
			break
		}
		if !h.isRefcnt(mem.Word(content, head+cpython.ObRefcnt)) {
			continue
		}
		t := h.typeOf(mem.Word(content, head+cpython.ObType))
		if t != nil && t.head == head && head+t.basicsize <= b.Len()+wordSize {
			return b.Start + head, t
		}
	}
	return 0, nil
}
