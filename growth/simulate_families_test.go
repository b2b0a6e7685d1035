package growth

import (
	"math"
	"slices"
)

// What a series tells: a process that warms up, then keeps to its level or leaks.
var decidable = []family{
	{"flat", (*scene).flat, true},
	{"ramp+flat", (*scene).rampThenFlat, true},
	{"load+fill+flat", (*scene).loadThenFill, true},
	{"exp+flat", (*scene).exponentialThenFlat, true},
	{"spiky", func(s *scene) []float64 { return onTop(s.flat(), s.spikes()) }, true},
	{"ramp+spiky", func(s *scene) []float64 { return onTop(s.rampThenFlat(), s.spikes()) }, true},
	{"sawtooth", (*scene).sawtooth, true},
	{"running-max", (*scene).runningMaximum, false},
	{"log", (*scene).logarithmic, false},
	{"exp-filling", (*scene).exponentialFilling, false},
	{"restart+flat", (*scene).restart, true},
	{"one-jump", (*scene).oneJump, true},
	{"doubling+flat", (*scene).doubling, true},
	{"epoch-steps", (*scene).epochs, true},
	{"late", (*scene).late, true},
	{"slow-drift", (*scene).slowDrift, true},
	{"ramp-filling", (*scene).rampFilling, false},
	{"late-filling", (*scene).lateFilling, false},
	{"1/f-noise", (*scene).pinkNoise, true},
	{"heavy-tails", (*scene).heavyTails, true},
	{"mix", (*scene).mix, true},
}

// What only knowledge of the first epoch's end tells from a leak: a fill that outlasts the watch, and teeth as long as it.
var marked = []family{
	{"slow-fill+mark", (*scene).slowFill, false},
	{"epoch-teeth+mark", (*scene).epochTeeth, false},
}

// thoseThatSettle are the decidable families in which a leak shows and intervals can be checked.
func thoseThatSettle() []family {
	return slices.DeleteFunc(slices.Clone(decidable), func(f family) bool { return !f.settles })
}

// named are the decidable families of these names.
func named(names ...string) []family {
	return slices.DeleteFunc(slices.Clone(decidable), func(f family) bool { return !slices.Contains(names, f.name) })
}

func (s *scene) flat() []float64 {
	s.anyAge()
	return s.each(func(float64) float64 { return 1 })
}

// ramp rises from a share of the level to the level.
func ramp(at, begin, end, from float64) float64 {
	return from + (1-from)*min(1, max(0, (at-begin)/(end-begin)))
}

func (s *scene) rampThenFlat() []float64 {
	end, from := s.during(0.03, 0.4), s.uniform(0.2, 0.8)
	return s.each(func(at float64) float64 { return ramp(at, 0, end, from) })
}

// A model that is loaded within three minutes, and then a cache that fills.
func (s *scene) loadThenFill() []float64 {
	loaded := min(180, s.during(0.01, 0.06))
	filled := loaded + s.during(0.05, 0.3)
	from := s.uniform(0.3, 0.9)
	return s.each(func(at float64) float64 { return ramp(at, loaded, filled, from) * min(1, 0.02+at/loaded) })
}

func (s *scene) exponentialThenFlat() []float64 {
	memory, missing := s.during(0.005, 0.08), s.uniform(0.1, 0.7)
	return s.each(func(at float64) float64 { return 1 - missing*math.Exp(-at/memory) })
}

// A curve that never ends, as the next two are: its rate falls, but there is no last regime.
func (s *scene) exponentialFilling() []float64 {
	memory, missing := s.during(0.15, 1), s.uniform(0.1, 0.6)
	return s.each(func(at float64) float64 { return 1 - missing*math.Exp(-at/memory) })
}

func (s *scene) logarithmic() []float64 {
	scale, missing := s.logUniform(s.watch/500, s.watch/10), s.uniform(0.1, 0.6)
	return s.each(func(at float64) float64 { return 1 - missing + missing*math.Log1p(at/scale)/math.Log1p(s.watch/scale) })
}

// The resident memory of an allocator that gives nothing back: the highest of all demands so far.
func (s *scene) runningMaximum() []float64 {
	step, variation := s.logUniform(2, 20), s.uniform(0.01, 0.1)
	highest, next := 1.0, 0.0
	return s.each(func(at float64) float64 {
		for ; next <= at; next += step {
			highest = max(highest, 1+variation*s.random.NormFloat64())
		}
		return highest
	})
}

// A process that dies, and is started again under the same name; whether the sampler has noticed differs.
func (s *scene) restart() []float64 {
	died, before, from := s.during(0.2, 0.6), s.uniform(0.8, 1.2), s.uniform(0.05, 0.3)
	first, second := s.during(0.02, 0.1), s.during(0.03, 0.2)
	s.from = died
	if s.random.IntN(2) == 0 {
		s.setting.Start = &died
	}
	return s.each(func(at float64) float64 {
		if at < died {
			return before * ramp(at, 0, first, from)
		}
		return ramp(at, died, died+second, from)
	})
}

// A jump, anywhere in the watch; where there is a leak, early enough to see it for longer than what was before.
func (s *scene) oneJump() []float64 {
	s.anyAge()
	when, height := s.during(0.1, 0.9), s.uniform(0.02, 0.2)
	if s.leaks {
		when = s.during(0.1, 0.6)
	}
	return s.each(func(at float64) float64 {
		if at < when {
			return 1 - height
		}
		return 1
	})
}

// A buffer that doubles whenever it is full, until all is in it.
func (s *scene) doubling() []float64 {
	end, share := s.during(0.1, 0.5), s.uniform(0.2, 0.8)
	return s.each(func(at float64) float64 {
		full := max(at, end/64) / end
		return 1 - share + share*math.Exp2(min(0, math.Floor(math.Log2(full))))
	})
}

// Epochs of training, the validation after each needs more or less memory; a leak comes at the end of each.
func (s *scene) epochs() []float64 {
	s.anyAge()
	s.lump = s.watch / s.uniform(15, 60)
	other := s.uniform(-0.15, 0.15)
	return s.each(func(at float64) float64 {
		if math.Mod(at, s.lump) > 0.9*s.lump {
			return 1 + other
		}
		return 1
	})
}

// A leak that begins late; or a fill that begins late, and ends.
func (s *scene) late() []float64 {
	s.anyAge()
	s.from = s.during(0.1, 0.5)
	if s.leaks {
		return s.each(func(float64) float64 { return 1 })
	}
	end, from := s.from+s.during(0.03, 0.2), s.uniform(0.6, 0.95)
	return s.each(func(at float64) float64 { return ramp(at, s.from, end, from) })
}

// A fill of at most 25 minutes that still goes on when the watch ends.
func (s *scene) rampFilling() []float64 {
	end, from := min(1500, s.watch/s.uniform(0.4, 1)), s.uniform(0.2, 0.9)
	still, _ := slices.BinarySearch(s.x, end*s.uniform(0.4, 0.95))
	s.x = s.x[:max(1, still)]
	return s.each(func(at float64) float64 { return ramp(at, 0, end, from) })
}

// A fill that begins at most 25 minutes before the watch ends, and still goes on then.
func (s *scene) lateFilling() []float64 {
	s.anyAge()
	begin := s.watch - s.uniform(0.3, 1)*min(s.watch/2, 1500)
	end, from := begin+1.05*(s.watch-begin), s.uniform(0.5, 0.95)
	return s.each(func(at float64) float64 { return ramp(at, begin, end, from) })
}

// The first pass over the data, each example of which is kept: it ends when the first epoch does, after the watch.
func (s *scene) slowFill() []float64 {
	end, from := s.during(1.02, 4), s.uniform(0.1, 0.8)
	s.setting.EpochEnd = &end
	return s.each(func(at float64) float64 { return ramp(at, 0, end, from) })
}

// Memory that fills during an epoch and is given back at its end; epochs are as long as the watch.
func (s *scene) epochTeeth() []float64 {
	end, height := s.during(0.3, 3), s.uniform(0.05, 0.4)
	s.setting.EpochEnd, s.setting.Cycle = &end, end
	return s.each(func(at float64) float64 { return 1 + height*math.Mod(at, end)/end })
}
