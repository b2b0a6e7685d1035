package tracer

import (
	"sort"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// toucher is a stack that touched memory of a place first.
type toucher struct {
	place
	stack uint64
}

// addTouched splits what is at each place among those who touched it first, as far as they were sampled. Faults on pages
// that tell nothing are forgotten.
func (l *ledger) addTouched(faults []fault) {
	shares := make(map[toucher]float64)
	sums, seen, samples := make(map[place]float64), make(map[place]float64), make(map[place]int)
	var forgotten []uint64
	for _, f := range faults {
		at, bytes, ok := l.placeOf(f)
		if !ok {
			forgotten = append(forgotten, f.page)
			continue
		}
		weight := f.stands * bytes
		shares[toucher{at, f.stack}] += weight
		sums[at] += weight
		seen[at] += bytes
		samples[at]++
	}
	for by, weight := range shares {
		l.addToucher(by, weight/sums[by.place], seen[by.place], samples[by.place])
	}
	for at, t := range l.touched {
		if sums[at] == 0 {
			l.addUntold(at, t)
		}
	}
	if l.target != nil && l.share == 1 { // else a page may only not have been looked at
		forgetFaults(l.target.kernel, uint32(l.pid), forgotten)
	}
}

// addToucher adds the share of a stack. Its variance is that of a share found in so many samples, less where what was seen
// is much of all.
func (l *ledger) addToucher(by toucher, share, seen float64, samples int) {
	t, ok := l.touched[by.place]
	if !ok {
		return
	}
	all := float64(t.bytes)
	bytes := share * all
	variance := all*max(0, all-seen)*share*(1-share)/float64(samples) + t.variance*share
	h := l.hold(l.target.stacks.get(by.stack).Under(by.root), by.kind, round(bytes), 0, variance)
	h.SharedBytes += round(share * float64(t.shared))
}

// addUntold adds what nobody was seen to touch.
func (l *ledger) addUntold(at place, t *touches) {
	var names []string
	if at.of != "" {
		names = append(names, at.of)
	}
	if h := l.name(at.kind, t.bytes, 0, t.variance, at.root, names...); h != nil {
		h.SharedBytes += t.shared
	}
}

// areaAt is the area of an address; nil: there is none.
func (l *look) areaAt(address uint64) *area {
	i := sort.Search(len(l.areas), func(i int) bool { return l.areas[i].Region.End > address })
	if i == len(l.areas) || l.areas[i].Region.Start > address {
		return nil
	}
	return &l.areas[i]
}

// mapped is the kind of memory that a mapping of the program turned out to be.
func (a *area) mapped() growth.Kind {
	if a.Kind == growth.KindMmap {
		return a.nature().kind
	}
	return a.Kind
}

// shownAt is the stack of a mapping as it is shown: below the name of what is mapped, where it has one.
func (a *area) shownAt(stack *growth.Stack) *growth.Stack {
	if a.Class == region.File || a.Class == region.Shmem {
		return stack.Under(a.nature().root)
	}
	return stack
}
