package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// mustCount wants that a loss is in the summary, in the profile and in the warnings on stdout, and gives its count.
func mustCount(t *testing.T, c *command, s summary.Summary, p *pprof.Profile, words string) uint64 {
	t.Helper()
	for _, l := range s.Losses {
		if !strings.Contains(l.Reason, words) {
			continue
		}
		mustSay(t, "stdout", c.stdout.String(), fmt.Sprintf("warning: %d %s", l.Count, l.Reason))
		mustSay(t, "the profile's comments", strings.Join(p.Comments, "\n"), fmt.Sprintf("lost %d: %s", l.Count, l.Reason))
		return l.Count
	}
	t.Errorf("no loss that says %q in %v", words, s.Losses)
	return 0
}

func TestAFullLiveMapLosesNothingSilently(t *testing.T) {
	const most, leaked = 100, 10000
	target := startSteps(t)
	c, dir := tracing(t, target, "--max-live", fmt.Sprint(most))
	do(target, "leak %d 96", leaked)
	c.interrupt()
	s, grown := mustHaveEnded(t, dir, summary.EndedInterrupt), readProfile(t, dir, folder.GrowthFile)
	if lost := mustCount(t, c, s, grown, "the live map was full"); lost != leaked-most {
		t.Errorf("%d allocations not followed, want %d", lost, leaked-most)
	}
	mustSay(t, "stdout", c.stdout.String(), "--max-live", "--interval")
	if s.Live.Objects != most || s.Live.Bytes[growth.KindHeap] != most*96 || s.Events.Allocations != leaked {
		t.Errorf("%d objects live, %v bytes, %d allocations", s.Live.Objects, s.Live.Bytes, s.Events.Allocations)
	}
	mustHold(t, "leak_here", flat(grown, "leak_here"), values{leaked, leaked * 96, most, most * 96})
}

func TestALiveMapThatHasBeenFullTakesAllocationsAgain(t *testing.T) {
	target := startSteps(t)
	c, dir := tracing(t, target, "--max-live", "100")
	do(target, "hold 1000 96")
	do(target, "drop")
	do(target, "leak 50 96")
	c.interrupt()
	grown := readProfile(t, dir, folder.GrowthFile)
	mustHold(t, "leak_here", flat(grown, "leak_here"), objects(50, 96))
	if n, bytes := total(grown, growth.KindHeap); n != 50 || bytes != 50*96 {
		t.Errorf("%d objects of %d bytes are alive, want 50 of %d", n, bytes, 50*96)
	}
}

// The ring buffer of 4 MiB takes 52428 notices of 80 bytes; the first 2 * pieces calls may have been read before allocscope sleeps.
func TestAFullRingIsCountedAndTheMappingsComeFromProc(t *testing.T) {
	const (
		cycles, ring = 80000, 4 << 20 / 80
		page         = 4096
		pieces, size = 16, 1 << 20
	)
	target := startSteps(t)
	c, dir := tracing(t, target)
	do(target, "map %d %d %d", pieces, size, 3*page)
	do(target, "map %d %d %d", pieces, size, 5*page)
	c.signal(syscall.SIGSTOP)
	awaitState(t, c.Process.Pid, "T")
	do(target, "cycle %d", cycles)
	do(target, "unmap")
	do(target, "map %d %d %d", pieces, 2*size, 7*page) // in the place of what was unmapped, and beyond
	c.signal(syscall.SIGCONT)
	c.interrupt()
	s, grown := mustHaveEnded(t, dir, summary.EndedInterrupt), readProfile(t, dir, folder.GrowthFile)
	const calls = 2*cycles + 4*pieces
	if lost := mustCount(t, c, s, grown, "the ring buffer was full"); lost < calls-ring-2*pieces || lost > calls || s.Events.MappingCalls != calls {
		t.Errorf("%d of %d calls lost, want %d calls of which about %d are lost", lost, s.Events.MappingCalls, calls, calls-ring)
	}
	const want = pieces * (3 + 7) * page
	if s.Mappings.TouchedBytes != want || s.Live.Bytes[growth.KindMmap] != want || s.Mappings.ReservedBytes != 3*pieces*size {
		t.Errorf("%+v, %v live; want %d touched of %d", s.Mappings, s.Live.Bytes, want, 3*pieces*size)
	}
	if _, bytes := total(grown, growth.KindMmap); bytes != want {
		t.Errorf("%d bytes mapped in growth.pb.gz, want %d", bytes, want)
	}
}

func TestTwoTracesOfOneTargetAreBothExact(t *testing.T) {
	target := startSteps(t)
	first, firstFolder := tracing(t, target)
	do(target, "hold 300 50")
	do(target, "leak 200 100")
	second, secondFolder := tracing(t, target)
	do(target, "drop")
	do(target, "leak 1000 100")
	first.interrupt()
	do(target, "leak 500 100")
	second.interrupt()
	mustHold(t, "leak_here for the first", flat(readProfile(t, firstFolder, folder.GrowthFile), "leak_here"), objects(1200, 100))
	mustHold(t, "leak_here for the second", flat(readProfile(t, secondFolder, folder.GrowthFile), "leak_here"), objects(1500, 100))
	mustHold(t, "hold_here for the first", flat(readProfile(t, firstFolder, folder.GrowthFile), "hold_here"), values{300, 300 * 50, 0, 0})
	if s := readSummary(t, secondFolder); s.Events.FreesUntracked != 300 || len(s.Losses) > 0 {
		t.Errorf("%d frees of older memory, want 300; losses %v", s.Events.FreesUntracked, s.Losses)
	}
	checkDetached(t, target)
}
