package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// A population is objects of one stack, of sizes around one. Each one has whether it was sampled.
type population struct {
	random *rand.Rand
	size   float64
	alive  []thing
	// allocated since tracing started, by the samples.
	objects, bytes float64
}

// A thing that was sampled has a weight.
type thing struct {
	size   int64
	weight float64
}

func (p *population) allocate(n int) {
	for range n {
		o := thing{size: int64(p.size * (0.5 + p.random.Float64()))}
		if p.random.Float64() < -math.Expm1(-float64(o.size)/interval) {
			o.weight = growth.Weight(uint64(o.size), interval)
		}
		p.objects += o.weight
		p.bytes += o.weight * float64(o.size)
		p.alive = append(p.alive, o)
	}
}

// free frees any n.
func (p *population) free(n int) {
	p.random.Shuffle(len(p.alive),
		func(i, j int) { p.alive[i], p.alive[j] = p.alive[j], p.alive[i] })
	p.alive = p.alive[n:]
}

func (p *population) truth() (bytes float64) {
	for _, o := range p.alive {
		bytes += float64(o.size)
	}
	return bytes
}

// holding is the estimate by the samples.
func (p *population) holding() growth.Holding {
	h := growth.Holding{
		Stack: stack(1, "leak", "main"), Kind: growth.KindHeap, AllocObjects: p.objects,
		AllocBytes: p.bytes,
	}
	var bytes float64
	for _, o := range p.alive {
		h.InuseObjects += o.weight
		bytes += o.weight * float64(o.size)
	}
	h.InuseBytes = int64(math.Round(bytes))
	h.ResidentBytes = h.InuseBytes
	return h
}

// comparisons are changes as they are estimated, and as they are.
type comparisons struct {
	changes []Estimate
	truths  []float64
}

func (c *comparisons) add(change Estimate, truth float64) {
	c.changes, c.truths = append(c.changes, change), append(c.truths, truth)
}

// mustCover wants that 90% of the intervals hold the truth, and that they are no wider than the
// estimates scatter.
func (c *comparisons) mustCover(t *testing.T, name string) {
	t.Helper()
	var held int
	var halves, errors []float64
	for i, change := range c.changes {
		if change.holds(c.truths[i]) {
			held++
		}
		halves = append(halves, change.half())
		errors = append(errors, float64(change.Bytes)-c.truths[i])
	}
	half, _ := spread(halves)
	_, deviation := spread(errors)
	t.Logf("%s: %d of %d, half width %.1f standard deviations", name, held, len(errors),
		half/deviation)
	if 10*held < 9*len(errors) {
		t.Errorf("%s: %d of %d intervals hold the truth", name, held, len(errors))
	}
	if half > 4*deviation {
		t.Errorf("%s: half width %.0f, and the estimates scatter by %.0f", name, half, deviation)
	}
}

const pairs = 200

func TestInterval(t *testing.T) {
	t.Run("of profiles", func(t *testing.T) {
		for size, counts := range map[float64][2]int{
			1 << 10: {20_000, 24_000}, 64 << 10: {300, 330}, 1 << 20: {40, 60},
		} {
			random := rand.New(rand.NewPCG(1, uint64(size)))
			var all comparisons
			for range pairs {
				a := population{random: random, size: size}
				a.allocate(counts[0])
				b := population{random: random, size: size}
				b.allocate(counts[1])
				r := profiles(t, profileOf(t, interval, a.holding()),
					profileOf(t, interval, b.holding()))
				all.add(rowOf(t, r, "leak").Change, b.truth()-a.truth())
			}
			all.mustCover(t, fmt.Sprintf("size %.0f", size))
		}
	})

	t.Run("of runs", func(t *testing.T) {
		for name, lives := range map[string][2]life{
			"a leak that is fixed": {{held: 500, born: 300}, {held: 500}},
			"a leak that grows":    {{held: 500, born: 200}, {held: 500, born: 300}},
			"caches": {
				{held: 500, born: 200, freed: 200}, {held: 500, born: 150, freed: 100},
			},
			"churn beside a leak": {
				{held: 100, born: 200, churned: 400}, {held: 100, born: 100, churned: 400},
			},
			"few samples": {{born: 12}, {born: 3}},
		} {
			random := rand.New(rand.NewPCG(3, 4))
			var all comparisons
			for range pairs {
				a, before := lives[0].trace(t, random, 64<<10)
				b, after := lives[1].trace(t, random, 64<<10)
				r := traces(t, a, b, Options{})
				for _, s := range r.Stacks {
					all.add(s.Change, after-before)
				}
				if len(r.Stacks) == 0 { // no sample was taken: nothing is said
					all.add(Estimate{Low: -2 * interval, High: 2 * interval}, after-before)
				}
			}
			all.mustCover(t, name)
		}
	})

	// In one trace, objects alive at both moments cancel: they are most of the memory.
	t.Run("of snapshots of one trace", func(t *testing.T) {
		random := rand.New(rand.NewPCG(5, 6))
		var all comparisons
		for range pairs {
			p := population{random: random, size: 64 << 10}
			p.allocate(3000)
			before, held := p.truth(), p.holding()
			p.allocate(100)
			r := compared(t, Options{}, profileAt(t, began, time.Minute, interval, held),
				profileAt(t, began, 2*time.Minute, interval, p.holding()))
			all.add(rowOf(t, r, "leak").Change, p.truth()-before)
		}
		all.mustCover(t, "a leak")
	})

	t.Run("few samples", func(t *testing.T) {
		const small = 1 << 10
		nothing := rest(growth.KindFile, "[file: /x]", 1)
		for _, test := range []struct {
			objects, size int64
			want          State
		}{
			{4 * interval / small, small, StateSame},
			{50 * interval / small, small, StateAppeared},
			{1, 16 * interval, StateAppeared},
		} {
			without := profileOf(t, interval, nothing)
			with := profileOf(t, interval, nothing,
				heap(stack(1, "leak", "main"), test.objects, test.size))
			r := profiles(t, without, with)
			s := rowOf(t, r, "leak")
			if s.State != test.want || r.Components[0].State != test.want {
				t.Errorf("%d objects of %d bytes: %+v, want %s; component %+v", test.objects,
					test.size,
					s.Difference, test.want, r.Components[0])
			}
			if half := s.Change.half(); test.size > 4*interval && half > float64(test.size)/100 {
				t.Errorf("objects that cannot be missed: ± %.0f", half)
			}
			back := rowOf(t, profiles(t, with, without), "leak")
			if (back.State == StateSame) != (test.want == StateSame) {
				t.Errorf("%d objects of %d bytes, gone: %+v", test.objects, test.size,
					back.Difference)
			}
		}
	})

	t.Run("Poisson sampling", func(t *testing.T) {
		for _, size := range []int64{1 << 10, 256 << 10, 1 << 20, 2 << 20} {
			held := heap(stack(1, "leak", "main"), 40*interval*100/size, size)
			// An object counts 1/p times with probability p: a variance of (1-p)/p.
			p := -math.Expm1(-float64(size) / interval)
			want := normal95 * math.Sqrt(2*float64(held.InuseBytes)*float64(size)*(1-p)/p)
			r := profiles(t, profileOf(t, interval, held), profileOf(t, interval, held))
			if got := rowOf(t, r, "leak").Change.half(); got < 0.98*want || got > 1.05*want {
				t.Errorf("size %d: ± %.0f, want %.0f", size, got, want)
			}
		}
	})

	t.Run("exact values", func(t *testing.T) {
		mapped := func(bytes int64) growth.Holding {
			h := heap(stack(1, "map", "main"), 1, bytes)
			h.Kind = growth.KindMmap
			return h
		}
		r := profiles(t, profileOf(t, interval, mapped(1000)), profileOf(t, interval, mapped(1001)))
		if s := rowOf(t, r, "map"); s.Change != exactly(1) || s.State != StateGrew {
			t.Errorf("%+v", s.Difference)
		}
	})

	// The heap's free memory is the rest beside its objects: its error is theirs, and the sum of
	// both has none.
	t.Run("remainder of the heap", func(t *testing.T) {
		of := func(objects, free int64) *pprof.Profile {
			return profileOf(t, interval, heap(stack(1, "leak", "main"), objects, 1<<16),
				rest(growth.KindRetained, "[heap: free but resident]", free))
		}
		r := profiles(t, of(1000, 50<<20), of(1000, 50<<20))
		leak, free := rowOf(t, r, "leak").Change, rowOf(t, r, "[heap: free but resident]").Change
		if ratio := free.half() / leak.half(); ratio < 0.9 || ratio > 1.1 || leak.half() == 0 {
			t.Errorf("alive ± %.0f, free ± %.0f", leak.half(), free.half())
		}
		if r.Total.Change != exactly(0) {
			t.Errorf("sum %+v", r.Total.Change)
		}
	})

	t.Run("pages that were not scanned", func(t *testing.T) {
		const known = 300 << 20
		trace := traceOfHoldings(t, heap(stack(1, "leak", "main"), 900, 1<<16),
			heap(stack(1, "leak", "main"), 1000, 1<<16))
		trace.Summary.Breakdown = []summary.BreakdownRow{
			{Process: 1, Kind: growth.KindHeap, ErrorBytes: known},
			{Process: 0, Kind: growth.KindHeap, ErrorBytes: 9 * known},
			{Process: 1, Kind: growth.KindFile, ErrorBytes: known},
		}
		r := traces(t, trace, trace, Options{})
		if half := rowOf(t, r, "leak").Before.half(); half < 0.99*known || half > 1.02*known {
			t.Errorf("± %.0f, want %d", half, known)
		}
	})
}

// A life is the behaviour of a simulated program after its baseline.
type life struct{ held, born, freed, churned int }

// trace simulates a trace of a minute, and gives its true growth.
func (l life) trace(t *testing.T, random *rand.Rand, size float64) (trace *Trace, truth float64) {
	p := population{random: random, size: size}
	p.allocate(l.held)
	start, before := p.holding(), p.truth()
	p.allocate(l.churned) // the last object is freed first
	p.alive = p.alive[:len(p.alive)-l.churned]
	p.free(l.freed)
	p.allocate(l.born)
	return traceOfHoldings(t, start, p.holding()), p.truth() - before
}

func traceOfHoldings(t testing.TB, start, end growth.Holding) *Trace {
	grown := end
	grown.InuseObjects -= start.InuseObjects
	grown.InuseBytes -= start.InuseBytes
	grown.ResidentBytes -= start.ResidentBytes
	grown.AllocObjects -= start.AllocObjects
	grown.AllocBytes -= start.AllocBytes
	return &Trace{
		Name: "trace", Growth: profileOf(t, interval, grown),
		Summary: &summary.Summary{Schema: summary.Schema, IntervalBytes: interval},
		Warmup:  profileOf(t, interval, start), Plateau: profileOf(t, interval, end),
	}
}

func TestSortRows(t *testing.T) {
	mapped := growth.Holding{
		Stack: stack(1, "map", "main"), Kind: growth.KindMmap, ResidentBytes: 4096,
	}
	r := profiles(t, profileOf(t, interval),
		profileOf(t, interval, heap(stack(1, "leak", "main"), 1000, 1<<10), mapped))
	if r.Stacks[0].Function != "map" || r.Stacks[1].State != StateSame {
		t.Errorf("%+v", r.Stacks)
	}
}
