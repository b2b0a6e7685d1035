package controller

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

func TestLimit(t *testing.T) {
	const seconds = 1500
	stepped, eight := trainer(), trainer()
	stepped.stepped, eight.cores = stepped.calls/2, 8
	noisy := func(seed uint64) func(at float64) load {
		return func(at float64) load {
			l := trainer()
			_, part := math.Modf(math.Sin(math.Floor(3*at)+float64(seed)) * 43758.5453)
			l.calls *= 1 + 0.9*part // each third of a second another
			return l
		}
	}
	for _, c := range []struct {
		name  string
		seeds uint64
		load  func(seed uint64) func(float64) load
		costs Costs
	}{
		{"trainer", 6, func(uint64) func(float64) load { return constant(trainer()) }, usual},
		{"eight cores", 1, func(uint64) func(float64) load { return constant(eight) }, usual},
		{
			"stepped instructions", 1, func(uint64) func(float64) load { return constant(stepped) },
			usual,
		},
		{
			"changing rates, inexact costs", 6, noisy,
			Costs{Entry: 950, Stepped: 6500, Return: 600, Fault: 310, Mapping: 500},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range c.seeds {
				s := simulate(all(seed), c.load(seed))
				s.costs = c.costs
				s.run(t, seconds)
				s.mustKeepToLimit(t, 0, seconds)
				s.mustHaveBursts(t, 1, seconds)
				s.mustBeIn(t, growth.HeapBursts)
				if c.name != "trainer" {
					continue
				}
				if early := s.openShare(10, 600); early < 0.01 || early > 0.06 {
					t.Errorf("in the first ten minutes probes were open %.1f%% of the time",
						100*early)
				}
				if later := s.openShare(620, seconds); later < 0.01 || later > 0.026 {
					t.Errorf("later probes were open %.1f%% of the time", 100*later)
				}
				if sum := s.costShare(0, seconds) + s.ownTime/last(s.native); sum > 0.03 ||
					len(s.changes) != 2 {
					t.Errorf("with its own CPU time tracing cost %.2f%%; changes %v", 100*sum,
						s.changes)
				}
			}
		})
	}

	t.Run("a thousandth, in the long run", func(t *testing.T) {
		for seed := range uint64(4) {
			l := trainer()
			l.faults = 0
			o := all(seed)
			o.Limit = 0.001
			s := simulate(o, constant(l))
			s.own = 0
			s.run(t, 7200).mustBeIn(t, growth.HeapOff)
			if share := s.costShare(60, 7200); share > 1.1*o.Limit || len(s.openings) < 12 {
				t.Errorf("probes took %.3f%%, limit %.1f%%; %d openings in two hours", 100*share,
					100*o.Limit, len(s.openings))
			}
		}
	})

	t.Run("own CPU time does not close the probes of a sleeper", func(t *testing.T) {
		s := simulate(all(1), constant(sleeper()))
		s.own = 0.018 // nine times the program's own time
		s.run(t, 600).mustBeIn(t, growth.HeapFull)
		if len(s.changes) != 1 || s.openShare(10, 600) != 1 {
			t.Errorf("open %.1f%% of the time, changes %v", 100*s.openShare(10, 600), s.changes)
		}
	})
}

func TestStorm(t *testing.T) {
	const begin, end = 120.0, 180.0
	for name, calm := range map[string]load{"sleeper": sleeper(), "trainer": trainer()} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(6) {
				s := simulate(all(seed), stormBetween(begin, end, calm)).run(t, 400)
				for _, at := range []float64{5, 10, 30, 59} {
					i, j := int((begin+at-60)/tick), int((begin+at)/tick)
					if share := (s.cost[j] - s.cost[i]) / 60; share > 1.1*0.03 {
						t.Errorf("%v s into the storm probes had taken %.2f%% of the minute", at,
							100*share)
					}
				}
				// The probes have spent the allowance of eight busy threads when the storm ends.
				// Minutes with that end have less native CPU time, and are left out.
				s.mustKeepToLimit(t, 0, begin-60)
				s.mustKeepToLimit(t, end+tensorCheckSeconds, 400)
				if name == "trainer" {
					continue
				}

				if !s.isOpen[int(begin/tick)] || s.isOpen[int((begin+0.4)/tick)] ||
					s.openShare(begin+1, end) > 0.05 {
					t.Errorf("in the storm probes were open %.1f%% of the time",
						100*s.openShare(begin+1, end))
				}
				if c := s.changesBetween(begin, begin+1); len(c) != 1 || c[0].Mode == growth.HeapFull {
					t.Errorf("in the storm's first second: %v", c)
				}
				share, bursts := s.openShare(end+100, 400), len(s.spacings(end))
				if share != 1 || bursts > 12 || len(s.changes) > 6 {
					t.Errorf("after the storm: open %.1f%% of the time after 100 s, %d bursts, changes %v",
						100*share, bursts, s.changes)
				}
			}
		})
	}
}

func TestMode(t *testing.T) {
	t.Run("steady loads change it seldom", func(t *testing.T) {
		for calls := 1000.0; calls < 4e6; calls *= 1.7 {
			l := trainer()
			l.calls, l.tensors, l.bytes, l.tensorBytes = calls, calls/10, 400*calls, 800*calls
			s := simulate(all(1), constant(l)).run(t, 1800)
			if n := len(s.changesBetween(10, 1800)); n > 3 {
				t.Errorf("%.0f calls a second: %d changes in half an hour: %v", calls, n, s.changes)
			}
			s.mustKeepToLimit(t, 0, 1800)
			if s.controller.Mode() != growth.HeapFull {
				s.mustHaveBursts(t, 5, 1800)
			}
		}
	})

	t.Run("alternating loads make it back off", func(t *testing.T) {
		for _, period := range []float64{20, 60, 200, 600} {
			s := simulate(all(2), func(at float64) load {
				l := trainer()
				if math.Mod(at, period) < period/2 {
					l.calls, l.tensors, l.bytes, l.tensorBytes = 1000, 100, 1e6, 1e6
				}
				return l
			}).run(t, 2*3600)
			if n := len(s.changesBetween(3600, 7200)); n > 20 || len(s.changes) > 60 {
				t.Errorf("period %v s: %d changes in two hours, %d in the second", period,
					len(s.changes), n)
			}
		}
	})

	// 900 ns a call: 1.2 % and 2.4 % of 3 %, after an expensive minute.
	for calls, want := range map[float64]growth.HeapMode{13_000: growth.HeapFull, 26_000: growth.HeapBursts} {
		t.Run("full again only with headroom: "+string(want), func(t *testing.T) {
			s := simulate(Options{Heap: true, Limit: 0.03, Seed: 3, Costs: usual}, func(at float64) load {
				if at < 60 {
					return caller(500_000)
				}
				return caller(calls)
			})
			s.own = 0
			s.run(t, 1500).mustBeIn(t, want)
		})
	}

	t.Run("full again after three calm bursts", func(t *testing.T) {
		for seed := range uint64(4) {
			s := simulate(Options{Heap: true, Limit: 0.03, Seed: seed, Costs: usual},
				func(at float64) load {
					if at < 700 {
						return trainer()
					}
					return sleeper()
				}).run(t, 900)
			s.mustBeIn(t, growth.HeapFull)
			spacings := s.spacings(700)
			// The last opening is for good.
			if len(spacings) != 3 || slices.Max(spacings[:2]) > 3.2*minSpacing+2 {
				t.Errorf("spacings %.1f s", spacings)
			}
		}
	})

	t.Run("off while no burst fits", func(t *testing.T) {
		for seed := range uint64(4) {
			o := all(seed)
			o.Limit, o.Tensor = 0.001, false
			s := simulate(o, func(at float64) load {
				if at >= 300 && at < 1200 {
					return caller(1e6)
				}
				return caller(5_000)
			})
			s.own = 0
			s.run(t, 290).mustBeIn(t, growth.HeapBursts)
			s.run(t, 900).mustBeIn(t, growth.HeapOff)
			s.run(t, 20)
			for n := len(s.openings); len(s.openings) == n; {
				s.run(t, 1)
			}
			s.run(t, 1).mustBeIn(t, growth.HeapBursts)
		}
	})

	t.Run("off without sources", func(t *testing.T) {
		o := all(1)
		o.Heap, o.Tensor = false, false
		s := simulate(o, constant(trainer())).run(t, 60)
		s.mustBeIn(t, growth.HeapOff)
		if s.wanted.Heap || s.wanted.Tensor || s.wanted.Blocks || len(s.changes) != 0 {
			t.Errorf("decision %+v, changes %v", s.wanted, s.changes)
		}
	})

	t.Run("recovers from a broken reading", func(t *testing.T) {
		s := simulate(all(1), constant(sleeper())).run(t, 60)
		s.controller.Decide(Reading{At: s.reading.At, Entries: math.MaxUint64})
		s.reading.Entries = 0
		s.run(t, 400).mustBeIn(t, growth.HeapFull)
	})
}

func TestChanges(t *testing.T) {
	s := simulate(all(1), func(at float64) load {
		if at < 200 {
			return trainer()
		}
		return sleeper()
	}).run(t, 500)
	want := []struct {
		mode   growth.HeapMode
		reason growth.OverheadReason
	}{
		{growth.HeapFull, growth.OverheadStarted},
		{growth.HeapBursts, growth.OverheadExpensive},
		{growth.HeapBursts, growth.OverheadFewTensors},
		{growth.HeapFull, growth.OverheadCalm},
	}
	if len(s.changes) != len(want) {
		t.Fatalf("changes %+v", s.changes)
	}
	for i, c := range s.changes {
		if c.Mode != want[i].mode || c.Reason != want[i].reason {
			t.Errorf("change %+v, want %+v", c, want[i])
		}
	}
	if c := s.controller.Changes(); len(c) != 0 {
		t.Errorf("returned twice: %v", c)
	}

	if c := s.changes[0]; c.Steps < minStepsForSlowdown {
		t.Errorf("opened after %d steps", c.Steps)
	}
	if c := s.changes[1]; c.Source != "heap" || c.Share < 0.03 || c.Calls < 1000 ||
		c.Length <= 0 || c.Spacing <= c.Length {
		t.Errorf("bursts begin: %+v", c)
	}
}

func TestCosts(t *testing.T) {
	p := Costs{Entry: 1000, Stepped: 8000, Return: 500, Fault: 250, Mapping: 400}
	a := Reading{At: 7 * time.Second, Entries: 1, Samples: 1, Traced: time.Second, Own: time.Second}
	b := Reading{
		At: 9 * time.Second, Busiest: time.Second, Entries: 100_001, Stepped: 10_000, TensorEntries: 20_000, Returns: 40_000,
		Faults: 80_000, MappingCalls: 50_000, Walk: 30 * time.Millisecond,
		KernelWalk: 10 * time.Millisecond,
		Samples:    5_001, Traced: 3 * time.Second, Own: 1100 * time.Millisecond,
	}
	u := p.between(a, b)
	for name, c := range map[string]struct{ got, want float64 }{
		"elapsed": {u.elapsed, 2},
		"walking": {u.walking, 0.030 + 0.005 + 0.0025},
		"probes":  {u.probes, 0.090 + 0.080 + 0.020 + 0.035},
		"kernel":  {u.kernel, 0.020 + 0.020 + 0.010},
		"own":     {u.own, 0.1},
		"native":  {u.native, 2 - 0.225 - 0.050},
		"all":     {u.all, 0.225 + 0.050},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s %.6f s, want %.6f", name, c.got, c.want)
		}
	}

	b.Busiest = 55 * time.Millisecond // a fifth
	if u := p.between(a, b); math.Abs(u.probes-0.045) > 1e-9 || math.Abs(u.kernel-0.010) > 1e-9 ||
		math.Abs(u.walking-0.0075) > 1e-9 || math.Abs(u.all-0.275) > 1e-9 {
		t.Errorf("in one of five threads: %+v", u)
	}

	const most = math.MaxUint64
	a = Reading{
		time.Second, most, most, most, most, most, most, time.Hour, most, most, time.Hour, most, most,
		most, time.Hour, most, most, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour,
		1, 0, nil, false,
	}
	u = usual.between(a, Reading{At: 2 * time.Second})
	if u.probes != 0 || u.kernel != 0 || u.own != 0 || u.native != 0 {
		t.Errorf("counters that go backwards cost %+v", u)
	}
}

// A tape gives numbers until it is at its end.
type tape struct{ bytes []byte }

func (t *tape) next() uint64 {
	var word [8]byte
	t.bytes = t.bytes[copy(word[:], t.bytes):]
	return binary.LittleEndian.Uint64(word[:])
}

// number is small or not: most counters grow by little, some by anything.
func (t *tape) number() uint64 {
	n := t.next()
	return n >> (n & 63)
}

func (t *tape) time() time.Duration { return time.Duration(t.number()) }
func (t *tape) cost() float64       { return math.Float64frombits(t.next()) }

func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 4000))
	long := make([]byte, 8000)
	for i := range long {
		long[i] = byte(i * i >> 3)
	}
	f.Add(long)
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &tape{data}
		flags := in.next()
		o := Options{
			Limit: in.cost(),
			Costs: Costs{
				in.cost(), in.cost(), in.cost(), in.cost(), in.cost(), in.cost(), in.cost(), 0,
			},
			Interval: in.number() * (flags & 1), Duration: in.time(), Maturity: in.time(), Seed: in.next(),
			Heap: flags&2 != 0, Tensor: flags&4 != 0, Steps: flags&8 != 0, Blocks: flags&16 != 0,
		}
		c := New(o)
		for n := 0; len(in.bytes) > 0 && n < 2000; n++ {
			mustBeSane(t, o, c, c.Decide(Reading{
				At: in.time(), Entries: in.number(), Stepped: in.number(), TensorEntries: in.number(),
				Returns: in.number(), Faults: in.number(), MappingCalls: in.number(), Walk: in.time(),
				Samples: in.number(), Traced: in.time(), Own: in.time(), DriverCalls: in.number(),
				Blocks: in.number(), BlockSamples: in.number(), BlockWalk: in.time(), Busiest: in.time(),
				LiveShare: in.cost(), NewStacks: in.number(),
				Steps: int(in.number()), Timed: []Step{{in.time(), n%2 == 0}},
			}))
		}
	})
}

func mustBeSane(t *testing.T, o Options, c *Controller, d Decision) {
	t.Helper()
	totals, b, p := c.Totals(), &c.budget, c.plan()
	switch {
	case d.Wait < time.Millisecond || d.Wait > time.Second:
		t.Fatalf("wait %v", d.Wait)
	case d.Heap && !o.Heap || d.Tensor && !o.Tensor || d.Blocks && !o.Blocks:
		t.Fatalf("opens a source that is off: %+v", d)
	case o.Interval == 0 && (min(d.Interval, d.TensorInterval) < finestBurstInterval ||
		max(d.Interval, d.TensorInterval) > coarsestInterval ||
		d.BlockInterval > coarsestBlockInterval):
		t.Fatalf("intervals %d, %d, %d", d.Interval, d.TensorInterval, d.BlockInterval)
	case totals.InProbes < 0 || totals.Open < 0 || totals.StepBefore < 0 || totals.StepSince < 0:
		t.Fatalf("totals %+v", totals)
	case len(b.spent.slots) > 1000 || len(c.changes) > maxChanges:
		t.Fatalf("%d slots, %d changes are kept", len(b.spent.slots), len(c.changes))
	}
	for _, v := range []float64{
		b.credit, b.debt, b.rate(), b.headroom(), p.spacing,
		p.length,
	} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("not a number: %v; credit %v, debt %v, plan %+v", v, b.credit, b.debt, p)
		}
	}
	for _, change := range c.changes {
		for _, v := range []float64{change.Share, change.Calls, change.Slowdown} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("change %+v", change)
			}
		}
	}
}

func TestWait(t *testing.T) {
	wait := func(o Options, of load) time.Duration {
		return simulate(o, constant(of)).run(t, 60).wanted.Wait
	}
	producer := all(1)
	producer.Producer = true
	for name, c := range map[string]struct{ got, want time.Duration }{
		"calm":       {wait(all(1), sleeper()), duration(calmWait)},
		"much to do": {wait(all(1), caller(10_000)), duration(openWait)},
		"producer":   {wait(producer, sleeper()), duration(openWait)},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v until the next reading, want %v", name, c.got, c.want)
		}
	}
}
