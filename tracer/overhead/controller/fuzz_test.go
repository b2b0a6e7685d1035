package controller

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"
)

// A tape gives numbers until it is at its end.
type tape struct{ bytes []byte }

func (t *tape) next() uint64 {
	var word [8]byte
	t.bytes = t.bytes[copy(word[:], t.bytes):]
	return binary.LittleEndian.Uint64(word[:])
}

// small or not: most counters grow by little, some by anything.
func (t *tape) number() uint64 {
	n := t.next()
	return n >> (n & 63)
}

func (t *tape) price() float64 { return math.Float64frombits(t.next()) }

func FuzzDecideWhateverIsRead(f *testing.F) {
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
			Limit: in.price(), Prices: Prices{in.price(), in.price(), in.price(), in.price(), in.price(), in.price()},
			Interval: in.number() * (flags & 1), Duration: time.Duration(in.number()), Maturity: time.Duration(in.number()),
			Heap: flags&2 != 0, Tensor: flags&4 != 0, Steps: flags&8 != 0, Blocks: flags&16 != 0, Seed: in.next(),
		}
		g := New(o)
		for n := 0; len(in.bytes) > 0 && n < 2000; n++ {
			mustBeSane(t, o, g, g.Decide(Reading{
				At: time.Duration(in.number()), Entries: in.number(), Stepped: in.number(), TensorEntries: in.number(),
				Returns: in.number(), Faults: in.number(), MappingCalls: in.number(), Walk: time.Duration(in.number()),
				Samples: in.number(), Traced: time.Duration(in.number()), Own: time.Duration(in.number()),
				DeviceCalls: in.number(), Blocks: in.number(), BlockTime: time.Duration(in.number()), BlockWalk: time.Duration(in.number()),
				Steps: int(in.number()), Timed: []Step{{time.Duration(in.number()), n%2 == 0}},
			}))
		}
	})
}

func mustBeSane(t *testing.T, o Options, g *Governor, d Decision) {
	t.Helper()
	totals := g.Totals()
	switch {
	case d.Wait < time.Millisecond || d.Wait > time.Second:
		t.Fatalf("wait %v", d.Wait)
	case d.Heap && !o.Heap || d.Tensor && !o.Tensor:
		t.Fatalf("opens what is not there: %+v", d)
	case o.Interval == 0 && (min(d.Interval, d.TensorInterval) < finestInterval || max(d.Interval, d.TensorInterval) > coarsestInterval):
		t.Fatalf("intervals %d, %d", d.Interval, d.TensorInterval)
	case d.Blocks && !o.Blocks || o.Interval == 0 && d.BlockInterval > coarsestBlocks:
		t.Fatalf("blocks of a source that is off, or one in %d bytes", d.BlockInterval)
	case totals.InProbes < 0 || totals.Open < 0 || totals.StepBefore < 0 || totals.StepSince < 0:
		t.Fatalf("totals %+v", totals)
	case len(g.budget.minute.slots) > 1000 || len(g.changes) > mostChanges:
		t.Fatalf("%d slots, %d changes are kept", len(g.budget.minute.slots), len(g.changes))
	}
	for _, v := range []float64{g.budget.saved, g.budget.due, g.budget.rate(), g.budget.share(), g.budget.room(), g.plan().spacing, g.plan().length} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("not a number: saved %v, due %v, plan %+v", g.budget.saved, g.budget.due, g.plan())
		}
	}
	for _, c := range g.changes {
		if strings.Contains(c.Text, "NaN") || strings.Contains(c.Text, "Inf") || strings.Contains(c.Text, "%!") {
			t.Fatalf("change %q", c.Text)
		}
	}
}

func TestACounterThatGoesBackwardsCostsNothing(t *testing.T) {
	const most = math.MaxUint64
	a := Reading{time.Second, most, most, most, most, most, most, time.Hour, most, time.Hour, most, most, time.Hour, time.Hour, time.Hour, time.Hour, 0, nil}
	if s := usual.between(a, Reading{At: 2 * time.Second}); s.probes != 0 || s.kernel != 0 || s.own != 0 || s.native != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAfterABrokenReadingTheGovernorRecovers(t *testing.T) {
	s := simulate(t, all(1), constant(sleeper())).run(t, 60)
	s.governor.Decide(Reading{At: s.r.At, Entries: math.MaxUint64})
	s.r.Entries = 0
	if s.run(t, 400); s.governor.Mode() != Full {
		t.Errorf("mode %s: %v", s.governor.Mode(), s.changes)
	}
}
