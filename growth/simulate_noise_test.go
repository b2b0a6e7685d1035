package growth

import "math"

// Families that are told by what lies on top of the level, and those in which all comes together.

// spikes are of up to 2 % of the watch, cover 1 to 60 % of it, and are as high as 5 to 80 % of the level.
func (s *scene) spikes() []float64 {
	duty, height := s.logUniform(0.01, 0.6), s.uniform(0.05, 0.8)
	length := s.logUniform(0.002, 0.02) * s.watch
	begin := s.random.ExpFloat64() * length * (1 - duty) / duty
	end, top := begin+s.random.ExpFloat64()*length, height*s.uniform(0.7, 1.3)
	return s.each(func(at float64) float64 {
		for at > end {
			begin = end + s.random.ExpFloat64()*length*(1-duty)/duty
			end, top = begin+s.random.ExpFloat64()*length, height*s.uniform(0.7, 1.3)
		}
		if at < begin {
			return 0
		}
		return top
	})
}

// Garbage that is collected now and then, at least each quarter of an hour: longer teeth are like those of epochs.
func (s *scene) sawtooth() []float64 {
	s.anyAge()
	period, height, phase := s.uniform(s.watch/60, min(s.watch/8, 900)), s.uniform(0.02, 0.4), s.uniform(0, 1)
	return s.each(func(at float64) float64 { return 1 + height*math.Mod(at/period+phase, 1) })
}

// A level that wanders as slowly as the watch is long.
func (s *scene) slowDrift() []float64 {
	return onTop(s.flat(), s.wander(s.logUniform(0.0005, 0.005), s.during(0.3, 1.5)))
}

// 1/f noise: processes whose memories differ by factors of four, up to that of the watch.
func (s *scene) pinkNoise() []float64 {
	out := s.flat()
	deviation := s.logUniform(0.0003, 0.002)
	for memory := 1.0; memory < s.watch; memory *= 4 {
		onTop(out, s.wander(deviation, memory))
	}
	return out
}

// Student's t with three degrees of freedom, whose tails are heavy.
func (s *scene) heavyTails() []float64 {
	out, scale := s.rampThenFlat(), s.logUniform(0.0005, 0.01)
	for i := range out {
		var squares float64
		for range 3 {
			squares += math.Pow(s.random.NormFloat64(), 2)
		}
		out[i] += scale * s.random.NormFloat64() / math.Sqrt(squares/3)
	}
	return out
}

// Any warm-up with any two of the things that come on top.
func (s *scene) mix() []float64 {
	warmups := []func() []float64{s.flat, s.rampThenFlat, s.loadThenFill, s.exponentialThenFlat, s.doubling}
	others := []func() []float64{
		s.spikes,
		func() []float64 { return s.wander(s.logUniform(0.0005, 0.002), s.during(0.02, 0.5)) },
		func() []float64 { return s.each(s.validations()) },
	}
	out := warmups[s.random.IntN(len(warmups))]()
	left := s.random.IntN(len(others))
	for i, other := range others {
		if i != left {
			onTop(out, other())
		}
	}
	return out
}

// validations take more memory for a tenth of each of 10 to 60 periods.
func (s *scene) validations() func(at float64) float64 {
	period, height := s.watch/s.uniform(10, 60), s.uniform(0.01, 0.2)
	return func(at float64) float64 {
		if math.Mod(at, period) > 0.9*period {
			return height
		}
		return 0
	}
}
