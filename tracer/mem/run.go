package mem

import "sort"

// Origin is how a private page came to be in memory.
type Origin uint8

// The origins of pages.
const (
	SinceTracing  Origin = iota // first touched since tracing started
	BeforeTracing               // in memory when tracing started
	CopiedOnWrite               // the process's own copy, made on write, of a page of its parent
	Inherited                   // still shared with the parent, from before fork
	OriginCount                 // number of origins
)

// Run is a range of pages that are in memory or swapped out and have all properties in common.
type Run struct {
	Span
	Origin Origin
	// Swapped is set if the pages are swapped out, unset if they are in memory.
	Swapped bool
	// File is set for pages of a file or of shared memory that are not private to the process.
	// Huge is set for pages that are mapped as huge pages.
	File, Huge bool
}

// Bytes is how much memory an address range takes.
type Bytes struct {
	// Resident private memory, by origin.
	Resident [OriginCount]int64
	// File is the resident memory of files and shared memory.
	File    int64
	Swapped int64
}

// Private returns the resident private memory of all origins.
func (b Bytes) Private() (sum int64) {
	for _, bytes := range b.Resident {
		sum += bytes
	}
	return sum
}

// InMemory returns all resident memory: everything but swapped-out memory.
func (b Bytes) InMemory() int64 { return b.Private() + b.File }

// Add adds other to b.
func (b *Bytes) Add(other Bytes) {
	for origin, bytes := range other.Resident {
		b.Resident[origin] += bytes
	}
	b.File += other.File
	b.Swapped += other.Swapped
}

// subtract is the inverse of Add.
func (b *Bytes) subtract(other Bytes) {
	for origin, bytes := range other.Resident {
		b.Resident[origin] -= bytes
	}
	b.File -= other.File
	b.Swapped -= other.Swapped
}

// addRun adds bytes of a run.
func (b *Bytes) addRun(run Run, bytes int64) {
	switch {
	case run.Swapped:
		b.Swapped += bytes
	case run.File:
		b.File += bytes
	default:
		b.Resident[run.Origin] += bytes
	}
}

// Scaled returns b with its private memory, resident or swapped out, multiplied by one factor and
// the memory of files by another.
func (b Bytes) Scaled(private, file float64) Bytes {
	scale := func(bytes int64, factor float64) int64 { return int64(float64(bytes)*factor + 0.5) }

	for origin := range b.Resident {
		b.Resident[origin] = scale(b.Resident[origin], private)
	}
	b.File, b.Swapped = scale(b.File, file), scale(b.Swapped, private)
	return b
}

// Runs is the memory of a process. The runs are sorted and disjoint.
type Runs []Run

// firstAfter returns the index of the first run that ends above an address.
func (r Runs) firstAfter(address uint64) int {
	return sort.Search(len(r), func(i int) bool { return r[i].End > address })
}

// BytesIn returns how much memory lies between two addresses.
func (r Runs) BytesIn(start, end uint64) (b Bytes) {
	for _, run := range r[r.firstAfter(start):] {
		if run.Start >= end || start >= end {
			break
		}
		b.addRun(run, int64(min(run.End, end)-max(run.Start, start)))
	}
	return b
}

// Clip returns the runs between two addresses, cut to fit.
func (r Runs) Clip(start, end uint64) Runs {
	var inside Runs
	for _, run := range r[r.firstAfter(start):] {
		if run.Start >= end || start >= end {
			break
		}
		run.Start, run.End = max(run.Start, start), min(run.End, end)
		inside = append(inside, run)
	}
	return inside
}

// Find returns the run that contains an address. It returns false where there is no memory.
func (r Runs) Find(address uint64) (Run, bool) {
	i := r.firstAfter(address)
	if i == len(r) || r[i].Start > address {
		return Run{}, false
	}
	return r[i], true
}

// InMemory returns the sum of all runs that are not swapped out, in bytes.
func (r Runs) InMemory() (bytes int64) {
	for _, run := range r {
		if !run.Swapped {
			bytes += int64(run.Len())
		}
	}
	return bytes
}

// PrivateSpans returns the addresses of private memory, resident or swapped out.
func (r Runs) PrivateSpans() Spans {
	spans := make([]Span, 0, len(r))
	for _, run := range r {
		if !run.File {
			spans = append(spans, run.Span)
		}
	}
	return MergeSpans(spans)
}

// WithOrigin returns the runs with the private memory within spans set to an origin.
func (r Runs) WithOrigin(spans Spans, origin Origin) Runs {
	isPrivate := func(run Run) bool { return !run.File }
	return r.mapWithin(spans, isPrivate, func(inside []Run) []Run {
		for i := range inside {
			inside[i].Origin = origin
		}
		return inside
	})
}

// WithoutResident returns the runs less the resident memory within spans. Swapped-out memory there
// stays.
func (r Runs) WithoutResident(spans Spans) Runs {
	isResident := func(run Run) bool { return !run.Swapped }
	return r.mapWithin(spans, isResident, func([]Run) []Run { return nil })
}

// mapWithin replaces the parts of runs that lie within spans, where applies returns true.
func (r Runs) mapWithin(spans Spans, applies func(Run) bool, replace func([]Run) []Run) Runs {
	mapped := make(Runs, 0, len(r))
	next := 0

	for _, run := range r {
		for next < len(spans) && spans[next].End <= run.Start {
			next++
		}

		if applies(run) {
			for i := next; i < len(spans) && spans[i].Start < run.End; i++ {
				mapped = append(mapped, cutBefore(&run, max(run.Start, spans[i].Start))...)
				inside := cutBefore(&run, min(run.End, spans[i].End))
				mapped = append(mapped, replace(inside)...)
			}
		}

		mapped = append(mapped, cutBefore(&run, run.End)...)
	}
	return mapped
}

// cutBefore cuts the part below an address off a run and returns it, or nil if it is empty.
func cutBefore(run *Run, address uint64) []Run {
	if address <= run.Start {
		return nil
	}

	part := *run
	part.End, run.Start = address, address
	return []Run{part}
}

// PrefixSums are runs with prefix sums, so that In takes O(log n) time even for a long range. The
// large objects of a process may all lie over many runs.
type PrefixSums struct {
	runs   Runs
	prefix []Bytes // prefix[i] is the sum of the first i*runsPerSum runs
}

const runsPerSum = 64

// PrefixSums computes the prefix sums of the runs.
func (r Runs) PrefixSums() PrefixSums {
	s := PrefixSums{runs: r}
	var sum Bytes

	for i, run := range r {
		if i%runsPerSum == 0 {
			s.prefix = append(s.prefix, sum)
		}
		sum.addRun(run, int64(run.Len()))
	}
	s.prefix = append(s.prefix, sum)
	return s
}

// BytesIn returns how much memory lies between two addresses, as Runs.BytesIn does.
func (s PrefixSums) BytesIn(start, end uint64) Bytes {
	first := s.runs.firstAfter(start)
	near := min(first+2*runsPerSum, len(s.runs))
	if start >= end || near == len(s.runs) || s.runs[near].Start >= end {
		return s.runs[first:near].BytesIn(start, end)
	}

	last := first + s.runs[first:].firstAfter(end)
	from, to := (first+runsPerSum)/runsPerSum, last/runsPerSum
	b := s.prefix[to]
	b.subtract(s.prefix[from])

	b.Add(s.runs[first:from*runsPerSum].BytesIn(start, end))
	b.Add(s.runs[to*runsPerSum:min(last+1, len(s.runs))].BytesIn(start, end))
	return b
}
