package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page/pagetest"
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
	report := readable{traceForReport(t), startBrowser(t)}
	for _, c := range []struct {
		name  string
		check func(t *testing.T, report readable)
	}{
		{"opens without a word in the console, a request or a breach of its policy", checkOpening},
		{"fits a phone", checkPhone},
		{"is accessible", checkAccessible},
		{"shows the values under the mouse", checkHover},
		{"has a flame graph as wide as pprof counts", checkFlameWidths},
		{"finds functions in the flame graph", checkFlameSearch},
		{"has a flame graph that the keyboard moves in", checkFlameKeys},
		{"has rows that open", checkRows},
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

// traceForReport traces a trainer with workers that leaks by two lines, makes steps, rests for a
// while, and marks an epoch and a validation.
func traceForReport(t *testing.T) string {
	t.Helper()
	l := startLoader(t, 0, 128<<10)
	c, dir := tracing(t, l.Target, "--interval", "64KiB", "--snapshot-every", "1s")
	rows := func() int { return strings.Count(readFile(t, dir, folder.TimelineFile), "\n") - 1 }

	train := func(more int) {
		for wanted := rows() + more; rows() < wanted; {
			l.train(10)
		}
	}

	mark := func(text string) { call(t, "mark", "--pid", itoa(l.PID()), text).mustEnd(0) }
	for !hasFunction(t, dir, "Album.keep") { // stacks are cut while the unwind tables are made
		train(1)
	}

	train(6)
	mark("epoch 1")
	resting := rows()
	c.await("it has rested", func() bool { return rows() >= resting+5 })
	mark("validation")
	train(8)
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

func checkOpening(t *testing.T, report readable) {
	for _, view := range views() {
		t.Run(view.String(), func(t *testing.T) {
			r := report.open(t, view)
			r.must(r.Await("document.querySelector('#timeline-chart canvas') && document.querySelector('#flame-chart svg g')"))
			if got, want := r.text("#verdict h1"),
				string(readSummary(t, report.folder).Class); !strings.HasPrefix(
				strings.ToLower(got), strings.SplitN(want, "-", 2)[0]) {
				t.Errorf("the headline %q does not begin with the verdict %s", got, want)
			}

			r.must(r.View(pagetest.View{Width: view.Width, Height: view.Height, Dark: !view.Dark}))
			r.mustBeSound()
		})
	}
}

func checkPhone(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{Width: 400, Height: 800})
	r.must(r.Evaluate("document.querySelectorAll('details').forEach(d => d.open = true)", nil))
	r.must(r.Settle())
	if width := eval[int](r, "document.scrollingElement.scrollWidth"); width > 400 {
		wide := eval[[]string](r, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 400 &&
			!e.parentElement.closest(".scroll, svg")).map(e => e.tagName + "." + e.className).slice(0, 10)`)
		t.Errorf("the page is %d px wide, by %v", width, wide)
	}

	if width := eval[int](r, "innerWidth"); width != 400 {
		t.Errorf("the window is zoomed out to %d px to hold the page", width)
	}
}

func checkAccessible(t *testing.T, report readable) {
	axe := axeScript(t)
	for _, view := range views() {
		t.Run(view.String(), func(t *testing.T) {
			r := report.open(t, view)
			r.must(r.Evaluate("document.querySelectorAll('details').forEach(d => d.open = true)",
				nil))
			violations, err := r.Violations(axe)
			r.must(err)
			for _, v := range violations {
				t.Error(v)
			}
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
	for _, selector := range []string{
		"#verdict h1", "#timeline-chart canvas", "table.breakdown",
		"table.rows tbody tr", "#flame-chart svg g", "#reproduce pre",
	} {
		if box := r.box(selector); box.Width < 40 || box.Height < 10 {
			t.Errorf("%s is %+v on paper", selector, box)
		}
	}

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

	r.must(r.Evaluate("document.querySelectorAll('details').forEach(d => d.open = true)", nil))
	for _, text := range []string{
		s.Accumulating[0].Component, s.Accumulating[0].Stack[0],
		s.CommandLine[0],
	} {
		if said := eval[string](r, "document.body.innerText"); !strings.Contains(said, text) {
			t.Errorf("the page does not say %q", text)
		}
	}

	for _, selector := range []string{
		"#verdict h1", "table.breakdown", "table.rows tbody tr",
		"table.rows ol.stack li", "noscript p",
	} {
		if box := r.box(selector); box.Width < 40 || box.Height < 10 {
			t.Errorf("%s is %+v", selector, box)
		}
	}

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
	hrefs := eval[[]string](index,
		"[...document.querySelectorAll('main a')].map(a => a.getAttribute('href'))")

	for _, want := range []string{
		"report", "growth/flamegraph", "warmup/flamegraph",
		"plateau/flamegraph", "diff/flamegraph",
	} {
		if !slices.ContainsFunc(hrefs, func(href string) bool {
			return strings.TrimLeft(href,
				"./") == want
		}) {
			t.Errorf("the index leads to %q, not to %s", hrefs, want)
		}
	}

	violations, err := index.Violations(axeScript(t))
	index.must(err)
	for _, v := range violations {
		t.Error(v)
	}

	index.mustBeSound()
	served := openPage(t, report.browser, url+"report", pagetest.View{})
	served.must(served.Await(
		"document.querySelector('#timeline-chart canvas') && document.querySelector('#flame-chart svg g')"))
	served.must(served.Click(searchField))
	served.must(served.Press("Album.keep"))
	if !slices.ContainsFunc(served.frames(), func(f frame) bool { return f.Lit }) {
		t.Error("nothing is found in the flame graph")
	}

	served.mustBeSound()
	pprof := openPage(t, report.browser, url+"growth/flamegraph", pagetest.View{})
	pprof.must(pprof.Await("document.body.textContent.includes('Album.keep')"))
}

// startBrowser starts Chromium for a test.
func startBrowser(t *testing.T) *pagetest.Browser {
	t.Helper()
	browser, err := pagetest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(browser.Close)
	return browser
}

// A reader reads a page; what goes wrong ends the test.
type reader struct {
	*pagetest.Page
	t *testing.T
}

// openPage opens a file. At the end of the test the page must have been sound all along.
func openPage(t *testing.T, browser *pagetest.Browser, path string, view pagetest.View) reader {
	t.Helper()
	page, err := browser.Open(path, view)
	if err != nil {
		t.Fatal(err)
	}
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

// tabTo presses Tab until what is selected has the focus.
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

// views are those in which the report must be readable: two themes, a desk and a phone.
func views() []pagetest.View {
	return []pagetest.View{
		{Width: 1280},
		{Width: 1280, Dark: true},
		{Width: 400, Height: 800},
		{Width: 400, Height: 800, Dark: true},
	}
}

// axePath is where npm puts the script of axe-core.
const axePath = "../../export/page/web/node_modules/axe-core/axe.min.js"

// axeScript is axe-core, which knows what a page must have for readers who do not see or use no
// mouse.
func axeScript(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(axePath)
	if err != nil {
		t.Fatalf("%v (run `make test`, or `npm ci` in export/page/web)", err)
	}
	return string(script)
}

// reportPath is the report in the folder of a trace.
func reportPath(dir string) string { return filepath.Join(dir, "report.html") }

func checkRows(t *testing.T, report readable) {
	rows := readSummary(t, report.folder).Accumulating
	for _, width := range []int64{1280, 400} {
		r := report.open(t, pagetest.View{Width: width})
		for i, row := range rows {
			at := fmt.Sprintf("table.rows tbody tr:nth-child(%d)", i+1)
			if got := eval[string](r, "document.querySelector(%q).innerText", at+
				" ol.stack"); got != "" {
				t.Errorf("the stack of row %d is open: %q", i, got)
			}

			if i%2 == 0 {
				r.must(r.Click(at + " summary"))
			} else {
				r.must(r.Evaluate(fmt.Sprintf("document.querySelector(%q).focus()", at+" summary"),
					nil))
				r.must(r.Press([]string{"\r", " "}[i/2%2]))
			}

			visible := eval[[]string](r,
				"[...document.querySelectorAll(%q)].filter(e => e.checkVisibility()).map(e => e.textContent)", at+" ol.stack li")
			if !slices.Equal(visible, row.Stack) {
				t.Errorf("row %d shows %q, want %q", i, visible, row.Stack)
			}
		}

		r.must(r.Evaluate(
			"document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus()",
			nil))

		r.tabTo("table.rows summary")
		r.mustBeSound()
	}
}
