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

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/export/words"
)

// timeline is the columns of timeline.csv, by name; NaN where a field is empty.
type timeline map[string][]float64

func readTimelineFile(t *testing.T, folder string) timeline {
	t.Helper()
	records, err := csv.NewReader(strings.NewReader(readFile(t, folder,
		export.TimelineFile))).ReadAll()
	if err != nil || len(records) < 10 {
		t.Fatalf("%d rows of %s: %v", len(records), export.TimelineFile, err)
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
	want := words.Bytes(p.timeline["rss_bytes"][row])
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

func checkDrag(t *testing.T, report readable) {
	p := report.plot(t, pagetest.View{})
	from, to := p.from, p.to
	area := p.box(plotArea)
	p.must(p.Drag(area.At(0.25, 0.5), area.At(0.5, 0.5)))
	p.mustSpan(from+0.25*(to-from), from+0.5*(to-from))
	p.must(p.Evaluate(
		`[...document.querySelectorAll("#timeline-chart button")].find(b => b.textContent == "Show all").id = "show-all"`, nil))
	p.must(p.Click("#show-all"))
	p.mustSpan(from, to)
	p.mustBeSound()
}

func checkTimelineKeys(t *testing.T, report readable) {
	p := report.plot(t, pagetest.View{})
	p.tabTo(slider)
	row := func() int {
		return eval[int](p.reader, "+document.querySelector(%q).getAttribute('aria-valuenow')",
			slider)
	}

	const left, right, escape = "\u0302", "\u0303", "\u001b"
	p.must(p.Press(right))
	first := row()
	p.mustShow(first)
	p.must(p.Press(right))
	p.must(p.Press(right))
	if row() != first+2 {
		t.Errorf("two steps to the right of row %d lead to row %d", first, row())
	}

	p.must(p.Press(left))
	p.mustShow(first + 1)
	said := eval[string](p.reader, "document.querySelector(%q).getAttribute('aria-valuetext')",
		slider)
	if want := "RSS " + words.Bytes(p.timeline["rss_bytes"][first+1]); !strings.Contains(said,
		want) {
		t.Errorf("a screen reader says %q, want %q in it", said, want)
	}

	from, to := p.from, p.to
	whole := p.drawing("#timeline-chart canvas")
	p.must(p.Press("+"))
	if p.drawing("#timeline-chart canvas") == whole {
		t.Error("+ does not zoom in")
	}

	p.must(p.Press(escape))
	p.mustSpan(from, to)
	p.mustBeSound()
}

// cumulated is a line of `go tool pprof -top -cum`.
type cumulated struct {
	function string
	value    float64
}

// grown is growth.pb.gz without the stacks of which a sample type shrank: the flame graph cannot
// show them, and says so. Stacks that differ in addresses alone are one.
func grown(t *testing.T, folder, sampleType string) (p *profile.Profile, total float64) {
	t.Helper()
	p = readProfile(t, folder, export.GrowthFile)
	for _, s := range p.Sample {
		s.Label, s.NumLabel = map[string][]string{"pid": s.Label["pid"]},
			nil // those of a stack become one
	}

	err := p.RemoveUninteresting()
	if err == nil {
		p, err = profile.Merge([]*profile.Profile{p})
	}

	if err != nil {
		t.Fatal(err)
	}

	index := slices.IndexFunc(p.SampleType,
		func(s *profile.ValueType) bool { return s.Type == sampleType })
	sums := make(map[string]int64)
	for _, s := range p.Sample {
		sums[stackOf(s)] += s.Value[index]
	}

	p.Sample = slices.DeleteFunc(p.Sample,
		func(s *profile.Sample) bool { return sums[stackOf(s)] < 0 })
	for _, s := range p.Sample {
		total += float64(s.Value[index])
	}

	return p, total
}

// stackOf is the functions and lines of a sample.
func stackOf(s *profile.Sample) string {
	text := strings.Join(s.Label["pid"], ",")
	for _, l := range s.Location {
		for _, line := range l.Line {
			text += fmt.Sprintf("\n%s %s:%d", line.Function.Name, line.Function.Filename, line.Line)
		}
	}
	return text
}

// topByPprof asks pprof for the functions with most of a sample type, and returns the sum of all.
func topByPprof(t *testing.T, folder, sampleType string, n int) (top []cumulated, total float64) {
	t.Helper()
	p, total := grown(t, folder, sampleType)
	path := filepath.Join(t.TempDir(), export.GrowthFile)
	file, err := os.Create(path)
	if err == nil {
		err = errors.Join(p.Write(file), file.Close())
	}

	if err != nil {
		t.Fatal(err)
	}

	out, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-unit=B", "-nodecount="+
		strconv.Itoa(n), "-sample_index="+sampleType, path).Output()
	if err != nil {
		t.Fatal(err)
	}

	_, table, _ := strings.Cut(string(out), "cum%\n")
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(strings.TrimSuffix(fields[3], "B"), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}

		top = append(top, cumulated{
			strings.TrimSuffix(strings.Join(fields[5:], " "), " (inline)"),
			value,
		})
	}

	if len(top) < 5 {
		t.Fatalf("pprof says\n%s", out)
	}

	return top, total
}

// outermost are the frames of a function that do not stand below another one of it.
func outermost(frames []frame, function string) []frame {
	var found []frame
	for _, f := range frames {
		if f.function() == function && !slices.ContainsFunc(found, func(above frame) bool {
			return above.Y < f.Y && f.X > above.X-1 && f.X+f.Width < above.X+above.Width+1
		}) {
			found = append(found, f)
		}
	}
	return found
}

// mustBeAsWide checks for the widths that pprof counts, but for what is too small to be drawn.
func mustBeAsWide(t *testing.T, top []cumulated, total float64, frames []frame) {
	t.Helper()
	whole := frames[0].Width
	for _, c := range top {
		width := 0.0
		for _, f := range outermost(frames, c.function) {
			width += f.Width
		}
		if want := c.value / total * whole; math.Abs(width-want) > 0.01*whole {
			t.Errorf("%s is %.1f of %.1f px wide, want %.1f: %.0f of %.0f", c.function, width,
				whole, want, c.value, total)
		}
	}
}

func checkFlameWidths(t *testing.T, report readable) {
	r := report.open(t, pagetest.View{})
	frames := r.frames()
	top, total := topByPprof(t, report.folder, "resident_space", 60)
	mustBeAsWide(t, top, total, frames)
	read := 0

	for _, c := range top {
		drawn, said, pointed := 0.0, 0.0, 0
		for _, f := range outermost(frames, c.function) {
			size := f.Width / frames[0].Width * total
			drawn += size
			if f.Width > 3 { // the mouse can be moved to it
				size = sizeUnderTheMouse(t, r, f)
				pointed++
			}
			said += size
		}

		// mustBeAsWide says how much may be too small to be drawn
		if want := min(c.value, drawn); math.Abs(said-want) > 0.01*want {
			t.Errorf("over the frames of %s there are %s, want %s of %s", c.function,
				words.Bytes(said), words.Bytes(want), words.Bytes(c.value))
		}

		read += min(pointed, 1)
	}

	if read < 5 {
		t.Errorf("%d functions can be pointed at: the test is wrong", read)
	}

	r.mustBeSound()
}

// sizeUnderTheMouse is what the flame graph tells of a frame that the mouse is moved to, in bytes.
func sizeUnderTheMouse(t *testing.T, r reader, f frame) float64 {
	t.Helper()
	r.must(r.Move(f.middle()))
	got := r.text("#flame-chart .details")
	if !strings.HasPrefix(got, f.function()) {
		t.Errorf("over %s there is %q", f.function(), got)
	}
	return sizeIn(t, strings.TrimPrefix(got, f.function()))
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
