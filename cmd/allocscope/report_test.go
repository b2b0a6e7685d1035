package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestReport(t *testing.T) {
	t.Run("page of a folder", testReportFolder)
	t.Run("refusals", testReportRefusals)
	t.Run("hostile names", testReportHostile)
	t.Run("text for an issue", testShowMarkdown)
}

// summaryFolder is the folder of a trace without profiles, for one that only reads it.
func summaryFolder(t *testing.T) string {
	t.Helper()
	short := verdict.Verdict{Class: verdict.ClassTooShort, Reason: verdict.ReasonTooShort}
	s := summary.Summary{
		Process: summary.Process{PID: 42, Command: "job"},
		Verdict: summary.VerdictOf(short, summary.AxisSeconds),
	}
	path := filepath.Join(t.TempDir(), "a trace")
	writeFolder(t, path, 0, map[string]func(io.Writer) error{folder.SummaryFile: s.Write})
	return path
}

// testReportFolder makes the report again, in the folder and elsewhere, for the user behind sudo.
func testReportFolder(t *testing.T) {
	dir := summaryFolder(t)
	inside, elsewhere := filepath.Join(dir, "report.html"), filepath.Join(t.TempDir(), "page.html")
	for path, arguments := range map[string][]string{
		inside: {"report", dir}, elsewhere: {"report", "-o", elsewhere, dir},
	} {
		for range 2 { // the second takes the place of the first
			cmd := allocscope(t, arguments...)
			cmd.Env = append(cmd.Env, "SUDO_UID=65534", "SUDO_GID=65533")
			c := begin(t, cmd)
			c.mustEnd(0)
			if c.stdout.String() != path+"\n" {
				t.Errorf("says %q, want %q", c.stdout.String(), path)
			}
		}

		mustBelongTo(t, path, 0o600, 65534, 65533)
		mustSay(t, "the report", readFile(t, filepath.Dir(path), filepath.Base(path)),
			"<!doctype html>", "NOT ENOUGH DATA", "PID 42", "read timeline.csv: no such file")
	}
}

// testShowMarkdown prints the text for an issue of a folder without tables.
func testShowMarkdown(t *testing.T) {
	dir := summaryFolder(t)
	c := call(t, "show", "--markdown", dir)
	c.mustEnd(0)
	mustSay(t, "the text", c.stdout.String(), "```text\nNOT ENOUGH DATA   job (PID 42)",
		"read timeline.csv: no such file")
	call(t, "show", "--markdown", "--details", dir).mustEndSaying(2, "--details and --markdown")
}

// Package report proves which folders have no report.
func testReportRefusals(t *testing.T) {
	killed := summaryFolder(t)
	writeFile(t, filepath.Join(killed, folder.TimelineFile), "time_s,rss_bytes,", 0o600)
	must(t, os.Remove(filepath.Join(killed, folder.SummaryFile)))

	call(t, "report", killed).mustEndSaying(1, "the trace still runs, or was killed before its end")
	if exists(filepath.Join(killed, folder.ReportFile)) {
		t.Error("there is a report")
	}
}

// checkReport checks for the page of the trace, and that the same is made of its files later.
func checkReport(t *testing.T, h *leakTrace) {
	page := readFile(t, h.folder, folder.ReportFile)
	mustSay(t, "the report", page, "leak_here", "PID "+itoa(h.target.PID()),
		"RSS at the end, as the kernel counts")
	if strings.Contains(page, "could be read") {
		t.Error("the report lacks a file")
	}

	call(t, "report", h.folder).mustEnd(0)
	if again := readFile(t, h.folder, folder.ReportFile); again != page {
		t.Errorf("`allocscope report` makes another page of %d bytes, not %d", len(again),
			len(page))
	}
}

// hostileMarkup is the name that testdata/hostile.py gives itself, its functions, its files; a page
// that takes it for more than a text has an image, and runs the script.
const hostileMarkup = "</script><img src=x onerror=window.__pwned=1>"

// marksOfAnAttacker may be 200 bytes long.
var marksOfAnAttacker = []string{
	"epoch " + hostileMarkup, "\u202egpj.elif \x1b[31mred\x1b]0;title\a", "<!--", "]]>",
	"\xff\xfe bad", strings.Repeat("long", 50), `"><svg onload=window.__pwned=1>`,
}

// traceHostile traces a program whose every name would like to be more than a text, while it leaks
// and is marked.
func traceHostile(t *testing.T) (dir string, said *command) {
	t.Helper()
	target := tracertest.StartCommand(t, hostileCommand(t))
	target.Await("ready")
	t.Cleanup(target.Hangup)
	c, dir := tracing(t, target, "--interval", "4KiB", "--snapshot-every", "500ms")

	for _, text := range marksOfAnAttacker {
		do(target, "256")
		c.awaitSnapshots(dir, 1)
		call(t, "mark", "--pid", itoa(target.PID()), text).mustEnd(0)
	}

	for range 3 {
		do(target, "256")
		c.awaitSnapshots(dir, 1)
	}

	c.interrupt()
	return dir, c
}

// hostileFile is a name of the program itself: the hostile part of hostileMarkup that a file's name
// may have.
const hostileFile = "<img src=x onerror=window.__pwned=1>.py"

// hostileCommand runs the program under a name like those that it returns.
func hostileCommand(t *testing.T) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, hostileFile)
	must(t, os.Symlink(tracertest.Source("hostile.py"), program))

	cmd := exec.Command("/usr/bin/python3", program)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	return cmd
}

func testReportHostile(t *testing.T) {
	t.Parallel()
	dir, c := traceHostile(t)
	for stream, text := range map[string]string{
		"stdout": c.stdout.String(),
		"stderr": c.stderr.String(),
	} {
		if i := strings.IndexFunc(text, isHarmful); i >= 0 {
			t.Errorf("%s has %q", stream, text[max(0, i-40):min(len(text), i+40)])
		}
	}

	s := readSummary(t, dir)
	if len(s.Marks) != len(marksOfAnAttacker) || len(s.Accumulating) < 6 {
		t.Fatalf("%d marks, %d stacks: the test is wrong", len(s.Marks), len(s.Accumulating))
	}

	browser := pagetest.StartFor(t)
	for _, view := range views() {
		r := openPage(t, browser, reportPath(dir), view)
		r.openDetails()
		mustBeText(r, s)
	}
}

// isHarmful is whether a character may drive a terminal or reorder text.
func isHarmful(c rune) bool {
	return c < ' ' && c != '\n' && c != '\t' || c >= 0x7f && c < 0xa0 || c >= 0x202a &&
		c <= 0x202e || c >= 0x2066 && c <= 0x2069
}

// mustBeText checks that a page with hostile names has the elements of its template and its scripts
// alone, and shows the names.
func mustBeText(r reader, s summary.Summary) {
	t := r.t
	t.Helper()
	pointAtEverything(r)
	if eval[bool](r, "window.__pwned !== undefined") {
		t.Error("a script from a name has run")
	}

	if foreign := eval[[]string](r,
		`[...document.querySelectorAll("img, iframe, object, embed, link, base, form, [onload], [onerror], svg[onload]")].map(e => e.outerHTML)`); len(foreign) > 0 {
		t.Errorf("there are %q", foreign)
	}
	if n := eval[int](r, "document.querySelectorAll('script').length"); n != 2 {
		t.Errorf("there are %d scripts, want the data and the script", n)
	}

	whole := eval[string](r, "document.documentElement.outerHTML")
	if i := strings.IndexFunc(whole, isHarmful); i >= 0 {
		t.Errorf("the page has %q", whole[max(0, i-40):min(len(whole), i+40)])
	}

	stacks := strings.Join(r.texts("table.rows ol.stack li"), "\n")
	frames := strings.Join(eval[[]string](r,
		`[...document.querySelectorAll("#flame-chart [aria-label]")].map(e => e.ariaLabel)`), "\n")
	for _, place := range []struct{ name, text, want string }{
		{"the text of the stacks", stacks, hostileMarkup},
		{"the flame graph", frames, hostileMarkup},
		{"the table of marks", r.text("#timeline details"), hostileMarkup},
		{"the table of processes", r.text("#processes"), hostileFile},
		{"the head", r.text("header.top"), hostileFile},
	} {
		if !strings.Contains(place.text, place.want) {
			t.Errorf("%s does not show %s:\n%.2000s", place.name, place.want, place.text)
		}
	}

	if !strings.Contains(stacks, strings.Repeat("long", 100)) || strings.Contains(stacks,
		strings.Repeat("long", 200)) {
		t.Error("a long name is not cut where it should be")
	}

	r.mustBeSound()
}

// pointAtEverything moves the mouse over elements that show names only then.
func pointAtEverything(r reader) {
	r.t.Helper()
	for part := range 5 {
		r.must(r.Move(r.box("#timeline-chart .u-over").At(float64(part)/5+0.1, 0.5)))
	}

	for _, f := range r.frames() {
		if f.Width > 10 {
			r.must(r.Move(f.middle()))
		}
	}
}
