package jemalloc

import (
	"bytes"
	"errors"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Bounds of the search for the tree.
const (
	maxLeaves       = 32  // pointers that are tried, each to 2 MiB
	maxLeafElements = 256 // extents that are followed in each
	attempts        = 3   // threads of the process may change too many extents during one
)

// A leaf has at least minExtents active extents that agree with their elements, and of all of these
// at least the share minAgreeing: a thread may have been changing some while they were read. The
// elements of inactive extents have the size class and the slab bit of an earlier time. Other memory
// has pointers to structures that look like an extent_t by chance, one at a time.
const (
	minExtents  = 2
	minAgreeing = 0.75
)

// Find finds the jemalloc of a process, whose library is the file.
func Find(
	p *process.Process, maps []process.Mapping, library process.Mapping,
) (heap.Allocator, error) {
	largeInPages, isKnown, err := versionOf(p, maps, library.File())
	if err != nil || !isKnown {
		return nil, errors.Join(err, errNoTree)
	}

	for range attempts {
		var root uint64
		var variables mem.Spans
		root, variables, err = findTree(p, maps, library.File())
		if err == nil {
			return &Malloc{root: root, variables: variables, largeInPages: largeInPages}, nil
		}
		if !errors.Is(err, errNoTree) {
			break
		}
	}
	return nil, err
}

// versionOf looks for one of the versions among the constants of a file.
func versionOf(
	memory mem.Reader, maps []process.Mapping, file process.FileID,
) (largeInPages, isKnown bool, err error) {
	for _, m := range maps {
		if m.File() != file || !m.Read || m.Write || m.Execute {
			continue
		}
		content, err := mem.ReadRange(memory, mem.Span{Start: m.Start, End: m.End})
		if err != nil {
			return false, false, err
		}
		for _, v := range versions {
			if bytes.Contains(content, []byte("\x00"+v.start)) {
				return v.largeInPages, true, nil
			}
		}
	}
	return false, false, nil
}

// findTree finds the root of the tree, which lies among the variables of jemalloc's file.
func findTree(
	memory mem.Reader, maps []process.Mapping, file process.FileID,
) (root uint64, variables mem.Spans, err error) {
	variables = heap.Variables(maps, file)
	writable := heap.Spans(maps)
	tried := make(map[uint64]bool)
	for _, s := range variables {
		content, err := mem.ReadRange(memory, s)
		if err != nil {
			return 0, nil, err
		}

		for at := 0; at+8 <= len(content) && len(tried) < maxLeaves; at += 8 {
			leaf := mem.Word(content, at)
			isLeaf := leaf != 0 && leaf%64 == 0 &&
				writable.Contains(mem.Span{Start: leaf, End: leaf + nodeBytes})
			if !isLeaf || tried[leaf] {
				continue
			}

			tried[leaf] = true
			index, ok, err := indexOf(memory, leaf)
			if err != nil {
				return 0, nil, err
			}
			root := s.Start + uint64(at) - 8*index
			if ok && root >= s.Start && root+nodeBytes <= s.End {
				return root, variables, nil
			}
		}
	}
	return 0, nil, errNoTree
}

// indexOf returns the index in the root of the element that leads to a leaf. It returns false if
// that is no leaf.
func indexOf(memory mem.Reader, leaf uint64) (index uint64, ok bool, err error) {
	content, err := mem.ReadRange(memory, mem.Span{Start: leaf, End: leaf + nodeBytes})
	if err != nil {
		return 0, false, err
	}

	tried, judged, last := 0, 0, uint64(0)
	agreeing := make(map[uint64]int) // by the index
	for at := uint64(0); at+edataBytes <= nodeBytes && tried < maxLeafElements; at += 8 {
		edata := leafElement(mem.Word(content, at)).edata()
		if edata == 0 || edata == last {
			continue
		}

		// The element is read again with the extent, as both may have changed meanwhile.
		tried, last = tried+1, edata
		both, err := memory.Peek([]uint64{leaf + at, edata}, edataBytes)
		if err != nil {
			return 0, false, err
		}
		if both[0] == nil {
			continue
		}
		e := leafElement(mem.Word(both[0], 0))
		if e.edata() != edata || e.state() != 0 {
			continue
		}

		extent, ok := extentOf(both[1], e)
		of, isOf := extent.indexOf(at / 8 << pageBits)
		if judged++; ok && isOf && extent.hasSizeOfClass() {
			agreeing[of]++
		}
	}

	for of, n := range agreeing {
		if n >= minExtents && float64(n) >= minAgreeing*float64(judged) {
			return of, true, nil
		}
	}
	return 0, false, nil
}

// hasSizeOfClass reports whether the size of an active extent is one of its size class: that many
// regions of a slab, or a large object, which may have a page more (sz_large_pad).
func (e extentData) hasSizeOfClass() bool {
	if e.szind >= uint64(len(heap.SizeClasses)) {
		return false
	}
	class := heap.SizeClasses[e.szind]
	if e.isSlab {
		return class <= smallMaxClass && class <= e.size && e.size <= maxRegions*class
	}
	return class >= largeMinClass && heap.SizeClasses[e.szind-1] < e.size && e.size <= class+1<<pageBits
}

// indexOf returns the index in the root for a page of the extent, by its offset in the leaf. It
// returns false if the tree has no such page for it: of an extent that is no slab it has the first
// and the last one.
func (e extentData) indexOf(offset uint64) (index uint64, ok bool) {
	pages := e.pages()
	last := pages.End - 1<<pageBits
	for _, index := range []uint64{pages.Start >> leafShift, last >> leafShift} {
		page := index<<leafShift | offset
		if page == pages.Start || page == last || e.isSlab && e.contains(page) {
			return index, true
		}
	}
	return 0, false
}
