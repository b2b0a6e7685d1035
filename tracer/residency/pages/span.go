// Package pages lays what is known of an address space over the pages of it that are in memory, and says what each
// piece holds of them. It does no I/O.
package pages

import (
	"cmp"
	"slices"
	"sort"
)

// A Span is a stretch of addresses, or of a file.
type Span struct{ Start, End uint64 }

// Len is the size in bytes.
func (s Span) Len() uint64 { return s.End - s.Start }

// Spans are sorted and disjoint.
type Spans []Span

// SpansOf sorts spans and joins those that touch or overlap. It works in the place of its argument.
func SpansOf(spans []Span) Spans {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	joined := spans[:0]
	for _, s := range spans {
		if n := len(joined); n > 0 && s.Start <= joined[n-1].End {
			joined[n-1].End = max(joined[n-1].End, s.End)
		} else if s.Start < s.End {
			joined = append(joined, s)
		}
	}
	return joined
}

// Len is the sum of the sizes in bytes.
func (s Spans) Len() (bytes uint64) {
	for _, span := range s {
		bytes += span.Len()
	}
	return bytes
}

// Holds reports whether all of a span that is not empty is in one of these.
func (s Spans) Holds(span Span) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].End > span.Start })
	return i < len(s) && s[i].Start <= span.Start && span.End <= s[i].End && span.Start < span.End
}

// And is what is in both.
func (s Spans) And(other Spans) (both Spans) {
	for i, j := 0, 0; i < len(s) && j < len(other); {
		if start, end := max(s[i].Start, other[j].Start), min(s[i].End, other[j].End); start < end {
			both = append(both, Span{start, end})
		}
		if s[i].End < other[j].End {
			i++
		} else {
			j++
		}
	}
	return both
}

// Without is what is not in other.
func (s Spans) Without(other Spans) (rest Spans) {
	rest = make(Spans, 0, max(len(s), len(other)))
	j := 0
	for _, span := range s {
		for j < len(other) && other[j].End <= span.Start {
			j++
		}
		for k := j; k < len(other) && other[k].Start < span.End; k++ {
			if span.Start < other[k].Start {
				rest = append(rest, Span{span.Start, other[k].Start})
			}
			span.Start = max(span.Start, min(other[k].End, span.End))
		}
		if span.Start < span.End {
			rest = append(rest, span)
		}
	}
	return rest
}

// Or is what is in either.
func (s Spans) Or(other Spans) Spans { return SpansOf(append(slices.Clone(s), other...)) }
