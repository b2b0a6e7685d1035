package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/page/pagetest"
)

// A frame of the flame graph as it is drawn.
type frame struct {
	Said                string // for a screen reader
	X, Y, Width, Height float64
	Dim, Lit            bool
}

// name of the frame, without its file or library.
func (f frame) function() string {
	name := f.Said[:strings.LastIndex(f.Said, ": ")]
	if at := strings.LastIndex(name, " ("); at > 0 {
		name = name[:at]
	}
	return name
}

func (f frame) middle() pagetest.Point {
	return pagetest.Box{X: f.X, Y: f.Y, Width: f.Width, Height: f.Height}.At(0.5, 0.5)
}

// frames are those that are drawn, the widest first, in the order of their depth; the graph is scrolled into the window.
func (r reader) frames() []frame {
	r.t.Helper()
	r.must(r.Still("#flame-chart svg"))
	r.box("#flame-chart svg")
	frames := eval[[]frame](r, `[...document.querySelectorAll("#flame-chart svg g[role=treeitem]")].map(g => {
		const {x: X, y: Y, width: Width, height: Height} = g.querySelector("rect").getBoundingClientRect()
		return {Said: g.getAttribute("aria-label"), X, Y, Width, Height, Dim: g.hasAttribute("data-dim"), Lit: g.hasAttribute("data-lit")}
	})`)
	if len(frames) < 5 {
		r.t.Fatalf("%d frames are drawn", len(frames))
	}
	slices.SortStableFunc(frames, func(a, b frame) int { return int(1000*(a.Y-b.Y)) + int(b.Width-a.Width) })
	return frames
}

const searchField = "#flame-chart input[type=search]"

func checkFlameSearch(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	r.must(r.Click(searchField))
	r.must(r.Press("album.KEEP"))
	var bright float64
	lit := 0
	for _, f := range r.frames() {
		fits := strings.Contains(f.Said[:strings.LastIndex(f.Said, ": ")], "Album.keep")
		if f.Lit != fits || f.Dim == fits {
			t.Errorf("%s is lit %v, dim %v", f.Said, f.Lit, f.Dim)
		}
		if fits {
			lit++
			bright += f.Width
		}
	}
	if lit == 0 {
		t.Fatal("Album.keep is not drawn: the test is wrong")
	}
	said := r.text("#flame-chart .found")
	var count int
	if n, _ := fmt.Sscan(said, &count); n != 1 || count < lit {
		t.Errorf("%q are found, %d frames are lit", said, lit)
	}
	if got, want := partIn(t, said), pprofShare(t, report.folder, "Album.keep"); math.Abs(got-want) > 1 {
		t.Errorf("%q is found, want %.1f %%", said, want)
	}
	r.must(r.Evaluate("document.querySelector('"+searchField+"').select()", nil))
	r.must(r.Press("\b"))
	if slices.ContainsFunc(r.frames(), func(f frame) bool { return f.Dim || f.Lit }) {
		t.Error("without a search something is highlighted")
	}
	r.mustBeSound()
}

// partIn is the first number before a percent sign.
func partIn(t *testing.T, text string) float64 {
	t.Helper()
	before, _, _ := strings.Cut(text, " %")
	part, err := strconv.ParseFloat(before[strings.LastIndex(before, " ")+1:], 64)
	if err != nil {
		t.Fatalf("there is no share in %q", text)
	}
	return part
}

// pprofShare is a function's part of all that grew, in percent.
func pprofShare(t *testing.T, folder, function string) float64 {
	t.Helper()
	top, total := topByPprof(t, folder, "resident_space", 60)
	for _, c := range top {
		if c.function == function {
			return 100 * c.value / total
		}
	}
	t.Fatalf("pprof does not know %s", function)
	return 0
}

func checkFlameZoom(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	before := r.frames()
	whole := before[0].Width
	into := before[slices.IndexFunc(before, func(f frame) bool { return f.function() == "Album.keep" })]
	r.must(r.ClickAt(into.middle()))
	after := r.frames()
	at := slices.IndexFunc(after, func(f frame) bool { return f.Said == into.Said })
	if at < 0 || math.Abs(after[at].Width-whole) > 1 {
		t.Errorf("%s is not as wide as the graph after a click", into.Said)
	}
	r.must(r.Evaluate(`[...document.querySelectorAll("#flame-chart button")].find(b => b.textContent == "Show all").id = "show-all"`, nil))
	r.must(r.Click("#show-all"))
	mustLookLike(t, r.frames(), before)
	r.mustBeSound()
}

// mustLookLike wants the same frames with the same widths.
func mustLookLike(t *testing.T, got, want []frame) {
	t.Helper()
	same := slices.EqualFunc(got, want, func(a, b frame) bool { return a.Said == b.Said && math.Abs(a.Width-b.Width) < 1 })
	if !same {
		t.Errorf("%d frames are drawn, not as the %d before:\n%+v\n%+v", len(got), len(want), got, want)
	}
}

func checkFlameObjects(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	before := r.frames()
	r.must(r.Click(`#flame-chart input[value="objects"]`))
	after := r.frames()
	top, total := topByPprof(t, report.folder, "inuse_objects", 15)
	mustBeAsWide(t, top, total, after)
	if slices.EqualFunc(before, after, func(a, b frame) bool { return a.Said == b.Said && a.Width == b.Width }) {
		t.Error("by objects the frames are as wide as by bytes")
	}
	r.mustBeSound()
}

func checkFlameKeys(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	before := r.frames()
	r.tabTo("#flame-chart svg g")
	const down, enter, escape = "\u0301", "\r", "\u001b"
	said := func() string { return eval[string](r, "document.activeElement.getAttribute('aria-label')") }
	if got := said(); got != before[0].Said {
		t.Errorf("Tab leads to %q, want the outermost frame, %q", got, before[0].Said)
	}
	r.must(r.Press(down))
	if got := said(); got != before[1].Said {
		t.Errorf("the arrow leads to %q, want the widest frame below, %q", got, before[1].Said)
	}
	for range 3 {
		r.must(r.Press(down))
	}
	into := said()
	r.must(r.Press(enter))
	after := r.frames()
	if at := slices.IndexFunc(after, func(f frame) bool { return f.Said == into }); at < 0 || math.Abs(after[at].Width-before[0].Width) > 1 {
		t.Errorf("%s is not as wide as the graph after Enter", into)
	}
	r.must(r.Press(escape))
	mustLookLike(t, r.frames(), before)
	r.mustBeSound()
}
