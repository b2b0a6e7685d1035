package heap

import (
	"math/bits"
	"slices"
)

// SizeClasses are the sizes of the blocks of jemalloc (sc.h) and mimalloc (_mi_bin): 8, and four to
// each doubling from 16 on.
var SizeClasses = func() (sizes []uint64) {
	sizes = []uint64{8, 16, 32, 48, 64}
	for base := uint64(64); len(sizes) < 232; base *= 2 {
		for i := uint64(1); i <= 4 && len(sizes) < 232; i++ {
			sizes = append(sizes, base+i*base/4)
		}
	}
	return sizes
}()

// Sizes of gperftools' tcmalloc, in bytes.
const (
	tcmallocPage    = 8 << 10
	tcmallocMaxSize = 256 << 10
)

// tcmallocClasses are the size classes of gperftools' tcmalloc. A class is left out where a span of
// pages holds as many objects of the next one.
//
// https://github.com/gperftools/gperftools/blob/gperftools-2.10/src/common.cc (SizeMap::Init)
var tcmallocClasses = func() (sizes []uint64) {
	const maxMoved, bytesMoved = 32, 64 << 10
	before := uint64(0) // pages of a span of the last class, in bytes
	for size := uint64(8); size <= tcmallocMaxSize; size += tcmallocAlignment(size) {
		moved := min(max(bytesMoved/size, 2), maxMoved) / 4
		span := uint64(0)
		for span == 0 || span/size < moved {
			span += tcmallocPage
			for span%size > span/8 {
				span += tcmallocPage
			}
		}

		last := len(sizes) - 1
		if last >= 0 && span == before && span/size == span/sizes[last] {
			sizes[last] = size
			continue
		}
		sizes, before = append(sizes, size), span
	}
	return sizes
}()

// tcmallocAlignment is AlignmentForSize.
func tcmallocAlignment(size uint64) uint64 {
	switch {
	case size > tcmallocMaxSize:
		return tcmallocPage
	case size >= 128:
		return min(uint64(1)<<(bits.Len64(size)-1)/8, tcmallocPage)
	case size >= 16:
		return 16
	}
	return 8
}

// TCMallocClassOf returns how many bytes an object of a size takes in gperftools' tcmalloc.
func TCMallocClassOf(size uint64) uint64 {
	if size > tcmallocMaxSize {
		return (size + tcmallocPage - 1) &^ (tcmallocPage - 1)
	}
	at, _ := slices.BinarySearch(tcmallocClasses, size)
	return tcmallocClasses[at]
}

// SizeClassOf returns the least size class for a size; 0: there is none.
func SizeClassOf(size uint64) uint64 {
	for _, class := range SizeClasses {
		if class >= size {
			return class
		}
	}
	return 0
}
