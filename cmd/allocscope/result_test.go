package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	leakedBefore, leakedAfter, leakSize, churnFactor = 500, 1000, 64 << 10, 10
	rssSlack                                         = 256 << 10 // bytes that probes and the C library's own pages may make
)

// happyTrace is a trace of 3 s of a program that leaks half as much before the boundary as after it.
type happyTrace struct {
	*command
	folder              string
	target              *tracertest.Target
	rssBefore, rssAfter int64
}

func traceALeak(t *testing.T) *happyTrace {
	t.Helper()
	h := &happyTrace{folder: newFolder(t)}
	h.target = ready(tracertest.Start(t, tracertest.Build(t, "leak.c", "-pthread"), "1", "500", "65536", "10"))
	h.rssBefore = rssOf(t, h.target.PID())
	h.command = begin(t, allocscope(t, traceArguments(h.target.PID(), h.folder, "-d", "3", "--warmup", "1.5", "--snapshot-every", "1s")...))
	h.awaitTracing()
	h.leak()
	h.awaitFile(h.folder, "snapshots/002.pb.gz") // 0: at the start; 1: after a second; 2: at the boundary
	h.leak()
	h.leak()
	select {
	case <-h.ended:
		t.Fatal("the trace ended before the target had leaked: the machine is too slow for this test")
	default:
	}
	h.rssAfter = rssOf(t, h.target.PID())
	h.mustEnd(0)
	return h
}

func (h *happyTrace) leak() {
	h.target.Say("go")
	h.target.Await("done")
	h.target.Await("ready")
}

func TestATraceFindsTheLeakExactlyAndEverythingItWritesAgrees(t *testing.T) {
	h := traceALeak(t)
	for name, check := range map[string]func(*testing.T, *happyTrace){
		"growth is the leak since the boundary":          checkGrowth,
		"growth is plateau minus warmup for every stack": checkDifference,
		"snapshots lead from nothing to the plateau":     checkSnapshots,
		"pprof shows the leak first":                     checkPprof,
		"the table shows the leak first":                 checkTable,
		"the timeline is what the kernel said":           checkTimeline,
		"the summary says the same":                      checkSummary,
		"the ledger is what the kernel said":             checkLedger,
		"the report shows it":                            checkReport,
		"only root can read the files":                   func(t *testing.T, h *happyTrace) { checkFiles(t, h.folder, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) { check(t, h) })
	}
}

func checkGrowth(t *testing.T, h *happyTrace) {
	warmup, plateau, grown := readProfile(t, h.folder, folder.WarmupFile), readProfile(t, h.folder, folder.PlateauFile), readProfile(t, h.folder, folder.GrowthFile)
	mustHold(t, "leak_here in warmup", flat(warmup, "leak_here"), objects(leakedBefore, leakSize))
	mustHold(t, "leak_here in growth", flat(grown, "leak_here"), objects(leakedAfter, leakSize))
	mustHold(t, "leak_here in plateau", flat(plateau, "leak_here"), objects(leakedBefore+leakedAfter, leakSize))
	const churned = churnFactor * leakedAfter
	mustHold(t, "churn_here in growth", flat(grown, "churn_here"), values{allocObjects: churned, allocSpace: churned * leakSize})
}

func checkDifference(t *testing.T, h *happyTrace) {
	warmup := readProfile(t, h.folder, folder.WarmupFile)
	warmup.Scale(-1)
	difference, err := pprof.Merge([]*pprof.Profile{readProfile(t, h.folder, folder.PlateauFile), warmup})
	if err != nil {
		t.Fatal(err)
	}
	want := byStack(difference)
	for stack, sum := range want {
		if sum == (sampleValues{}) {
			delete(want, stack)
		}
	}
	if got := byStack(readProfile(t, h.folder, folder.GrowthFile)); !reflect.DeepEqual(got, want) {
		t.Errorf("growth is %v, but plateau - warmup is %v", got, want)
	}
}

func checkSnapshots(t *testing.T, h *happyTrace) {
	var got []map[string]sampleValues
	for _, path := range snapshotFiles(t, h.folder) {
		got = append(got, byStack(parseProfile(t, path)))
	}
	if len(got) < 4 || len(got) > 5 {
		t.Fatalf("%d snapshots in 3 s, one a second and one at the boundary, want 5", len(got))
	}
	if !reflect.DeepEqual(got[2], byStack(readProfile(t, h.folder, folder.WarmupFile))) {
		t.Error("the snapshot at the boundary is not warmup.pb.gz")
	}
	if !reflect.DeepEqual(got[len(got)-1], byStack(readProfile(t, h.folder, folder.PlateauFile))) {
		t.Error("the last snapshot is not plateau.pb.gz")
	}
}

func checkPprof(t *testing.T, h *happyTrace) {
	warmup, plateau, grown := filepath.Join(h.folder, folder.WarmupFile), filepath.Join(h.folder, folder.PlateauFile), filepath.Join(h.folder, folder.GrowthFile)
	if rows := pprofTop(t, "-unit=B", "-sample_index=inuse_space", grown); !strings.HasPrefix(rows[0], "65536000B 65536000B leak_here") {
		t.Errorf("go tool pprof -top -sample_index=inuse_space growth.pb.gz:\n%s", strings.Join(rows, "\n"))
	}
	s := readSummary(t, h.folder)
	rss, resident := *s.RSS.EndBytes-*s.RSS.BaselineBytes, int64(0)
	rows := pprofTop(t, "-unit=B", grown) // of each object the beginning is touched, and the allocator's header
	if n, err := fmt.Sscanf(rows[0], "%dB %dB leak_here", &resident, new(int64)); n != 2 || err != nil || resident > rss || float64(resident) < 0.98*float64(rss) {
		t.Errorf("RSS grew by %d bytes; go tool pprof -top growth.pb.gz:\n%s", rss, strings.Join(rows, "\n"))
	}
	for _, index := range []string{"resident_space", "inuse_space", "alloc_space", "alloc_objects"} {
		got := pprofTop(t, "-unit=B", "-sample_index="+index, grown)
		want := pprofTop(t, "-unit=B", "-sample_index="+index, "-diff_base="+warmup, plateau)
		if slices.Sort(got); len(got) == 0 {
			t.Errorf("%s: no rows", index)
		}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s of growth:\n%s\nof the difference, by pprof:\n%s", index, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func checkTable(t *testing.T, h *happyTrace) {
	_, rows, found := strings.Cut(h.stdout.String(), "where\n")
	if first, _, _ := strings.Cut(rows, "\n"); !found || !strings.Contains(first, "leak_here (leak)") || !strings.Contains(first, "62.5 MiB     1000") {
		t.Errorf("the first row of the table is not the leak of 62.5 MiB:\n%s", h.stdout.String())
	}
	mustSay(t, "stdout", h.stdout.String(), "leak 1 (PID ", "as long as asked for", "Files are in "+h.folder, "; report.html is the report", "allocscope view "+h.folder+"\n", "go tool pprof -top "+h.folder+"/growth.pb.gz")
	if strings.Contains(h.stdout.String(), "warning") {
		t.Errorf("warns of something:\n%s", h.stdout.String())
	}
}

func checkTimeline(t *testing.T, h *happyTrace) {
	timeline := readTimeline(t, h.folder)
	if n := len(timeline); n < 3 || n > 5 {
		t.Fatalf("%d rows in 3 s", n)
	}
	for i, s := range timeline {
		if s.RSS < h.rssBefore-rssSlack || s.RSS > h.rssAfter+rssSlack {
			t.Errorf("RSS of %d bytes after %s; the kernel said %d before and %d after", s.RSS, s.Elapsed, h.rssBefore, h.rssAfter)
		}
		if 0 < i && i < len(timeline)-1 && s.Elapsed-timeline[i-1].Elapsed < 900*time.Millisecond {
			t.Errorf("rows at %s and %s, want one a second", timeline[i-1].Elapsed, s.Elapsed)
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
	timeline, err := rows.ReadTimeline(strings.NewReader(readFile(t, dir, folder.TimelineFile)))
	if err != nil {
		t.Fatal(err)
	}
	return timeline
}

func checkSummary(t *testing.T, h *happyTrace) {
	s := mustHaveEnded(t, h.folder, summary.EndedDuration)
	if s.Schema != summary.Schema || s.Version != "v1.2.3-test" || s.IntervalBytes != 1 || s.Process.PID != h.target.PID() || s.Process.Executable != h.target.Path {
		t.Errorf("schema %q, version %q, interval %d, process %+v", s.Schema, s.Version, s.IntervalBytes, s.Process)
	}
	if !slices.Equal(s.CommandLine, h.Args) || !slices.Equal(s.Process.Arguments, h.target.Args) {
		t.Errorf("command line %q, target's %q", s.CommandLine, s.Process.Arguments)
	}
	if len(s.Losses) != 0 || len(s.Warnings) != 0 {
		t.Errorf("losses %v, warnings %q", s.Losses, s.Warnings)
	}
	if top := s.Accumulating[0]; top.Function != "leak_here" || top.Module != h.target.Path || top.Objects != leakedAfter || top.Bytes != leakedAfter*leakSize || top.Share < 0.99 {
		t.Errorf("accumulates most: %+v", top)
	}
	if _, bytes := total(readProfile(t, h.folder, folder.PlateauFile), growth.KindHeap); s.Live.Bytes[growth.KindHeap] != bytes {
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

// checkFiles wants that nobody but that user can read what is in the folder.
func checkFiles(t *testing.T, folder string, uid, gid uint32) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = fs.ModeDir | 0o700
		}
		owner := info.Sys().(*syscall.Stat_t)
		if info.Mode() != want || owner.Uid != uid || owner.Gid != gid {
			t.Errorf("%s: mode %s, UID %d, GID %d; want %s, %d, %d", path, info.Mode(), owner.Uid, owner.Gid, want, uid, gid)
		}
		seen++
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if seen < 9 { // 2 directories, 5 files, at least 2 snapshots
		t.Errorf("%d files and directories in %s", seen, folder)
	}
}

func TestFilesBelongToTheUserBehindSudo(t *testing.T) {
	target, folder := startSteps(t), newFolder(t)
	cmd := allocscope(t, traceArguments(target.PID(), folder, "-d", "200ms")...)
	cmd.Env = append(cmd.Env, "SUDO_UID=65534", "SUDO_GID=65533")
	begin(t, cmd).mustEnd(0)
	checkFiles(t, folder, 65534, 65533)
}

func TestWithoutAnOutputFolderOneIsNamedAfterTheProcess(t *testing.T) {
	target := startSteps(t)
	cmd := allocscope(t, "trace", "-p", itoa(target.PID()), "-d", "0.2")
	cmd.Dir = t.TempDir()
	begin(t, cmd).mustEnd(0)
	folders, err := filepath.Glob(filepath.Join(cmd.Dir, "allocscope-"+itoa(target.PID())+"-2*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("folders %q, %v", folders, err)
	}
	checkFiles(t, folders[0], 0, 0)
}

func TestJSONOnStdoutIsTheSummaryAndNothingElse(t *testing.T) {
	target := startSteps(t)
	c, dir := tracing(t, target, "--json")
	do(target, "leak 10 100")
	c.interrupt()
	if want := readFile(t, dir, folder.SummaryFile); c.stdout.String() != want {
		t.Errorf("stdout:\n%s\n%s:\n%s", c.stdout.String(), folder.SummaryFile, want)
	}
	readSummary(t, dir)
	mustSay(t, "stderr", c.stderr.String(), "tracing "+itoa(target.PID())+" (steps)")
}

func TestTheTargetsNamesCannotWriteToTheTerminal(t *testing.T) {
	plain := tracertest.Build(t, "steps.c")
	hostile := filepath.Join(t.TempDir(), "e\x1b[31mvil\nwarning: \u202esteps")
	code, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hostile, code, 0o755); err != nil {
		t.Fatal(err)
	}
	target := ready(tracertest.Start(t, hostile, "\x1b]0;title\a"))
	c, dir := tracing(t, target)
	do(target, "leak 10 100")
	c.interrupt()
	said := c.stdout.String() + c.stderr.String()
	if strings.ContainsAny(said, "\x1b\a\u202e") || strings.Contains(said, "\nwarning") {
		t.Errorf("says %q", said)
	}
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(10, 100))
}
