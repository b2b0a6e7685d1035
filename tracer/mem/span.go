// Package mem has the arithmetic of reading a process: the interface by which its memory is read,
// words and alignments, sets of addresses, and the resident and swapped-out memory in them. It does
// no I/O.
package mem

import (
	"cmp"
	"slices"
	"sort"
)

// Span is a range of addresses, or of offsets in a file. End is excluded.
type Span struct{ Start, End uint64 }

// Len returns the size in bytes.
func (s Span) Len() uint64 { return s.End - s.Start }

// Spans is a set of addresses: its spans are sorted, disjoint and not empty.
type Spans []Span

// MergeSpans sorts spans and merges those that touch or overlap. It reuses the memory of its
// argument.
func MergeSpans(spans []Span) Spans {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })

	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && s.Start <= merged[n-1].End {
			merged[n-1].End = max(merged[n-1].End, s.End)
		} else if s.Start < s.End {
			merged = append(merged, s)
		}
	}
	return merged
}

// Len returns the sum of the sizes in bytes.
func (s Spans) Len() (bytes uint64) {
	for _, span := range s {
		bytes += span.Len()
	}
	return bytes
}

// Find returns the span that contains an address.
func (s Spans) Find(address uint64) (Span, bool) {
	i := sort.Search(len(s), func(i int) bool { return s[i].End > address })
	if i == len(s) || address < s[i].Start {
		return Span{}, false
	}
	return s[i], true
}

// Contains reports whether one of the spans contains all of span. An empty span is in none.
func (s Spans) Contains(span Span) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].End > span.Start })
	return i < len(s) && s[i].Start <= span.Start && span.End <= s[i].End && span.Start < span.End
}

// Within returns the addresses that are in span.
func (s Spans) Within(span Span) (inside Spans) {
	i := sort.Search(len(s), func(i int) bool { return s[i].End > span.Start })
	for ; i < len(s) && s[i].Start < span.End && span.Start < span.End; i++ {
		inside = append(inside, Span{max(s[i].Start, span.Start), min(s[i].End, span.End)})
	}
	return inside
}

// Intersect returns the addresses that are in both sets.
func (s Spans) Intersect(other Spans) (both Spans) {
	for i, j := 0, 0; i < len(s) && j < len(other); {
		start, end := max(s[i].Start, other[j].Start), min(s[i].End, other[j].End)
		if start < end {
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

// Subtract returns the addresses of s that are not in other.
func (s Spans) Subtract(other Spans) (rest Spans) {
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

// Union returns the addresses that are in either set.
func (s Spans) Union(other Spans) Spans { return MergeSpans(append(slices.Clone(s), other...)) }
