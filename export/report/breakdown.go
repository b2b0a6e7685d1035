package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// breakdownsOf returns the breakdown of the process, and the breakdown of its tree where there are
// other processes.
func breakdownsOf(s *summary.Summary) []breakdownView {
	var views []breakdownView
	own, p := words.BreakdownOf(s.Breakdown, s.Process.PID), s.MainResident()
	if len(own.Kinds) > 0 {
		title := fmt.Sprintf("%s: %s", pidText(s.Process.PID), units.Signed(own.Sum().Delta))
		view := breakdownOf(s, own, title, "RSS", p)
		if !p.HeapTraced {
			view.Note = strings.TrimSpace(view.Note + " " + words.HeapNotAttached(s.Process.PID))
		}
		views = append(views, view)
	}

	if others := words.OtherProcesses(s); others > 0 {
		tree := words.BreakdownOf(s.Breakdown, 0)
		title := words.Tree(others) + ": " + units.Signed(tree.Sum().Delta)
		views = append(views,
			breakdownOf(s, tree, title, "All", summary.Resident{HeapTraced: p.HeapTraced}))
	}

	if lines, sum, ok := words.ContainerLines(s.Container); ok {
		title := words.ContainerTitle(s.Container) + ": " + units.Signed(sum.Delta)
		views = append(views, waterfallOf(title,
			"Charged when tracing began: "+units.Bytes(sum.Start()),
			"Charged at the end, as the kernel counts", lines, sum))
	}
	return views
}

// breakdownOf is the breakdown of RSS. all names the total.
func breakdownOf(s *summary.Summary, b words.Breakdown, title, all string,
	p summary.Resident,
) breakdownView {
	sum := b.Sum()
	first := all + " at the baseline" + secondsNote(", after ", s.BaselineS) + ": " +
		units.Bytes(sum.Start())
	last := all + " at the end, as the kernel counts"
	return waterfallOf(title, first, last, b.Lines(len(b.Kinds), p), sum)
}

// waterfallOf goes from the total at the baseline, over all lines, to that at the end.
func waterfallOf(title, first, last string, lines []words.BreakdownLine, sum words.KindSum,
) breakdownView {
	scale := scaleOf(sum, lines)
	out := breakdownView{Title: title, Note: words.BarsBegin(scale.from)}
	out.Lines = append(out.Lines, breakdownLine{
		Class: "total", Label: first, Start: units.Bytes(sum.Start()),
		Bar: scale.bar("total", scale.from, sum.Start()),
	})

	at := sum.Start()
	for _, line := range lines {
		out.Lines = append(out.Lines, kindLine(scale, line, at))
		at += line.Delta
	}

	out.Lines = append(out.Lines, breakdownLine{
		Class: "total", Label: last, Growth: units.Signed(sum.Delta), End: units.Bytes(sum.End),
		Bar: scale.bar("total", scale.from, sum.End),
	})

	return out
}

// kindLine is the change of one kind.
func kindLine(scale barScale, line words.BreakdownLine, at float64) breakdownLine {
	out := breakdownLine{
		Label: line.Label, Component: line.Component, Start: units.Bytes(line.Start()),
		Growth: units.Signed(line.Delta), End: units.Bytes(line.End),
		Bar: scale.bar("grown", at, at+line.Delta),
	}
	if line.Kind == growth.KindUnexplained || line.Kind == growth.KindNotAttributed {
		out.Class = "unexplained"
	}

	if line.Delta < 0 {
		out.Bar.Class = "shrunk"
	}

	if line.Error > 0 {
		out.Error = units.Bytes(line.Error)
		out.Bar.Whisker = scale.whisker(at+line.Delta-line.Error, at+line.Delta+line.Error)
	}

	return out
}

// A barScale maps bytes to the 1000 units of a bar.
type barScale struct{ from, to float64 }

// scaleOf includes the ends of all bars and intervals. It begins at zero, or shortly below them
// where the changes are small beside the total.
func scaleOf(sum words.KindSum, lines []words.BreakdownLine) barScale {
	at := sum.Start()
	low, high := min(at, sum.End), max(at, sum.End)
	for _, line := range lines {
		at += line.Delta
		low, high = min(low, at, max(at-line.Error, 0)), max(high, at+line.Error)
	}

	const minCutRatio = 4 // of the total to the changes
	if low > minCutRatio*(high-low) {
		return barScale{max(low-(high-low), 0), max(high, low+1)}
	}

	return barScale{min(low, 0), max(high, 1)}
}

// position of a size, in tenths of units.
func (s barScale) position(bytes float64) float64 {
	return math.Round(10*min(max(1000*(bytes-s.from)/(s.to-s.from), 0), 1000)) / 10
}

func (s barScale) bar(class string, from, to float64) bar {
	low, high := s.position(min(from, to)), s.position(max(from, to))
	return bar{Class: class, From: low, Width: math.Round(10*(high-low)) / 10}
}

// whisker is the path of an interval.
func (s barScale) whisker(low, high float64) string {
	from, to := s.position(low), s.position(high)
	return fmt.Sprintf("M%g 10H%gM%g 5V15M%g 5V15", from, to, from, to)
}

// maxStackRows and maxOtherRows are the numbers of rows with and without a stack that are shown one
// by one.
const maxStackRows, maxOtherRows = 12, 24

// gpuBreakdownOf is the breakdown of the GPU memory of a process, the largest change first.
func gpuBreakdownOf(d *summary.GPUMemory, baseline *float64) breakdownView {
	if len(d.Breakdown) == 0 {
		return breakdownView{}
	}

	lines, sum := gpuLines(d.Breakdown)
	return waterfallOf("What GPU memory is made of: "+units.Signed(sum.Delta),
		"At the baseline"+secondsNote(", after ", baseline),
		"At the end: "+words.GPUTotalLabel(*d), lines, sum)
}

// gpuLines are the rows for people and their sum: the largest changes, one row for the others, and
// at last the memory that is not attributed.
func gpuLines(rows []summary.GPUBreakdownRow) (lines []words.BreakdownLine, sum words.KindSum) {
	several := words.HasSeveralGPUs(rows)
	rest := words.BreakdownLine{}
	withStack, without, others := 0, 0, 0
	for _, row := range bySize(rows) {
		held := words.KindSum{
			Kind: row.Kind, Delta: float64(row.EndBytes) - float64(row.StartBytes),
			End: float64(row.EndBytes),
		}
		sum.Delta += held.Delta
		sum.End += held.End

		if row.Function != "" {
			withStack++
		} else {
			without++
		}

		if row.Function != "" && withStack > maxStackRows ||
			row.Function == "" && without > maxOtherRows {
			others++
			rest.Delta += held.Delta
			rest.End += held.End
			continue
		}

		lines = append(lines, words.BreakdownLine{
			Label: words.GPURow(row, several), Component: row.Component, KindSum: held,
		})
	}

	if others > 0 {
		rest.Label = units.Plural(others, "other", "others")
		lines = append(lines, rest)
	}

	slices.SortStableFunc(lines, func(a, b words.BreakdownLine) int {
		return words.RemainderLast(a.Kind, b.Kind)
	})

	return lines, sum
}

// bySize sorts the rows, the largest change first.
func bySize(rows []summary.GPUBreakdownRow) []summary.GPUBreakdownRow {
	change := func(r summary.GPUBreakdownRow) float64 {
		return math.Abs(float64(r.EndBytes) - float64(r.StartBytes))
	}
	return slices.SortedStableFunc(slices.Values(rows), func(a, b summary.GPUBreakdownRow) int {
		return cmp.Or(cmp.Compare(change(b), change(a)), cmp.Compare(b.EndBytes, a.EndBytes),
			strings.Compare(a.Function, b.Function))
	})
}
