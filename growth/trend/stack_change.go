package trend

import (
	"math"

	"github.com/allocscope/allocscope/growth"
)

// minAge is the Age below which live memory is transient.
const minAge = 0.25

// A stackChange is the change of a stack's memory over a window, in bytes.
type stackChange struct {
	// born in the window and alive at its end; freed in it, of the memory at its start.
	born, freed growth.WeightedSum
	// older and younger were born in the first and the second half and are alive at the end, each
	// scaled to half of the window.
	older, younger float64
	// chanceExcess is by how much older may exceed twice younger by chance, and chanceLack by how
	// much it may fall short of minAge times younger.
	chanceExcess, chanceLack float64
	// interval is the bytes that one sample of small objects represents; 0: nothing is sampled.
	interval float64
	// bornAgeSeconds is the mean age of a byte of born at the end.
	bornAgeSeconds float64
}

func (c *stackChange) growth() float64 { return c.born.Bytes - c.freed.Bytes }

// low is the lower limit of the growth, in bytes. It combines the limits of born and freed by the
// method of variance estimates recovery (MOVER): Zou and Donner, Statistics in Medicine 27 (2008)
// 1693.
func (c *stackChange) low(risk float64) float64 {
	return c.growth() - math.Hypot(
		c.born.Bytes-c.born.Low(risk), c.freed.High(risk, c.interval)-c.freed.Bytes)
}

// high is the upper limit of the growth, as low.
func (c *stackChange) high(risk float64) float64 {
	return c.growth() + math.Hypot(
		c.born.High(risk, c.interval)-c.born.Bytes, c.freed.Bytes-c.freed.Low(risk))
}

// age is 1 where the first half keeps as much as the second: about 0 for transient memory.
func (c *stackChange) age() float64 { return growth.Share(c.older, c.younger) }

// persistence is 1 where the second half keeps as much as the first: about 0 for a cache that has
// filled.
func (c *stackChange) persistence() float64 { return growth.Share(c.younger, c.older) }

// judge a stack. risk is the probability of a false proof of growth.
func (r *snapshotRange) judge(h *stackSeries, risk float64) StackTrend {
	c := r.changeOf(h)
	isReplaced := r.middle != 0 && h.isReplaced(&c)
	if isReplaced {
		c = r.toHalves(h.replacedChange())
	}
	t := StackTrend{
		Stack: h.stack, Kind: h.kind, GPU: h.gpu,
		Growth: c.growth(), Low: c.low(growth.SignificanceLevel / 2),
		High: c.high(growth.SignificanceLevel / 2),
		Age:  c.age(), Rate: c.growth() / r.seconds(), evidence: h.evidence(),
	}
	proven := max(0, c.low(risk))
	t.Score = proven / r.seconds() * t.Age * c.persistence()

	switch {
	case proven == 0:
		t.Trend = growth.TrendNoGrowth
	case r.middle == 0:
	case isReplaced:
		t.Trend, t.Objects, t.Now = growth.TrendReplaced, h.sizes.objects(), h.sizes.bytes()
		t.isSteady = min(c.age(), c.persistence()) >= 0.5
	case c.older < minAge*c.younger-c.chanceLack:
		t.Trend = growth.TrendTransient
	case h.isRefilled():
		t.Trend = growth.TrendRefilled
	case c.older > 2*c.younger+c.chanceExcess:
		t.Trend = growth.TrendSaturating
	default:
		t.Trend = growth.TrendAccumulating
	}

	if t.Grows() {
		t.markUndecided(r.undecided(h, &c))
	}

	return t
}

func (r *snapshotRange) changeOf(h *stackSeries) stackChange {
	if len(h.end.Births) > 0 || h.kind.IsSampled() && h.end.InuseBytes == 0 {
		return r.toHalves(r.sampledChange(h))
	}
	return r.toHalves(exactChange(h.start.InuseBytes, h.middle, h.end.InuseBytes))
}

// toHalves scales the births before and after the middle snapshot to half of the window.
func (r *snapshotRange) toHalves(c stackChange) stackChange {
	half := r.seconds() / 2
	if first := (r.snapshots[r.middle].Elapsed - r.start().Elapsed).Seconds(); first > 0 {
		c.older *= half / first
		c.younger *= half / (2*half - first)
	}

	return c
}

// exactChange is the change of memory that is not sampled: only its net growth is known.
func exactChange(start, middle, end int64) stackChange {
	return stackChange{
		born:    growth.WeightedSum{Bytes: float64(max(0, end-start))},
		freed:   growth.WeightedSum{Bytes: float64(max(0, start-end))},
		older:   float64(middle - start),
		younger: float64(end - middle),
	}
}

// sampledChange finds by the births at the end which samples of the start are still alive: those
// cancel. Their variances cancel too, once scaled to one dispersion.
func (r *snapshotRange) sampledChange(h *stackSeries) stackChange {
	c := stackChange{interval: float64(r.end().Interval)}
	dispersionRatio := 1.0
	evidence := h.evidence()
	if evidence != nil {
		c.interval *= max(1, r.end().Heap.Extrapolation)
		dispersionRatio = dispersionOf(evidence) / dispersionOf(h.start.Evidence)
	}
	c.freed = growth.WeightedSum{
		Bytes:    float64(h.start.RescaledInuse(&r.start().Heap, &r.end().Heap)),
		Variance: dispersionRatio * h.start.Variance,
	}

	var age growth.Age
	var olderVariance, youngerVariance float64
	for _, b := range h.end.Births {
		switch {
		case b.Bin <= r.startBin:
			c.freed.Bytes -= b.InuseBytes
			c.freed.Variance -= b.Variance
			continue
		case b.Bin <= r.middleBin:
			c.older += b.InuseBytes
			olderVariance += b.Variance
		default:
			c.younger += b.InuseBytes
			youngerVariance += b.Variance
		}
		c.born.Bytes += b.InuseBytes
		c.born.Variance += b.Variance
		age.AddBirth(r.end(), b)
	}

	if mean, ok := age.Mean(); ok {
		c.bornAgeSeconds = (mean + r.end().Heap.Lag).Seconds()
	}

	c.freed, c.born = c.freed.Clamp(), c.born.Clamp()
	if evidence == nil {
		c.interval = max(c.interval, meanInterval(c.freed), meanInterval(c.born))
		c.chanceExcess = 4 * c.interval
	} else {
		c.chanceExcess = 2 * math.Sqrt(olderVariance+4*youngerVariance)
		c.chanceLack = 2 * math.Sqrt(olderVariance+minAge*minAge*youngerVariance)
		c.born.Variance += r.edgeVariance(c.born.Bytes)
	}

	return c
}

// meanInterval is the mean interval between the samples of a sum, in bytes; less where objects are
// larger. A stack may have, or have had, rarer samples than others.
func meanInterval(sum growth.WeightedSum) float64 { return sum.Variance / max(1, sum.Bytes) }

// dispersionOf the bursts in a holding's variance; 1 where every call was probed.
func dispersionOf(evidence *growth.BurstEvidence) float64 {
	if evidence == nil {
		return 1
	}
	return max(1, evidence.Dispersion)
}

// edgeVariance is the variance of born, in bytes², because the window does not begin and end where
// the time that a burst represents does: each end is off by a uniform part of that time.
func (r *snapshotRange) edgeVariance(born float64) float64 {
	heap := &r.end().Heap
	perBurst := heap.Extrapolation * heap.Open.Seconds() / float64(max(1, heap.Bursts))
	bytes := born * min(1, perBurst/r.seconds())
	return bytes * bytes / 6 // two ends of variance 1/12
}
