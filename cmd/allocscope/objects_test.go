package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/objects/worker"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestObjects(t *testing.T) {
	t.Parallel()
	t.Run("counts", testObjectsCounts)
	t.Run("keepers", testObjectsKeepers)
	t.Run("type that comes and goes", testObjectsOfNoMore)
	t.Run("another program", testObjectsOtherProgram)
	t.Run("privilege", testObjectsPrivilege)
	t.Run("refuses", testObjectsRefuses)
	t.Run("in a trace", testObjectsInTrace)
	t.Run("keepers off", testObjectsOff)
}

const recordType = "__main__.Record"

// startRecords starts the program that keeps so many records.
func startRecords(t *testing.T, n int) *tracertest.Target {
	t.Helper()
	target := ready(tracertest.StartCommand(t,
		exec.Command("/usr/bin/python3", tracertest.Source("kept_records.py"))))
	do(target, "keep %d", n)
	return target
}

// recordsOf is how many records the garbage collector of the program knows.
func recordsOf(t *testing.T, target *tracertest.Target) int64 {
	t.Helper()
	target.Say("count")
	n := tracertest.Must(strconv.ParseInt(target.Await("done")[0], 10, 64))(t)
	return n
}

// counted is the output of objects --json.
func counted(t *testing.T, output string) *summary.Counted {
	t.Helper()
	mustFit(t, "objects.json", output)
	var c summary.Counted
	must(t, json.Unmarshal([]byte(output), &c))
	return &c
}

// countedRecords is how many records a census has found.
func countedRecords(c *summary.Counted) int64 {
	for _, t := range c.Objects.Largest {
		if t.Type == recordType {
			return t.Count
		}
	}
	return 0
}

func testObjectsCounts(t *testing.T) {
	t.Parallel()
	target := startRecords(t, 1500)
	c := call(t, "objects", "--json", itoa(target.PID()))
	c.mustEnd(0)
	got := counted(t, c.stdout.String())
	if n, want := countedRecords(got), recordsOf(t, target); n != want {
		t.Errorf("%d records, want the %d of the garbage collector", n, want)
	}
	if got.Process.PID != target.PID() || got.Objects.Share != 1 || got.Objects.BeforeS != nil {
		t.Errorf("%+v of %+v, want all objects of one census", got.Objects, got.Process)
	}

	c = call(t, "objects", "--pid", itoa(target.PID()))
	c.mustPrint(fmt.Sprintf("(PID %d), Python 3.", target.PID()),
		"1,500", recordType, "other types (--all)")
	c = call(t, "objects", "--all", itoa(target.PID()))
	c.mustEnd(0)
	if text := c.stdout.String(); strings.Contains(text, "(--all)") ||
		strings.Count(text, "\n") <= maxListedTypes+5 {
		t.Errorf("not all types are listed:\n%s", text)
	}

	c = call(t, "objects", "--every", "1s", "--duration", "1ms", itoa(target.PID()))
	c.mustEndSaying(1, itoa(target.PID()), "the end came before the first count")
}

func testObjectsKeepers(t *testing.T) {
	t.Parallel()
	target := startRecords(t, 700)
	c := call(t, "objects", "--json", "--keepers", "Record", itoa(target.PID()))
	c.mustEnd(0)
	got := counted(t, c.stdout.String())
	if len(got.Keepers) != 1 || got.Keepers[0].Type != recordType || len(got.Keepers[0].Paths) == 0 {
		t.Fatalf("keepers %+v, want those of %s", got.Keepers, recordType)
	}
	path := got.Keepers[0].Paths[0]
	if path.Root.Kind != keeper.RootGlobal || path.Root.Name != "cache" || path.Share != 1 {
		t.Errorf("%+v, want the global cache for all samples", path)
	}

	c = call(t, "objects", "--keepers", recordType, itoa(target.PID()))
	c.mustPrint("Who keeps "+recordType, "kept_records.cache (dict, 700 entries) -> Record")

	c = call(t, "objects", "--keepers", "NoSuchType", itoa(target.PID()))
	c.mustEndSaying(2, "NoSuchType", "--all lists the types")
}

// lastCount awaits so many counts more, and returns the last.
func lastCount(t *testing.T, c *command, more int) *summary.Counted {
	t.Helper()
	linesOf := func() []string { return strings.Split(c.stdout.String(), "\n") }
	before := len(linesOf())
	c.await(fmt.Sprintf("%d counts", more), func() bool { return len(linesOf()) >= before+more })
	lines := linesOf()
	return counted(t, lines[len(lines)-2])
}

// The type of --keepers is from the first count, whatever the process has later.
func testObjectsOfNoMore(t *testing.T) {
	t.Parallel()
	target := startRecords(t, 300)
	c := begin(t, allocscope(t, "objects", "--every", "1s", "--json", "--keepers", "Record",
		itoa(target.PID())))
	if got := lastCount(t, c, 1); len(got.Keepers) != 1 || len(got.Keepers[0].Paths) == 0 {
		t.Errorf("first count: keepers %+v, want one", got.Keepers)
	}
	do(target, "namesake")
	if got := lastCount(t, c, 2); got.Keepers == nil || len(got.Keepers) > 0 {
		t.Errorf("no new records: keepers %#v, want an empty list", got.Keepers)
	}
	do(target, "keep 200")
	got := lastCount(t, c, 2)
	isGrown := func(g summary.TypeGrowth) bool {
		return g.Type == recordType && g.After == g.Before+200 && g.PerMin > 0
	}
	if !slices.ContainsFunc(got.Objects.Types, isGrown) {
		t.Errorf("%+v, want 200 records more", got.Objects.Types)
	}
	if len(got.Keepers) != 1 || got.Keepers[0].Type != recordType ||
		len(got.Keepers[0].Paths) == 0 || got.Keepers[0].Paths[0].Root.Name != "cache" {
		t.Errorf("new records: keepers %+v, want the global cache", got.Keepers)
	}
	do(target, "clear")
	if got := lastCount(t, c, 2); got.Keepers == nil || len(got.Keepers) > 0 {
		t.Errorf("no records: keepers %#v, want an empty list", got.Keepers)
	}
	c.interrupt()

	target = startRecords(t, 300)
	text := begin(t, allocscope(t, "objects", "--every", "1s", "--keepers", recordType,
		itoa(target.PID())))
	says := func(words string) {
		t.Helper()
		text.await(words, func() bool { return strings.Contains(text.stdout.String(), words) })
	}
	says("kept_records.cache (dict, 300 entries) -> Record")
	says("There are no objects of type " + recordType + " that the first count has not seen")
	do(target, "clear")
	says("There are no objects of type " + recordType + " now")
	text.interrupt()
}

// Objects of another program are no growth of the first one's.
func testObjectsOtherProgram(t *testing.T) {
	t.Parallel()
	target := startRecords(t, 300)
	c := begin(t, allocscope(t, "objects", "--every", "1s", "--json", itoa(target.PID())))
	lastCount(t, c, 1)
	mustDieFirst(t, c.Process.Pid)
	target.Say("exec")
	target.Await("ready")
	c.mustEndSaying(0, "executes another program now: ", "kept_records.py")
	for line := range strings.Lines(c.stdout.String()) {
		if n := countedRecords(counted(t, line)); n != 300 {
			t.Errorf("%d records, want the 300 of the first program", n)
		}
	}
}

// mustDieFirst checks the child that reads for a process: where memory is short, the kernel ends it.
func mustDieFirst(t *testing.T, pid int) {
	t.Helper()
	var scores []string
	for _, child := range childrenOf(t, pid) {
		files := fmt.Sprintf("/proc/%d", child)
		if strings.HasPrefix(readFile(t, files, "cmdline"), worker.Name) {
			scores = append(scores, strings.TrimSpace(readFile(t, files, "oom_score_adj")))
		}
	}
	if !slices.Equal(scores, []string{"1000"}) {
		t.Errorf("children with oom_score_adj %q, want one with 1000", scores)
	}
}

// Three capabilities are enough, and the remedy names those that are missing.
func testObjectsPrivilege(t *testing.T) {
	t.Parallel()
	target := startRecords(t, 100)
	c := begin(t, withCapabilities(allocscope(t, "objects", "--json", itoa(target.PID())),
		[]string{"CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH"}))
	c.mustEnd(0)
	if n := countedRecords(counted(t, c.stdout.String())); n != 100 {
		t.Errorf("%d records, want 100", n)
	}

	for _, missing := range []string{"CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH"} {
		names := slices.DeleteFunc(
			[]string{"CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH"},
			func(name string) bool { return name == missing })
		c = begin(t, withCapabilities(allocscope(t, "objects", itoa(target.PID())), names))
		c.mustEndSaying(2, "grant "+missing)
	}

	c = begin(t, unprivileged(allocscope(t, "objects", itoa(target.PID()))))
	c.mustEndSaying(2, "permission denied", "CAP_SYS_PTRACE")
}

func testObjectsRefuses(t *testing.T) {
	t.Parallel()
	steps := startSteps(t)
	for _, r := range []struct {
		arguments, words []string
	}{
		{[]string{itoa(steps.PID())}, []string{itoa(steps.PID()), "CPython"}},
		{[]string{"4194304"}, []string{"no such process"}},
		{[]string{}, []string{"name the process: allocscope objects PID"}},
		{[]string{itoa(steps.PID()), "--duration", "5s"}, []string{"--every"}},
		{[]string{itoa(steps.PID()), "--every", "0.1"}, []string{"less than 1s"}},
	} {
		call(t, append([]string{"objects"}, r.arguments...)...).mustEndSaying(2, r.words...)
	}
}

// isCounted is true once a census of a trace has been written.
func isCounted(dir string) bool {
	raw, _ := os.ReadFile(filepath.Join(dir, folder.ObjectsFile))
	return bytes.Count(raw, []byte("\n")) > 1
}

// traceRecords traces a program that comes to keep 1500 records.
func traceRecords(t *testing.T) (dir string, s summary.Summary) {
	t.Helper()
	target := startRecords(t, 0)
	dir = newFolder(t)
	c := begin(t, allocscope(t, "trace", "--pid", itoa(target.PID()), "--interval", "1",
		"--overhead", "off", "--output", dir))
	c.await("the first census", func() bool { return isCounted(dir) })
	for range 15 {
		c.awaitSnapshots(dir, 1)
		do(target, "keep 100")
	}
	c.interrupt()
	return dir, readSummary(t, dir)
}

// A trace says which variable keeps the growing memory.
func testObjectsInTrace(t *testing.T) {
	t.Parallel()
	var dir string
	var s summary.Summary
	isCut := func(k summary.Keeper) bool { return k.Reason == keeper.ReasonBudget }
	for range 3 { // on a busy machine the time for the searches may be used up
		dir, s = traceRecords(t)
		if len(s.Keepers) > 0 && !slices.ContainsFunc(s.Keepers, isCut) {
			break
		}
	}

	isAll := func(c summary.TypeCount) bool { return c.Type == recordType && c.Count == 1500 }
	if s.Objects == nil || !slices.ContainsFunc(s.Objects.Largest, isAll) {
		t.Fatalf("objects %+v, want 1500 records", s.Objects)
	}
	if s.Files["objects"] != folder.ObjectsFile {
		t.Errorf("files %v lack %s", s.Files, folder.ObjectsFile)
	}
	mustSay(t, folder.ObjectsFile, readFile(t, dir, folder.ObjectsFile), recordType+",1500,")
	for _, k := range s.Keepers {
		if k.Type != recordType && k.StackID == "" {
			continue
		}
		if len(k.Paths) == 0 || k.Paths[0].Root.Name != "cache" {
			t.Errorf("%+v, want the global cache first", k)
		}
	}
	if len(s.Keepers) == 0 {
		t.Errorf("no keeper was searched; verdict %s", s.Class)
	}

	const code = "import platform; print(platform.python_version(), *platform.libc_ver())"
	versions := tracertest.Must(exec.Command("/usr/bin/python3", "-c", code).Output())(t)
	if got := s.Software; got.Python+" "+got.Libc != strings.TrimSpace(string(versions)) {
		t.Errorf("software %+v, want %s", got, versions)
	}
}

// Without keepers, no process beside the one that reads is started, and nothing is counted.
func testObjectsOff(t *testing.T) {
	t.Parallel()
	target := startRecords(t, 100)
	dir := newFolder(t)
	call(t, traceArguments(target.PID(), dir, "--keepers", "off", "--duration", "3s")...).mustEnd(0)
	if s := readSummary(t, dir); s.Objects != nil || s.Keepers != nil {
		t.Errorf("objects %+v and keepers %+v, want none", s.Objects, s.Keepers)
	}
	if exists(filepath.Join(dir, folder.ObjectsFile)) {
		t.Error("there is a file of objects")
	}

	c := call(t, traceArguments(target.PID(), dir, "--keepers", "maybe")...)
	c.mustEndSaying(2, "--keepers", "maybe")
}
