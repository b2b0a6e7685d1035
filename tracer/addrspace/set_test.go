package mapping

import (
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
)

const (
	page    = 4096
	base    = 0x7f0000000000
	private = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	none    = -1 // a descriptor
)

// at is the address of a page.
func at(pages uint64) uint64 { return base + pages*page }

// by is a call of the stack with that ID.
func by(stack uint64) Call { return Call{Stack: stack} }

// mapped is an interval from one page to another, held by a stack.
func mapped(from, to, stack uint64) Interval {
	return Interval{Start: at(from), End: at(to), Stack: stack, Kind: growth.KindMmap}
}

func mustHold(t *testing.T, s *Set, want ...Interval) {
	t.Helper()
	if !slices.Equal(s.Intervals(), want) {
		t.Errorf("intervals\n%+v, want\n%+v", s.Intervals(), want)
	}
}

func mustTally(t *testing.T, s *Set, stack uint64, kind growth.Kind, want Tally) {
	t.Helper()
	if got := s.Tallies()[Holder{stack, kind}]; got != want {
		t.Errorf("stack %d has mapped %+v of kind %s, want %+v", stack, got, kind, want)
	}
}

func mustRelease(t *testing.T, s *Set, stack uint64, call string, want Tally) {
	t.Helper()
	if got := s.Releases()[Releaser{stack, call}]; got != want {
		t.Errorf("stack %d has released %+v by %s, want %+v", stack, got, call, want)
	}
}

// four is a set with one mapping of four pages, made by stack 1.
func four() *Set {
	s := &Set{}
	s.Map(by(1), at(0), 4*page, private, none)
	return s
}

func TestTheMiddleOfAMappingIsUnmapped(t *testing.T) {
	s := four()
	s.Unmap(by(2), at(1), 2*page)
	mustHold(t, s, mapped(0, 1, 1), mapped(3, 4, 1))
	mustRelease(t, s, 2, "munmap", Tally{1, 2 * page})
	mustTally(t, s, 1, growth.KindMmap, Tally{1, 4 * page})
}

func TestTheLeftOfAMappingIsUnmapped(t *testing.T) {
	s := four()
	s.Unmap(by(2), at(0), page)
	mustHold(t, s, mapped(1, 4, 1))
	mustRelease(t, s, 2, "munmap", Tally{1, page})
}

func TestTheRightOfAMappingIsUnmapped(t *testing.T) {
	s := four()
	s.Unmap(by(2), at(3), page)
	mustHold(t, s, mapped(0, 3, 1))
	mustRelease(t, s, 2, "munmap", Tally{1, page})
}

func TestOneUnmapTakesSeveralMappingsAndTheHolesBetween(t *testing.T) {
	s := four()
	s.Map(by(2), at(6), 2*page, private, none)
	s.Map(by(3), at(8), 2*page, private, none)
	s.Unmap(by(4), at(2), 7*page)
	mustHold(t, s, mapped(0, 2, 1), mapped(9, 10, 3))
	mustRelease(t, s, 4, "munmap", Tally{1, 5 * page})
}

func TestUnmappingNothingReleasesNothing(t *testing.T) {
	s := four()
	s.Unmap(by(2), at(4), 100*page)
	mustHold(t, s, mapped(0, 4, 1))
	if len(s.Releases()) != 0 {
		t.Errorf("released %+v", s.Releases())
	}
}

func TestAMappingTakesThePlaceOfWhatWasThere(t *testing.T) {
	s := four()
	s.Map(by(2), at(1), 2*page, private|unix.MAP_FIXED, none)
	mustHold(t, s, mapped(0, 1, 1), mapped(1, 3, 2), mapped(3, 4, 1))
	s.Map(by(3), at(0), 4*page, private|unix.MAP_FIXED, none)
	mustHold(t, s, mapped(0, 4, 3))
}

func TestAFixedMappingLiesOverSeveral(t *testing.T) {
	s := four()
	s.Map(by(2), at(4), page, private, none)
	s.Map(by(3), at(6), 4*page, private, none)
	s.Map(by(4), at(3), 5*page, private|unix.MAP_FIXED, none)
	mustHold(t, s, mapped(0, 3, 1), mapped(3, 8, 4), mapped(8, 10, 3))
}

func TestNeighboursOfTwoCallsStayTwo(t *testing.T) {
	s := four()
	s.Map(by(1), at(4), page, private, none)
	mustHold(t, s, mapped(0, 4, 1), mapped(4, 5, 1))
	mustTally(t, s, 1, growth.KindMmap, Tally{2, 5 * page})
}

func TestLengthsAreRoundedUpToPages(t *testing.T) {
	s := &Set{}
	s.Map(by(1), at(0), 3*page+1, private, none)
	mustHold(t, s, mapped(0, 4, 1))
	mustTally(t, s, 1, growth.KindMmap, Tally{1, 4 * page})
	s.Unmap(by(1), at(0), 1)
	mustHold(t, s, mapped(1, 4, 1))
	s.Remap(by(2), at(1), 3*page-1, at(1), 1, 0)
	mustHold(t, s, mapped(1, 2, 1))
	s.Advise(by(3), 1)
	mustRelease(t, s, 3, "madvise", Tally{1, page})
}

func TestTheFlagsOfACallTellItsKind(t *testing.T) {
	for _, c := range []struct {
		flags      uint32
		descriptor int32
		want       growth.Kind
	}{
		{private, none, growth.KindMmap},
		{private, 0, growth.KindMmap}, // the descriptor of anonymous memory is ignored
		{private | unix.MAP_NORESERVE, none, growth.KindMmap},
		{private | unix.MAP_STACK, none, growth.KindStack},
		{unix.MAP_SHARED | unix.MAP_ANONYMOUS, none, growth.KindShmem},
		{unix.MAP_SHARED_VALIDATE | unix.MAP_ANONYMOUS, none, growth.KindShmem},
		{unix.MAP_PRIVATE, 0, growth.KindFile},
		{unix.MAP_SHARED, 7, growth.KindFile},
	} {
		s := &Set{}
		s.Map(by(1), at(0), page, c.flags, c.descriptor)
		if got := s.Intervals()[0].Kind; got != c.want {
			t.Errorf("flags %#x, descriptor %d: kind %s, want %s", c.flags, c.descriptor, got, c.want)
		}
	}
}

func TestWhatTheAllocatorMapsIsNotTallied(t *testing.T) {
	s := &Set{}
	call := Call{Stack: 1, ByAllocator: true}
	s.Map(call, at(0), page, private, none)
	s.Remap(call, at(0), page, at(0), 2*page, 0)
	s.Break(by(1), at(9))
	s.Break(call, at(10))
	if len(s.Tallies()) != 0 {
		t.Errorf("tallied %+v", s.Tallies())
	}
	for _, i := range s.Intervals() {
		if !i.ByAllocator {
			t.Errorf("not the allocator's: %+v", i)
		}
	}
}

func TestTheBreakGoesUpAndDown(t *testing.T) {
	brk := func(from, to, stack uint64) Interval {
		return Interval{Start: at(from), End: at(to), Stack: stack, Kind: growth.KindHeap}
	}
	s := &Set{}
	s.Break(by(1), at(0)) // where it is: nothing is known of what lies below
	mustHold(t, s)
	s.Break(by(2), at(4))
	s.Break(by(2), at(4)) // sbrk(0)
	s.Break(by(3), at(6))
	mustHold(t, s, brk(0, 4, 2), brk(4, 6, 3))
	s.Break(by(4), at(3))
	mustHold(t, s, brk(0, 3, 2))
	mustRelease(t, s, 4, "brk", Tally{1, 3 * page})
	mustTally(t, s, 2, growth.KindHeap, Tally{1, 4 * page})
	mustTally(t, s, 3, growth.KindHeap, Tally{1, 2 * page})
	s.Break(by(5), at(0))
	mustHold(t, s)
}

func TestTheBreakMovesByBytesAndTakesPages(t *testing.T) {
	s := &Set{}
	s.Break(by(1), at(0)+100)
	s.Break(by(1), at(0)+200) // in the page that was begun
	mustHold(t, s)
	s.Break(by(2), at(1)+1)
	mustHold(t, s, Interval{Start: at(1), End: at(2), Stack: 2, Kind: growth.KindHeap})
	mustTally(t, s, 1, growth.KindHeap, Tally{1, 100})
	mustTally(t, s, 2, growth.KindHeap, Tally{1, page + 1 - 200})
	s.Break(by(3), at(1))
	mustHold(t, s)
	mustRelease(t, s, 3, "brk", Tally{1, 1})
}

// No kernel gives such addresses; a 32-bit or hostile one may.
func TestAddressesAtTheEndOfTheWorldDoNoHarm(t *testing.T) {
	const end = math.MaxUint64
	values := []uint64{0, 1, page - 1, page, at(0), at(2), at(4), 1 << 63, end - 2*page + 1, end - page, end - page + 1, end - 1, end}
	for _, start := range values {
		for _, length := range values {
			s := four()
			s.Map(by(2), start, length, private, none)
			s.Unmap(by(3), length, start)
			s.Break(by(4), start)
			s.Break(by(4), length)
			s.Break(by(4), start)
			s.Advise(by(5), length)
			for _, other := range values {
				s.Remap(by(6), start, length, other, page, 0)
				s.Remap(by(6), other, page, start, length, 4)
				s.Remap(by(6), at(0), 4*page, other, length, 0)
			}
			if why := disorder(s); why != "" {
				t.Fatalf("start %#x, length %#x: %s: %+v", start, length, why, s.Intervals())
			}
		}
	}
}

func TestAMoveToTheEndOfTheWorldDoesNotWrapAround(t *testing.T) {
	s := &Set{}
	s.Map(by(1), at(0), page, private, none)
	s.Map(by(2), at(8), page, private, none)
	const last = math.MaxUint64 - 2*page + 1
	s.Remap(by(3), at(0), 9*page, last, page, 0)
	mustHold(t, s, Interval{Start: last, End: last + page, Stack: 1, Kind: growth.KindMmap})
}

// disorder says what is wrong with the intervals; nothing if they are sorted, disjoint and not empty.
func disorder(s *Set) string {
	var last uint64
	for _, i := range s.Intervals() {
		switch {
		case i.Start >= i.End:
			return "an empty interval"
		case i.Start < last:
			return "intervals that overlap or are not sorted"
		}
		last = i.End
	}
	return ""
}
