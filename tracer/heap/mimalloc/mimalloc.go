// Package mimalloc reads the segments, pages and free lists of mimalloc.
package mimalloc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Malloc is mimalloc 2.0 in a process, built without MI_SECURE. Its segments lie at multiples of
// their size. A segment begins with a mi_segment_t, and that ends with a mi_page_t for each slice
// of the segment. While an object is alive, three things do not change:
//
//   - the segment, whose cookie shows that it is one,
//   - the page, and the size of its blocks,
//   - the object is in none of the page's lists of free blocks.
//
// https://github.com/microsoft/mimalloc/blob/v2.0.9/include/mimalloc-types.h
type Malloc struct {
	cookie uint64 // of _mi_heap_main; a segment's is this XOR its address
}

// errNoSegment is the reason for which the objects of a mimalloc cannot be checked.
var errNoSegment = fmt.Errorf("no segment of mimalloc %w (2.0's is)", heap.ErrUnknownLayout)

// errNoMemory means that nothing has been allocated, so that the layout is not to be seen.
var errNoMemory = errors.New("no memory of mimalloc yet")

const (
	segmentBytes     = 32 << 20
	sliceBytes       = 64 << 10
	slicesPerSegment = segmentBytes / sliceBytes

	cookieOffset       = 216               // offsets in a mi_segment_t
	infoSlicesOffset   = 232               // segment_info_slices
	sliceEntriesOffset = 248               // slice_entries
	slicesOffset       = 264               // slices
	pageBytes          = 80                // sizeof(mi_page_t)
	delayedOffset      = 8 + 129*8 + 75*24 // offset of thread_delayed_free in a mi_heap_t
	mediumPage         = 512 << 10         // bytes of the largest page with more than one block
	hugeBlock          = 2 << 30           // MI_HUGE_BLOCK_SIZE: of any larger block
	headerBytes        = slicesOffset + slicesPerSegment*pageBytes
)

// Bounds of one check.
const (
	maxSegments      = 1 << 12   // addresses that are tried for segments
	maxPageBytes     = 256 << 20 // that are read for the lists of free blocks
	maxDelayedBlocks = 1 << 14   // that are followed
)

// A page is a mi_page_t, as far as it was read.
type page struct {
	mem.Span         // its memory
	blockSize uint64 // bytes; 0: no object is in it
	free      [3]uint64
	used      uint32
	capacity  uint64 // blocks that were in use at least once, or are in a list
	heap      uint64 // address of the mi_heap_t
}

// pageOf decodes a mi_page_t at an address.
func pageOf(content []byte, segment, address uint64) page {
	start := segment + (address-segment-slicesOffset)/pageBytes*sliceBytes
	sizes := mem.Word(content, 24) // used, xblock_size
	return page{
		Span:      mem.Span{Start: start, End: start + mem.Word(content, 0)&(1<<32-1)*sliceBytes},
		blockSize: sizes >> 32,
		used:      uint32(sizes),
		capacity:  mem.Word(content, 8) >> 16 & 0xffff,
		// free, local_free, xthread_free, whose two low bits are flags
		free: [3]uint64{mem.Word(content, 16), mem.Word(content, 32), mem.Word(content, 40) &^ 3},
		heap: mem.Word(content, 48), // xheap
	}
}

// fits reports whether an object may be in a block of the page. realloc keeps an object that became
// smaller by up to a half, an alignment takes a larger block, and huge ones are whole slices.
func (p page) fits(o heap.Object) bool {
	if o.Size > p.blockSize {
		return p.blockSize >= hugeBlock
	}
	alignment := o.Address & -o.Address
	most := max(2*heap.SizeClassOf(o.Size), heap.SizeClassOf(o.Size+alignment))
	if o.Size+alignment >= sliceBytes {
		most += 2 * sliceBytes
	}
	return p.blockSize <= most || p.blockSize >= hugeBlock
}

// SizeClass implements heap.Allocator. Size classes are as in jemalloc (_mi_bin).
func (m *Malloc) SizeClass(size uint64) uint64 { return heap.SizeClassOf(size) }

// Find finds the mimalloc of a process.
func Find(p *process.Process, maps []process.Mapping, _ process.Mapping) (heap.Allocator, error) {
	return findSegments(p, maps)
}

// findSegments finds the cookie that the segments of a process have in common.
func findSegments(memory mem.Reader, maps []process.Mapping) (heap.Allocator, error) {
	var segments []uint64
	for _, s := range heap.Spans(maps) {
		for a := mem.AlignUp(s.Start, segmentBytes); a < s.End && len(segments) < maxSegments; {
			segments = append(segments, a)
			a += segmentBytes
		}
	}

	heads, err := memory.Peek(segments, slicesOffset)
	if err != nil {
		return nil, err
	}

	cookies, present := make(map[uint64]bool), 0
	for i, head := range heads {
		if head == nil {
			continue
		}
		present++
		entries := mem.Word(head, sliceEntriesOffset)
		if entries == 0 || entries > slicesPerSegment {
			continue
		}
		header, err := mem.ReadRange(memory, mem.Span{
			Start: segments[i], End: segments[i] + headerBytes,
		})
		if err != nil {
			return nil, err
		}
		if isSegment(header) {
			cookies[mem.Word(header, cookieOffset)^segments[i]] = true
		}
	}

	switch {
	case present == 0:
		return nil, errNoMemory
	case len(cookies) != 1:
		return nil, errNoSegment
	}
	for cookie := range cookies {
		return &Malloc{cookie}, nil
	}

	return nil, errNoSegment
}

// isSegment reports whether memory may be a mi_segment_t: its pages follow each other, from its own
// slices up to the last slice.
func isSegment(header []byte) bool {
	entries := mem.Word(header, sliceEntriesOffset)
	if first := mem.Word(header, slicesOffset); first != mem.Word(header, infoSlicesOffset) || entries > slicesPerSegment {
		return false
	}

	slice := uint64(0)
	for slice < entries {
		page := mem.Word(header, slicesOffset+int(slice)*pageBytes)
		if page == 0 || page > slicesPerSegment { // slice_count, and slice_offset, which is 0 in a page
			return false
		}
		slice += page
	}

	return slice == entries
}

// Check implements heap.Allocator.
func (m *Malloc) Check(
	memory mem.Reader, maps []process.Mapping, objects []heap.Object,
) ([]heap.State, error) {
	states := make([]heap.State, len(objects))
	entries := make([]uint64, len(objects)) // addresses of mi_page_t
	cookies := make([]uint64, len(objects))
	for i, o := range objects {
		segment := o.Address &^ (segmentBytes - 1)
		cookies[i] = segment + cookieOffset
		entries[i] = segment + slicesOffset + (o.Address-segment)/sliceBytes*pageBytes
	}
	heads, err := memory.Peek(cookies, 8)
	if err != nil {
		return nil, err
	}
	offsets, err := memory.Peek(entries, 8)
	if err != nil {
		return nil, err
	}

	pageOfObject := make([]uint64, len(objects))
	for i, o := range objects {
		segment := o.Address &^ (segmentBytes - 1)
		switch {
		case segment == 0 || o.Address >= heap.MaxAddress:
		case heads[i] == nil:
			if _, mapped := process.FindMapping(maps, segment); !mapped && maps != nil {
				states[i] = heap.Dead
			}
		case mem.Word(heads[i], 0) != segment^m.cookie:
			states[i] = heap.Dead
		case offsets[i] != nil:
			offset := mem.Word(offsets[i], 0) >> 32 // slice_offset
			if offset%pageBytes == 0 && offset <= entries[i]-segment-slicesOffset {
				pageOfObject[i] = entries[i] - offset
			}
		}
	}
	return states, m.checkPages(memory, objects, pageOfObject, states)
}

// checkPages sets the states of the objects whose page is known.
func (m *Malloc) checkPages(
	memory mem.Reader, objects []heap.Object, pageOfObject []uint64, states []heap.State,
) error {
	found, err := readPages(memory, pageOfObject)
	if err != nil {
		return err
	}
	free, err := freeBlocks(memory, found)
	if err != nil {
		return err
	}
	delayed, err := delayedBlocks(memory, found)
	if err != nil {
		return err
	}
	again, err := readPages(memory, pageOfObject)
	if err != nil {
		return err
	}

	for i, o := range objects {
		address := pageOfObject[i]
		p, ok := found[address]
		if !ok || address == 0 {
			continue
		}
		states[i] = heap.Alive
		isInside := p.Start <= o.Address && o.Address < p.End
		after, _ := slices.BinarySearch(delayed, o.Address+1)
		isDelayed := after > 0 && delayed[after-1] >= p.Start &&
			o.Address-delayed[after-1] < p.blockSize
		if p.used == 0 || !isInside || !p.fits(o) || isDelayed {
			states[i] = heap.Dead
			continue
		}

		// A pop during the read may have led from a free block to any other.
		if again[address] != p {
			continue
		}
		blocks := free[address]
		next, _ := slices.BinarySearch(blocks, o.Address+1)
		if next > 0 && o.Address-blocks[next-1] < p.blockSize {
			states[i] = heap.Dead
		}
	}
	return nil
}

// readPages reads each mi_page_t once.
func readPages(memory mem.Reader, addresses []uint64) (map[uint64]page, error) {
	found := make(map[uint64]page)
	contents, err := memory.Peek(addresses, pageBytes)
	if err != nil {
		return nil, err
	}
	for i, content := range contents {
		if address := addresses[i]; content != nil && address != 0 {
			found[address] = pageOf(content, address&^(segmentBytes-1), address)
		}
	}

	return found, nil
}

// freeBlocks returns the sorted blocks in the lists of free blocks of each page. They may be
// thousands, so that the memory of a page is read as a whole. Larger pages have one block.
func freeBlocks(memory mem.Reader, found map[uint64]page) (map[uint64][]uint64, error) {
	free := make(map[uint64][]uint64)
	read := uint64(0)
	for address, p := range found {
		isListed := slices.ContainsFunc(p.free[:], p.contains)
		if !isListed || p.Len() > mediumPage || read > maxPageBytes {
			continue
		}

		read += p.Len()
		content, err := mem.ReadRange(memory, p.Span)
		if err != nil {
			return nil, err
		}
		for _, block := range p.free {
			for p.contains(block) && uint64(len(free[address])) < p.Len()/max(8, p.blockSize) {
				free[address] = append(free[address], block)
				block = mem.Word(content, int(block-p.Start))
			}
		}
		slices.Sort(free[address])
	}

	return free, nil
}

func (p page) contains(block uint64) bool {
	return block >= p.Start && block < p.End && block%8 == 0
}

// delayedBlocks returns the blocks that threads have freed in full pages of others. They wait in a
// list of the heap (thread_delayed_free), which is returned sorted. The heap's thread takes the
// list as a whole, so that a list whose head is unchanged has been read right.
func delayedBlocks(memory mem.Reader, found map[uint64]page) ([]uint64, error) {
	seen := make(map[uint64]bool)
	var heads []uint64
	for _, p := range found {
		if p.heap != 0 && !seen[p.heap] {
			seen[p.heap] = true
			heads = append(heads, p.heap+delayedOffset)
		}
	}

	before, err := memory.Peek(heads, 8)
	if err != nil {
		return nil, err
	}

	lists := make([][]uint64, len(heads))
	followed := 0
	for i, head := range before {
		for head != nil && mem.Word(head, 0) != 0 && followed < maxDelayedBlocks {
			block := mem.Word(head, 0)
			lists[i] = append(lists[i], block)
			followed++
			if head, err = mem.PeekOne(memory, block, 8); err != nil {
				return nil, err
			}
		}
	}

	after, err := memory.Peek(heads, 8)
	if err != nil {
		return nil, err
	}
	var delayed []uint64
	for i, list := range lists {
		if len(list) > 0 && after[i] != nil && mem.Word(after[i], 0) == list[0] {
			delayed = append(delayed, list...)
		}
	}

	slices.Sort(delayed)
	return delayed, nil
}
