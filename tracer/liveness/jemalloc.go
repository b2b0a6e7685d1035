package liveness

import (
	"bytes"
	"errors"
	"time"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// jemalloc is jemalloc 5.3 in a process, with its default page size and address width. A radix tree
// leads from the page of each object to the extent that the object lies in, an edata_t. While an
// object is alive, four things do not change:
//
//   - the element of the tree for its page, and the extent's address and size,
//   - the extent's state, which is active,
//   - its size class (szind),
//   - in a slab, the bit of its region.
//
// Freed objects that a thread cache keeps look as if they were alive. They are in the stacks of the
// cache's bins.
//
// https://github.com/jemalloc/jemalloc/tree/5.3.0/include/jemalloc/internal
type jemalloc struct {
	root      uint64 // address of arena_emap_global.rtree.root
	variables mem.Spans
	tcacheQL  uint64 // offset of tcache_ql in an arena_t; 0 until Check has learned it
	// cachedSince is when a check first found an object of this address in a thread cache. All
	// checks since have found it there.
	cachedSince map[uint64]time.Time
}

// jeVersion is what mallctl("version") returns, as in VERSION of a release.
const jeVersion = "5.3.0-"

// errNoTree is the reason for which the objects of a jemalloc cannot be checked.
var errNoTree = errors.New("no tree of jemalloc's extents in a layout that is known (5.3's is)")

// rtree.h. Both levels of the tree have 2^18 elements of 8 bytes (LG_VADDR 48, LG_PAGE 12).
const (
	jePageBits   = 12
	jeLevelBits  = 18
	jeNodeBytes  = 8 << jeLevelBits
	jeLevelMask  = 1<<jeLevelBits - 1
	jeLeafShift  = jePageBits + jeLevelBits // of an address, to its element of the root
	jeMaxAddress = 1 << (jeLeafShift + jeLevelBits)
)

// A leaf element is an edata_t's address, which is aligned, with the extent's size class above it,
// and its state, is_head and slab below.
type jeElement uint64

func (e jeElement) edata() uint64 { return uint64(e) & (jeMaxAddress - 1) &^ (jeExtentBytes - 1) }
func (e jeElement) szind() uint64 { return uint64(e) >> 48 }
func (e jeElement) state() uint64 { return uint64(e) >> 2 & 7 }
func (e jeElement) isSlab() bool  { return e&1 != 0 }

// edata.h: the words of an edata_t.
const (
	jeExtentBytes  = 128 // sizeof(edata_t), and its alignment
	jeAddrOffset   = 8   // e_addr
	jeSizeOffset   = 16  // e_size_esn
	jeBitmapOffset = 64  // e_slab_data
	jeMaxRegions   = 512 // of a slab: one bit each
)

// A jeExtent is what was read of an edata_t.
type jeExtent struct {
	address, size uint64
	isSlab        bool
	state, szind  uint64 // extent_state_active is 0
	bitmap        []byte // of a slab; a set bit is a free region
}

// extentOf decodes an edata_t. It returns false if the element that led there disagrees.
func extentOf(content []byte, element jeElement) (jeExtent, bool) {
	if content == nil {
		return jeExtent{}, false
	}
	bits := mem.Word(content, 0)
	e := jeExtent{
		address: mem.Word(content, jeAddrOffset),
		size:    mem.Word(content, jeSizeOffset) &^ (1<<jePageBits - 1),
		isSlab:  bits>>12&1 != 0,
		state:   bits >> 17 & 7,
		szind:   bits >> 20 & 0xff,
		bitmap:  content[jeBitmapOffset:],
	}
	return e, e.isSlab == element.isSlab() && e.state == element.state() &&
		e.szind == element.szind() && e.address < jeMaxAddress &&
		e.size > 0 && e.size < jeMaxAddress && e.szind <= uint64(len(jeSizes))
}

// contains reports whether a page, by its address, is one of the extent's.
func (e jeExtent) contains(page uint64) bool {
	first := e.address &^ (1<<jePageBits - 1)
	return first <= page && page-first < e.size
}

// jeSizes are the size classes: 8, and four to each doubling from 16 on (sc.h).
var jeSizes = func() (sizes []uint64) {
	sizes = []uint64{8, 16, 32, 48, 64}
	for base := uint64(64); len(sizes) < 232; base *= 2 {
		for i := uint64(1); i <= 4 && len(sizes) < 232; i++ {
			sizes = append(sizes, base+i*base/4)
		}
	}
	return sizes
}()

const jeLargeMinClass = 16 << 10 // SC_LARGE_MINCLASS

// jeClass returns the least size class for a size; 0: there is none.
func jeClass(size uint64) uint64 {
	for _, class := range jeSizes {
		if class >= size {
			return class
		}
	}
	return 0
}

// fits reports whether the extent's size class may be the one of an object: that of its size, or
// the larger one that an alignment takes (sz_sa2u).
func (e jeExtent) fits(o Object) bool {
	if e.szind >= uint64(len(jeSizes)) {
		return false
	}
	class := jeSizes[e.szind]
	if class == jeClass(o.Size) || class == jeClass(max(o.Size, jeLargeMinClass)) {
		return true
	}
	for a := uint64(16); a <= 1<<jePageBits && o.Address%a == 0; a *= 2 {
		if class == jeClass(mem.AlignUp(o.Size, a)) {
			return true
		}
	}
	return false
}

// SizeClass implements Allocator.
func (j *jemalloc) SizeClass(size uint64) uint64 { return jeClass(size) }

// stateOf returns the state of an object whose page is one of the extent's.
func (e jeExtent) stateOf(o Object) State {
	switch {
	case e.state != 0 || !e.fits(o):
		return Dead
	case !e.isSlab && e.address == o.Address:
		return Alive
	case !e.isSlab:
		return Dead
	}

	size := jeSizes[e.szind]
	region := (o.Address - e.address) / size
	switch {
	case (o.Address-e.address)%size != 0 || region >= jeMaxRegions:
		return Dead
	case e.bitmap[region/8]>>(region%8)&1 != 0:
		return Dead
	}
	return Alive
}

// minCachedTime is how long a thread cache must have an object that counts as dead. A thread that
// was preempted while it changes its cache leaves pointers there to objects that are alive again.
const minCachedTime = time.Second

// dropLive removes from the objects in thread caches those that may be alive.
func (j *jemalloc) dropLive(cached map[uint64]bool, objects []Object) {
	now, since := time.Now(), make(map[uint64]time.Time)
	for _, o := range objects {
		if !cached[o.Address] {
			continue
		}
		first, ok := j.cachedSince[o.Address]
		if !ok {
			first = now
		}
		since[o.Address] = first
		if now.Sub(first) < minCachedTime {
			delete(cached, o.Address)
		}
	}
	j.cachedSince = since
}

// Check implements Allocator. One read that contradicts the invariant proves that an object is
// dead, except for thread caches.
func (j *jemalloc) Check(memory mem.Reader, _ []process.Mapping, objects []Object) ([]State, error) {
	cached, err := j.cachedObjects(memory)
	if err != nil {
		return nil, err
	}
	j.dropLive(cached, objects)

	elements, err := j.lookUp(memory, objects)
	if err != nil {
		return nil, err
	}

	addresses := make([]uint64, len(objects))
	for i, e := range elements {
		addresses[i] = e.edata()
	}
	extents, err := memory.Peek(addresses, jeExtentBytes)
	if err != nil {
		return nil, err
	}

	states := make([]State, len(objects))
	for i, o := range objects {
		extent, agrees := extentOf(extents[i], elements[i])
		switch edata := elements[i].edata(); {
		case elements[i] == jeUnread || o.Address == 0 || o.Address >= jeMaxAddress:
		case edata == 0 || cached[o.Address]:
			states[i] = Dead
		case extents[i] == nil:
		case !agrees || !extent.contains(o.Address&^(1<<jePageBits-1)):
			states[i] = Dead
		default:
			states[i] = extent.stateOf(o)
		}
	}
	return states, nil
}

// jeUnread is the element of an object for which none could be read.
const jeUnread = ^jeElement(0)

// lookUp returns the leaf elements of objects.
func (j *jemalloc) lookUp(memory mem.Reader, objects []Object) ([]jeElement, error) {
	addresses := make([]uint64, len(objects))
	for i, o := range objects {
		addresses[i] = j.root + 8*(o.Address>>jeLeafShift&jeLevelMask)
	}
	leaves, err := memory.Peek(addresses, 8)
	if err != nil {
		return nil, err
	}

	elements := make([]jeElement, len(objects))
	for i, o := range objects {
		addresses[i] = 0
		if leaves[i] == nil {
			elements[i] = jeUnread
		} else if leaf := mem.Word(leaves[i], 0); leaf != 0 {
			addresses[i] = leaf + 8*(o.Address>>jePageBits&jeLevelMask)
		}
	}
	contents, err := memory.Peek(addresses, 8)
	if err != nil {
		return nil, err
	}
	for i, content := range contents {
		switch {
		case content != nil:
			elements[i] = jeElement(mem.Word(content, 0))
		case addresses[i] != 0:
			elements[i] = jeUnread
		}
	}
	return elements, nil
}

// hasVersion reports whether the constants of a file have a string that begins with a version.
func hasVersion(
	memory mem.Reader, maps []process.Mapping, file process.FileID, version string,
) (bool, error) {
	for _, m := range maps {
		if m.File() != file || !m.Read || m.Write || m.Execute {
			continue
		}
		content, err := mem.ReadRange(memory, mem.Span{Start: m.Start, End: m.End})
		if err != nil || bytes.Contains(content, []byte("\x00"+version)) {
			return err == nil, err
		}
	}
	return false, nil
}

// Bounds of the search for the tree.
const (
	maxLeaves       = 16  // that are read, of 2 MiB
	maxLeafElements = 256 // extents that are followed in each
)

// findJemalloc finds the jemalloc of a file.
func findJemalloc(
	memory mem.Reader, maps []process.Mapping, file process.FileID,
) (Allocator, error) {
	isKnown, err := hasVersion(memory, maps, file, jeVersion)
	if err != nil || !isKnown {
		return nil, errors.Join(err, errNoTree)
	}
	return findTree(memory, maps, file)
}

// findTree finds the tree by its root, which lies among the variables of jemalloc's file.
func findTree(memory mem.Reader, maps []process.Mapping, file process.FileID) (Allocator, error) {
	variables := variables(maps, file)
	writable := heapSpans(maps)
	tried := make(map[uint64]bool)
	for _, s := range variables {
		content, err := mem.ReadRange(memory, s)
		if err != nil {
			return nil, err
		}

		for at := 0; at+8 <= len(content) && len(tried) < maxLeaves; at += 8 {
			leaf := mem.Word(content, at)
			isLeaf := leaf != 0 && leaf%64 == 0 &&
				writable.Contains(mem.Span{Start: leaf, End: leaf + jeNodeBytes})
			if !isLeaf || tried[leaf] {
				continue
			}

			tried[leaf] = true
			root, err := rootOf(memory, s.Start+uint64(at), leaf)
			if err != nil {
				return nil, err
			}
			if root >= s.Start && root+jeNodeBytes <= s.End {
				return &jemalloc{root: root, variables: variables}, nil
			}
		}
	}
	return nil, errNoTree
}

// rootOf returns the root of the tree whose element at an address leads to a leaf. It returns 0 if
// that is no leaf: none of its elements leads to an extent with the page of that element.
func rootOf(memory mem.Reader, element, leaf uint64) (uint64, error) {
	content, err := mem.ReadRange(memory, mem.Span{Start: leaf, End: leaf + jeNodeBytes})
	if err != nil {
		return 0, err
	}

	followed, last := 0, uint64(0)
	for at := 0; at < len(content) && followed < maxLeafElements; at += 8 {
		e := jeElement(mem.Word(content, at))
		if e.edata() == 0 || e.edata() == last {
			continue
		}
		followed, last = followed+1, e.edata()
		edata, err := mem.PeekOne(memory, e.edata(), jeExtentBytes)
		if err != nil {
			return 0, err
		}
		extent, ok := extentOf(edata, e)
		index := extent.address >> jeLeafShift
		if page := index<<jeLeafShift | uint64(at)/8<<jePageBits; ok && extent.contains(page) {
			return element - 8*index, nil
		}
	}
	return 0, nil
}
