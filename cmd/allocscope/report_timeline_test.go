package main

import (
	"encoding/csv"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/export/units"
)

// A timeline is the columns of timeline.csv, by name; NaN where a field is empty.
type timeline map[string][]float64

func readTimelineFile(t *testing.T, dir string) timeline {
	t.Helper()
	records, err := csv.NewReader(strings.NewReader(readFile(t, dir, folder.TimelineFile))).ReadAll()
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

// A plot is the timeline of a page, which shows a stretch of an axis.
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

func known(values []float64) []float64 { return slices.DeleteFunc(slices.Clone(values), math.IsNaN) }

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

// mustShow wants the values of a row, as the CSV has them, in the legend.
func (p *plot) mustShow(row int) {
	p.t.Helper()
	second := int(math.Round(p.timeline["time_s"][row]))
	want := units.Bytes(p.timeline["rss_bytes"][row])
	if got := p.text(shownRSS); got != want {
		p.t.Errorf("RSS of row %d (%.3f s) is shown as %q, want %q", row, p.timeline["time_s"][row], got, want)
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

// place is where a row lies, from 0 to 1, and whether no other row lies so near that the mouse cannot tell them apart.
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

// mustSpan points at rows along the plot, and wants those that lie there between these values of the axis.
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
		p.t.Errorf("%d rows between %g and %g can be told apart: the test is wrong", shown, from, to)
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
	p.must(p.Evaluate(`[...document.querySelectorAll("#timeline-chart button")].find(b => b.textContent == "Show all").id = "show-all"`, nil))
	p.must(p.Click("#show-all"))
	p.mustSpan(from, to)
	p.mustBeSound()
}

// While the trainer rests the steps stand still: the rows in the middle of the steps are not those in the middle of the time.
func checkSteps(t *testing.T, report readable) {
	p := report.plot(t, pagetest.View{})
	before := p.drawing("#timeline-chart canvas")
	p.must(p.Click(stepsAxis))
	if p.drawing("#timeline-chart canvas") == before {
		t.Error("the axis of steps looks like that of time")
	}
	moved := 0
	for _, part := range []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9} {
		p.along("time_s")
		byTime := p.at(part)
		p.along("steps")
		row := p.at(part)
		place, alone := p.place(row)
		if !alone || row == byTime {
			continue
		}
		moved++
		p.point(place)
		if got, want := p.text(shownAt), "step "+strconv.FormatFloat(p.timeline["steps"][row], 'f', 0, 64); !strings.Contains(got, want) {
			t.Errorf("at %.2f the moment is %q, want %q", place, got, want)
		}
	}
	if moved < 2 {
		t.Errorf("%d rows lie elsewhere by steps than by time: the test is wrong", moved)
	}
	p.must(p.Click(`#timeline-chart input[value="time"]`))
	p.along("time_s")
	p.mustSpan(p.from, p.to)
	p.mustBeSound()
}

func checkCurves(t *testing.T, report readable) {
	p := report.plot(t, pagetest.View{})
	p.must(p.Move(pagetest.Point{X: 1, Y: 1}))
	with := p.drawing("#timeline-chart canvas")
	p.must(p.Click(curveRSS))
	if eval[bool](p.reader, "document.querySelector(%q).checked", curveRSS) || p.drawing("#timeline-chart canvas") == with {
		t.Error("RSS is drawn though it is turned off")
	}
	p.must(p.Click(curveRSS))
	if p.drawing("#timeline-chart canvas") != with {
		t.Error("RSS turned off and on again is not drawn as before")
	}
	p.mustBeSound()
}

func checkTimelineKeys(t *testing.T, report readable) {
	p := report.plot(t, pagetest.View{})
	p.tabTo(slider)
	row := func() int {
		return eval[int](p.reader, "+document.querySelector(%q).getAttribute('aria-valuenow')", slider)
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
	said := eval[string](p.reader, "document.querySelector(%q).getAttribute('aria-valuetext')", slider)
	if want := "RSS " + units.Bytes(p.timeline["rss_bytes"][first+1]); !strings.Contains(said, want) {
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
