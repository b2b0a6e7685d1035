package gpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

const ms = uint64(time.Millisecond)

func TestBurstsEstimate(t *testing.T) {
	bursts := Bursts{list: []burst{
		{1000 * ms, 11_000 * ms, 1000 * ms}, {14_000 * ms, 15_000 * ms, 1000 * ms}, {18_000 * ms, 0, 0},
	}}
	const since, now = 0, 19_500
	for _, c := range []struct {
		name       string
		born, from uint64 // ms
		factor     float64
		ok         bool
	}{
		{"long before the first pause", 5000, 5000, 1, true},
		{"in the tail of the first burst", 10_100, 14_100, 4 / 0.75, true},
		{"maybe a temporary of its end", 10_800, 0, 0, false},
		{"in a burst", 14_200, 18_200, 4 / 0.75, true},
		{"at its end", 14_990, 0, 0, false},
		{"in the open burst", 18_100, 19_100, 1, true},
		{"before there was one", 500, 500, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, factor, ok := bursts.estimate(c.born*ms, since, now*ms)
			if ok != c.ok || ok && (from != c.from*ms || math.Abs(factor-c.factor) > 1e-9) {
				t.Errorf("from %d, factor %g, %t", from/ms, factor, ok)
			}
		})
	}

	t.Run("between two bursts", func(t *testing.T) {
		paused := Bursts{list: bursts.list[:2]}
		if from, _, ok := paused.estimate(14_200*ms, since, 17_000*ms); ok && from <= 17_000*ms {
			t.Errorf("a block of the last burst counts from %d", from/ms)
		}
		_, factor, ok := paused.estimate(10_100*ms, since, 13_000*ms)
		if !ok || math.Abs(factor-4/0.75) > 1e-9 {
			t.Errorf("factor %g, %t", factor, ok)
		}
	})

	t.Run("process that started within a burst", func(t *testing.T) {
		_, factor, ok := bursts.estimate(14_600*ms, 14_500*ms, now*ms)
		if !ok || math.Abs(factor-3.5/0.25) > 1e-9 {
			t.Errorf("factor %g, %t", factor, ok)
		}
	})

	t.Run("without a pause", func(t *testing.T) {
		var w Bursts
		w.Open(5 * ms)
		for _, born := range []uint64{0, 5 * ms, 100 * ms} {
			if from, factor, ok := w.estimate(born, 0, 200*ms); from != born || factor != 1 || !ok {
				t.Errorf("born at %d: from %d, factor %g, %t", born, from, factor, ok)
			}
		}
	})
}

func TestList(t *testing.T) {
	cache := &growth.GPUCache{Segments: []growth.GPUSegment{
		{Address: 0x9000, Size: 0x1000, Blocks: []growth.GPUBlock{{Address: 0x9000, Size: 0x1000}}},
		{Address: 0x1000, Size: 0x2000, Blocks: []growth.GPUBlock{
			{Address: 0x1000, Size: 0x200, State: growth.GPUBlockAllocated},
			{Address: 0x1200, Size: 0x200, State: growth.GPUBlockPending},
		}},
	}}
	const at, before = 100, 99
	whole := NewList(cache, at)
	cache.Changed = 1
	changed := NewList(cache, at)
	for _, c := range []struct {
		name                string
		list                *List
		address, size, born uint64
		want                listing
	}{
		{"in use", whole, 0x1000, 0x200, before, listingInUse},
		{"another size", whole, 0x1000, 0x400, before, listingRefuted},
		{"freed, a stream uses it", whole, 0x1200, 0x200, before, listingRefuted},
		{"free segment", whole, 0x9000, 0x1000, before, listingRefuted},
		{"within a segment", whole, 0x9fff, 0x200, before, listingRefuted},
		{"behind a segment", whole, 0xa000, 0x200, before, listingAbsent},
		{"before all", whole, 0x800, 0x200, before, listingAbsent},
		{"in a segment that changed", changed, 0x5000, 0x200, before, listingUnknown},
		{"younger than the list", whole, 0x5000, 0x200, at, listingUnknown},
		{"no list", nil, 0x1000, 0x200, before, listingUnknown},
	} {
		if got := c.list.find(c.address, c.size, c.born); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// An allocator hands out blocks of one size, the address that came back last first. The map of
// sampled blocks sees its reports in bursts alone.
type allocator struct {
	free  []uint64
	next  uint64
	inUse map[uint64]bool
	live  map[uint64]sampled
	isOn  bool
}

type sampled struct {
	site string
	born uint64
}

func (a *allocator) allocate(site string, now uint64) uint64 {
	if len(a.free) == 0 {
		a.next += blockSize
		a.free = append(a.free, a.next)
	}
	address := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	a.inUse[address] = true
	if a.isOn {
		a.live[address] = sampled{site, now}
	}
	return address
}

func (a *allocator) release(address uint64) {
	a.free = append(a.free, address)
	delete(a.inUse, address)
	if a.isOn {
		delete(a.live, address)
	}
}

const blockSize = 64 << 10

// list is the allocator's list, as it is read at a moment.
func (a *allocator) list(now uint64) *List {
	segment := growth.GPUSegment{Address: blockSize, Size: int64(a.next)}
	for address := range a.inUse {
		segment.Blocks = append(segment.Blocks,
			growth.GPUBlock{Address: address, Size: blockSize, State: growth.GPUBlockAllocated})
	}
	return NewList(&growth.GPUCache{Segments: []growth.GPUSegment{segment}}, now)
}

// TestBurstsSimulation has a leak at one site, and at another temporaries at the same addresses.
func TestBurstsSimulation(t *testing.T) {
	for _, c := range []struct {
		name    string
		step    uint64 // ms, in which so many temporaries come, and go at its end
		blocks  int
		leakGap uint64 // ms between two blocks of the leak
	}{
		{"short steps", 20, 40, 10},
		{"long steps", 600, 200, 10},
		{"long steps with a phase of their own", 770, 200, 10},
		{"few blocks", 100, 5, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			leak, churn := simulateBursts(max(1000, 4*c.step), c.step, c.blocks, c.leakGap)
			want := blockSize * 1000 / float64(c.leakGap)
			first, last := leak[30], leak[len(leak)-1]
			if rate := (last - first) / float64(len(leak)-31); math.Abs(rate/want-1) > 0.1 {
				t.Errorf("the leak has %.0f bytes a second, want %.0f", rate, want)
			}
			inFlight := float64(c.blocks * blockSize)
			for at, bytes := range churn {
				if bytes > inFlight {
					t.Fatalf("after %d s temporaries hold %.0f bytes, at most %.0f are in flight",
						at, bytes, inFlight)
				}
			}
		})
	}
}

// simulateBursts returns the estimates of each second for two minutes, where a quarter of the time is
// in bursts of such a length, in ms.
func simulateBursts(burst, step uint64, blocks int, leakGap uint64) (leak, churn []float64) {
	random := rand.New(rand.NewPCG(1, step))
	a := &allocator{inUse: make(map[uint64]bool), live: make(map[uint64]sampled)}
	var bursts Bursts
	var temporaries []uint64
	for now := range uint64(120_000) {
		switch at := now * ms; now % (4 * burst) {
		case 0:
			bursts.Open(at)
			a.isOn = true
		case burst:
			a.isOn = false
			bursts.Close(at, time.Duration(burst*ms))
		}

		for range blocks {
			if random.Float64()*float64(step) < 1 {
				temporaries = append(temporaries, a.allocate("churn", now*ms))
			}
		}
		if now%step == step-1 {
			for _, address := range temporaries {
				a.release(address)
			}
			temporaries = temporaries[:0]
		}
		if now%leakGap == 0 {
			a.allocate("leak", now*ms)
		}
		if now%1000 == 999 {
			sums := a.estimate(&bursts, now*ms)
			leak, churn = append(leak, sums["leak"]), append(churn, sums["churn"])
		}
	}
	return leak, churn
}

// estimate returns the bytes of each site by the sampled blocks.
func (a *allocator) estimate(bursts *Bursts, now uint64) map[string]float64 {
	evidence := Evidence{Bursts: bursts, Lists: Lists{1: a.list(now)}, Now: now}
	sums := make(map[string]float64)
	for address, block := range a.live {
		from, factor, isRefuted, ok := evidence.of(1, address, blockSize, block.born)
		if ok && from <= now {
			sums[block.site] += factor * blockSize
		}
		if isRefuted && !a.isOn {
			delete(a.live, address)
		}
	}
	return sums
}
