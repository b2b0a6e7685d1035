package growth

import "slices"

// phasesOf names what the series did, from its start to its end.
func phasesOf(s Series, c course, v Verdict) []Phase {
	var phases []Phase
	add := func(p Phase) {
		if p.To > p.From {
			phases = append(phases, p)
		}
	}
	regimes := slices.Concat(c.left, []regime{c.last})
	at := s.X[0]
	if first := regimes[0]; first.from > at { // before the mark of an epoch
		to := first.base.start()
		b := baseOf(s.until(first.from))
		add(earlier(at, to, lineThrough(b.x, b.y).slope, median(b.y)))
		at = to
	}
	for i, r := range c.left {
		to := max(at, regimes[i+1].base.start())
		add(earlier(at, to, r.rateUntil(to), median(r.base.y)))
		at = to
	}
	add(Phase{Kind: lastKind(v.Class), From: at, To: s.end(), Rate: v.Rate})
	return phases
}

// earlier is a phase before the last regime, told by its rise.
func earlier(from, to, rate, level float64) Phase {
	p := Phase{Kind: PhaseFlat, From: from, To: to, Rate: rate}
	switch rise := rate * (to - from); {
	case rise > rises*level:
		p.Kind = PhaseWarmup
	case rise < -rises*level:
		p.Kind = PhaseRelease
	}
	return p
}

// rateUntil is the mean rate of a regime's base before the next, in bytes per X.
func (r regime) rateUntil(to float64) float64 {
	if r.shape.form == formKnot {
		return r.shape.before.slope
	}
	n := 0
	for n < len(r.base.x) && r.base.x[n] < to {
		n++
	}
	return lineThrough(r.base.x[:n], r.base.y[:n]).slope
}

func lastKind(c Class) PhaseKind {
	switch c {
	case ClassLeak, ClassGrowing:
		return PhaseGrowth
	case ClassSaturating:
		return PhaseSlowdown
	case ClassPlateau, ClassSpikyPlateau:
		return PhasePlateau
	}
	return PhaseOpen
}
