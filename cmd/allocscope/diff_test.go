package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/growth"
)

func TestDiff(t *testing.T) {
	t.Run("two traces", testDiffTraces)
	t.Run("two profiles", testDiffProfiles)
	t.Run("hostile names", testDiffHostile)
	t.Run("refusals", testDiffRefusals)
}

// Of the recorded ranks, rank 3 alone calls evaluate: the other trace is without that leak.
func testDiffTraces(t *testing.T) {
	folders := recordedRanks(t)
	leaking, fixed := folders[3], folders[2]
	out, err := callHere(t, "", "diff", "--json", leaking, fixed)
	must(t, err)
	mustFit(t, "diff.json", out)
	var r compare.Result
	must(t, json.Unmarshal([]byte(out), &r))
	if r.Outcome != compare.OutcomeSlower || r.RSS == nil || r.RSS.Change.High >= 0 {
		t.Errorf("before and after the fix: %s: %s", r.Outcome, r.Sentence)
	}
	if s := r.Stacks[0]; !strings.HasPrefix(s.Stack[0], "evaluate (") ||
		s.State != compare.StateVanished || s.Before.Low <= 0 {
		t.Errorf("the leak: %+v", s)
	}

	page := filepath.Join(t.TempDir(), "diff.html")
	out, err = callHere(t, "", "diff", leaking, fixed, "--html", page, "--limit", "3")
	must(t, err)
	mustSay(t, "stdout", out, r.Name, "By component (resident_space, bytes/min)",
		"vanished", "evaluate", "--limit, --json")
	mustSay(t, "the page", readFile(t, filepath.Dir(page), "diff.html"), r.Name, "evaluate")
}

// diffProfile writes a profile of objects of 1000 bytes in one function, and returns its path.
func diffProfile(t *testing.T, name, function string, objects int64) string {
	t.Helper()
	frame := growth.Frame{Function: function, File: "/src/x.py", Line: 7, Python: true}
	held := growth.Holding{
		Stack: &growth.Stack{PID: 1, Frames: []growth.Frame{frame}}, Kind: growth.KindHeap,
		InuseObjects: float64(objects), InuseBytes: 1000 * objects, ResidentBytes: 1000 * objects,
	}

	var file bytes.Buffer
	if err := profile.Write(&file, []growth.Holding{held},
		profile.Info{Interval: 1}); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), name)
	writeFile(t, path, file.String(), 0o600)
	return path
}

func testDiffProfiles(t *testing.T) {
	a, b := diffProfile(t, "a", "less", 500), diffProfile(t, "b", "more", 2000)
	out, err := callHere(t, "", "diff", a, b)
	must(t, err)

	mustSay(t, "stdout", out, "HOLDS MORE: 488 KiB before, 1.91 MiB after: +1.43 MiB\n",
		"By stack (resident_space, bytes):", "appeared", "x.py: more (x.py:7)", "vanished",
		"x.py: less (x.py:7)")

	if strings.Index(out, "more (x.py") > strings.Index(out, "less (x.py") {
		t.Errorf("the larger change comes last:\n%s", out)
	}

	a, b = diffProfile(t, "a", "f", 500), diffProfile(t, "b", "f", 500)
	out, err = callHere(t, "", "diff", a, b, "--limit", "0")
	if err != nil || strings.Contains(out, "x.py:7") {
		t.Errorf("--limit 0: %v\n%s", err, out)
	}

	mustSay(t, "stdout", out, "HOLDS THE SAME: 488 KiB before, 488 KiB after: 0 B\n",
		"1 more: --limit, --json")
}

func testDiffHostile(t *testing.T) {
	a := diffProfile(t, "a\x1b[31m", "e\x1b[31mvil\nnote: \u202e", 500)
	out, err := callHere(t, "", "diff", a, diffProfile(t, "b", "f", 500))
	if err != nil || strings.ContainsAny(out, "\x1b\u202e") || strings.Contains(out, "\nnote") {
		t.Errorf("%v, %q", err, out)
	}
}

// Package compare proves which profiles and traces cannot be compared.
func testDiffRefusals(t *testing.T) {
	pp, dir, unfinished := diffProfile(t, "a", "f", 1), t.TempDir(), summaryFolder(t)
	pipe := filepath.Join(dir, "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))

	for says, arguments := range map[string][]string{
		"no such file":                         {pp, "/nowhere"},
		"one is a folder and the other a file": {dir, pp},
		"growth.pb.gz":                         {unfinished, unfinished},
		"no summary.json":                      {dir, dir},
		"damaged":                              {pp, "/bin/true"},
		"not a regular file":                   {pp, pipe},
		"neither min nor step":                 {pp, pp, "--per", "hour"},
		"negative":                             {pp, pp, "--limit", "-1"},
		"there already":                        {pp, pp, "--html", pipe},
	} {
		_, err := callHere(t, "", append([]string{"diff"}, arguments...)...)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", arguments, err, says)
		}
	}
}
