package controller

import (
	"math"
	"math/bits"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

func TestTensors(t *testing.T) {
	few := trainer()
	few.tensors, few.tensorBytes = 4_000, 50e6

	t.Run("are probed all the time while they fit", func(t *testing.T) {
		s := simulate(all(1), constant(few)).run(t, 300)
		s.mustBeIn(t, growth.HeapBursts)
		if !s.wanted.Tensor || !s.controller.tensor.alwaysOpen {
			t.Errorf("closed: %v", s.changes)
		}
		s.mustKeepToLimit(t, 0, 300)

		many := few
		many.tensors *= 20
		s.load = constant(many)
		if s.run(t, 60); s.controller.tensor.alwaysOpen {
			t.Errorf("twenty times as many are still probed all the time: %v", s.changes)
		}
	})

	t.Run("are closed within a second of a storm", func(t *testing.T) {
		s := simulate(all(1), constant(few)).run(t, 100)
		if !s.controller.tensor.alwaysOpen {
			t.Fatal("tensors are not probed all the time")
		}
		stormy := few
		stormy.tensors = 500_000
		s.load = constant(stormy)
		if s.run(t, 1); s.controller.tensor.alwaysOpen {
			t.Error("still open")
		}
	})

	t.Run("have all modes without heap", func(t *testing.T) {
		o := all(1)
		o.Heap = false
		s := simulate(o, constant(trainer())).run(t, 300)
		s.mustKeepToLimit(t, 0, 300)
		s.mustBeIn(t, growth.HeapBursts)
		if s.wanted.Heap || len(s.changes) != 2 || s.changes[1].Source != "tensor" {
			t.Errorf("heap open: %v, changes %v", s.wanted.Heap, s.changes)
		}
	})

	t.Run("few large ones have a coarser interval", func(t *testing.T) {
		l := trainer()
		l.tensors, l.bytes, l.tensorBytes = 1_000, 20e6, 2e9
		s := simulate(all(1), constant(l)).run(t, 300)
		if !s.controller.tensor.alwaysOpen || s.wanted.TensorInterval <= defaultInterval {
			t.Errorf("one in %d bytes, changes %v", s.wanted.TensorInterval, s.changes)
		}
		s.mustKeepToLimit(t, 0, 300)
	})
}

func TestInterval(t *testing.T) {
	t.Run("of the user is kept", func(t *testing.T) {
		for _, interval := range []uint64{1, 64 << 10, 64 << 20} {
			o := onGPU(1)
			o.Interval = interval
			s := simulate(o, constant(trainer()))
			for range 120 {
				s.run(t, 1)
				if d := s.wanted; d.Interval != interval || d.TensorInterval != interval ||
					d.BlockInterval != interval {
					t.Fatalf("intervals %d, %d and %d, want %d", d.Interval, d.TensorInterval,
						d.BlockInterval, interval)
				}
			}
			s.mustKeepToLimit(t, 0, 60)
		}
	})

	t.Run("of a producer is as fine as a sixth of the budget pays", func(t *testing.T) {
		for _, bytes := range []float64{1e5, 1e7, 1e9, 1e11, 1e12} {
			l := load{cores: 1, isBound: true, calls: 10e6, bytes: bytes}
			o := Options{Heap: true, Producer: true, Limit: 0.01, Costs: usual, Seed: 1}
			s := simulate(o, constant(l)).run(t, 300)
			s.mustBeIn(t, growth.HeapFull)
			s.mustKeepToLimit(t, 1, 300)
			share, interval := s.costShare(60, 300)/o.Limit, s.wanted.Interval
			if share < 0.05 && interval > finestInterval || share > 0.17 && interval < 1<<30 || bits.OnesCount64(interval) != 1 {
				t.Errorf("%.0f MB/s: %.2f of the budget is spent at %d bytes", bytes/1e6, share,
					interval)
			}
			if s.openShare(0, 300) < 0.999 {
				t.Errorf("%.0f MB/s: open %.3f of the time", bytes/1e6, s.openShare(0, 300))
			}
		}
	})

	t.Run("of a producer follows the load within seconds", func(t *testing.T) {
		const busyFrom, busyTo = 60, 120
		s := simulate(Options{Heap: true, Producer: true, Limit: 0.01, Costs: usual, Seed: 1},
			func(at float64) load {
				l := load{cores: 1, isBound: true, bytes: 1e8}
				if at >= busyFrom && at < busyTo {
					l.bytes = 1e12
				}
				return l
			})
		before := s.run(t, busyFrom).wanted.Interval
		s.run(t, 2)
		if share := s.costShare(busyFrom+1, busyFrom+2); share > 0.01 {
			t.Errorf("the second second of the load costs %.2f%%", 100*share)
		}
		if after := s.run(t, 178).wanted.Interval; after != before {
			t.Errorf("two minutes after the load %d bytes, before it %d", after, before)
		}
		s.mustKeepToLimit(t, 0, 240)
	})

	t.Run("of bursts is the finest that is cheap beside the traps", func(t *testing.T) {
		for _, bytes := range []float64{1e6, 30e6, 600e6, 10e9} {
			l := trainer()
			l.tensors, l.bytes, l.tensorBytes = 0, bytes, 0
			s := simulate(all(1), constant(l)).run(t, 400)
			s.mustBeIn(t, growth.HeapBursts)
			interval := s.wanted.Interval
			traps := 1e-9 * usual.Entry * l.calls
			walking := func(interval uint64) float64 {
				return bytes / float64(interval) * (walkCost + SampleCost*1e-9)
			}
			longest := max(burstWalkRatio*traps, burstWalkShare*(0.03/earlyDutyCycle-traps))
			if walking(interval) > longest && interval < defaultInterval {
				t.Errorf("%.0f MB/s: walks take %.2f of what traps take at %d bytes", bytes/1e6,
					walking(interval)/traps, interval)
			}
			if interval > finestBurstInterval && walking(interval/4) < longest {
				t.Errorf("%.0f MB/s: one in %d bytes, a quarter would be cheap too", bytes/1e6,
					interval)
			}
		}
	})

	t.Run("of bursts is coarser where they meet many new stacks", func(t *testing.T) {
		for newStacks, want := range map[uint64]uint64{0: 64 << 10, 100_000: defaultInterval} {
			c := New(all(1))
			c.now, c.burstInterval = 100, 128<<10
			c.tuneBurstInterval(timeUse{
				elapsed: 0.5, probes: 0.027, walking: 0.002, newStacks: float64(newStacks),
			})
			if c.burstInterval > want || newStacks > 0 && c.burstInterval < want {
				t.Errorf("%d new stacks: one sample in %d bytes, want %d", newStacks,
					c.burstInterval, want)
			}
		}
	})

	t.Run("is coarser while walks are what costs", func(t *testing.T) {
		l := load{cores: 1, isBound: true, calls: 5_000, bytes: 3e9}
		s := simulate(all(1), constant(l)).run(t, 300)
		s.mustBeIn(t, growth.HeapFull)
		if s.wanted.Interval <= defaultInterval || s.openShare(10, 300) != 1 {
			t.Errorf("interval %d, changes %v", s.wanted.Interval, s.changes)
		}
		s.mustKeepToLimit(t, 0, 300)

		l.bytes = 1e6
		s.load = constant(l)
		if s.run(t, 3600); s.wanted.Interval != finestInterval || len(s.changes) > 10 {
			t.Errorf("interval %d an hour after the bytes became few, changes %v",
				s.wanted.Interval, s.changes)
		}
	})

	t.Run("is the finest that the budget pays for, within seconds of the start", func(t *testing.T) {
		for bytes, finest := range map[float64]uint64{1e5: 4 << 10, 10e6: 32 << 10, 300e6: 1 << 20} {
			s := simulate(all(1), constant(load{
				cores: 0.1, calls: 50_000, bytes: 10 * bytes, // by second of CPU time
			})).run(t, 8)
			s.mustBeIn(t, growth.HeapFull)
			if got := s.wanted.Interval; got > finest || got < finest/4 {
				t.Errorf("%.1f MB/s: one sample in %d bytes, want %d", bytes/1e6, got, finest)
			}
			s.mustKeepToLimit(t, 0, 8)
		}
	})

	t.Run("is coarser the fuller the live map is", func(t *testing.T) {
		for share, want := range map[float64][2]uint64{
			0: {4 << 10, 4 << 10}, 0.005: {4 << 10, 32 << 10}, 0.13: {16 << 10, 1 << 20},
			0.5: {1 << 20, 4 << 20}, 1: {4 << 20, 4 << 20},
		} {
			for i, o := range []Options{all(1), {Heap: true, Producer: true, Limit: 0.01, Costs: usual, Seed: 1}} {
				s := simulate(o, constant(load{cores: 0.1, calls: 50_000, bytes: 1e6}))
				s.reading.LiveShare = share
				if s.run(t, 60); s.wanted.Interval != want[i] {
					t.Errorf("the map is %.1f%% full, producer %v: one sample in %d bytes, want %d",
						100*share, o.Producer, s.wanted.Interval, want[i])
				}
			}
		}
	})

	t.Run("is coarser where new stacks take allocscope too much", func(t *testing.T) {
		for newStacks, want := range map[uint64]uint64{0: finestInterval, 1000: coarsestInterval} {
			s := simulate(all(1), constant(load{cores: 0.1, calls: 50_000, bytes: 1e6}))
			s.own = 0.05
			for range 60 {
				s.reading.NewStacks += newStacks
				s.run(t, 1)
			}
			if s.wanted.Interval != want {
				t.Errorf("%d new stacks a second: interval %d, want %d; changes %v",
					newStacks, s.wanted.Interval, want, s.changes)
			}
			if last := s.changes[len(s.changes)-1]; want == coarsestInterval &&
				last.Reason != growth.OverheadNewStacks {
				t.Errorf("the last change is %+v", last)
			}
		}
	})

	t.Run("does not follow every change of the load", func(t *testing.T) {
		s := simulate(all(1), func(at float64) load {
			l := load{cores: 1, isBound: true, calls: 5_000, bytes: 1e6}
			if math.Mod(at, 60) < 30 {
				l.bytes = 1.2e9
			}
			return l
		}).run(t, 3600)
		s.mustBeIn(t, growth.HeapFull)
		if n := len(s.changes); n > 22 {
			t.Errorf("%d changes in an hour", n)
		}
	})
}

func onGPU(seed uint64) Options {
	o := all(seed)
	o.Blocks = true
	return o
}

// withBlocks is a trainer with so many events of blocks a second, of so many bytes each.
func withBlocks(events, bytes float64) load {
	l := trainer()
	l.calls, l.tensors, l.bytes, l.tensorBytes = 5_000, 500, 2e6, 2e6
	l.blocks, l.blockBytes = events, bytes
	return l
}

// mustSampleBlocks asserts whether blocks are sampled, and returns the changes of that.
func (s *simulation) mustSampleBlocks(t *testing.T, want bool) []Change {
	t.Helper()
	changes := s.changesFor(growth.OverheadBlockWalks, growth.OverheadManyBlocks)
	if s.wanted.Blocks != want {
		t.Errorf("after %.0f s: %+v, changes %v", s.now, s.wanted, s.changes)
	}
	return changes
}

func TestBlocks(t *testing.T) {
	t.Run("stay open through short storms", func(t *testing.T) {
		s := simulate(onGPU(2), func(at float64) load {
			if since := math.Mod(at, 100); since >= 50 && since < 70 {
				return withBlocks(50_000, 512) // twice their allowance
			}
			return withBlocks(2_000, 512)
		}).run(t, 900)
		if changes := s.mustSampleBlocks(t, true); len(changes) != 0 ||
			s.wanted.BlockInterval != defaultInterval {
			t.Errorf("one in %d bytes; %+v", s.wanted.BlockInterval, changes)
		}
	})

	// The stronger a storm the sooner: blocks may take the allowance of a minute.
	t.Run("are closed for good by a lasting storm", func(t *testing.T) {
		const from = 100
		for _, storm := range []struct{ events, within float64 }{
			{31_000, 75},
			{50_000, 50},
			{150_000, 22},
			{1e6, 12},
		} {
			s := simulate(onGPU(3), func(at float64) load {
				if at >= from && at < 300 {
					return withBlocks(storm.events, 512)
				}
				return withBlocks(2_000, 512)
			})
			s.run(t, from).mustSampleBlocks(t, true)
			changes := s.run(t, storm.within+2).mustSampleBlocks(t, false)
			if len(changes) != 1 || changes[0].Reason != growth.OverheadManyBlocks {
				t.Errorf("%+v", changes)
			}
			if changes := s.run(t, 400).mustSampleBlocks(t, false); len(changes) != 1 {
				t.Errorf("%+v", changes)
			}
			s.mustKeepToLimit(t, from+storm.within+2, 460)
		}
	})

	t.Run("have a coarser interval where walks are what costs", func(t *testing.T) {
		s := simulate(onGPU(4), constant(withBlocks(8_000, 128<<20))).run(t, 300)
		changes := s.mustSampleBlocks(t, true)
		if len(changes) != 1 || changes[0].Reason != growth.OverheadBlockWalks {
			t.Errorf("%+v", changes)
		}
		if interval := s.wanted.BlockInterval; interval != coarsestBlockInterval {
			t.Errorf("one in %d bytes", interval)
		}
	})

	t.Run("have it within three seconds, and a finer one again after a storm", func(t *testing.T) {
		const from, to = 10, 40
		s := simulate(onGPU(8), func(at float64) load {
			if at >= from && at < to {
				return withBlocks(8_000, 128<<20)
			}
			return withBlocks(500, 4<<20)
		})
		if s.run(t, from); s.wanted.BlockInterval != defaultInterval {
			t.Errorf("after %d s: one in %d bytes", from, s.wanted.BlockInterval)
		}
		if s.run(t, 3); s.wanted.BlockInterval != coarsestBlockInterval {
			t.Errorf("three seconds into a storm: one in %d bytes", s.wanted.BlockInterval)
		}

		s.run(t, 200).mustSampleBlocks(t, true)
		if s.wanted.BlockInterval != defaultInterval {
			t.Errorf("three minutes after a storm: one in %d bytes", s.wanted.BlockInterval)
		}
		s.mustKeepToLimit(t, 0, 200)
	})

	t.Run("have a finer interval where walks take little", func(t *testing.T) {
		for _, of := range []struct{ events, bytes, from, to float64 }{
			{500, 4 << 20, defaultInterval, defaultInterval},
			{3_000, 4 << 20, 2 << 20, 8 << 20},
		} {
			s := simulate(onGPU(7), constant(withBlocks(of.events, of.bytes))).run(t, 300)
			changes := s.mustSampleBlocks(t, true)
			interval := float64(s.wanted.BlockInterval)
			if len(changes) != 0 || interval < of.from || interval > of.to {
				t.Errorf("%+v: one in %g bytes, changes %v", of, interval, changes)
			}
			s.mustKeepToLimit(t, 10, 280)
		}
	})

	t.Run("have a coarsest interval", func(t *testing.T) {
		s := simulate(onGPU(5), constant(withBlocks(8_000, 1<<30)))
		s.run(t, 200).mustSampleBlocks(t, false) // all blocks of a GiB are sampled
		if s.wanted.BlockInterval > coarsestBlockInterval {
			t.Errorf("one in %d bytes", s.wanted.BlockInterval)
		}
	})

	t.Run("are closed where the user chose the interval", func(t *testing.T) {
		o := onGPU(6)
		o.Interval = 1
		s := simulate(o, constant(withBlocks(100_000, 1e6)))
		s.run(t, 5).mustSampleBlocks(t, true)
		s.run(t, 30).mustSampleBlocks(t, false)
	})
}
