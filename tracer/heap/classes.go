package heap

import "math/bits"

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

// TCMallocClassOf returns at least how many bytes an object of a size takes in gperftools' tcmalloc.
// Its classes may be some larger, where spans of pages hold as many objects of the next one.
//
// https://github.com/gperftools/gperftools/blob/gperftools-2.10/src/common.cc (AlignmentForSize)
func TCMallocClassOf(size uint64) uint64 {
	const pageBytes, maxSize = 8 << 10, 256 << 10
	alignment := uint64(8)
	switch {
	case size > maxSize:
		alignment = pageBytes
	case size >= 128:
		alignment = min(uint64(1)<<(bits.Len64(size)-1)/8, pageBytes)
	case size >= 16:
		alignment = 16
	}
	return (max(size, 1) + alignment - 1) &^ (alignment - 1)
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
