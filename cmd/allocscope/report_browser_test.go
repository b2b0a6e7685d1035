package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/page/pagetest"
)

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

// mustBeSound wants that the page has done nothing that a sound page does not do.
func (r reader) mustBeSound() {
	r.t.Helper()
	faults, err := r.Faults()
	r.must(err)
	for _, fault := range faults {
		r.t.Error(fault)
	}
}

// eval gives the value of an expression in the page.
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
	return eval[[]string](r, "[...document.querySelectorAll(%q)].map(e => e.textContent.trim())", selector)
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

// drawing is what a canvas or an SVG shows.
func (r reader) drawing(selector string) string {
	r.t.Helper()
	return eval[string](r, `(e => e.toDataURL ? e.toDataURL() : e.outerHTML)(document.querySelector(%q))`, selector)
}

// views are those in which the report must be readable: two themes, a desk and a phone.
func views() []pagetest.View {
	return []pagetest.View{{Width: 1280}, {Width: 1280, Dark: true}, {Width: 400, Height: 800}, {Width: 400, Height: 800, Dark: true}}
}

// axePath is where npm puts the script of axe-core.
const axePath = "../../export/page/web/node_modules/axe-core/axe.min.js"

// axeScript is axe-core, which knows what a page must have for readers who do not see or use no mouse.
func axeScript(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(axePath)
	if err != nil {
		t.Fatalf("%v (run `make test`, or `npm ci` in export/page/web)", err)
	}
	return string(script)
}

// A size as people read it.
var sizeWords = regexp.MustCompile(`([0-9.]+) ([KMG]?i?B)\b`)

// sizeIn is the first size in a text, in bytes.
func sizeIn(t *testing.T, text string) float64 {
	t.Helper()
	found := sizeWords.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("there is no size in %q", text)
	}
	number, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return number * map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[found[2]]
}

// reportPath is the report in the folder of a trace.
func reportPath(folder string) string { return filepath.Join(folder, "report.html") }
