package heap

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

// SizeClassOf returns the least size class for a size; 0: there is none.
func SizeClassOf(size uint64) uint64 {
	for _, class := range SizeClasses {
		if class >= size {
			return class
		}
	}
	return 0
}
