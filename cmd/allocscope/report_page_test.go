package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// readable is the folder of a trace with its report, and a browser to read it with.
type readable struct {
	folder  string
	browser *pagetest.Browser
}

func (r readable) open(t *testing.T, view pagetest.View) reader {
	t.Helper()
	return openPage(t, r.browser, reportPath(r.folder), view)
}

// One trace of a real trainer, and everything that people do with its report.
func TestReportPage(t *testing.T) {
	t.Parallel()
	report := readable{traceForReport(t), pagetest.StartFor(t)}
	for _, c := range []struct {
		name  string
		check func(t *testing.T, report readable)
	}{
		{"is sound, accessible and no wider than the window in every view", checkViews},
		{"has a flame graph as wide as pprof counts", checkFlameWidths},
		{"has a flame graph that the keyboard moves in", checkFlameKeys},
		{"is printed with its charts and tables", checkPrint},
		{"is readable without scripts", checkNoScript},
		{"is served by view", checkServed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, report)
		})
	}
}

// traceForReport traces a trainer with workers that leaks by two lines.
func traceForReport(t *testing.T) string {
	t.Helper()
	const workers, labels, note = "2", "0", "131072"
	target := tracertest.Start(t, "/usr/bin/python3", tracertest.Source("loader.py"), workers, labels,
		note)
	t.Cleanup(target.Hangup)
	c, dir := tracing(t, ready(target), "--interval", "64KiB", "--snapshot-every", "1s")
	rows := func() int { return strings.Count(readFile(t, dir, folder.TimelineFile), "\n") }
	train := func(seconds int) {
		for range seconds {
			do(target, "4")
			before := rows()
			eventually(t, "the next second's row", func() bool { return rows() > before })
		}
	}

	for !hasFunction(t, dir, "Album.keep") { // stacks are cut while the unwind tables are made
		train(1)
	}

	train(12)
	c.interrupt()
	if len(readSummary(t, dir).Accumulating) < 2 {
		t.Fatal("fewer than two stacks accumulate: the test is wrong")
	}

	return dir
}

// hasFunction reports whether the newest snapshot names a function.
func hasFunction(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.pb.gz"))
	if err != nil || len(files) == 0 {
		return false
	}
	return slices.ContainsFunc(parseProfile(t, slices.Max(files)).Function,
		func(f *profile.Function) bool { return f.Name == name })
}

// chartsDrawn is true in a page whose scripts have run.
const chartsDrawn = "document.querySelector('#timeline-chart canvas') && " +
	"document.querySelector('#flame-chart svg g')"

func checkViews(t *testing.T, report readable) {
	verdict := readSummary(t, report.folder).Verdict
	for _, view := range views() {
		t.Run(view.String(), func(t *testing.T) {
			r := report.open(t, view)
			r.must(r.Await(chartsDrawn))
			if got := r.text("#verdict h1"); got != words.Name(verdict) {
				t.Errorf("the headline is %q, want %q", got, words.Name(verdict))
			}

			mustShowMoments(r, report.folder)
			r.openDetails()
			r.must(r.Settle())
			if width := eval[int64](r, "document.scrollingElement.scrollWidth"); width > view.Width {
				t.Errorf("the page is %d px wide", width)
			}
			if width := eval[int64](r, "innerWidth"); width > view.Width {
				t.Errorf("the window is zoomed out to %d px to hold the page", width)
			}

			r.mustBeAccessible()
			r.must(r.View(pagetest.View{Width: view.Width, Height: view.Height, Dark: !view.Dark}))
			r.mustBeSound()
		})
	}
}

func checkPrint(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	paper, err := r.Paper()
	r.must(err)
	if !bytes.HasPrefix(paper, []byte("%PDF-")) {
		t.Errorf("the paper is no PDF: %d bytes", len(paper))
	}

	r = report.open(t, pagetest.View{Width: 700, Dark: true, Print: true})
	r.mustShow("#verdict h1", "#timeline-chart canvas", "table.breakdown", "table.rows tbody tr",
		"#flame-chart svg g", "#reproduce pre")
	if tools := eval[[]string](r,
		"[...document.querySelectorAll('.toolbar button, .toolbar input')].filter(e => e.checkVisibility()).map(e => e.outerHTML)"); len(tools) > 0 {
		t.Errorf("on paper there are %q", tools)
	}

	r.mustBeSound()
}

func checkNoScript(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{NoScript: true})
	s := readSummary(t, report.folder)
	if n := eval[int](r, "document.querySelectorAll('canvas, button').length"); n > 0 {
		t.Fatalf("scripts have made %d elements: the test is wrong", n)
	}

	r.openDetails()
	mustSay(t, "the page", eval[string](r, "document.body.innerText"), s.Accumulating[0].Component,
		s.Accumulating[0].Stack[0], s.CommandLine[0])

	r.mustShow("#verdict h1", "table.breakdown", "table.rows tbody tr", "table.rows ol.stack li",
		"noscript p")
	if eval[bool](r,
		"document.querySelector('#timeline-chart').checkVisibility() && document.querySelector('#timeline-chart').getBoundingClientRect().height > 100") {
		t.Error("there is the empty place of a chart")
	}
}

// checkServed opens the report, the page that leads to it, and one of pprof's, as view serves
// them: its policies are stricter.
func checkServed(t *testing.T, report readable) {
	_, url := viewing(t, allocscope(t, "view", report.folder))
	index := openPage(t, report.browser, url, pagetest.View{})
	index.mustBeAccessible()
	index.mustBeSound()
	served := openPage(t, report.browser, url+"report", pagetest.View{})
	served.must(served.Await(chartsDrawn))
	mustFindFrames(served)
	served.mustBeSound()
	pprof := openPage(t, report.browser, url+"growth/flamegraph", pagetest.View{})
	pprof.must(pprof.Await("document.body.textContent.includes('Album.keep')"))
}

// A reader reads a page; a failure ends the test.
type reader struct {
	*pagetest.Page
	t *testing.T
}

// openPage opens a file. At the end of the test the page must have been sound all along.
func openPage(t *testing.T, browser *pagetest.Browser, path string, view pagetest.View) reader {
	t.Helper()
	page := tracertest.Must(browser.Open(path, view))(t)
	t.Cleanup(page.Close)
	return reader{page, t}
}

// must ends the test on an error.
func (r reader) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// mustBeSound checks that the page has done nothing that a sound page does not do.
func (r reader) mustBeSound() {
	r.t.Helper()
	faults, err := r.Faults()
	r.must(err)
	for _, fault := range faults {
		r.t.Error(fault)
	}
}

// eval returns the value of an expression in the page.
func eval[T any](r reader, format string, arguments ...any) (value T) {
	r.t.Helper()
	r.must(r.Evaluate(fmt.Sprintf(format, arguments...), &value))
	return value
}

// text of the first element that is selected.
func (r reader) text(selector string) string {
	r.t.Helper()
	return strings.TrimSpace(eval[string](r, "document.querySelector(%q).textContent", selector))
}

// textOnce is the text of an element once it is right, or its last text: a page draws some time
// after the mouse has moved.
func (r reader) textOnce(selector string, isRight func(string) bool) (text string) {
	r.t.Helper()
	for deadline := time.Now().Add(guard); ; time.Sleep(2 * time.Millisecond) {
		if text = r.text(selector); isRight(text) || time.Now().After(deadline) {
			return text
		}
	}
}

// texts of all elements that are selected.
func (r reader) texts(selector string) []string {
	r.t.Helper()
	return eval[[]string](r, "[...document.querySelectorAll(%q)].map(e => e.textContent.trim())",
		selector)
}

// box is where the first element that is selected lies.
func (r reader) box(selector string) pagetest.Box {
	r.t.Helper()
	box, err := r.Box(selector)
	r.must(err)
	return box
}

// mustShow checks that elements are large enough to be seen.
func (r reader) mustShow(selectors ...string) {
	r.t.Helper()
	for _, selector := range selectors {
		if box := r.box(selector); box.Width < 40 || box.Height < 10 {
			r.t.Errorf("%s is %+v", selector, box)
		}
	}
}

// openDetails opens all that can be opened.
func (r reader) openDetails() {
	r.t.Helper()
	r.must(r.Evaluate("document.querySelectorAll('details').forEach(d => d.open = true)", nil))
}

// mustBeAccessible asks axe-core, which knows what a page must have for readers who do not see or
// use no mouse.
func (r reader) mustBeAccessible() {
	r.t.Helper()
	script, err := os.ReadFile("../../export/page/web/node_modules/axe-core/axe.min.js")
	if err != nil {
		r.t.Fatalf("%v (run `make test`, or `npm ci` in export/page/web)", err)
	}

	violations, err := r.Violations(string(script))
	r.must(err)
	for _, v := range violations {
		r.t.Error(v)
	}
}

// tabTo presses Tab until the selected element has the focus.
func (r reader) tabTo(selector string) {
	r.t.Helper()
	const most = 500
	for range most {
		r.must(r.Press("\t"))
		if eval[bool](r, "document.activeElement.matches(%q)", selector) {
			return
		}
	}

	r.t.Fatalf("%s has no focus after %d presses of Tab", selector, most)
}

// views are the views in which the report must be readable: a desk and a phone, each in one theme.
// Colours depend on the theme, which does not depend on the width.
func views() []pagetest.View {
	return []pagetest.View{{Width: 1280}, {Width: 400, Height: 800, Dark: true}}
}

// reportPath is the report in the folder of a trace.
func reportPath(dir string) string { return filepath.Join(dir, "report.html") }
