package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestDiff(t *testing.T) {
	t.Run("two traces", testDiffTraces)
	t.Run("two profiles", testDiffProfiles)
	t.Run("hostile names", testDiffHostile)
	t.Run("refusals", testDiffRefusals)
}

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
		if stack := strings.Join(s.Stack, "\n"); strings.Contains(stack, "touch (/") &&
			strings.Contains(stack, "remember (/") {
			return s
		}
	}

	t.Fatalf("no leak in %+v", r.Stacks)
	return compare.StackRow{}
}

// Both traces are of a job: with a leak, and without.
func testDiffTraces(t *testing.T) {
	traceJob := func(class verdict.Class, settings ...string) string {
		options := fastTrace(t, startFullJob(t, 50, settings...).PID(), 300, 16*time.Second)
		v := judgeUntilEnd(t, options)
		v.mustBe(t, class)
		return options.Output
	}

	leaking, fixed := traceJob(verdict.ClassLeak, "leak=256"), traceJob(verdict.ClassPlateau)

	r := diffJSON(t, leaking, fixed)
	if r.Outcome != compare.OutcomeGone || r.RSS == nil || r.RSS.Change.High >= 0 {
		t.Errorf("before and after the fix: %s: %s", r.Outcome, r.Sentence)
	}

	if s := leakOf(t, r); s.State != compare.StateVanished || s.Before.Low <= 0 {
		t.Errorf("the leak: %+v", s.Difference)
	}

	page := filepath.Join(t.TempDir(), "diff.html")
	c := call(t, "diff", leaking, fixed, "--html", page, "--limit", "3")
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), r.Name, "By component (resident_space, bytes/min)",
		"vanished", "remember", "--limit, --json")
	mustSay(t, "the page", readFile(t, filepath.Dir(page), "diff.html"), r.Name, "remember")
}

// diffOf calls the command in this process.
func diffOf(arguments ...string) (string, error) {
	out := new(bytes.Buffer)
	command := newRootCommand(console.New(out))
	command.SetOut(out)
	command.SetArgs(append([]string{"diff"}, arguments...))
	err := command.Execute()
	return out.String(), err
}

// diffProfile writes a profile of objects of 1000 bytes in one function, and returns its path.
func diffProfile(t *testing.T, name, function string, objects int64) string {
	t.Helper()
	held := growth.Holding{
		Stack: &growth.Stack{PID: 1, Frames: []growth.Frame{{
			Function: function, File: "/src/x.py",
			Line: 7, Python: true,
		}}}, Kind: growth.KindHeap,
		InuseObjects: float64(objects), InuseBytes: 1000 * objects, ResidentBytes: 1000 * objects,
	}

	var file bytes.Buffer
	if err := profile.Write(&file, []growth.Holding{held},
		profile.Info{Interval: 1}); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func testDiffProfiles(t *testing.T) {
	out, err := diffOf(diffProfile(t, "a", "less", 500), diffProfile(t, "b", "more", 2000))
	if err != nil {
		t.Fatal(err)
	}

	mustSay(t, "stdout", out, "HOLDS MORE: 488 KiB before, 1.91 MiB after: +1.43 MiB\n",
		"By stack (resident_space, bytes):", "appeared", "x.py: more (x.py:7)", "vanished",
		"x.py: less (x.py:7)")

	if strings.Index(out, "more (x.py") > strings.Index(out, "less (x.py") {
		t.Errorf("the larger change comes last:\n%s", out)
	}

	if out, err = diffOf(diffProfile(t, "a", "f", 500), diffProfile(t, "b", "f", 500), "--limit",
		"0"); err != nil || strings.Contains(out, "x.py:7") {
		t.Errorf("--limit 0: %v\n%s", err, out)
	}

	mustSay(t, "stdout", out, "HOLDS THE SAME: 488 KiB before, 488 KiB after: 0 B\n",
		"1 more: --limit, --json")
}

func testDiffHostile(t *testing.T) {
	out, err := diffOf(diffProfile(t, "a\x1b[31m", "e\x1b[31mvil\nnote: \u202e", 500),
		diffProfile(t, "b", "f", 500))
	if err != nil || strings.ContainsAny(out, "\x1b\u202e") || strings.Contains(out, "\nnote") {
		t.Errorf("%v, %q", err, out)
	}
}

func testDiffRefusals(t *testing.T) {
	pp, dir, damaged := diffProfile(t, "a", "f", 1), t.TempDir(), filepath.Join(t.TempDir(),
		"damaged")
	if err := os.WriteFile(damaged, []byte("no profile"), 0o600); err != nil {
		t.Fatal(err)
	}

	incomplete := t.TempDir()
	var sum bytes.Buffer
	if err := (&summary.Summary{}).Write(&sum); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(incomplete, folder.SummaryFile), sum.Bytes(),
		0o600); err != nil {
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
		"nothing there": {[]string{pp, "/nowhere"}, "no such file"},
		"folder and profile": {
			[]string{dir, pp},
			"one is a folder and the other a file",
		},
		"no trace's folder": {[]string{dir, dir}, "no summary.json"},
		"a file is missing": {[]string{incomplete, incomplete}, "growth.pb.gz"},
		"damaged":           {[]string{pp, damaged}, "damaged"},
		"not a file":        {[]string{pp, pipe}, "not a regular file"},
		"sample type":       {[]string{pp, pp, "--sample", "cpu"}, `"cpu"`},
		"profiles by step": {
			[]string{pp, pp, "--per", "step"},
			"profiles have no rate",
		},
		"unit": {
			[]string{pp, pp, "--per", "hour"},
			"neither min nor step",
		},
		"limit":                {[]string{pp, pp, "--limit", "-1"}, "negative"},
		"page where a pipe is": {[]string{pp, pp, "--html", pipe}, "not a regular file"},
		"page without a folder": {
			[]string{pp, pp, "--html", "/nowhere/x.html"},
			"/nowhere",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := diffOf(test.arguments...); err == nil || !strings.Contains(err.Error(),
				test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}
