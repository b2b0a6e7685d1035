package pages

import "sort"

// Sums are runs of which even a long stretch is summed quickly: objects that a process makes up may all lie over all of them.
type Sums struct {
	runs   Runs
	before []Bytes // the first so many times stride runs
}

const stride = 64 // runs

// Sums prepares runs for questions about long stretches.
func (r Runs) Sums() Sums {
	s := Sums{runs: r}
	var sum Bytes
	for i, run := range r {
		if i%stride == 0 {
			s.before = append(s.before, sum)
		}
		sum.count(run, int64(run.Len()))
	}
	s.before = append(s.before, sum)
	return s
}

// In counts what lies between two addresses.
func (s Sums) In(start, end uint64) Bytes {
	first := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].End > start })
	near := min(first+2*stride, len(s.runs))
	if start >= end || near == len(s.runs) || s.runs[near].Start >= end {
		return s.runs[first:near].In(start, end)
	}
	last := first + sort.Search(len(s.runs)-first, func(i int) bool { return s.runs[first+i].End > end })
	from, to := (first+stride)/stride, last/stride // whole strides
	b := s.before[to]
	b.subtract(s.before[from])
	b.Add(s.runs[first:from*stride].In(start, end))
	b.Add(s.runs[to*stride:min(last+1, len(s.runs))].In(start, end))
	return b
}

func (b *Bytes) subtract(other Bytes) {
	for tag, bytes := range other.Resident {
		b.Resident[tag] -= bytes
	}
	b.File -= other.File
	b.Swapped -= other.Swapped
}
