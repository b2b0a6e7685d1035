package controller

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
)

// blockShare is the share of the time between these seconds in which blocks were sampled.
func (s *simulation) blockShare(from, to float64) float64 {
	var n float64
	for _, isOpen := range s.hasBlocks[int(from/tick):int(to/tick)] {
		if isOpen {
			n++
		}
	}
	return n * tick / (to - from)
}

// blocksOnly is a trainer that has no other events than reports of blocks.
func blocksOnly(events, bytes float64) load {
	l := withBlocks(events, bytes)
	l.faults = 0
	return l
}

func TestBlockBursts(t *testing.T) {
	listed := func(seed uint64, l func(float64) load) *simulation {
		o := onGPU(seed)
		o.Heap, o.Tensor = false, false
		s := simulate(o, l)
		s.isListed = true
		return s
	}

	t.Run("keep any storm to the limit", func(t *testing.T) {
		for _, storm := range []struct{ events, bytes, least float64 }{
			{31_000, 512, 0.4},
			{108_000, 0.8 * (1 << 20), 0.07},
			{108_000, 512, 0.15},
			{500_000, 64 << 10, 1. / 35},
		} {
			s := listed(1, constant(blocksOnly(storm.events, storm.bytes))).run(t, 400)
			s.mustKeepToLimit(t, 0, 400)
			if share := s.blockShare(10, 400); share < storm.least || share > 0.55 {
				t.Errorf("%+v: open for %.3f of the time", storm, share)
			}
			if changes := s.changesFor(growth.OverheadManyBlocks); len(changes) != 0 {
				t.Errorf("%+v: %v", storm, changes)
			}
			if changes := s.changesFor(growth.OverheadBlockBursts); len(changes) != 1 ||
				changes[0].Spacing < 1.9 || changes[0].Length < 1 {
				t.Errorf("%+v: %+v", storm, changes)
			}
		}
	})

	t.Run("begin within two seconds", func(t *testing.T) {
		s := listed(2, constant(blocksOnly(108_000, 512))).run(t, 2)
		if s.wanted.Blocks || !s.wanted.BlocksPaused {
			t.Errorf("%+v", s.wanted)
		}
	})

	t.Run("end in time", func(t *testing.T) {
		s := listed(3, constant(blocksOnly(108_000, 512))).run(t, 300)
		length := 0.0
		for i, isOpen := range s.hasBlocks {
			if length += tick; !isOpen {
				length = 0
			}
			if length > 1.3 && float64(i)*tick > 5 {
				t.Fatalf("at %.2f s a burst is open for %.2f s", float64(i)*tick, length)
			}
		}
	})

	t.Run("give way to open probes after the storm", func(t *testing.T) {
		s := listed(4, func(at float64) load {
			if at >= 50 && at < 100 {
				return blocksOnly(108_000, 512)
			}
			return blocksOnly(2_000, 512)
		})
		if s.run(t, 50); s.blockShare(0, 49) < 1 {
			t.Error("there are bursts before the storm")
		}
		s.run(t, 100).mustSampleBlocks(t, true)
		if s.blockShare(110, 149) < 1 || s.wanted.BlockInterval != defaultInterval {
			t.Errorf("after the storm blocks are sampled for %.2f of the time, one in %d bytes",
				s.blockShare(110, 149), s.wanted.BlockInterval)
		}
		if changes := s.changesFor(growth.OverheadFewBlocks); len(changes) != 1 {
			t.Errorf("%+v", s.changes)
		}
		s.mustKeepToLimit(t, 0, 149)
	})

	t.Run("see a slow leak of small blocks", func(t *testing.T) {
		s := listed(5, constant(blocksOnly(108_000, 512))).run(t, 60)
		if s.wanted.BlockInterval != finestBlockInterval {
			t.Errorf("one in %d bytes", s.wanted.BlockInterval)
		}
	})

	t.Run("are not where walks alone are what costs", func(t *testing.T) {
		s := listed(6, constant(blocksOnly(8_000, 128<<20))).run(t, 300)
		if changes := s.changesFor(growth.OverheadBlockBursts); len(changes) != 0 {
			t.Errorf("%+v", changes)
		}
	})

	t.Run("last for some steps", func(t *testing.T) {
		l := blocksOnly(108_000, 512)
		l.step = 0.6
		s := listed(9, constant(l)).run(t, 200)
		if got := s.wanted.BlockBurst.Seconds(); got < 2.4 || got > 3 {
			t.Errorf("%.2f s, for steps of %.2f s", got, l.step)
		}
		s.mustKeepToLimit(t, 0, 200)
	})

	t.Run("need the list", func(t *testing.T) {
		s := listed(7, constant(blocksOnly(150_000, 512)))
		s.isListed = false
		s.run(t, 30).mustSampleBlocks(t, false)
		if changes := s.changesFor(growth.OverheadBlockBursts); len(changes) != 0 || s.wanted.BlocksPaused {
			t.Errorf("%+v, changes %v", s.wanted, s.changes)
		}
	})

	t.Run("have the interval that the user chose", func(t *testing.T) {
		s := listed(8, constant(blocksOnly(100_000, 1e6)))
		o := s.options
		o.Interval = 4096
		s.options, s.controller = o, New(o)
		s.run(t, 100).mustKeepToLimit(t, 0, 100)
		if s.wanted.BlockInterval != 4096 || s.blockShare(10, 99) < 1./35 {
			t.Errorf("one in %d bytes, open for %.3f", s.wanted.BlockInterval, s.blockShare(10, 99))
		}
	})
}
