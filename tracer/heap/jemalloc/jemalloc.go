// Package jemalloc reads the extents, slabs and thread caches of jemalloc.
package jemalloc

import (
	"fmt"
	"time"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Malloc is jemalloc 5.3 or 5.4 in a process, with its default page size and address width. A radix tree
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
// https://github.com/jemalloc/jemalloc/tree/5.3.1/include/jemalloc/internal
type Malloc struct {
	root      uint64 // address of arena_emap_global.rtree.root
	variables mem.Spans
	// largeInPages: a large object takes whole pages and not its size class
	// (opt_disable_large_size_classes, which is the default since 5.3.1).
	largeInPages bool
	// caches is the layout of the thread caches. listOffset is the offset in an arena_t of their
	// list, cache_bin_array_descriptor_ql; 0 until Check has learned both.
	caches     cacheLayout
	listOffset uint64
	// cachedSince is when a check first found an object of this address in a thread cache. All
	// checks since have found it there.
	cachedSince map[uint64]time.Time
}

// versions are the starts of the result of mallctl("version"), as in VERSION of a release.
var versions = []struct {
	start        string
	largeInPages bool
}{{"5.3.0-", false}, {"5.3.1-", true}, {"5.4.0-", true}}

// errNoTree is the reason for which the objects of a jemalloc cannot be checked.
var errNoTree = fmt.Errorf("no tree of jemalloc's extents %w (those of 5.3 and 5.4 are)",
	heap.ErrUnknownLayout)

// rtree.h. Both levels of the tree have 2^18 elements of 8 bytes (LG_VADDR 48, LG_PAGE 12).
const (
	pageBits   = 12
	levelBits  = 18
	nodeBytes  = 8 << levelBits
	levelMask  = 1<<levelBits - 1
	leafShift  = pageBits + levelBits // of an address, to its element of the root
	maxAddress = 1 << (leafShift + levelBits)
)

// A leaf element is an edata_t's address, which is aligned, with the extent's size class above it,
// and its state, is_head and slab below.
type leafElement uint64

func (e leafElement) edata() uint64 { return uint64(e) & (maxAddress - 1) &^ (edataBytes - 1) }
func (e leafElement) szind() uint64 { return uint64(e) >> 48 }
func (e leafElement) state() uint64 { return uint64(e) >> 2 & 7 }
func (e leafElement) isSlab() bool  { return e&1 != 0 }

// edata.h: the words of an edata_t.
const (
	edataBytes   = 128 // sizeof(edata_t), and its alignment
	addrOffset   = 8   // e_addr
	sizeOffset   = 16  // e_size_esn
	bitmapOffset = 64  // e_slab_data
	maxRegions   = 512 // of a slab: one bit each
)

// edata.h: extent_state_t, without the states of an extent that is on its way.
const active, retained = 0, 3 // between them: dirty and muzzy

// extentData is an edata_t, as far as it was read.
type extentData struct {
	address, size uint64
	isSlab        bool
	state, szind  uint64
	bitmap        []byte // of a slab; a set bit is a free region
}

// extentOf decodes an edata_t. It returns false if the element that led there disagrees.
func extentOf(content []byte, element leafElement) (extentData, bool) {
	if content == nil {
		return extentData{}, false
	}
	bits := mem.Word(content, 0)
	e := extentData{
		address: mem.Word(content, addrOffset),
		size:    mem.Word(content, sizeOffset) &^ (1<<pageBits - 1),
		isSlab:  bits>>12&1 != 0,
		state:   bits >> 17 & 7,
		szind:   bits >> 20 & 0xff,
		bitmap:  content[bitmapOffset:],
	}
	// The element of an extent that is given back keeps its size class (emap_remap).
	isAlike := e.state != active || e.isSlab == element.isSlab() && e.szind == element.szind()
	return e, isAlike && e.state == element.state() && e.address < maxAddress &&
		e.size > 0 && e.size < maxAddress && e.szind <= uint64(len(heap.SizeClasses))
}

// pages are the pages of the extent. A large object may begin within the first one.
func (e extentData) pages() mem.Span {
	first := e.address &^ (1<<pageBits - 1)
	return mem.Span{Start: first, End: first + e.size}
}

// contains reports whether a page, by its address, is one of the extent's.
func (e extentData) contains(page uint64) bool {
	pages := e.pages()
	return pages.Start <= page && page < pages.End
}

const (
	smallMaxClass = 14 << 10 // SC_SMALL_MAXCLASS
	largeMinClass = 16 << 10 // SC_LARGE_MINCLASS
)

// fits reports whether the extent's size class may be the one of an object: the class of its size,
// or the larger one that an alignment takes (sz_sa2u).
func (e extentData) fits(o heap.Object) bool {
	if e.szind >= uint64(len(heap.SizeClasses)) {
		return false
	}
	class := heap.SizeClasses[e.szind]
	if class == heap.SizeClassOf(o.Size) || class == heap.SizeClassOf(max(o.Size, largeMinClass)) {
		return true
	}
	for a := uint64(16); a <= 1<<pageBits && o.Address%a == 0; a *= 2 {
		if class == heap.SizeClassOf(mem.AlignUp(o.Size, a)) {
			return true
		}
	}
	return false
}

// SizeClass implements heap.Allocator.
func (j *Malloc) SizeClass(size uint64) uint64 {
	if j.largeInPages && size > smallMaxClass {
		return mem.AlignUp(size, 1<<pageBits)
	}
	return heap.SizeClassOf(size)
}

// stateOf returns the state of an object whose page is one of the extent's.
func (e extentData) stateOf(o heap.Object) heap.State {
	switch {
	case e.state != active || !e.fits(o):
		return heap.Dead
	case !e.isSlab && e.address == o.Address:
		return heap.Alive
	case !e.isSlab:
		return heap.Dead
	}

	size := heap.SizeClasses[e.szind]
	region := (o.Address - e.address) / size
	switch {
	case (o.Address-e.address)%size != 0 || region >= maxRegions:
		return heap.Dead
	case e.bitmap[region/8]>>(region%8)&1 != 0:
		return heap.Dead
	}
	return heap.Alive
}

// minCachedTime is how long a thread cache must have an object that counts as dead. A thread that
// was preempted while it changes its cache leaves pointers there to objects that are alive again.
const minCachedTime = time.Second

// dropLive removes the objects that may be alive from the objects in thread caches.
func (j *Malloc) dropLive(cached map[uint64]bool, objects []heap.Object) {
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

// Check implements heap.Allocator. One read that contradicts the invariant proves that an object is
// dead, except for thread caches.
func (j *Malloc) Check(
	memory mem.Reader, _ []process.Mapping, objects []heap.Object,
) ([]heap.State, error) {
	cached, _, err := j.cachedObjects(memory)
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
	extents, err := memory.Peek(addresses, edataBytes)
	if err != nil {
		return nil, err
	}

	states := make([]heap.State, len(objects))
	for i, o := range objects {
		extent, agrees := extentOf(extents[i], elements[i])
		switch edata := elements[i].edata(); {
		case elements[i] == unread || o.Address == 0 || o.Address >= maxAddress:
		case edata == 0 || cached[o.Address]:
			states[i] = heap.Dead
		case extents[i] == nil:
		case !agrees || !extent.contains(o.Address&^(1<<pageBits-1)):
			states[i] = heap.Dead
		default:
			states[i] = extent.stateOf(o)
		}
	}
	return states, nil
}

// unread is the element of an object for which none could be read.
const unread = ^leafElement(0)

// lookUp returns the leaf elements of objects.
func (j *Malloc) lookUp(memory mem.Reader, objects []heap.Object) ([]leafElement, error) {
	addresses := make([]uint64, len(objects))
	for i, o := range objects {
		addresses[i] = j.root + 8*(o.Address>>leafShift&levelMask)
	}
	leaves, err := memory.Peek(addresses, 8)
	if err != nil {
		return nil, err
	}

	elements := make([]leafElement, len(objects))
	for i, o := range objects {
		addresses[i] = 0
		if leaves[i] == nil {
			elements[i] = unread
		} else if leaf := mem.Word(leaves[i], 0); leaf != 0 {
			addresses[i] = leaf + 8*(o.Address>>pageBits&levelMask)
		}
	}
	contents, err := memory.Peek(addresses, 8)
	if err != nil {
		return nil, err
	}
	for i, content := range contents {
		switch {
		case content != nil:
			elements[i] = leafElement(mem.Word(content, 0))
		case addresses[i] != 0:
			elements[i] = unread
		}
	}
	return elements, nil
}
