package mapping

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
)

const (
	mayMove   = 1
	fixed     = 2
	dontUnmap = 4
)

func TestWhatAMappingGrowsByBelongsToTheCaller(t *testing.T) {
	s := four()
	s.Remap(by(2), at(0), 4*page, at(0), 6*page, 0)
	mustHold(t, s, mapped(0, 4, 1), mapped(4, 6, 2))
	mustTally(t, s, 1, growth.KindMmap, Tally{1, 4 * page})
	mustTally(t, s, 2, growth.KindMmap, Tally{1, 2 * page})
}

func TestAMappingShrinksInItsPlace(t *testing.T) {
	s := four()
	s.Remap(by(2), at(0), 4*page, at(0), page, 0)
	mustHold(t, s, mapped(0, 1, 1))
	mustTally(t, s, 2, growth.KindMmap, Tally{})
}

func TestAMovedMappingKeepsItsStacks(t *testing.T) {
	s := four()
	s.Map(by(2), at(1), page, private|unix.MAP_FIXED, none)
	s.Remap(by(3), at(0), 4*page, at(10), 5*page, mayMove)
	mustHold(t, s, mapped(10, 11, 1), mapped(11, 12, 2), mapped(12, 14, 1), mapped(14, 15, 3))
}

func TestAMoveTakesPartOfAMapping(t *testing.T) {
	s := four()
	s.Remap(by(2), at(1), 2*page, at(10), 2*page, mayMove|fixed)
	mustHold(t, s, mapped(0, 1, 1), mapped(3, 4, 1), mapped(10, 12, 1))
}

func TestAMoveThatShrinksCutsTheEnd(t *testing.T) {
	s := four()
	s.Map(by(2), at(3), page, private|unix.MAP_FIXED, none)
	s.Remap(by(3), at(0), 4*page, at(10), 2*page, mayMove|fixed)
	mustHold(t, s, mapped(10, 12, 1))
}

func TestAMoveTakesThePlaceOfWhatWasThere(t *testing.T) {
	s := four()
	s.Map(by(2), at(9), 3*page, private, none)
	s.Remap(by(3), at(0), 4*page, at(10), 4*page, mayMove|fixed)
	mustHold(t, s, mapped(9, 10, 2), mapped(10, 14, 1))
}

func TestAMappingThatIsNotUnmappedStaysInBothPlaces(t *testing.T) {
	s := four()
	s.Remap(by(2), at(0), 4*page, at(10), 4*page, mayMove|dontUnmap)
	mustHold(t, s, mapped(0, 4, 1), mapped(10, 14, 1))
}

func TestWhatGrowsIsOfTheKindThatWasThere(t *testing.T) {
	s := &Set{}
	s.Map(by(1), at(0), page, unix.MAP_SHARED|unix.MAP_ANONYMOUS, none)
	s.Remap(by(2), at(0), page, at(0), 2*page, 0)
	if got := s.Intervals()[1].Kind; got != growth.KindShmem {
		t.Errorf("kind %s, want shmem", got)
	}
}

// mremap with an old size of 0 maps shared memory a second time (mremap(2)).
func TestSharedMemoryIsMappedTwice(t *testing.T) {
	for _, first := range []uint64{0, 1} { // its first page or one in the middle
		s := &Set{}
		s.Map(by(1), at(0), 4*page, unix.MAP_SHARED|unix.MAP_ANONYMOUS, none)
		s.Remap(by(2), at(first), 0, at(10), 2*page, mayMove)
		shared := func(from, to, stack uint64) Interval {
			return Interval{Start: at(from), End: at(to), Stack: stack, Kind: growth.KindShmem}
		}
		mustHold(t, s, shared(0, 4, 1), shared(10, 12, 2))
		mustTally(t, s, 2, growth.KindShmem, Tally{1, 2 * page})
	}
}

func TestARemapOfTheUnknownBelongsToTheCaller(t *testing.T) {
	s := &Set{}
	s.Remap(by(2), at(0), page, at(10), 3*page, mayMove)
	mustHold(t, s, mapped(10, 13, 2))
	mustTally(t, s, 2, growth.KindMmap, Tally{1, 2 * page})
}
