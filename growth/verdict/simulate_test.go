package verdict

import (
	"iter"
	"math"
	"math/rand/v2"
	"slices"
)

// How long simulated traces are, in seconds.
const (
	fiveMinutes = 5 * 60.0
	halfAnHour  = 30 * 60.0
	fourHours   = 4 * 3600.0
)

var durations = []float64{fiveMinutes, halfAnHour, fourHours}

// A history is a simulated series of which the truth is known.
type history struct {
	series  Series
	setting Setting
	// The rate of the leak, bytes per second; 0: there is none.
	rate float64
}

// A family draws histories of one kind.
type family struct {
	name string
	// draw gives the memory without noise and leak, as shares of the level, and may change the
	// scene.
	draw func(*scene) []float64
	// Its histories end in a segment of constant rate, so that a leak shows and intervals can be
	// compared with the truth.
	settles bool
}

// histories draws so many of each family for each duration and each rate in percent of the level
// per minute. Every seed occurs once.
func histories(
	n int,
	families []family,
	durations, percents []float64,
	seed uint64,
) iter.Seq2[family, history] {
	return func(yield func(family, history) bool) {
		for _, f := range families {
			for _, duration := range durations {
				for i := range n * len(percents) {
					seed++
					if !yield(f, f.simulate(duration, percents[i%len(percents)], seed)) {
						return
					}
				}
			}
		}
	}
}

// A scene is a history in the making.
type scene struct {
	random   *rand.Rand
	duration float64   // seconds
	x        []float64 // seconds; not empty
	leaks    bool
	// The leak begins then, in seconds, and comes in lumps that are so many seconds apart; 0:
	// continuously.
	from, lump float64
	setting    Setting
}

// simulate draws the history of a seed, of so many seconds, that leaks so many percent of its level
// per minute.
func (f family) simulate(duration, percent float64, seed uint64) history {
	s := &scene{random: rand.New(rand.NewPCG(seed, 31337)), duration: duration, leaks: percent > 0}
	s.sample()
	level := s.logUniform(0.5e9, 20e9)
	rate := percent / 100 / 60 * level
	shares := onTop(f.draw(s), s.noise())
	quantum := s.quantum(level)
	y := make([]float64, len(s.x))
	for i, at := range s.x {
		y[i] = max(0, math.Round((shares[i]*level+rate*s.leaking(at))/quantum)*quantum)
	}
	return history{series: Series{X: s.x, Y: y}, setting: s.setting, rate: rate}
}

// sample sets the moments of the samples: a period of 1 to 100 s, at least 30 of them, with jitter.
func (s *scene) sample() {
	period := s.logUniform(1, min(100, s.duration/30))
	jitter := s.uniform(0, 0.2) * period
	for at := 0.0; at < s.duration; at += period {
		s.x = append(s.x, at+s.uniform(0, jitter))
	}
}

// leaking is how many seconds of the leak there are at a moment.
func (s *scene) leaking(at float64) float64 {
	since := max(0, at-s.from)
	if s.lump > 0 {
		since = math.Floor(since/s.lump) * s.lump
	}
	return since
}

// quantum is the unit in which the sampler reads, in bytes: a page, a megabyte or 64 of them.
func (s *scene) quantum(level float64) float64 {
	units := []float64{4096, 1e6, 64e6}
	if level < 4e9 { // no sampler reads so little in so coarse units
		units = units[:2]
	}
	return units[s.random.IntN(len(units))]
}

// noise is autoregressive, as shares of the level.
func (s *scene) noise() []float64 {
	return s.wander(s.logUniform(1e-4, 5e-3), s.uniform(0, 60))
}

// wander is a stationary process that forgets within so many seconds (Ornstein-Uhlenbeck);
// deviation as a share of the level.
func (s *scene) wander(deviation, memory float64) []float64 {
	out := make([]float64, len(s.x))
	value := deviation * s.random.NormFloat64()
	for i, at := range s.x {
		if i > 0 {
			kept := math.Exp(-(at - s.x[i-1]) / max(memory, 1e-9))
			value = kept*value + math.Sqrt(1-kept*kept)*deviation*s.random.NormFloat64()
		}
		out[i] = value
	}
	return out
}

// each applies a function of the time to all samples.
func (s *scene) each(share func(at float64) float64) []float64 {
	out := make([]float64, len(s.x))
	for i, at := range s.x {
		out[i] = share(at)
	}
	return out
}

func (s *scene) uniform(low, high float64) float64 {
	return low + (high-low)*s.random.Float64()
}

func (s *scene) logUniform(low, high float64) float64 {
	return low * math.Exp(math.Log(high/low)*s.random.Float64())
}

// during is a share of the trace, in seconds.
func (s *scene) during(low, high float64) float64 {
	return s.duration * s.uniform(low, high)
}

// anyAge makes the process one that has just started or one that is two hours old.
func (s *scene) anyAge() {
	s.setting.Age = 7200 * float64(s.random.IntN(2))
}

// onTop puts the shares of others on top of the first.
func onTop(to []float64, others ...[]float64) []float64 {
	for _, other := range others {
		for i := range to {
			to[i] += other[i]
		}
	}
	return to
}

// unevenLeak is a leak in a program whose speed varies by 5 to 35% of its mean, for 1 to 21 s at a
// time. It is sampled once a second.
func unevenLeak(seconds int, seed uint64) history {
	return uneven(seconds, seed, func(steps, _, rate float64) float64 { return rate * steps })
}

// unevenFill is memory that such a program fills, with a time constant of 15 to 45% of the series.
func unevenFill(seconds int, seed uint64) history {
	return uneven(seconds, seed, func(steps, scale, rate float64) float64 {
		return 3 * rate * scale * (1 - math.Exp(-steps/scale))
	})
}

// uneven draws a history whose memory is a function of the steps that a program has done, about one
// a second. It comes in allocations of 64 KiB to 4 MiB.
func uneven(
	seconds int, seed uint64, added func(steps, scale, rate float64) float64,
) history {
	s := &scene{random: rand.New(rand.NewPCG(seed, uint64(seconds))), duration: float64(seconds)}
	for at := range seconds {
		s.x = append(s.x, float64(at)+s.uniform(0, 0.05))
	}
	s.anyAge()

	level, rate := s.logUniform(300e6, 2e9), s.logUniform(1e6, 12e6)
	unit, scale := s.logUniform(64<<10, 4<<20), s.during(0.15, 0.45)
	speed := s.wander(s.uniform(0.05, 0.35), s.uniform(1, 21))

	steps, y := 0.0, make([]float64, len(s.x))
	for i := range y {
		y[i] = math.Round(level) + math.Floor(added(steps, scale, rate)/unit)*unit
		steps += max(0.05, 1+speed[i])
	}
	return history{series: Series{X: s.x, Y: y}, setting: s.setting, rate: rate}
}

// Families by the shape added to the level, and a mix of all.

// spikes are of up to 2 % of the trace, cover 1 to 60 % of it, and are as high as 5 to 80 % of the
// level.
func (s *scene) spikes() []float64 {
	duty, height := s.logUniform(0.01, 0.6), s.uniform(0.05, 0.8)
	length := s.logUniform(0.002, 0.02) * s.duration
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

// Garbage that is collected now and then, at least each quarter of an hour: longer sawtooth are
// like the sawtooth of epochs.
func (s *scene) sawtooth() []float64 {
	s.anyAge()
	period, height, phase := s.uniform(s.duration/60, min(s.duration/8, 900)), s.uniform(
		0.02, 0.4,
	), s.uniform(0, 1)
	return s.each(func(at float64) float64 { return 1 + height*math.Mod(at/period+phase, 1) })
}

// A level that wanders as slowly as the trace is long.
func (s *scene) slowDrift() []float64 {
	return onTop(s.flat(), s.wander(s.logUniform(0.0005, 0.005), s.during(0.3, 1.5)))
}

// 1/f noise: processes whose memories differ by factors of four, up to the length of the trace.
func (s *scene) pinkNoise() []float64 {
	out := s.flat()
	deviation := s.logUniform(0.0003, 0.002)
	for memory := 1.0; memory < s.duration; memory *= 4 {
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
	warmups := []func() []float64{
		s.flat,
		s.rampThenFlat,
		s.loadThenFill,
		s.exponentialThenFlat,
		s.doubling,
	}
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
	period, height := s.duration/s.uniform(10, 60), s.uniform(0.01, 0.2)
	return func(at float64) float64 {
		if math.Mod(at, period) > 0.9*period {
			return height
		}
		return 0
	}
}

// Decidable by the series alone: a process that warms up, then keeps to its level or leaks.
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

// Decidable by a mark of the first epoch's end alone: a fill that outlasts the trace, and sawtooth
// as long as it.
var marked = []family{
	{"slow-fill+mark", (*scene).slowFill, false},
	{"epoch-sawtooth+mark", (*scene).epochSawtooth, false},
}

// thoseThatSettle are the decidable families in which a leak shows and intervals can be checked.
func thoseThatSettle() []family {
	return slices.DeleteFunc(slices.Clone(decidable), func(f family) bool { return !f.settles })
}

// named are the decidable families of these names.
func named(names ...string) []family {
	return slices.DeleteFunc(slices.Clone(decidable),
		func(f family) bool { return !slices.Contains(names, f.name) })
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
	return s.each(
		func(at float64) float64 { return ramp(at, loaded, filled, from) * min(1, 0.02+at/loaded) },
	)
}

func (s *scene) exponentialThenFlat() []float64 {
	memory, missing := s.during(0.005, 0.08), s.uniform(0.1, 0.7)
	return s.each(func(at float64) float64 { return 1 - missing*math.Exp(-at/memory) })
}

// A curve that never ends, as the next two are: its rate falls, but there is no last segment.
func (s *scene) exponentialFilling() []float64 {
	memory, missing := s.during(0.15, 1), s.uniform(0.1, 0.6)
	return s.each(func(at float64) float64 { return 1 - missing*math.Exp(-at/memory) })
}

func (s *scene) logarithmic() []float64 {
	scale, missing := s.logUniform(s.duration/500, s.duration/10), s.uniform(0.1, 0.6)
	return s.each(
		func(at float64) float64 {
			return 1 - missing + missing*math.Log1p(at/scale)/math.Log1p(s.duration/scale)
		},
	)
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

// A process that dies, and is started again under the same name; whether the sampler has noticed
// differs.
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

// A jump, anywhere in the trace; where there is a leak, early enough to see it for longer than the
// time before.
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

// Epochs of training, the validation after each needs more or less memory; a leak comes at the end
// of each.
func (s *scene) epochs() []float64 {
	s.anyAge()
	s.lump = s.duration / s.uniform(15, 60)
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

// A fill of at most 25 minutes that still goes on when the trace ends.
func (s *scene) rampFilling() []float64 {
	end, from := min(1500, s.duration/s.uniform(0.4, 1)), s.uniform(0.2, 0.9)
	still, _ := slices.BinarySearch(s.x, end*s.uniform(0.4, 0.95))
	s.x = s.x[:max(1, still)]
	return s.each(func(at float64) float64 { return ramp(at, 0, end, from) })
}

// A fill that begins at most 25 minutes before the trace ends, and still goes on then.
func (s *scene) lateFilling() []float64 {
	s.anyAge()
	begin := s.duration - s.uniform(0.3, 1)*min(s.duration/2, 1500)
	end, from := begin+1.05*(s.duration-begin), s.uniform(0.5, 0.95)
	return s.each(func(at float64) float64 { return ramp(at, begin, end, from) })
}

// The first pass over the data, each example of which is kept: it ends when the first epoch does,
// after the trace.
func (s *scene) slowFill() []float64 {
	end, from := s.during(1.02, 4), s.uniform(0.1, 0.8)
	s.setting.EpochEnd = &end
	return s.each(func(at float64) float64 { return ramp(at, 0, end, from) })
}

// Memory that fills during an epoch and is given back at its end; epochs are as long as the trace.
func (s *scene) epochSawtooth() []float64 {
	end, height := s.during(0.3, 3), s.uniform(0.05, 0.4)
	s.setting.EpochEnd, s.setting.Cycle = &end, end
	return s.each(func(at float64) float64 { return 1 + height*math.Mod(at, end)/end })
}
