package controller

import (
	"math"
	"strings"
	"testing"
)

// onGPU are options of a program whose blocks are on GPUs.
func onGPU(seed uint64) Options {
	o := all(seed)
	o.Blocks = true
	return o
}

// withBlocks is the trainer with so many events of blocks a second, of so many bytes each.
func withBlocks(events, bytes float64) load {
	l := trainer()
	l.calls, l.tensors, l.bytes, l.tensorBytes = 5_000, 500, 2e6, 2e6 // its tensors are not the host's
	l.blocks, l.blockBytes = events, bytes
	return l
}

// changesOf blocks, by the time at which they were made.
func (s *simulation) changesOfBlocks() (texts []string) {
	for _, c := range s.changes {
		if strings.HasPrefix(c.Text, "blocks on GPUs take ") {
			texts = append(texts, c.Text)
		}
	}
	return texts
}

func TestACalmTrainerKeepsAllItsBlocks(t *testing.T) {
	s := simulate(t, onGPU(1), constant(withBlocks(2_000, 1e6))).run(t, 900)
	if !s.wanted.Blocks || s.wanted.BlockInterval != defaultInterval || len(s.changesOfBlocks()) != 0 {
		t.Errorf("%+v, changes %v", s.wanted, s.changes)
	}
	s.mustKeepToLimit(t, 0, 900)
}

// Twenty seconds at twice what they may take, now and then.
func TestABurstOfBlocksDoesNotCloseTheirProbes(t *testing.T) {
	s := simulate(t, onGPU(2), func(at float64) load {
		if since := math.Mod(at, 100); since >= 50 && since < 70 {
			return withBlocks(35_000, 512)
		}
		return withBlocks(2_000, 512)
	}).run(t, 900)
	if !s.wanted.Blocks || len(s.changesOfBlocks()) != 0 {
		t.Errorf("%+v, changes %v", s.wanted, s.changes)
	}
}

// The stronger it is the sooner: they may take what a minute allows, and what they take until that is noticed.
func TestALastingStormOfBlocksClosesTheirProbesForGood(t *testing.T) {
	const from = 100
	for _, storm := range []struct{ events, within float64 }{{20_000, 80}, {35_000, 50}, {100_000, 30}, {1e6, 20}} {
		s := simulate(t, onGPU(3), func(at float64) load {
			if at >= from && at < 300 {
				return withBlocks(storm.events, 512)
			}
			return withBlocks(2_000, 512)
		})
		if s.run(t, from); !s.wanted.Blocks {
			t.Fatalf("before the storm: %+v", s.wanted)
		}
		s.run(t, storm.within+2)
		texts := s.changesOfBlocks()
		if s.wanted.Blocks || len(texts) != 1 || !strings.HasSuffix(texts[0], "their totals alone are read from now on") {
			t.Errorf("after %.0f s of %.0f a second: %+v, %q", storm.within, storm.events, s.wanted, texts)
		}
		if s.run(t, 400); s.wanted.Blocks || len(s.changesOfBlocks()) != 1 {
			t.Errorf("opened again: %+v, %q", s.wanted, s.changesOfBlocks())
		}
		s.mustKeepToLimit(t, from+storm.within+2, 460)
	}
}

// Where walking stacks is what takes the time, fewer are walked.
func TestBlocksWhoseStacksTakeTooMuchAreSampledMoreCoarsely(t *testing.T) {
	s := simulate(t, onGPU(4), constant(withBlocks(10_000, 4<<20))).run(t, 300)
	texts := s.changesOfBlocks()
	if !s.wanted.Blocks || s.wanted.BlockInterval <= defaultInterval || s.wanted.BlockInterval > coarsestBlocks || len(texts) == 0 {
		t.Errorf("%+v, %q", s.wanted, texts)
	}
	for _, text := range texts {
		if !strings.Contains(text, "one sample in ") {
			t.Errorf("%q", text)
		}
	}
	s.mustKeepToLimit(t, float64(10+blockSpan*len(texts)), 240)
}

func TestBlocksAreNeverSampledMoreCoarselyThanAtTheCoarsest(t *testing.T) {
	s := simulate(t, onGPU(5), constant(withBlocks(8_000, 1<<30)))
	for range 20 {
		if s.run(t, 10); s.wanted.BlockInterval > coarsestBlocks {
			t.Fatalf("one in %d bytes", s.wanted.BlockInterval)
		}
	}
	if s.wanted.Blocks {
		t.Errorf("blocks of a gigabyte each, all of which are sampled, are still followed: %v", s.changes)
	}
}

func TestTheIntervalOfTheUserIsThatOfBlocks(t *testing.T) {
	o := onGPU(6)
	o.Interval = 1
	s := simulate(t, o, constant(withBlocks(100_000, 1e6))).run(t, 5)
	if !s.wanted.Blocks || s.wanted.BlockInterval != 1 {
		t.Errorf("%+v", s.wanted)
	}
	if s.run(t, 30); s.wanted.Blocks || s.wanted.BlockInterval != 1 {
		t.Errorf("%+v: %v", s.wanted, s.changes)
	}
}

func TestASourceThatIsOffHasNoBlocks(t *testing.T) {
	if s := simulate(t, all(7), constant(trainer())).run(t, 60); s.wanted.Blocks {
		t.Errorf("%+v", s.wanted)
	}
}
