package residency

import (
	"sort"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

// toucher is a stack that touched memory of a place first.
type firstToucher struct {
	unownedRow
	stack uint64
}

// addTouched splits what is at each place among those who touched it first, as far as they were sampled. Faults on pages
// that tell nothing are forgotten.
func (l *Rows) addTouched(faults []source.Fault) {
	shares := make(map[firstToucher]float64)
	sums, seen, samples := make(map[unownedRow]float64), make(map[unownedRow]float64), make(map[unownedRow]int)
	var forgotten []uint64
	for _, f := range faults {
		at, bytes, ok := l.placeOf(f)
		if !ok {
			forgotten = append(forgotten, f.Page)
			continue
		}
		weight := f.Weight * bytes
		shares[firstToucher{at, f.Stack}] += weight
		sums[at] += weight
		seen[at] += bytes
		samples[at]++
	}
	for by, weight := range shares {
		l.addToucher(by, weight/sums[by.unownedRow], seen[by.unownedRow], samples[by.unownedRow])
	}
	for at, t := range l.touched {
		if sums[at] == 0 {
			l.addUnattributed(at, t)
		}
	}
	if l.stacks != nil && l.Share == 1 { // else a page may only not have been looked at
		l.Forgotten = forgotten
	}
}

// addToucher adds the share of a stack. Its variance is that of a share found in so many samples, less where what was seen
// is much of all.
func (l *Rows) addToucher(by firstToucher, share, seen float64, samples int) {
	t, ok := l.touched[by.unownedRow]
	if !ok {
		return
	}
	all := float64(t.bytes)
	bytes := share * all
	variance := all*max(0, all-seen)*share*(1-share)/float64(samples) + t.variance*share
	h := l.hold(l.stacks(by.stack).Under(by.root), by.kind, round(bytes), 0, variance)
	h.SharedBytes += round(share * float64(t.shared))
}

// addUntold adds what nobody was seen to touch.
func (l *Rows) addUnattributed(at unownedRow, t *firstTouch) {
	var names []string
	if at.of != "" {
		names = append(names, at.of)
	}
	if h := l.name(at.kind, t.bytes, 0, t.variance, at.root, names...); h != nil {
		h.SharedBytes += t.shared
	}
}

// areaAt is the area of an address; nil: there is none.
func (l *Scan) areaAt(address uint64) *Segment {
	i := sort.Search(len(l.Segments), func(i int) bool { return l.Segments[i].Region.End > address })
	if i == len(l.Segments) || l.Segments[i].Region.Start > address {
		return nil
	}
	return &l.Segments[i]
}

// mapped is the kind of memory that a mapping of the program turned out to be.
func (a *Segment) MappedKind() growth.Kind {
	if a.Kind == growth.KindMmap {
		return a.rowKind().kind
	}
	return a.Kind
}

// shownAt is the stack of a mapping as it is shown: below the name of what is mapped, where it has one.
func (a *Segment) StackUnderName(stack *growth.Stack) *growth.Stack {
	if a.Class == region.File || a.Class == region.Shmem {
		return stack.Under(a.rowKind().root)
	}
	return stack
}
