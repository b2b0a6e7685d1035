package growth

import "math"

// churnAge is the Age below which what is alive is young.
const churnAge = 0.25

// A stackChange is what became of a stack's memory over a window, all in bytes.
type stackChange struct {
	// born in the window and alive at its end; freed in it, of what was alive at its start.
	born, freed stackAmount
	// older and younger are what was born in the first and the second half and is alive at the end, each as if its half were
	// half of the window.
	older, younger float64
	// uneven is how far older may exceed twice younger by chance.
	uneven float64
	// interval is what one sample of small objects stands for; 0: nothing is sampled.
	interval float64
	// bornAge is the mean age of a byte of born at the end, in seconds.
	bornAge float64
}

func (c *stackChange) growth() float64 { return c.born.bytes - c.freed.bytes }

// low is the lower limit of the growth, in bytes. The limits of born and freed are combined as "MOVER" does it: Zou and
// Donner, Statistics in Medicine 27 (2008).
func (c *stackChange) low(risk float64) float64 {
	return c.growth() - math.Hypot(c.born.bytes-c.born.low(risk), c.freed.high(risk, c.interval)-c.freed.bytes)
}

func (c *stackChange) high(risk float64) float64 {
	return c.growth() + math.Hypot(c.born.high(risk, c.interval)-c.born.bytes, c.freed.bytes-c.freed.low(risk))
}

func (c *stackChange) age() float64 { return shareOf(c.older, c.younger) }

// lasts is 1 where the second half keeps as much as the first: about 0 for a cache that has filled.
func (c *stackChange) lasts() float64 { return shareOf(c.younger, c.older) }

// shareOf is part/whole from 0 to 1; what is below 0 is none.
func shareOf(part, whole float64) float64 {
	if part <= 0 {
		return 0
	}
	return min(1, part/max(0, whole))
}

// judge a stack. risk is that of calling growth proven which is none.
func (w *snappedWindow) judge(h *stackHistory, risk float64) StackTrend {
	c := w.changeOf(h)
	t := StackTrend{
		Stack: h.stack, Kind: h.kind, GPU: h.gpu,
		Growth: c.growth(), Low: c.low(oneInTwenty / 2), High: c.high(oneInTwenty / 2),
		Age: c.age(), Rate: c.growth() / w.seconds(), seen: h.sighting(),
	}
	proven := max(0, c.low(risk))
	t.Score = proven / w.seconds() * t.Age * c.lasts()
	switch {
	case proven == 0:
		t.Trend = TrendNoGrowth
	case w.middle == 0:
	case t.Age < churnAge:
		t.Trend = TrendChurn
	case h.refills():
		t.Trend = TrendRefill
	case c.older > 2*c.younger+c.uneven:
		t.Trend = TrendFilling
	default:
		t.Trend = TrendAccumulating
	}
	if t.grows() {
		t.undecide(w.doubt(h, &c))
	}
	return t
}

func (w *snappedWindow) changeOf(h *stackHistory) stackChange {
	c := exactChange(h.start.InuseBytes, h.middle, h.end.InuseBytes)
	if len(h.end.Births) > 0 || h.kind.isSampled() && h.end.InuseBytes == 0 {
		c = w.sampledChange(h)
	}
	half := w.seconds() / 2
	if first := (w.snapshots[w.middle].Elapsed - w.start().Elapsed).Seconds(); first > 0 {
		c.older *= half / first
		c.younger *= half / (2*half - first)
	}
	return c
}

// exactChange is that of memory which is not sampled, from what was held in bytes: there, only net growth is known.
func exactChange(start, middle, end int64) stackChange {
	return stackChange{
		born:  stackAmount{bytes: float64(max(0, end-start))},
		freed: stackAmount{bytes: float64(max(0, start-end))},
		older: float64(middle - start), younger: float64(end - middle),
	}
}

// sampledChange tells by the births at the end what of the start is still alive: the same samples, which cancel. Their variances do
// where both have the same dispersion.
func (w *snappedWindow) sampledChange(h *stackHistory) stackChange {
	c := stackChange{interval: float64(w.end().Interval)}
	c.uneven = 4 * c.interval
	alike := 1.0
	if seen := h.sighting(); seen != nil {
		c.interval *= max(1, w.end().Watch.Factor)
		alike = seen.dispersion() / h.start.Sighting.dispersion()
	}
	c.freed = stackAmount{bytes: float64(h.start.InuseBytes), variance: alike * h.start.Variance}
	var age Age
	var older, younger float64 // their variances
	for _, b := range h.end.Births {
		switch {
		case b.Bin <= w.startBin:
			c.freed.bytes -= b.InuseBytes
			c.freed.variance -= b.Variance
			continue
		case b.Bin <= w.middleBin:
			c.older += b.InuseBytes
			older += b.Variance
		default:
			c.younger += b.InuseBytes
			younger += b.Variance
		}
		c.born.bytes += b.InuseBytes
		c.born.variance += b.Variance
		age.addBirth(w.end(), b)
	}
	if mean, ok := age.Mean(); ok {
		c.bornAge = (mean + w.end().Watch.Lag).Seconds()
	}
	c.freed, c.born = c.freed.sound(), c.born.sound()
	if h.sighting() != nil {
		c.uneven = 2 * math.Sqrt(older+4*younger)
		c.born.variance += w.edges(c.born.bytes)
	}
	return c
}

// edges is the variance of what was born because the window neither begins nor ends where that which one window of the heap
// probes stands for does, in bytes²: each end is off by any part of it.
func (w *snappedWindow) edges(born float64) float64 {
	watch := &w.end().Watch
	each := watch.Factor * watch.Open.Seconds() / float64(max(1, watch.Windows))
	one := born * min(1, each/w.seconds())
	return one * one / 6
}
