package mapping

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// line is a line of /proc/PID/maps from one page to another; of a file if path starts with a slash.
func line(from, to uint64, path string) process.Mapping {
	m := process.Mapping{Start: at(from), End: at(to), Path: path}
	if path != "" && path[0] == '/' {
		m.Inode = 17
	}
	return m
}

func reconciled(t *testing.T, s *Set, want Corrections, maps ...process.Mapping) {
	t.Helper()
	if got := s.Reconcile(maps); got != want {
		t.Errorf("corrections %+v, want %+v", got, want)
	}
}

func TestMapsThatAgreeChangeNothing(t *testing.T) {
	s := four()
	s.Map(by(2), at(6), page, private, none)
	before := slices.Clone(s.Intervals())
	reconciled(t, s, Corrections{}, line(0, 4, ""), line(6, 7, ""))
	mustHold(t, s, before...)
}

// The kernel joins neighbours in its maps; that they were two calls is for us to remember.
func TestMappingsThatTheKernelHasJoinedStayApart(t *testing.T) {
	s := four()
	s.Map(by(1), at(4), page, private, none)
	s.Map(by(2), at(5), page, private, none)
	reconciled(t, s, Corrections{}, line(0, 6, ""))
	mustHold(t, s, mapped(0, 4, 1), mapped(4, 5, 1), mapped(5, 6, 2))
}

// mprotect makes two lines of one mapping, as for the guard page of a thread's stack.
func TestAMappingThatTheKernelHasSplitStaysOne(t *testing.T) {
	s := four()
	s.Map(by(1), at(4), 2*page, private, none)
	reconciled(t, s, Corrections{}, line(0, 1, ""), line(1, 3, ""), line(3, 5, ""), line(5, 6, ""))
	mustHold(t, s, mapped(0, 4, 1), mapped(4, 6, 1))
}

func TestWhatNoCallHasMappedIsAdded(t *testing.T) {
	s := four()
	unseen := func(from, to uint64) Interval {
		return Interval{Start: at(from), End: at(to), Kind: growth.KindMmap, Origin: Unseen}
	}
	reconciled(t, s, Corrections{Missed: 5 * page}, line(0, 6, ""), line(8, 11, ""))
	mustHold(t, s, mapped(0, 4, 1), unseen(4, 6), unseen(8, 11))
	reconciled(t, s, Corrections{}, line(0, 6, ""), line(8, 11, ""))
}

func TestWhatIsNotMappedAnyMoreGoes(t *testing.T) {
	s := four()
	s.Map(by(2), at(6), 2*page, private, none)
	reconciled(t, s, Corrections{Vanished: 4 * page}, line(1, 2, ""), line(3, 4, ""))
	mustHold(t, s, mapped(1, 2, 1), mapped(3, 4, 1))
	reconciled(t, s, Corrections{Vanished: 2 * page})
	mustHold(t, s)
}

func TestWhatIsMissingAndWhatHasVanishedAreCountedApart(t *testing.T) {
	s := four()
	reconciled(t, s, Corrections{Missed: 2 * page, Vanished: 3 * page}, line(3, 6, ""))
}

func TestWhatWasThereBeforeTheTraceIsMarked(t *testing.T) {
	s := New([]process.Mapping{line(0, 2, "/usr/lib/libc.so.6"), line(4, 5, ""), line(7, 9, "[stack]")}, 0)
	mustHold(t, s,
		Interval{Start: at(0), End: at(2), Kind: growth.KindFile, Origin: BeforeAttach},
		Interval{Start: at(4), End: at(5), Kind: growth.KindMmap, Origin: BeforeAttach})
	s.Map(by(1), at(4), page, private|unix.MAP_FIXED, none)
	if got := s.Intervals()[1]; got != mapped(4, 5, 1) {
		t.Errorf("%+v, want the new mapping", got)
	}
}

func TestTheKernelsOwnMappingsAreLeftOut(t *testing.T) {
	var maps []process.Mapping
	for i, path := range []string{"[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]"} {
		maps = append(maps, line(uint64(i), uint64(i+1), path))
	}
	mustHold(t, New(maps, 0))
	s := &Set{}
	reconciled(t, s, Corrections{}, maps...)
	mustHold(t, s)
}

func TestTheNameOfAMappingTellsItsKind(t *testing.T) {
	for path, want := range map[string]growth.Kind{
		"":                              growth.KindMmap,
		"[heap]":                        growth.KindHeap,
		"[stack]":                       growth.KindStack,
		"[anon: glibc: malloc]":         growth.KindMmap,
		"[anon_shmem:buffer]":           growth.KindShmem,
		"/usr/lib/libc.so.6":            growth.KindFile,
		"/tmp/gone (deleted)":           growth.KindFile,
		"/dev/shm/torch_1_2 (deleted)":  growth.KindShmem,
		"/memfd:wayland (deleted)":      growth.KindShmem,
		"/SYSV00000000 (deleted)":       growth.KindShmem,
		"/dev/zero (deleted)":           growth.KindShmem,
		"/dev/nvidia0":                  growth.KindDevice,
		"/home/user/dev/shm/not shared": growth.KindFile,
	} {
		if got := KindOf(line(0, 1, path)); got != want {
			t.Errorf("%q: kind %s, want %s", path, got, want)
		}
	}
}

func TestTheMapsKnowBetterWhatAFileIs(t *testing.T) {
	s := &Set{}
	s.Map(by(1), at(0), 4*page, unix.MAP_SHARED, 3)
	reconciled(t, s, Corrections{}, line(0, 2, "/dev/shm/a"), line(2, 4, "/data/b"))
	mustHold(t, s,
		Interval{Start: at(0), End: at(2), Stack: 1, Kind: growth.KindShmem},
		Interval{Start: at(2), End: at(4), Stack: 1, Kind: growth.KindFile})
}

// What was mapped is tallied under the kind under which it is held.
func TestTalliesFollowTheKindThatTheMapsTell(t *testing.T) {
	s := &Set{}
	s.Map(by(1), at(0), 4*page, unix.MAP_SHARED, 3)
	s.Map(by(1), at(4), 2*page, unix.MAP_SHARED, 3)
	s.Map(by(1), at(8), page, unix.MAP_SHARED, 4)
	s.Map(by(2), at(10), page, unix.MAP_SHARED, 3)
	maps := []process.Mapping{line(0, 6, "/dev/shm/a"), line(8, 9, "/data/b"), line(10, 11, "/dev/nvidia0")}
	for range 3 {
		reconciled(t, s, Corrections{}, maps...)
		mustTally(t, s, 1, growth.KindShmem, Tally{2, 6 * page})
		mustTally(t, s, 1, growth.KindFile, Tally{1, page})
		mustTally(t, s, 2, growth.KindDevice, Tally{1, page})
		if len(s.Tallies()) != 3 {
			t.Errorf("tallies %+v", s.Tallies())
		}
	}
}

// What was unmapped before it had a name stays a file.
func TestNoMoreIsRenamedThanWasTallied(t *testing.T) {
	s := &Set{}
	s.Map(by(1), at(0), 5*page, unix.MAP_SHARED, 3)
	s.Unmap(by(1), at(2), page)
	reconciled(t, s, Corrections{}, line(0, 2, "/dev/shm/a"), line(3, 5, "/dev/shm/a"))
	mustTally(t, s, 1, growth.KindShmem, Tally{1, 2 * page})
	mustTally(t, s, 1, growth.KindFile, Tally{0, 3 * page})
	s = &Set{}
	s.Map(by(1), at(0), 5*page, unix.MAP_SHARED, 3)
	s.Map(by(1), at(30), page, unix.MAP_SHARED, 3)
	s.Remap(by(2), at(0), 5*page, at(20), 5*page, mayMove|dontUnmap) // five pages in two places
	reconciled(t, s, Corrections{}, line(0, 5, "/dev/shm/a"), line(20, 25, "/dev/shm/a"), line(30, 31, "/dev/shm/a"))
	mustTally(t, s, 1, growth.KindShmem, Tally{2, 6 * page})
	mustTally(t, s, 1, growth.KindFile, Tally{})
}

func TestAnonymousMemoryKeepsTheKindOfItsCall(t *testing.T) {
	s := &Set{}
	s.Map(by(1), at(0), page, private|unix.MAP_STACK, none)
	reconciled(t, s, Corrections{}, line(0, 1, ""))
	if got := s.Intervals()[0].Kind; got != growth.KindStack {
		t.Errorf("kind %s, want stack", got)
	}
}

func TestTheHeapInTheMapsTellsTheBreak(t *testing.T) {
	brk := func(from, to, stack uint64, origin Origin) Interval {
		return Interval{Start: at(from), End: at(to), Stack: stack, Kind: growth.KindHeap, Origin: origin}
	}
	s := New([]process.Mapping{line(0, 4, "[heap]")}, 0)
	s.Break(by(1), at(6))
	mustHold(t, s, brk(0, 4, 0, BeforeAttach), brk(4, 6, 1, Seen))
	reconciled(t, s, Corrections{Missed: 2 * page}, line(0, 8, "[heap]")) // two calls were not seen
	s.Break(by(2), at(9))
	mustHold(t, s, brk(0, 4, 0, BeforeAttach), brk(4, 6, 1, Seen), brk(6, 8, 0, Unseen), brk(8, 9, 2, Seen))
	mustTally(t, s, 2, growth.KindHeap, Tally{1, page})
}

// A program that has not moved its break has no [heap].
func TestTheFirstMoveOfTheBreakIsSeen(t *testing.T) {
	s := New([]process.Mapping{line(10, 12, "")}, at(0))
	s.Break(by(1), at(3))
	if want := (Interval{Start: at(0), End: at(3), Stack: 1, Kind: growth.KindHeap}); s.Intervals()[0] != want {
		t.Errorf("%+v, want %+v", s.Intervals()[0], want)
	}
	mustTally(t, s, 1, growth.KindHeap, Tally{1, 3 * page})
	s = New([]process.Mapping{line(0, 4, "[heap]")}, at(0))
	s.Break(by(1), at(5))
	mustTally(t, s, 1, growth.KindHeap, Tally{1, page})
}

// The maps round the break up to pages.
func TestTheMapsDoNotBlurTheBreak(t *testing.T) {
	s := New([]process.Mapping{line(0, 4, "[heap]")}, 0)
	s.Break(by(1), at(5)-1000)
	reconciled(t, s, Corrections{}, line(0, 5, "[heap]"))
	s.Break(by(2), at(5)-900)
	mustTally(t, s, 2, growth.KindHeap, Tally{1, 100})
	if len(s.Releases()) != 0 {
		t.Errorf("the break went up, and this was released: %+v", s.Releases())
	}
}

// Memory that grows bit by bit without a call being seen is one piece, not one for every look at it.
func TestUnseenNeighboursAreJoined(t *testing.T) {
	s := &Set{}
	for n := uint64(1); n <= 100; n++ {
		reconciled(t, s, Corrections{Missed: page}, line(0, n, ""))
	}
	mustHold(t, s, Interval{Start: at(0), End: at(100), Kind: growth.KindMmap, Origin: Unseen})
}
