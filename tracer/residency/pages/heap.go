package pages

// A Heap is what one arena of an allocator holds: what is resident in its address space, and what is known of the
// objects in it. The rest is what the allocator keeps.
type Heap struct {
	Name string
	// Resident memory of private pages, by tag.
	Resident [Tags]int64
	// Known is the part of it that living objects take, headers included: an estimate, which may exceed Resident.
	Known [Tags]int64
	// Variance of Known, in bytes².
	Variance [Tags]float64
}

// Rest is what no known object takes of the memory of a tag, for each heap. An estimate that exceeds what is resident in one
// heap is made up for by the others: their sum is that of all heaps together, and 0 where that is negative.
func Rest(heaps []Heap, tag Tag) []int64 {
	var sum, positive int64
	for _, h := range heaps {
		rest := h.Resident[tag] - h.Known[tag]
		sum += rest
		positive += max(0, rest)
	}
	rests := make([]int64, len(heaps))
	if sum <= 0 {
		return rests
	}
	for i, h := range heaps {
		rest := max(0, h.Resident[tag]-h.Known[tag])
		rests[i] = int64(float64(rest) * float64(sum) / float64(positive))
	}
	return rests
}

// Fit gives for each tag the factor, at most 1, by which what is known of all heaps together fits into what is resident.
func Fit(heaps []Heap) (factors [Tags]float64) {
	for tag := range factors {
		var resident, known int64
		for _, h := range heaps {
			resident += h.Resident[tag]
			known += h.Known[tag]
		}
		factors[tag] = 1
		if known > resident {
			factors[tag] = float64(resident) / float64(known)
		}
	}
	return factors
}
