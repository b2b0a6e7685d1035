package growth

import (
	"iter"
	"math"
	"math/rand/v2"
)

// How long simulated processes are watched, in seconds.
const (
	fiveMinutes = 5 * 60.0
	halfAnHour  = 30 * 60.0
	fourHours   = 4 * 3600.0
)

var watches = []float64{fiveMinutes, halfAnHour, fourHours}

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
	// draw gives the memory without noise and leak, as shares of the level, and may change the scene.
	draw func(*scene) []float64
	// Its histories end in a regime of constant rate, so that a leak shows and intervals can be compared with the truth.
	settles bool
}

// histories draws so many of each family for each watch and each rate in percent of the level per minute. Every seed occurs once.
func histories(n int, families []family, watches, percents []float64, seed uint64) iter.Seq2[family, history] {
	return func(yield func(family, history) bool) {
		for _, f := range families {
			for _, watch := range watches {
				for i := range n * len(percents) {
					seed++
					if !yield(f, f.simulate(watch, percents[i%len(percents)], seed)) {
						return
					}
				}
			}
		}
	}
}

// A scene is a history in the making.
type scene struct {
	random *rand.Rand
	watch  float64   // seconds
	x      []float64 // seconds; not empty
	leaks  bool
	// The leak begins then, in seconds, and comes in lumps that are so many seconds apart; 0: continuously.
	from, lump float64
	setting    Setting
}

// simulate draws the history of a seed, watched for so many seconds, that leaks so many percent of its level per minute.
func (f family) simulate(watch, percent float64, seed uint64) history {
	s := &scene{random: rand.New(rand.NewPCG(seed, 31337)), watch: watch, leaks: percent > 0}
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
	period := s.logUniform(1, min(100, s.watch/30))
	jitter := s.uniform(0, 0.2) * period
	for at := 0.0; at < s.watch; at += period {
		s.x = append(s.x, at+s.uniform(0, jitter))
	}
}

// leaking is how many seconds' worth has leaked at a moment.
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
	if level < 4e9 { // nobody reads so little in so coarse units
		units = units[:2]
	}
	return units[s.random.IntN(len(units))]
}

// noise is autoregressive, as shares of the level.
func (s *scene) noise() []float64 {
	return s.wander(s.logUniform(1e-4, 5e-3), s.uniform(0, 60))
}

// wander is a stationary process that forgets within so many seconds (Ornstein-Uhlenbeck); deviation as a share of the level.
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

// during is a share of the watch, in seconds.
func (s *scene) during(low, high float64) float64 {
	return s.watch * s.uniform(low, high)
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
