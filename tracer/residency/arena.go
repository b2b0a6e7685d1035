package residency

import "github.com/allocscope/allocscope/tracer/mem"

// arenaBytes is the memory of one arena of an allocator: the resident bytes, and how many of them
// the known live objects take. The rest is allocator overhead, free, or allocated unseen.
type arenaBytes struct {
	Name string
	// Resident memory of private pages, in bytes, by origin.
	Resident [mem.OriginCount]int64
	// Attributed is the part of Resident that live objects take, headers included. It is an
	// estimate from samples, so that it may exceed Resident.
	Attributed [mem.OriginCount]int64
	// Variance of Attributed, in bytes².
	Variance [mem.OriginCount]float64
}

// unattributed returns for each heap the resident bytes of one origin that no known object takes.
//
// An estimate may exceed the resident bytes of one heap, where the difference d is negative. The
// sum is kept all the same: each positive d is scaled by Σd / Σmax(d, 0), and all are 0 where
// Σd ≤ 0.
func unattributed(heaps []arenaBytes, origin mem.Origin) []int64 {
	var sum, positive int64
	for _, h := range heaps {
		difference := h.Resident[origin] - h.Attributed[origin]
		sum += difference
		positive += max(0, difference)
	}

	unattributed := make([]int64, len(heaps))
	if sum <= 0 {
		return unattributed
	}

	for i, h := range heaps {
		difference := max(0, h.Resident[origin]-h.Attributed[origin])
		unattributed[i] = int64(float64(difference) * float64(sum) / float64(positive))
	}
	return unattributed
}

// fitFactors returns for each origin the factor, at most 1, that scales the attributed bytes of
// all heaps together down to the resident ones.
func fitFactors(heaps []arenaBytes) (factors [mem.OriginCount]float64) {
	for origin := range factors {
		var resident, attributed int64
		for _, h := range heaps {
			resident += h.Resident[origin]
			attributed += h.Attributed[origin]
		}

		factors[origin] = 1
		if attributed > resident {
			factors[origin] = float64(resident) / float64(attributed)
		}
	}
	return factors
}
