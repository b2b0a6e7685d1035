package tracer

import (
	"cmp"
	"slices"
	"sort"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// addPinned adds the memory of the host that is pinned for a GPU, to whoever pinned it, and takes it out of what is told otherwise: such
// memory may be the heap's, a mapping's or shared. Where several have pinned a page it is the first one's.
func (l *ledger) addPinned(pins []pin) {
	slices.SortFunc(pins, func(a, b pin) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End)) })
	var taken pages.Spans
	last := uint64(0)
	for _, p := range pins {
		p.Start = max(p.Start, last)
		if p.Start < p.End {
			l.addPin(p)
			last = p.End
			taken = append(taken, p.Span)
		}
	}
	l.runs = l.runs.Without(pages.SpansOf(taken))
}

// addPin adds what is in memory of pinned pages: all, unless the driver has not pinned them after all. Of mappings of which only some blocks
// were looked at it is taken at its word: an estimate by those blocks would know nothing of a pin between two of them.
func (l *ledger) addPin(p pin) {
	var resident int64
	first := sort.Search(len(l.areas), func(i int) bool { return l.areas[i].Region.End > p.Start })
	for i := first; i < len(l.areas) && l.areas[i].Region.Start < p.End; i++ {
		a := &l.areas[i]
		if !a.inLedger() {
			continue
		}
		start, end := max(p.Start, a.Region.Start), min(p.End, a.Region.End)
		if a.sampled {
			resident += int64(end - start)
		} else {
			resident += l.runs.In(start, end).Scaled(a.factor, a.fileFactor).InMemory()
		}
	}
	if resident != 0 {
		l.hold(l.target.stacks.get(p.stack), growth.KindPinned, resident, 0, 0)
	}
}
