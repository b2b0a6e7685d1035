package addrspace

import (
	"math"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	base    = 0x7f0000000000
	private = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	noFile  = -1 // a descriptor
)

var page = process.PageSize

func at(pages uint64) uint64 { return base + pages*page }

func total(calls int64, pages uint64) Total { return Total{calls, int64(pages * page)} }

func by(stack uint64) Call { return Call{Stack: stack} }

// mapped is an interval from one page to another that a stack has mapped.
func mapped(from, to, stack uint64) Interval {
	return Interval{Start: at(from), End: at(to), Stack: stack, Kind: growth.KindMmap}
}

// heap is an interval from one page to another that the break has passed.
func heap(from, to uint64) Interval {
	return Interval{Start: at(from), End: at(to), Kind: growth.KindHeap, ByAllocator: true}
}

func (i Interval) of(kind growth.Kind) Interval {
	i.Kind = kind
	return i
}

func (i Interval) from(origin Origin) Interval {
	i.Origin = origin
	return i
}

func mustHold(t *testing.T, s *IntervalSet, want ...Interval) {
	t.Helper()
	if !slices.Equal(s.Intervals(), want) {
		t.Errorf("intervals\n%+v, want\n%+v", s.Intervals(), want)
	}
}

func mustHaveMapped(t *testing.T, s *IntervalSet, stack uint64, kind growth.Kind, want Total) {
	t.Helper()
	if got := s.Mapped()[Key{stack, kind}]; got != want {
		t.Errorf("stack %d has mapped %+v of kind %s, want %+v", stack, got, kind, want)
	}
}

func mustHaveReleased(t *testing.T, s *IntervalSet, call string, want Total) {
	t.Helper()
	if got := s.Released(call); got != want {
		t.Errorf("released %+v by %s, want %+v", got, call, want)
	}
}

// fourPages is a set with one mapping of four pages by stack 1.
func fourPages() *IntervalSet {
	s := &IntervalSet{}
	s.Mmap(by(1), at(0), 4*page, private, noFile)
	return s
}

func TestMmapKinds(t *testing.T) {
	for _, c := range []struct {
		flags      uint32
		descriptor int32
		want       growth.Kind
	}{
		{private, noFile, growth.KindMmap},
		{private, 0, growth.KindMmap}, // the descriptor of anonymous memory is ignored
		{private | unix.MAP_STACK, noFile, growth.KindStack},
		{unix.MAP_SHARED | unix.MAP_ANONYMOUS, noFile, growth.KindShmem},
		{unix.MAP_SHARED_VALIDATE | unix.MAP_ANONYMOUS, noFile, growth.KindShmem},
		{unix.MAP_PRIVATE, 0, growth.KindFile},
		{unix.MAP_SHARED, 7, growth.KindFile},
	} {
		s := &IntervalSet{}
		s.Mmap(by(1), at(0), page, c.flags, c.descriptor)
		if got := s.Intervals()[0].Kind; got != c.want {
			t.Errorf("flags %#x, descriptor %d: kind %s, want %s",
				c.flags, c.descriptor, got, c.want)
		}
	}
}

// Calls that the model of TestCalls lacks.
func TestIntervalSet(t *testing.T) {
	t.Run("the break moves by bytes and takes pages", func(t *testing.T) {
		s := &IntervalSet{}
		s.Brk(at(0) + 100)
		s.Brk(at(0) + 200)
		mustHold(t, s)
		s.Brk(at(1) + 1)
		mustHold(t, s, heap(1, 2))
		s.Brk(at(1))
		mustHold(t, s)
		mustHaveReleased(t, s, "brk", Total{1, 1})
	})

	// An old size of 0 maps shared memory a second time (mremap(2)).
	t.Run("mremap maps twice", func(t *testing.T) {
		for _, first := range []uint64{0, 1} {
			s := &IntervalSet{}
			s.Mmap(by(1), at(0), 4*page, unix.MAP_SHARED|unix.MAP_ANONYMOUS, noFile)
			s.Mremap(by(2), at(first), 0, at(10), 2*page, unix.MREMAP_MAYMOVE)
			mustHold(t, s,
				mapped(0, 4, 1).of(growth.KindShmem), mapped(10, 12, 2).of(growth.KindShmem))
			mustHaveMapped(t, s, 2, growth.KindShmem, total(1, 2))
		}
	})

	// The kernel merges them to one mapping, of which there may be millions.
	t.Run("adjacent mappings are bounded, and the loss is counted", func(t *testing.T) {
		defer func(bound int) { maxIntervals = bound }(maxIntervals)
		maxIntervals = 10

		s := &IntervalSet{}
		for n := range uint64(1000) {
			s.Mmap(by(1), at(n), page, private, noFile)
		}
		s.Reconcile([]process.Mapping{line(0, 1000, "")}, Changes{})

		var bytes uint64
		for _, i := range s.Intervals() {
			bytes += i.Len()
		}
		if n := len(s.Intervals()); n > 11 || bytes != 1000*page || s.Lost() != 990 {
			t.Errorf("%d intervals of %d bytes, %d lost", n, bytes, s.Lost())
		}
	})
}

// No kernel returns such addresses; a 32-bit or hostile process may pass them.
func TestHostileAddresses(t *testing.T) {
	const end = math.MaxUint64
	values := []uint64{
		0, 1, page - 1, page, at(0), at(2), at(4), 1 << 63,
		end - 2*page + 1, end - page, end - page + 1, end - 1, end,
	}
	for _, start := range values {
		for _, length := range values {
			s := fourPages()
			s.Mmap(by(2), start, length, private, noFile)
			s.Munmap(length, start)
			s.Brk(start)
			s.Brk(length)
			s.Brk(start)
			s.Madvise(1, start, length, 0)
			s.Madvise(1, start, length, bpf.ReleaseHoles)
			for _, other := range values {
				s.Mremap(by(6), start, length, other, page, 0)
				s.Mremap(by(6), other, page, start, length, unix.MREMAP_DONTUNMAP)
				s.Mremap(by(6), at(0), 4*page, other, length, 0)
			}
			if problem := disorder(s); problem != "" {
				t.Fatalf("start %#x, length %#x: %s: %+v", start, length, problem, s.Intervals())
			}
		}
	}

	s := &IntervalSet{}
	s.Mmap(by(1), at(0), page, private, noFile)
	s.Mmap(by(2), at(8), page, private, noFile)
	last := end - 2*page + 1
	s.Mremap(by(3), at(0), 9*page, last, page, 0)
	mustHold(t, s, Interval{Start: last, End: last + page, Stack: 1, Kind: growth.KindMmap})
}

// disorder returns the fault of the intervals; empty if they are sorted, disjoint and not empty.
func disorder(s *IntervalSet) string {
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
