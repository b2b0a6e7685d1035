package ranks

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export/page"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/verdict"
)

//go:embed ranks.html
var bodyText string

var body = template.Must(template.New("ranks").Parse(bodyText))

// A view is the data of the template.
type view struct {
	*Result
	// Class of the verdict in whose colour the heading is.
	Class string
	// Count is the number of ranks, and Difference the sentence on the comparison.
	Count, Difference string
	Plot              *plot
	HasNode           bool
	Rows              []rowView
	RowsNote          string
	// Tables of the comparison; empty: there is none.
	Tables template.HTML
}

// A rowView is a row of the table of ranks. Values are for sorting.
type rowView struct {
	Name, Node, RSS, Rate, Interval, Verdict, Z, Chance, Where string
	RSSValue, RateValue, ChanceValue                           string
	StandsOut                                                  bool
}

// maxShownRanks bounds the ranks of a page. The JSON has all.
const maxShownRanks = 10_000

// WriteHTML writes the result as a page. The error comes from w.
func (r *Result) WriteHTML(w io.Writer) error {
	v := view{
		Result: r, Class: string(classOf[r.Outcome]),
		Count: units.Plural(len(r.Ranks), "rank", "ranks"), Plot: r.plot(),
	}
	shown := r.Ranks[:min(maxShownRanks, len(r.Ranks))]
	for i := range shown {
		v.Rows = append(v.Rows, shown[i].view())
		v.HasNode = v.HasNode || shown[i].Node != ""
	}
	if more := len(r.Ranks) - len(shown); more > 0 {
		v.RowsNote = words.MoreRanks(more, nil, nil) + ": see --json."
	}

	if c := r.Comparison; c != nil {
		v.Difference = c.sentence()
		var tables strings.Builder
		if err := c.result.WriteTables(&tables, title(c.MedianRank), title(c.Rank)); err != nil {
			return err
		}
		v.Tables = template.HTML(tables.String())
	}

	var text strings.Builder
	if err := body.ExecuteTemplate(&text, "body", v); err != nil {
		return err
	}
	return page.Write(w, page.Page{
		Title: strings.TrimSpace("allocscope ranks " + r.Job), Body: template.HTML(text.String()),
	})
}

// classOf has the verdicts in whose colours the outcomes are shown.
var classOf = map[Outcome]verdict.Class{
	OutcomeOutlier: verdict.ClassLeak, OutcomeNone: verdict.ClassPlateau,
	OutcomeUnknown: verdict.ClassTooShort,
}

// title is a name as the title of a column: "Rank 3".
func title(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

func (k *Rank) view() rowView {
	cells := k.cells()
	v := rowView{
		Name: title(k.Name), Node: k.Node, RSS: cells[2], Rate: cells[3], Interval: cells[4],
		Verdict: cells[5], Z: cells[6], Chance: cells[7], Where: k.Where, StandsOut: k.StandsOut,
	}
	if k.RSS != nil {
		v.RSSValue = strconv.FormatInt(*k.RSS, 10)
	}
	if k.Rate != nil {
		v.RateValue = strconv.FormatFloat(*k.Rate, 'f', 0, 64)
	}
	if k.Chance != nil {
		v.ChanceValue = strconv.FormatFloat(*k.Chance, 'g', -1, 64)
	}
	return v
}

// A plot shows the growth of each rank as a dot, with its interval where there is room, in the order
// of their numbers.
type plot struct {
	Width, Height, Left, Right, TextX, NameY int
	MedianY                                  float64
	Label                                    string
	Ticks                                    []tick
	Names                                    []textAt
	Dots                                     []dot
	Marks                                    []textAt
}

type tick struct {
	Y, TextY float64
	Text     string
}

type textAt struct {
	X, Y        float64
	Class, Text string
}

type dot struct {
	X, Y, LowY, HighY, Radius float64
	Out, Bar                  bool
	Title                     string
}

const (
	plotWidth, plotHeight = 1200, 320
	plotLeft, plotRight   = 96, 1180
	plotTop, plotBottom   = 24, 280
	// maxBars is the number of ranks up to which there is room for intervals.
	maxBars = 128
	// minOutRadius is the radius of the dot of a rank that stands out, among thousands.
	minOutRadius = 5
	// maxNames and maxMarks bound the numbers below the plot, and the names of outliers in it.
	maxNames, maxMarks = 16, 8
)

// plot returns the plot of the ranks whose growth is known; nil: there are none.
func (r *Result) plot() *plot {
	shown := r.Ranks[:min(r.Judged, maxShownRanks)]
	if len(shown) == 0 {
		return nil
	}
	order := make([]*Rank, len(shown))
	for i := range shown {
		order[i] = &shown[i]
	}
	slices.SortStableFunc(order, func(a, b *Rank) int { return cmp.Compare(a.number(), b.number()) })

	scale := scaleOf(order, *r.Median)
	p := &plot{
		Width: plotWidth, Height: plotHeight, Left: plotLeft, Right: plotRight, TextX: plotLeft - 10,
		NameY: plotBottom + 26, MedianY: scale.y(*r.Median),
		Label: fmt.Sprintf("Each dot is a rank, in the order of their numbers. Its height is its "+
			"growth a minute; the dashed line is the median, %s/min.", units.Signed(*r.Median)),
	}
	for _, x := range scale.ticks() {
		y := scale.y(x)
		p.Ticks = append(p.Ticks, tick{y, y + 5, units.Signed(x)})
	}

	step := float64(plotRight-plotLeft) / float64(len(order))
	radius := min(max(step/3, 2), 6)
	var out []dot // above the others
	every := (len(order) + maxNames - 1) / maxNames
	for i, k := range order {
		x := tenths(plotLeft + step*(float64(i)+0.5))
		d := dot{
			X: x, Y: scale.y(*k.Rate), LowY: scale.y(*k.RateLow), HighY: scale.y(*k.RateHigh),
			Radius: tenths(radius), Out: k.StandsOut, Bar: len(order) <= maxBars, Title: k.tooltip(),
		}
		if d.Out {
			d.Radius = max(d.Radius, minOutRadius)
			out = append(out, d)
		} else {
			p.Dots = append(p.Dots, d)
		}
		if i%every == 0 {
			p.Names = append(p.Names, textAt{X: x, Text: k.label()})
		}
		if k.StandsOut && len(p.Marks) < maxMarks {
			p.Marks = append(p.Marks, markAt(x, scale.y(*k.Rate), radius, k.Name))
		}
	}
	p.Dots = append(p.Dots, out...)
	return p
}

// markAt is a name beside a dot, on the side that has room.
func markAt(x, y, radius float64, name string) textAt {
	if x > (plotLeft+plotRight)/2 {
		return textAt{tenths(x - radius - 6), tenths(y + 5), "end", name}
	}
	return textAt{tenths(x + radius + 6), tenths(y + 5), "start", name}
}

// tooltip describes a rank in a line.
func (k *Rank) tooltip() string {
	text := k.Name
	if k.Node != "" {
		text += " on " + k.Node
	}
	return text + ": " + words.Rate(k.rateVerdict())
}

// A plotScale maps growth to heights. It goes from low to high.
type plotScale struct{ low, high float64 }

// scaleOf holds all rates, the median and 0, and the intervals where these are drawn.
func scaleOf(ranks []*Rank, median float64) plotScale {
	s := plotScale{min(0, median), max(0, median)}
	for _, k := range ranks {
		low, high := *k.Rate, *k.Rate
		if len(ranks) <= maxBars {
			low, high = *k.RateLow, *k.RateHigh
		}
		s.low, s.high = min(s.low, low), max(s.high, high)
	}
	if s.high-s.low < 1 {
		s.high = s.low + 1
	}
	return s
}

func (s plotScale) y(x float64) float64 {
	share := (min(max(x, s.low), s.high) - s.low) / (s.high - s.low)
	return tenths(plotBottom - share*(plotBottom-plotTop))
}

// ticks are round numbers of bytes, in powers of two: 0 is one of them.
func (s plotScale) ticks() (ticks []float64) {
	const atMost = 5
	step := math.Exp2(math.Ceil(math.Log2((s.high - s.low) / atMost)))
	for x := math.Ceil(s.low/step) * step; x <= s.high; x += step {
		ticks = append(ticks, x+0)
	}
	return ticks
}

func tenths(x float64) float64 { return math.Round(10*x) / 10 }
