package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// rowsOf is the table of accumulating stacks, with its history at the given times.
func rowsOf(accumulating []summary.Accumulation, moments []float64) []rowView {
	var rows []rowView
	for _, a := range accumulating {
		row := rowView{
			Component: a.Component, Rate: units.MiBPerMinute(a.BytesPerMin),
			Share: units.WholePercent(a.Share), ShareValue: a.Share,
			Bytes: units.Bytes(float64(a.Bytes)), BytesValue: a.Bytes, Objects: objectsText(a),
			ObjectsValue: a.Objects,
			Trend:        string(a.Trend), UndecidedReason: words.UndecidedText(a),
			Spark: sparkOf(moments, a.HistoryBytes), Age: "-", AgeValue: -1,
		}

		if a.BytesPerMin != nil {
			row.RateValue = float64(*a.BytesPerMin)
		}

		switch {
		case a.RateLow == nil || a.RateHigh == nil:
		case *a.RateLow == *a.RateHigh:
			row.Interval = "exact"
		default:
			row.Interval = units.Interval(units.MiBPerMinute(a.RateLow),
				units.MiBPerMinute(a.RateHigh))
		}

		if a.AgeS != nil {
			row.Age, row.AgeValue = units.Span(*a.AgeS, false, math.Round), *a.AgeS
		}

		for _, frame := range a.Stack {
			row.Stack = append(row.Stack, frameView{words.FrameClass(frame), frame})
		}

		if a.Kind != growth.KindHeap {
			row.Kind = string(a.Kind)
		}

		a.Kind = growth.KindHeap // the kind has a column of its own
		row.Where = words.Where(a)
		rows = append(rows, row)
	}

	return rows
}

// objectsText counts objects. Memory that counts by pages has none.
func objectsText(a summary.Accumulation) string {
	if a.Objects == 0 {
		return "-"
	}
	return units.Count(float64(a.Objects))
}

// maxSparkPoints is the number of points that a reader can distinguish.
const maxSparkPoints = 100

// sparkOf is the path of a history in 100 by 24 units, with zero at the bottom; empty if there are
// fewer than two times.
func sparkOf(times []float64, history []int64) string {
	n := min(len(times), len(history))
	if n < 2 || times[n-1] <= times[0] {
		return ""
	}

	times, history = times[:n], history[:n]
	most := int64(1)
	for _, bytes := range history {
		most = max(most, bytes)
	}

	var b strings.Builder
	points := min(n, maxSparkPoints)
	for p := range points {
		i := p * (n - 1) / (points - 1)
		x := min(max((times[i]-times[0])/(times[n-1]-times[0]), 0), 1)
		y := min(max(float64(history[i])/float64(most), 0), 1)
		fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(p, 1)], 100*x, 23-22*y)
	}

	return b.String()
}

func processesOf(s *summary.Summary) []processView {
	var processes []processView
	for _, p := range s.Processes {
		row := processView{
			PID: fmt.Sprint(p.PID), Role: words.Role(p), Command: p.Command, Traced: "no",
			Seen:  units.Seconds(p.FirstS) + " to " + units.Seconds(p.LastS),
			Start: sizeText(p.StartBytes), End: sizeText(p.EndBytes),
			Verdict: words.ClassText(p.Verdict),
		}

		if p.Traced {
			row.Traced = "yes"
		}

		processes = append(processes, row)
	}

	return processes
}

func sizeText(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return units.Bytes(float64(*bytes))
}
