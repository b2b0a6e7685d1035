package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// mustShowMoments compares the values under the mouse with the rows of timeline.csv.
func mustShowMoments(r reader, dir string) {
	r.t.Helper()
	const (
		plot     = "#timeline-chart .u-over"
		moment   = "#timeline-chart .moment"
		shownRSS = `#timeline-chart .legend label:has([data-curve="rss"]) .value`
	)

	rows := readTimeline(r.t, dir)
	first, last := rows[0].Elapsed, rows[len(rows)-1].Elapsed
	for _, part := range []float64{0, 0.2, 0.4, 0.6, 0.8, 0.9} {
		row := rows[int(part*float64(len(rows)))]
		at := float64(row.Elapsed-first) / float64(last-first)
		r.must(r.Move(r.box(plot).At(max(at, 0.001), 0.4)))
		want := units.Bytes(float64(row.RSS))
		if got := r.textOnce(shownRSS, func(text string) bool { return text == want }); got != want {
			r.t.Errorf("RSS at %s is shown as %q, want %q", row.Elapsed, got, want)
		}

		second := int(math.Round(row.Elapsed.Seconds()))
		want = fmt.Sprintf("%d:%02d", second/60, second%60)
		isShown := func(text string) bool {
			return strings.Contains(text, want) && (row.Steps == growth.Unknown ||
				strings.Contains(text, fmt.Sprint("step ", row.Steps)))
		}
		if got := r.textOnce(moment, isShown); !isShown(got) {
			r.t.Errorf("%s is shown as %q, want %s and step %d", row.Elapsed, got, want, row.Steps)
		}
	}
}

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

// frames are those that are drawn, the widest first, in the order of their depth; the graph is
// scrolled into the window.
func (r reader) frames() []frame {
	r.t.Helper()
	frames := r.drawn()
	if len(frames) < 5 {
		r.t.Fatalf("%d frames are drawn", len(frames))
	}
	return frames
}

// drawn are frames, of a graph that may show a leaf alone.
func (r reader) drawn() []frame {
	r.t.Helper()
	r.must(r.Still("#flame-chart svg"))
	r.box("#flame-chart svg")

	frames := eval[[]frame](r, `[...document.querySelectorAll("#flame-chart svg g[role=treeitem]")].map(g => {
		const {x: X, y: Y, width: Width, height: Height} = g.querySelector("rect").getBoundingClientRect()
		return {Said: g.getAttribute("aria-label"), X, Y, Width, Height, Dim: g.hasAttribute("data-dim"), Lit: g.hasAttribute("data-lit")}
	})`)

	slices.SortStableFunc(frames, func(a, b frame) int {
		return int(1000*(a.Y-b.Y)) +
			int(b.Width-a.Width)
	})

	return frames
}

// visibleGrowth writes growth.pb.gz without stacks that shrank, which a flame graph cannot show, and
// sums the rest. Stacks that differ in addresses alone are one.
func visibleGrowth(t *testing.T, dir string) (path string, total float64) {
	t.Helper()
	p := readProfile(t, dir, folder.GrowthFile)
	for _, s := range p.Sample {
		s.Label, s.NumLabel = map[string][]string{"pid": s.Label["pid"]}, nil
	}

	p, err := profile.Merge([]*profile.Profile{p})
	must(t, err)

	isResident := func(v *profile.ValueType) bool { return v.Type == "resident_space" }
	index := slices.IndexFunc(p.SampleType, isResident)
	sums := make(map[string]int64)
	for _, s := range p.Sample {
		sums[linesOf(s)] += s.Value[index]
	}

	p.Sample = slices.DeleteFunc(p.Sample,
		func(s *profile.Sample) bool { return sums[linesOf(s)] < 0 })
	for _, s := range p.Sample {
		total += float64(s.Value[index])
	}

	path = filepath.Join(t.TempDir(), folder.GrowthFile)
	file, err := os.Create(path)
	if err == nil {
		err = errors.Join(p.Write(file), file.Close())
	}
	must(t, err)
	return path, total
}

// linesOf is the process, functions and lines of a sample.
func linesOf(s *profile.Sample) string {
	text := strings.Join(s.Label["pid"], ",")
	for _, l := range s.Location {
		for _, line := range l.Line {
			text += fmt.Sprintf("\n%s %s:%d", line.Function.Name, line.Function.Filename, line.Line)
		}
	}
	return text
}

// outermost returns the frames of a function that do not stand below another one of it.
func outermost(frames []frame, function string) (found []frame) {
	for _, f := range frames {
		isAbove := func(a frame) bool {
			return a.Y < f.Y && f.X > a.X-1 && f.X+f.Width < a.X+a.Width+1
		}
		if f.function() == function && !slices.ContainsFunc(found, isAbove) {
			found = append(found, f)
		}
	}
	return found
}

// checkFlameWidths compares the widths with pprof's sums, but for functions too small to be drawn.
func checkFlameWidths(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	frames := r.frames()
	whole := frames[0].Width
	path, total := visibleGrowth(t, report.folder)
	top := pprofTop(t, "-cum", "-unit=B", "-sample_index=resident_space", path)
	if len(top) < 5 {
		t.Fatalf("pprof prints %q", top)
	}

	for _, row := range top[:min(len(top), 60)] {
		columns := strings.SplitN(row, " ", 3) // flat, cum, name
		bytes, err := strconv.ParseFloat(strings.TrimSuffix(columns[1], "B"), 64)
		if err != nil {
			t.Fatalf("%q: %v", row, err)
		}

		function := strings.TrimSuffix(columns[2], " (inline)")
		width := 0.0
		for _, f := range outermost(frames, function) {
			width += f.Width
		}
		if want := bytes / total * whole; math.Abs(width-want) > 0.01*whole {
			t.Errorf("%s is %.1f of %.1f px wide, want %.1f: %.0f of %.0f bytes", function, width,
				whole, want, bytes, total)
		}
	}
	r.mustBeSound()
}

const searchField = "#flame-chart input[type=search]"

// mustFindFrames searches in the flame graph.
func mustFindFrames(r reader) {
	r.t.Helper()
	r.must(r.Click(searchField))
	r.must(r.Press("album.KEEP"))
	lit := 0

	for _, f := range r.frames() {
		fits := strings.Contains(f.Said[:strings.LastIndex(f.Said, ": ")], "Album.keep")
		if f.Lit != fits || f.Dim == fits {
			r.t.Errorf("%s is lit %v, dim %v", f.Said, f.Lit, f.Dim)
		}
		if fits {
			lit++
		}
	}

	if lit == 0 {
		r.t.Fatal("Album.keep is not drawn: the test is wrong")
	}

	r.must(r.Evaluate("document.querySelector('"+searchField+"').select()", nil))
	r.must(r.Press("\b"))
	if slices.ContainsFunc(r.frames(), func(f frame) bool { return f.Dim || f.Lit }) {
		r.t.Error("without a search something is highlighted")
	}
}

func checkFlameKeys(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	before := r.frames()
	r.tabTo("#flame-chart svg g")
	const down, enter, escape = "\u0301", "\r", "\u001b"

	said := func() string {
		return eval[string](r, "document.activeElement.getAttribute('aria-label')")
	}

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
	after := r.drawn()
	if at := slices.IndexFunc(after, func(f frame) bool { return f.Said == into }); at < 0 ||
		math.Abs(after[at].Width-before[0].Width) > 1 {
		t.Errorf("%s is not as wide as the graph after Enter", into)
	}

	r.must(r.Press(escape))
	isSame := func(a, b frame) bool { return a.Said == b.Said && math.Abs(a.Width-b.Width) < 1 }
	if again := r.frames(); !slices.EqualFunc(again, before, isSame) {
		t.Errorf("%d frames are drawn, not as the %d before:\n%+v\n%+v", len(again), len(before),
			again, before)
	}
	r.mustBeSound()
}
