package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestTrace(t *testing.T) {
	t.Run("leak is exact and all files agree", testLeak)
	t.Run("default output folder belongs to the user behind sudo", testDefaultFolder)
	t.Run("full ring buffer", testFullRing)
	t.Run("JSON on stdout is the summary, and component rules", testJSON)
	t.Run("OOM killer spares the target", testOOMScore)
	t.Run("folder of an earlier trace", testForce)
	t.Run("marks by command and pipe", testMarks)
}

const (
	leakedBefore, leakedAfter, leakSize, churnFactor = 500, 1000, 64 << 10, 10
	baselineFile                                     = "snapshots/001.pb.gz"
	rssSlack                                         = 256 << 10 // bytes that probes and the C library's own pages may make
)

// leakTrace is a trace of a program that leaks half as much before the baseline as after it.
type leakTrace struct {
	*command
	folder              string
	target              *tracertest.Target
	rssBefore, rssAfter int64
}

// traceLeak begins again where the warm-up has ended before the target has leaked.
func traceLeak(t *testing.T) *leakTrace {
	t.Helper()
	const attempts = 5
	for range attempts {
		if h := tryTraceLeak(t); h != nil {
			return h
		}
	}
	t.Fatalf("in %d traces the warm-up ended before the target had leaked", attempts)
	return nil
}

func tryTraceLeak(t *testing.T) *leakTrace {
	t.Helper()
	h := &leakTrace{folder: newFolder(t)}
	h.target = ready(tracertest.Start(t, tracertest.Build(t, "leak.c", "-pthread"), "1", "500",
		"65536", "10"))
	h.rssBefore = rssOf(t, h.target.PID())
	h.command = begin(t, allocscope(t, traceArguments(h.target.PID(), h.folder, "--warmup",
		"5")...))
	h.awaitLine("Tracing ")
	h.leak()
	if exists(filepath.Join(h.folder, baselineFile)) {
		h.interrupt()
		return nil
	}

	h.awaitFile(h.folder, baselineFile)
	h.leak()
	h.leak()
	h.rssAfter = rssOf(t, h.target.PID())
	h.interrupt()

	warmup := readProfile(t, h.folder, folder.WarmupFile)
	if flat(warmup, "leak_here").allocObjects < leakedBefore { // its file comes after it is taken
		return nil
	}
	return h
}

func (h *leakTrace) leak() {
	h.target.Say("go")
	h.target.Await("done")
	h.target.Await("ready")
}

func testLeak(t *testing.T) {
	h := traceLeak(t)
	for name, check := range map[string]func(*testing.T, *leakTrace){
		"growth":    checkGrowth,
		"snapshots": checkSnapshots,
		"pprof":     checkPprof,
		"table":     checkTable,
		"timeline":  checkTimeline,
		"summary":   checkSummary,
		"breakdown": checkBreakdown,
		"report":    checkReport,
		"modes":     func(t *testing.T, h *leakTrace) { checkFiles(t, h.folder, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) { check(t, h) })
	}
}

func checkGrowth(t *testing.T, h *leakTrace) {
	warmup, plateau, grown := readProfile(t, h.folder, folder.WarmupFile), readProfile(t, h.folder,
		folder.PlateauFile), readProfile(t, h.folder, folder.GrowthFile)
	mustHold(t, "leak_here in warmup", flat(warmup, "leak_here"), heldObjects(leakedBefore, leakSize))
	mustHold(t, "leak_here in growth", flat(grown, "leak_here"), heldObjects(leakedAfter, leakSize))
	mustHold(t, "leak_here in plateau", flat(plateau, "leak_here"),
		heldObjects(leakedBefore+leakedAfter, leakSize))
	const churned = churnFactor * leakedAfter

	mustHold(t, "churn_here in growth", flat(grown, "churn_here"), values{
		allocObjects: churned,
		allocSpace:   churned * leakSize,
	})
}

func checkSnapshots(t *testing.T, h *leakTrace) {
	paths := snapshotFiles(t, h.folder)
	if len(paths) != 3 {
		t.Fatalf("%d snapshots, want one at the start, one at the baseline and one at the end",
			len(paths))
	}

	for i, name := range []string{folder.WarmupFile, folder.PlateauFile} {
		if got, want := pprofTop(t, paths[i+1]), pprofTop(t, filepath.Join(h.folder,
			name)); !slices.Equal(got, want) {
			t.Errorf("snapshot %d has %q, not %s's %q", i+1, got, name, want)
		}
	}
}

func checkPprof(t *testing.T, h *leakTrace) {
	warmup, plateau, grown := filepath.Join(h.folder, folder.WarmupFile), filepath.Join(h.folder,
		folder.PlateauFile), filepath.Join(h.folder, folder.GrowthFile)
	s := readSummary(t, h.folder)
	rss, resident := *s.RSS.EndBytes-*s.RSS.BaselineBytes, int64(0)
	rows := pprofTop(t, "-unit=B",
		grown) // of each object the beginning is touched, and the allocator's header
	if n, err := fmt.Sscanf(rows[0], "%dB %dB leak_here", &resident, new(int64)); n != 2 ||
		err != nil || resident > rss || float64(resident) < 0.98*float64(rss) {
		t.Errorf("RSS grew by %d bytes; go tool pprof -top growth.pb.gz:\n%s", rss,
			strings.Join(rows, "\n"))
	}

	for _, index := range []string{
		"resident_space", "inuse_space", "alloc_space",
		"alloc_objects",
	} {
		got := pprofTop(t, "-unit=B", "-sample_index="+index, grown)
		want := pprofTop(t, "-unit=B", "-sample_index="+index, "-diff_base="+warmup, plateau)
		if slices.Sort(got); len(got) == 0 {
			t.Errorf("%s: no rows", index)
		}

		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s of growth:\n%s\nof the difference, by pprof:\n%s", index,
				strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func checkTable(t *testing.T, h *leakTrace) {
	_, rows, found := strings.Cut(h.stdout.String(), "where\n")
	if first, _, _ := strings.Cut(rows, "\n"); !found || !strings.Contains(first,
		"leak_here (leak)") || !strings.Contains(first, "62.5 MiB     1000") {
		t.Errorf("the first row of the table is not the leak of 62.5 MiB:\n%s", h.stdout.String())
	}

	mustSay(t, "stdout", h.stdout.String(), "leak 1 (PID ", words.End(summary.EndedInterrupt),
		"Files are in "+h.folder, "; report.html is the report", "allocscope view "+h.folder+"\n",
		"go tool pprof -top "+h.folder+"/growth.pb.gz")

	if strings.Contains(h.stdout.String(), "warning") {
		t.Errorf("warns of something:\n%s", h.stdout.String())
	}
}

func checkTimeline(t *testing.T, h *leakTrace) {
	timeline := readTimeline(t, h.folder)
	if n := len(timeline); n < 5 {
		t.Fatalf("%d rows in more than 5 s", n)
	}

	for _, s := range timeline {
		if s.RSS < h.rssBefore-rssSlack || s.RSS > h.rssAfter+rssSlack {
			t.Errorf("RSS of %d bytes after %s; the kernel said %d before and %d after", s.RSS,
				s.Elapsed, h.rssBefore, h.rssAfter)
		}
	}

	if last := timeline[len(timeline)-1].RSS; last < h.rssAfter-rssSlack {
		t.Errorf("RSS of %d bytes at the end; the kernel said %d", last, h.rssAfter)
	}

	if h.rssAfter < h.rssBefore+8*rssSlack {
		t.Errorf("RSS went from %d to %d: this test proves nothing", h.rssBefore, h.rssAfter)
	}
}

func readTimeline(t *testing.T, dir string) []growth.Row {
	t.Helper()
	timeline, err := rows.ReadTimeline(strings.NewReader(readFile(t, dir,
		folder.TimelineFile)))
	must(t, err)
	return timeline
}

func checkSummary(t *testing.T, h *leakTrace) {
	s := mustHaveEnded(t, h.folder, summary.EndedInterrupt)
	if s.Schema != summary.Schema || s.Version != "1.2.3-test" || s.IntervalBytes != 1 ||
		s.Process.PID != h.target.PID() || s.Process.Executable != h.target.Path {
		t.Errorf("schema %q, version %q, interval %d, process %+v", s.Schema, s.Version,
			s.IntervalBytes, s.Process)
	}

	if !slices.Equal(s.CommandLine, h.Args) || !slices.Equal(s.Process.Arguments, h.target.Args) {
		t.Errorf("command line %q, target's %q", s.CommandLine, s.Process.Arguments)
	}
	if warnings := words.Warnings(&s); len(warnings) != 0 {
		t.Errorf("warnings %q", warnings)
	}

	if top := s.Accumulating[0]; top.Function != "leak_here" || top.Module != h.target.Path ||
		top.Objects != leakedAfter || top.Bytes != leakedAfter*leakSize || top.Share < 0.99 {
		t.Errorf("accumulates most: %+v", top)
	}
	if _, bytes := total(readProfile(t, h.folder, folder.PlateauFile),
		growth.KindHeap); s.Live.Bytes[growth.KindHeap] != bytes {
		t.Errorf("%d bytes live, %d in plateau.pb.gz", s.Live.Bytes[growth.KindHeap], bytes)
	}

	if first := readTimeline(t, h.folder)[0].RSS; *s.RSS.StartBytes != first {
		t.Errorf("RSS of %d bytes at the start; in the timeline %d", *s.RSS.StartBytes, first)
	}

	for what, name := range s.Files {
		if !exists(filepath.Join(h.folder, name)) {
			t.Errorf("%s: %s is not there", what, name)
		}
	}
}

// checkFiles checks that only that user can read the files in the folder.
func checkFiles(t *testing.T, dir string, uid, gid uint32) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = fs.ModeDir | 0o700
		}

		mustBelongTo(t, path, want, uid, gid)
		seen++
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if seen < 9 { // 2 directories, 5 files, at least 2 snapshots
		t.Errorf("%d files and directories in %s", seen, dir)
	}
}

func mustBelongTo(t *testing.T, path string, mode fs.FileMode, uid, gid uint32) {
	t.Helper()
	info := tracertest.Must(os.Lstat(path))(t)

	if owner := info.Sys().(*syscall.Stat_t); info.Mode() != mode || owner.Uid != uid ||
		owner.Gid != gid {
		t.Errorf("%s: mode %s, UID %d, GID %d; want %s, %d, %d", path, info.Mode(), owner.Uid,
			owner.Gid, mode, uid, gid)
	}
}

func testDefaultFolder(t *testing.T) {
	target := startSteps(t)
	cmd := allocscope(t, "trace", "-p", itoa(target.PID()), "-d", "0.2")
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Env, "SUDO_UID=65534", "SUDO_GID=65533")
	begin(t, cmd).mustEnd(0)
	folders, err := filepath.Glob(filepath.Join(cmd.Dir, "allocscope-"+itoa(target.PID())+"-2*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("folders %q, %v", folders, err)
	}

	checkFiles(t, folders[0], 65534, 65533)
}

func testJSON(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "mine.rules")
	writeFile(t, rules, "mine  any  function ^leak_here$\n", 0o600)
	target := startSteps(t)
	c, dir := tracing(t, target, "--json", "--components", rules)
	do(target, "leak 1000 96")
	c.interrupt()
	if want := readFile(t, dir, folder.SummaryFile); c.stdout.String() != want {
		t.Errorf("stdout:\n%s\n%s:\n%s", c.stdout.String(), folder.SummaryFile, want)
	}
	mustSay(t, "stderr", c.stderr.String(), "Tracing PID "+itoa(target.PID())+" (")

	if top := readSummary(t, dir).Accumulating[0]; top.Component != "mine" {
		t.Errorf("component %q of %s, want mine", top.Component, top.Function)
	}
}

// mustCount checks that a loss is in the summary, in the profile and in the warnings on stdout, and
// returns its count.
func mustCount(t *testing.T, c *command, s summary.Summary, p *profile.Profile,
	what string,
) uint64 {
	t.Helper()
	for _, l := range s.Losses {
		text := words.Loss(l)
		if !strings.Contains(text, what) {
			continue
		}
		mustSay(t, "stdout", c.stdout.String(), fmt.Sprintf("warning: %d %s", l.Count, text))
		mustSay(t, "the profile's comments", strings.Join(p.Comments, "\n"),
			fmt.Sprintf("lost %d: %s", l.Count, text))
		return l.Count
	}

	t.Errorf("no loss that says %q in %v", what, s.Losses)
	return 0
}

// Package tracer cannot stop its reader, so a full ring buffer takes the whole program. The ring
// buffer of 4 MiB takes 52428 events of 80 bytes. All calls but the last pieces are events: each may
// cut an earlier mapping. The first 2*pieces may have been read before allocscope sleeps.
func testFullRing(t *testing.T) {
	const (
		cycles, ring = 160000, 4 << 20 / 80
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
	do(target, "map %d %d %d", pieces, 2*size, 7*page) // where pieces were unmapped, and beyond
	c.signal(syscall.SIGCONT)
	c.interrupt()

	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	grown := readProfile(t, dir, folder.GrowthFile)
	const calls = cycles + 2 + 4*pieces
	lost := mustCount(t, c, s, grown, "events lost")
	if lost < calls-ring-3*pieces || lost > calls || s.Events.MappingCalls != calls {
		t.Errorf("%d of %d calls lost, want %d calls of which about %d are lost", lost,
			s.Events.MappingCalls, calls, calls-ring)
	}

	const want = pieces * (3 + 7) * page
	if s.Mappings.TouchedBytes != want || s.Live.Bytes[growth.KindMmap] != want ||
		s.Mappings.ReservedBytes != 3*pieces*size {
		t.Errorf("%+v, %v live; want %d touched of %d", s.Mappings, s.Live.Bytes, want,
			3*pieces*size)
	}
	if _, bytes := total(grown, growth.KindMmap); bytes != want {
		t.Errorf("%d bytes mapped in growth.pb.gz, want %d", bytes, want)
	}
}

// The kernel ends the process with the highest score.
func testOOMScore(t *testing.T) {
	target := startSteps(t)
	// A trace within this process has set its own, which the target has inherited.
	adjustment := fmt.Sprintf("/proc/%d/oom_score_adj", target.PID())
	must(t, os.WriteFile(adjustment, []byte("0"), 0))
	do(target, "map 1 1073741824 1073741824") // it is larger than allocscope
	before := oomScore(t, target.PID())
	c, _ := tracing(t, target)

	own, after := oomScore(t, c.Process.Pid), oomScore(t, target.PID())
	if own <= after || after > before+before/10 {
		t.Errorf("allocscope's score is %d, the target's %d, before the trace %d", own, after,
			before)
	}
	c.interrupt()
}

func oomScore(t *testing.T, pid int) (score int) {
	t.Helper()
	text := readFile(t, fmt.Sprintf("/proc/%d", pid), "oom_score")
	if _, err := fmt.Sscan(text, &score); err != nil {
		t.Fatal(err)
	}
	return score
}

// Package folder's tests cover all cases of replacing and refusing.
func testForce(t *testing.T) {
	target := startSteps(t)
	first, dir := tracing(t, target)
	do(target, "leak 10 100")
	first.interrupt()
	notes := filepath.Join(dir, "notes.txt")
	writeFile(t, notes, "precious", 0o644)
	call(t, traceArguments(target.PID(), dir)...).mustEndSaying(2, "error: create "+dir, "--force")
	if got := flat(readProfile(t, dir, folder.GrowthFile), "leak_here"); got != heldObjects(10, 100) {
		t.Errorf("without --force: %+v", got)
	}

	second := begin(t, allocscope(t, traceArguments(target.PID(), dir, "--force", "--debug")...))
	second.awaitLine("debug: snapshot at ")
	do(target, "leak 20 50")
	second.interrupt()
	mustHaveLeaked(t, dir, folder.GrowthFile, 20, 50)
	if got := readFile(t, dir, "notes.txt"); got != "precious" {
		t.Errorf("notes.txt holds %q", got)
	}
}

// Package mark proves who may mark, and which lines are marks.
func testMarks(t *testing.T) {
	target, dir := startSteps(t), newFolder(t)
	cmd := allocscope(t, traceArguments(target.PID(), dir, "--marks", "-",
		"--snapshot-every", "200ms")...)
	reader, writer, err := os.Pipe()
	must(t, err)
	defer writer.Close()
	defer reader.Close()
	cmd.Stdin = reader

	c := begin(t, cmd)
	c.awaitFile(dir, "snapshots/000.pb.gz")
	moments := []time.Time{time.Now()} // before and after each mark
	const lines = "loss=0.3\nallocscope: epoch 1\nmy-allocscope: no mark\n"
	if _, err := writer.WriteString(lines); err != nil {
		t.Fatal(err)
	}
	c.await("the pipe is read", func() bool {
		waiting, err := unix.IoctlGetInt(int(reader.Fd()), unix.TIOCINQ)
		return err == nil && waiting == 0
	})
	c.awaitSnapshots(dir, 2)
	moments = append(moments, time.Now())

	call(t, "mark", "--pid", itoa(target.PID()), "two words\x1b[31m").mustEnd(0)
	moments = append(moments, time.Now())
	c.interrupt()

	s := readSummary(t, dir)
	if len(s.Marks) != 2 || s.Marks[0].Text != "epoch 1" || s.Marks[1].Text != "two words?[31m" {
		t.Fatalf("marks %+v, want the two that were set, printable", s.Marks)
	}
	for i, m := range s.Marks {
		const slack = time.Second // between the start of a trace and its first sample
		at := s.Started.Add(time.Duration(m.AtS * float64(time.Second)))
		if at.Before(moments[i].Add(-slack)) || at.After(moments[i+1].Add(slack)) {
			t.Errorf("%q at %s, want between %s and %s", m.Text, at, moments[i], moments[i+1])
		}
	}

	pid := itoa(target.PID())
	call(t, "mark", pid, "late").mustEndSaying(1, "no trace of it", "allocscope trace "+pid)
}
