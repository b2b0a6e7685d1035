package compare

import (
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// A side has the memory that one of the two holds, or gained, by stack.
type side struct {
	sites map[string]*site
	// interval is the mean number of bytes between samples; 0: every allocation.
	interval float64
	// per is the factor that makes rates of amounts; 1: they are not rates.
	per float64
	// grows: the amounts are growth, of which freed objects may have been missed, too.
	grows bool
}

func profileSide(p *pprof.Profile, sampleType string, n names) *side {
	r := newTypeReader(p, sampleType, n)
	s := &side{sites: r.sites(), interval: r.interval, per: 1}
	s.addRemainderErrors(func(h *site) float64 { return math.Abs(h.held.exact) })
	return s
}

// growthSide is the gain of a trace between its baseline and its end. The amounts are from
// growth.pb.gz; the profiles at the baseline and the end give their errors.
func growthSide(t *Trace, sampleType string, n names) *side {
	grown, start, end := levels(t.Growth, sampleType, n), levels(t.Warmup, sampleType, n),
		levels(t.Plateau, sampleType, n)
	s := &side{sites: grown, interval: intervalOf(t.Plateau), per: 1, grows: true}
	weights := make(map[*site]float64)
	for key, h := range grown {
		before, after := start[key], end[key]
		h.held = turnover(before, after, h.held.estimate().value, h.maxAllocated(h.allocated),
			s.interval)

		for _, level := range []*site{before, after} {
			if level != nil {
				weights[h] += math.Abs(level.held.estimate().value)
				h.takeSize(level)
			}
		}
	}

	if sampleType == residentSpace {
		s.addBreakdownErrors(errorsOf(t.Summary.Breakdown),
			func(h *site) float64 { return weights[h] })
	}

	return s
}

// treeSide is the gain of a process tree between the baseline and the end of a trace, by the rows of
// its breakdown. A tree with no other processes to speak of has the rows of its main process alone.
func treeSide(t *Trace) *side {
	s := &side{sites: make(map[string]*site), per: 1, grows: true}
	pid := t.Summary.Process.PID
	if slices.ContainsFunc(t.Summary.Breakdown,
		func(row summary.BreakdownRow) bool { return row.Process == 0 }) {
		pid = 0
	}

	for _, row := range t.Summary.Breakdown {
		if row.Process != pid {
			continue
		}
		kind := string(row.Kind)
		frame := pprof.Line{Function: &pprof.Function{Name: row.Name}}
		h := &site{
			component: kind, kind: kind,
			sample: &pprof.Sample{Location: []*pprof.Location{{Line: []pprof.Line{frame}}}},
		}
		h.held.exact = float64(row.DeltaBytes)
		h.held.noise = math.Pow(float64(row.ErrorBytes)/normal95, 2)
		s.sites[kind+"\x00"+row.Name] = h
	}
	return s
}

func levels(p *pprof.Profile, sampleType string, n names) map[string]*site {
	return newTypeReader(p, sampleType, n).sites()
}

// takeSize takes over the size of the objects.
func (h *site) takeSize(level *site) {
	if level.size > 0 {
		h.size, h.scale = level.size, level.scale
	}
}

// turnover is growth with its error. Objects that are alive at both snapshots cancel. At the end,
// only objects born since count: at most all that were allocated since. At the start, only objects
// that must have been freed count. nil: nothing was held then.
func turnover(start, end *site, grown, allocated, interval float64) amount {
	var sized *site
	var before, after part

	for _, h := range []*site{start, end} {
		if h != nil && h.size > 0 {
			sized = h
		}
	}

	if sized == nil || interval == 0 {
		return amount{exact: grown}
	}

	if start != nil {
		before = start.held.born
	}

	if end != nil {
		after = end.held.born
	}

	born := after.scaled(max(min(after.bytes, allocated), grown, 0))
	freed := before.scaled(max(born.bytes-grown, 0))
	born.missed = missed(sized.size, sized.scale, interval)
	freed.missed = born.missed

	return amount{born: born, freed: freed}
}

// addRemainderErrors gives the remainder of the heap, or of a GPU, the error of the live objects:
// the kernel counts the sum of both exactly.
func (s *side) addRemainderErrors(weight func(*site) float64) {
	var variance float64
	for _, h := range s.sites {
		variance += h.held.variance()
	}
	s.spread(variance, func(h *site) bool { return isRemainder(h.kind) }, weight)
}

// spread distributes a variance, in bytes², over some of the sites. Their errors are proportional
// to their weights.
func (s *side) spread(variance float64, to func(*site) bool, weight func(*site) float64) {
	var squares float64
	for _, h := range s.sites {
		if to(h) {
			squares += weight(h) * weight(h)
		}
	}

	if squares == 0 {
		return
	}

	for _, h := range s.sites {
		if to(h) {
			h.held.noise += variance * weight(h) * weight(h) / squares
		}
	}
}

// errorsOf returns the variances of the change of resident memory by kind, in bytes², as the
// breakdown has them. Beside the variances of sampled objects, they include the variances of pages
// that were not scanned.
func errorsOf(rows []summary.BreakdownRow) map[string]float64 {
	variances := make(map[string]float64)
	for _, row := range rows {
		if row.Process != 0 { // 0: the tree, the same once more
			variances[string(row.Kind)] += math.Pow(float64(row.ErrorBytes)/normal95, 2)
		}
	}
	return variances
}

// addBreakdownErrors gives each kind the error that the breakdown has beyond the error of its
// objects.
func (s *side) addBreakdownErrors(errors map[string]float64, weight func(*site) float64) {
	sums := make(map[string]float64)
	for _, h := range s.sites {
		sums[h.kind] += h.held.variance()
	}
	for kind, sum := range sums {
		s.spread(max(0, errors[kind]-sum), func(h *site) bool { return h.kind == kind }, weight)
	}
}

func isRemainder(kind string) bool {
	switch growth.Kind(kind) {
	case growth.KindRetained, growth.KindUnclassified, growth.KindBeforeTracing,
		growth.KindCudaBeforeTracing,
		growth.KindNotAttributed:
		return true
	}
	return false
}

// of is the amount of a stack. For a stack that the side does not have, it is the part of the other
// side's amount that sampling may have missed.
func (s *side) of(key string, other *site) amount {
	if h := s.sites[key]; h != nil {
		return h.held
	}

	if s.interval == 0 || other == nil {
		return amount{}
	}

	none := amount{born: part{missed: missed(other.size, other.scale, s.interval)}}
	if s.grows {
		none.freed = none.born
	}

	return none
}
