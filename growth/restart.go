package growth

import (
	"slices"
	"sort"
)

// sinceStart leaves out what an earlier process has left: until the start that is known, else until the last fall that looks
// like one. The new process has no age, and the earlier one's mark says nothing of it.
func (s Series) sinceStart(setting Setting) (Series, Setting, bool) {
	if len(s.X) < fewest {
		return s, setting, false
	}
	cut := 0
	if setting.Start != nil {
		cut = sort.SearchFloat64s(s.X, *setting.Start)
	} else {
		cut = lastRestart(s.Y)
	}
	if cut == 0 {
		return s, setting, false
	}
	s = Series{X: s.X[cut:], Y: s.Y[cut:]}
	setting.Age = 0
	if len(s.X) > 0 && setting.EpochEnd != nil && *setting.EpochEnd <= s.X[0] {
		setting.EpochEnd = nil
	}
	return s, setting, true
}

// lastRestart is the index of the first sample after the last restart of the process, told by its size alone: the lowest of a
// block lies 40 % under all of the 8 blocks before it. Spikes do not, for between them the floor is visited. 0 where there is
// none.
func lastRestart(y []float64) int {
	const blocks, before, fall = 96, 8, 0.6
	n := min(blocks, len(y))
	lows := make([]float64, n)
	cut := 0
	for k := range n {
		block := y[share(len(y), n, k):share(len(y), n, k+1)]
		lows[k] = slices.Min(block)
		if k >= 3 && lows[k] < fall*slices.Min(lows[max(0, k-before):k]) {
			cut = share(len(y), n, k) + slices.Index(block, lows[k])
		}
	}
	return cut
}

// share is where the k-th of n parts of a whole begins. The first parts are longer by one where they cannot be equal.
func share(whole, n, k int) int {
	return whole/n*k + min(whole%n, k)
}
