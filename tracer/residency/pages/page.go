package pages

import "sort"

// A Tag says how a page came to be in memory.
type Tag uint8

// The tags.
const (
	Fresh     Tag = iota // since the trace began
	Old                  // it was when the trace began
	Copied               // as the process's own copy of an inherited page
	Inherited            // still shared with the parent
	Tags                 // how many there are
)

// A Run is a stretch of pages that hold memory and have all properties in common.
type Run struct {
	Span
	Tag Tag
	// Swapped out; else in memory.
	Swapped bool
	// File: of a file or of shared memory, and not private to the process. Huge: mapped as huge pages.
	File, Huge bool
}

// Bytes of a stretch of addresses that hold memory. Those of private memory are counted by tag.
type Bytes struct {
	Resident [Tags]int64
	// File is in memory and of a file or of shared memory.
	File    int64
	Swapped int64
}

// Private memory of the process, of all tags.
func (b Bytes) Private() (sum int64) {
	for _, bytes := range b.Resident {
		sum += bytes
	}
	return sum
}

// InMemory is all but what is swapped out.
func (b Bytes) InMemory() int64 { return b.Private() + b.File }

// Add adds other.
func (b *Bytes) Add(other Bytes) {
	for tag, bytes := range other.Resident {
		b.Resident[tag] += bytes
	}
	b.File += other.File
	b.Swapped += other.Swapped
}

// Scaled is b with private memory, in memory or swapped out, and that of files multiplied.
func (b Bytes) Scaled(private, file float64) Bytes {
	scale := func(bytes int64, factor float64) int64 { return int64(float64(bytes)*factor + 0.5) }
	for tag := range b.Resident {
		b.Resident[tag] = scale(b.Resident[tag], private)
	}
	b.File, b.Swapped = scale(b.File, file), scale(b.Swapped, private)
	return b
}

// Runs are sorted and disjoint.
type Runs []Run

// In counts what lies between two addresses.
func (r Runs) In(start, end uint64) (b Bytes) {
	first := sort.Search(len(r), func(i int) bool { return r[i].End > start })
	for _, run := range r[first:] {
		if run.Start >= end || start >= end {
			break
		}
		b.count(run, int64(min(run.End, end)-max(run.Start, start)))
	}
	return b
}

// count adds bytes of a run.
func (b *Bytes) count(run Run, bytes int64) {
	switch {
	case run.Swapped:
		b.Swapped += bytes
	case run.File:
		b.File += bytes
	default:
		b.Resident[run.Tag] += bytes
	}
}

// At gives the run that an address lies in; false: the address holds nothing.
func (r Runs) At(address uint64) (Run, bool) {
	i := sort.Search(len(r), func(i int) bool { return r[i].End > address })
	if i == len(r) || r[i].Start > address {
		return Run{}, false
	}
	return r[i], true
}

// Private are the spans of memory that is private to the process, in memory or swapped out.
func (r Runs) Private() Spans {
	spans := make([]Span, 0, len(r))
	for _, run := range r {
		if !run.File {
			spans = append(spans, run.Span)
		}
	}
	return SpansOf(spans)
}

// Mark gives private memory within spans a tag.
func (r Runs) Mark(spans Spans, tag Tag) Runs {
	marked := make(Runs, 0, len(r))
	next := 0
	for _, run := range r {
		for next < len(spans) && spans[next].End <= run.Start {
			next++
		}
		for i := next; !run.File && i < len(spans) && spans[i].Start < run.End; i++ {
			marked = append(marked, cut(&run, max(run.Start, spans[i].Start))...)
			inside := cut(&run, min(run.End, spans[i].End))
			for j := range inside {
				inside[j].Tag = tag
			}
			marked = append(marked, inside...)
		}
		marked = append(marked, cut(&run, run.End)...)
	}
	return marked
}

// Without leaves out what is in memory within spans. What is swapped out there stays.
func (r Runs) Without(spans Spans) Runs {
	rest := make(Runs, 0, len(r))
	next := 0
	for _, run := range r {
		for next < len(spans) && spans[next].End <= run.Start {
			next++
		}
		for i := next; !run.Swapped && i < len(spans) && spans[i].Start < run.End; i++ {
			rest = append(rest, cut(&run, max(run.Start, spans[i].Start))...)
			cut(&run, min(run.End, spans[i].End))
		}
		rest = append(rest, cut(&run, run.End)...)
	}
	return rest
}

// cut takes the part before an address off a run; nil: there is none.
func cut(run *Run, at uint64) []Run {
	if at <= run.Start {
		return nil
	}
	part := *run
	part.End, run.Start = at, at
	return []Run{part}
}

// InMemory is the sum of all that is not swapped out.
func (r Runs) InMemory() (bytes int64) {
	for _, run := range r {
		if !run.Swapped {
			bytes += int64(run.Len())
		}
	}
	return bytes
}

// Between are the runs between two addresses, cut to fit.
func (r Runs) Between(start, end uint64) Runs {
	first := sort.Search(len(r), func(i int) bool { return r[i].End > start })
	var inside Runs
	for _, run := range r[first:] {
		if run.Start >= end || start >= end {
			break
		}
		run.Start, run.End = max(run.Start, start), min(run.End, end)
		inside = append(inside, run)
	}
	return inside
}
