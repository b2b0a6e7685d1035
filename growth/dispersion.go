package growth

// A WindowSum is what is alive of the objects of one stack that were born in one window, in weights that stand for the time since
// the window before as well: its bytes, and the sum of w(w - s) over objects of s bytes that stand for w.
type WindowSum struct {
	// Window is its index among all windows.
	Window          int
	Bytes, Variance float64
	// Error of Bytes that all windows have in common, in bytes: of the share that is alive.
	Error float64
}

// Dispersion is by how many times the variance of the sum of a stack's windows exceeds what chance makes of single objects that
// come evenly, 1 at least: allocations come in bursts, in each step or epoch, and a window meets one or not. sums are in the
// order of their windows; stand is the time that each of all windows stands for.
//
// The variance between windows is that of the differences between neighbours (von Neumann), so that what changes slowly is no
// burst. A single window tells none. The error that windows have in common is added.
func Dispersion(sums []WindowSum, stand []float64) float64 {
	n := len(stand)
	if n < 2 {
		return 1
	}
	// difference of the pair that begins at a window, in bytes² of a sum over all windows.
	difference := func(window int, here, next float64) float64 {
		f, g := stand[window], stand[window+1]
		if !(f > 0 && g > 0) {
			return 0
		}
		d := here/f - next/g
		return d * d / 2 * (f*f + g*g) / 2
	}
	var between, chance, common float64
	for i, sum := range sums {
		if sum.Window < 0 || sum.Window >= n {
			continue
		}
		chance += sum.Variance
		common += sum.Error
		if before := sum.Window - 1; before >= 0 && (i == 0 || sums[i-1].Window != before) {
			between += difference(before, 0, sum.Bytes)
		}
		if after := sum.Window + 1; after < n {
			next := 0.0
			if i+1 < len(sums) && sums[i+1].Window == after {
				next = sums[i+1].Bytes
			}
			between += difference(sum.Window, sum.Bytes, next)
		}
	}
	if !(chance > 0) {
		return 1
	}
	return max(1, between*float64(n)/float64(n-1)/chance) + common*common/chance
}
