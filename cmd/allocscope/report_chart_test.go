package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/export/units"
)

// timeline is the columns of timeline.csv, by name; NaN where a field is empty.
type timeline map[string][]float64

func readTimelineFile(t *testing.T, dir string) timeline {
	t.Helper()
	records, err := csv.NewReader(strings.NewReader(readFile(t, dir,
		folder.TimelineFile))).ReadAll()
	if err != nil || len(records) < 10 {
		t.Fatalf("%d rows of %s: %v", len(records), folder.TimelineFile, err)
	}

	columns := make(timeline)
	for column, name := range records[0] {
		for _, record := range records[1:] {
			value, err := strconv.ParseFloat(record[column], 64)
			if err != nil {
				value = math.NaN()
			}
			columns[name] = append(columns[name], value)
		}
	}

	return columns
}

// plot is the timeline of a page, which shows a stretch of an axis.
type plot struct {
	reader
	timeline
	axis     string // the column along the axis
	from, to float64
}

const (
	plotArea  = "#timeline-chart .u-over"
	shownAt   = "#timeline-chart .moment"
	slider    = "#timeline-chart [role=slider]"
	shownRSS  = `#timeline-chart .legend label:has([data-curve="rss"]) .value`
	curveRSS  = `#timeline-chart .legend label:has([data-curve="rss"]) input`
	stepsAxis = `#timeline-chart input[value="step"]`
)

func (report readable) plot(t *testing.T, view pagetest.View) *plot {
	t.Helper()
	p := &plot{reader: report.open(t, view), timeline: readTimelineFile(t, report.folder)}
	p.along("time_s")
	return p
}

// along says that the plot shows the whole of an axis.
func (p *plot) along(axis string) {
	p.axis = axis
	p.from, p.to = slices.Min(known(p.timeline[axis])), slices.Max(known(p.timeline[axis]))
}

func known(values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), math.IsNaN)
}

// point moves the mouse to a place from 0, the left end of the plot, to 1.
func (p *plot) point(part float64) {
	p.t.Helper()
	p.must(p.Move(p.box(plotArea).At(part, 0.4)))
}

// at is the row that lies nearest to a place of the plot, of those that it shows.
func (p *plot) at(part float64) int {
	place, nearest, least := p.from+part*(p.to-p.from), -1, math.Inf(1)
	for row, value := range p.timeline[p.axis] {
		if value < p.from || value > p.to {
			continue
		}
		if distance := math.Abs(value - place); distance < least {
			nearest, least = row, distance
		}
	}
	return nearest
}

// mustShow checks for the values of a row, as the CSV has them, in the legend.
func (p *plot) mustShow(row int) {
	p.t.Helper()
	second := int(math.Round(p.timeline["time_s"][row]))
	want := units.Bytes(p.timeline["rss_bytes"][row])
	if got := p.text(shownRSS); got != want {
		p.t.Errorf("RSS of row %d (%.3f s) is shown as %q, want %q", row, p.timeline["time_s"][row],
			got, want)
	}

	wanted := []string{"0:" + strconv.Itoa(100 + second)[1:]}
	if steps := p.timeline["steps"][row]; !math.IsNaN(steps) {
		wanted = append(wanted, "step "+strconv.FormatFloat(steps, 'f', 0, 64))
	}

	for _, text := range wanted {
		if got := p.text(shownAt); !strings.Contains(got, text) {
			p.t.Errorf("the moment of row %d is shown as %q, want %q in it", row, got, text)
		}
	}
}

// place is where a row lies, from 0 to 1, and whether no other row lies so near that the mouse
// cannot tell them apart.
func (p *plot) place(row int) (part float64, alone bool) {
	const apart = 4 // px
	pixels := p.box(plotArea).Width / (p.to - p.from)
	value := p.timeline[p.axis][row]
	near := 0

	for _, other := range p.timeline[p.axis] {
		if math.Abs(other-value)*pixels < apart {
			near++
		}
	}
	return (value - p.from) / (p.to - p.from), near == 1
}

// mustSpan points at rows along the plot, and checks for those that lie there between these values
// of the axis.
func (p *plot) mustSpan(from, to float64) {
	p.t.Helper()
	p.from, p.to = from, to
	shown := 0

	for _, part := range []float64{0.02, 0.2, 0.41, 0.6, 0.83, 0.98} {
		row := p.at(part)
		if place, alone := p.place(row); alone {
			p.point(min(max(place, 0.001), 0.999))
			p.mustShow(row)
			shown++
		}
	}

	if shown < 4 {
		p.t.Errorf("%d rows between %g and %g can be told apart: the test is wrong", shown, from,
			to)
	}
}

func checkHover(t *testing.T, report readable) {
	for _, view := range views() {
		p := report.plot(t, view)
		p.mustSpan(p.from, p.to)
		p.mustBeSound()
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
	r.must(r.Still("#flame-chart svg"))
	r.box("#flame-chart svg")

	frames := eval[[]frame](r, `[...document.querySelectorAll("#flame-chart svg g[role=treeitem]")].map(g => {
		const {x: X, y: Y, width: Width, height: Height} = g.querySelector("rect").getBoundingClientRect()
		return {Said: g.getAttribute("aria-label"), X, Y, Width, Height, Dim: g.hasAttribute("data-dim"), Lit: g.hasAttribute("data-lit")}
	})`)

	if len(frames) < 5 {
		r.t.Fatalf("%d frames are drawn", len(frames))
	}

	slices.SortStableFunc(frames, func(a, b frame) int {
		return int(1000*(a.Y-b.Y)) +
			int(b.Width-a.Width)
	})

	return frames
}

// A cumulatedRow is a row of `go tool pprof -top -cum`.
type cumulatedRow struct {
	function string
	bytes    float64
}

// visibleGrowth is growth.pb.gz without stacks that shrank, which a flame graph cannot show. Stacks
// that differ in addresses alone are one.
func visibleGrowth(t *testing.T, dir string) (p *profile.Profile, total float64) {
	t.Helper()
	p = readProfile(t, dir, folder.GrowthFile)
	for _, s := range p.Sample {
		s.Label, s.NumLabel = map[string][]string{"pid": s.Label["pid"]}, nil
	}

	err := p.RemoveUninteresting()
	if err == nil {
		p, err = profile.Merge([]*profile.Profile{p})
	}
	if err != nil {
		t.Fatal(err)
	}

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
	return p, total
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

// pprofCumulated returns pprof's functions with most resident bytes, and the sum of all.
func pprofCumulated(t *testing.T, dir string) (top []cumulatedRow, total float64) {
	t.Helper()
	p, total := visibleGrowth(t, dir)
	path := filepath.Join(t.TempDir(), folder.GrowthFile)
	file, err := os.Create(path)
	if err == nil {
		err = errors.Join(p.Write(file), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}

	out, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-unit=B", "-nodecount=60",
		"-sample_index=resident_space", path).Output()
	if err != nil {
		t.Fatal(err)
	}

	_, table, _ := strings.Cut(string(out), "cum%\n")
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		bytes, err := strconv.ParseFloat(strings.TrimSuffix(fields[3], "B"), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		function := strings.TrimSuffix(strings.Join(fields[5:], " "), " (inline)")
		top = append(top, cumulatedRow{function, bytes})
	}

	if len(top) < 5 {
		t.Fatalf("pprof prints\n%s", out)
	}
	return top, total
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

// checkFlameWidths compares the widths with pprof's sums, but for what is too small to be drawn.
func checkFlameWidths(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	frames := r.frames()
	top, total := pprofCumulated(t, report.folder)
	whole := frames[0].Width

	for _, row := range top {
		width := 0.0
		for _, f := range outermost(frames, row.function) {
			width += f.Width
		}
		if want := row.bytes / total * whole; math.Abs(width-want) > 0.01*whole {
			t.Errorf("%s is %.1f of %.1f px wide, want %.1f: %.0f of %.0f bytes", row.function,
				width, whole, want, row.bytes, total)
		}
	}
	r.mustBeSound()
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

	r.must(r.Evaluate("document.querySelector('"+searchField+"').select()", nil))
	r.must(r.Press("\b"))
	if slices.ContainsFunc(r.frames(), func(f frame) bool { return f.Dim || f.Lit }) {
		t.Error("without a search something is highlighted")
	}

	r.mustBeSound()
}

// mustLookLike checks for the same frames with the same widths.
func mustLookLike(t *testing.T, got, want []frame) {
	t.Helper()
	same := slices.EqualFunc(got, want, func(a, b frame) bool {
		return a.Said == b.Said &&
			math.Abs(a.Width-b.Width) < 1
	})

	if !same {
		t.Errorf("%d frames are drawn, not as the %d before:\n%+v\n%+v", len(got), len(want), got,
			want)
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
	after := r.frames()
	if at := slices.IndexFunc(after, func(f frame) bool { return f.Said == into }); at < 0 ||
		math.Abs(after[at].Width-before[0].Width) > 1 {
		t.Errorf("%s is not as wide as the graph after Enter", into)
	}

	r.must(r.Press(escape))
	mustLookLike(t, r.frames(), before)
	r.mustBeSound()
}
