package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// diffJSON calls the built command with --json.
func diffJSON(t *testing.T, arguments ...string) *compare.Result {
	t.Helper()
	c := call(t, append([]string{"diff", "--json"}, arguments...)...)
	c.mustEnd(0)
	decoder := json.NewDecoder(strings.NewReader(c.stdout.String()))
	decoder.DisallowUnknownFields()
	var r compare.Result
	if err := decoder.Decode(&r); err != nil || r.Schema != compare.Schema {
		t.Fatalf("schema %q, %v in %s", r.Schema, err, c.stdout.String())
	}
	return &r
}

// leakOf is the row of what job.py keeps. The list that keeps it grows in the same function.
func leakOf(t *testing.T, r *compare.Result) compare.StackRow {
	t.Helper()
	for _, s := range r.Stacks {
		if stack := strings.Join(s.Stack, "\n"); strings.Contains(stack, "touch (/") && strings.Contains(stack, "remember (/") {
			return s
		}
	}
	t.Fatalf("no leak in %+v", r.Stacks)
	return compare.StackRow{}
}

// jobTraces are the folders of three traces: of a job that leaks, of the same once more, and of it without the leak.
func jobTraces(t *testing.T) (leaks [2]string, mended string) {
	t.Helper()
	trace := func(inner *testing.T, class growth.Class, settings ...string) string {
		flags := fastTrace(inner, startFullJob(inner, 50, settings...).PID(), 300, 16*time.Second)
		v, err := judgeUntil(inner.Context(), inner, flags)
		if class != "" {
			v.mustBe(inner, class)
		}
		if err != nil {
			inner.Fatal(err)
		}
		return flags.output
	}
	// One after the other: what grows beside a process makes its verdict another. That of the second one does not matter: on a busy
	// machine a leak may slow down.
	leaks[0] = trace(t, growth.ClassLeak, "leak=256")
	leaks[1] = trace(t, "", "leak=256")
	return leaks, trace(t, growth.ClassPlateau)
}

func TestAMendedLeakIsSaidToBeGoneAndALeakThatStaysToGrowAsBefore(t *testing.T) {
	leaks, mended := jobTraces(t)
	r := diffJSON(t, leaks[0], mended)
	if r.Outcome != compare.OutcomeGone || r.Name != "THE LEAK IS GONE" || r.RSS == nil || r.RSS.Change.High >= 0 {
		t.Errorf("before and after the fix: %s, %s: %s", r.Outcome, r.Name, r.Sentence)
	}
	if s := leakOf(t, r); s.State != compare.StateVanished || s.Before.Low <= 0 {
		t.Errorf("the leak: %+v", s.Difference)
	}
	if r.Stacks[0].State != compare.StateVanished || r.Total.State != compare.StateShrank && r.Total.State != compare.StateVanished {
		t.Errorf("first %+v, total %+v", r.Stacks[0], r.Total)
	}
	r = diffJSON(t, mended, leaks[0])
	if s := leakOf(t, r); r.Outcome != compare.OutcomeNew || s.State != compare.StateAppeared {
		t.Errorf("the other way round: %s: %s; the leak %+v", r.Outcome, r.Sentence, s.Difference)
	}
	r = diffJSON(t, leaks[0], leaks[1])
	// How fast a program leaks differs from run to run on a busy machine: exactly the same is tested without one.
	s := leakOf(t, r)
	switch change := float64(s.Change.Bytes) / float64(s.Before.Bytes); {
	case math.Abs(change) > 0.25, s.State == compare.StateVanished, s.State == compare.StateAppeared,
		r.Outcome != compare.OutcomeAsBefore && r.Outcome != compare.OutcomeSlower && r.Outcome != compare.OutcomeFaster:
		t.Errorf("twice the same: %s: %s; the leak %+v", r.Outcome, r.Sentence, s.Difference)
	}
	page := filepath.Join(t.TempDir(), "diff.html")
	c := call(t, "diff", leaks[0], mended, "--html", page, "--limit", "3")
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "\nTHE LEAK IS GONE: ", " before, ", " after", "By owner (resident_space, bytes/min)", "vanished", "remember", "--limit, --json")
	mustSay(t, "the page", readFile(t, filepath.Dir(page), "diff.html"), "THE LEAK IS GONE", `<tr class="vanished">`, "remember")
}

// diffOf calls the command in this process.
func diffOf(arguments ...string) (string, error) {
	command, out := newRootCommand(), new(bytes.Buffer)
	command.SetOut(out)
	command.SetErr(out)
	command.SetArgs(append([]string{"diff"}, arguments...))
	err := command.Execute()
	return out.String(), err
}

// diffProfile writes a profile of objects of 1000 bytes in one function, and gives its path.
func diffProfile(t *testing.T, name, function string, objects int64) string {
	t.Helper()
	held := growth.Holding{
		Stack: &growth.Stack{PID: 1, Frames: []growth.Frame{{Function: function, File: "/src/x.py", Line: 7, Python: true}}}, Kind: growth.KindHeap,
		InuseObjects: float64(objects), InuseBytes: 1000 * objects, ResidentBytes: 1000 * objects,
	}
	var file bytes.Buffer
	if err := profile.Write(&file, []growth.Holding{held}, profile.Info{Interval: 1}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTwoProfilesAreComparedByWhatTheyHold(t *testing.T) {
	out, err := diffOf(diffProfile(t, "a", "less", 500), diffProfile(t, "b", "more", 2000))
	if err != nil {
		t.Fatal(err)
	}
	mustSay(t, "stdout", out, "HOLDS MORE: 488 KiB before, 1.91 MiB after: +1.43 MiB\n", "By stack (resident_space, bytes):", "appeared", "x.py: more (x.py:7)", "vanished", "x.py: less (x.py:7)")
	if strings.Index(out, "more (x.py") > strings.Index(out, "less (x.py") {
		t.Errorf("the larger change comes last:\n%s", out)
	}
	if out, err = diffOf(diffProfile(t, "a", "f", 500), diffProfile(t, "b", "f", 500), "--limit", "0"); err != nil || strings.Contains(out, "x.py:7") {
		t.Errorf("--limit 0: %v\n%s", err, out)
	}
	mustSay(t, "stdout", out, "HOLDS THE SAME: 488 KiB before, 488 KiB after: 0 B\n", "1 more: --limit, --json")
}

func TestNamesInProfilesCannotWriteToTheTerminal(t *testing.T) {
	out, err := diffOf(diffProfile(t, "a\x1b[31m", "e\x1b[31mvil\nnote: \u202e", 500), diffProfile(t, "b", "f", 500))
	if err != nil || strings.ContainsAny(out, "\x1b\u202e") || strings.Contains(out, "\nnote") {
		t.Errorf("%v, %q", err, out)
	}
}

func TestWhatCannotBeComparedIsNamedWithItsReason(t *testing.T) {
	p, dir, damaged := diffProfile(t, "a", "f", 1), t.TempDir(), filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, []byte("no profile"), 0o600); err != nil {
		t.Fatal(err)
	}
	incomplete := t.TempDir()
	var s bytes.Buffer
	if err := (&summary.Summary{}).Write(&s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(incomplete, folder.SummaryFile), s.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		arguments []string
		says      string
	}{
		"nothing there":         {[]string{p, "/nowhere"}, "no such file"},
		"folder and profile":    {[]string{dir, p}, "one is a folder and the other a file"},
		"no trace's folder":     {[]string{dir, dir}, "no summary.json"},
		"a file is missing":     {[]string{incomplete, incomplete}, "growth.pb.gz"},
		"damaged":               {[]string{p, damaged}, "damaged"},
		"not a file":            {[]string{p, pipe}, "not a regular file"},
		"sample type":           {[]string{p, p, "--sample", "cpu"}, `"cpu"`},
		"profiles by step":      {[]string{p, p, "--per", "step"}, "profiles have no pace"},
		"unit":                  {[]string{p, p, "--per", "hour"}, "neither min nor step"},
		"limit":                 {[]string{p, p, "--limit", "-1"}, "negative"},
		"page where a pipe is":  {[]string{p, p, "--html", pipe}, "not a regular file"},
		"page without a folder": {[]string{p, p, "--html", "/nowhere/x.html"}, "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := diffOf(test.arguments...); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

func TestThePageReplacesAnEarlierOneWholeAndLeavesNothingElse(t *testing.T) {
	a, page := diffProfile(t, "a", "f", 1), filepath.Join(t.TempDir(), "diff.html")
	if err := os.WriteFile(page, []byte("earlier"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := diffOf(a, a, "--html", page); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(page))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	mustSay(t, "the page", readFile(t, filepath.Dir(page), "diff.html"), "<!doctype html>", "HOLDS THE SAME", "</html>")
}
