package report

import (
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// A deviceView is the section about the device memory of a process.
type gpuView struct {
	// ID of the section: "device", "device-2", ….
	ID, Title string
	Verdict   verdictView
	Facts     []fact
	Suspects  []suspectView
	// Advice is what the diagnosis means, and Reason why the driver's count is not known; empty: there is none, and it is.
	Advice, Reason string
	Curves         []curveView
	Breakdown      gpuBreakdown
	Rows           []rowView
	RowsNote       string
}

// A curveView is a row of the table of curves; Judged: the verdict is on this one.
type curveView struct {
	Name, Start, End, Change, Rate, Verdict string
	Judged                                  bool
}

// devicesOf are the sections about device memory. The process is named where there are several, and where it is not that of the report.
func gpuViewsOf(s *summary.Summary) []gpuView {
	var views []gpuView
	for i := range s.GPUMemory {
		d := &s.GPUMemory[i]
		v := gpuView{
			ID: "device", Title: "Device memory", Verdict: verdictOf(d.Verdict, words.AtGPULimit), Facts: gpuFacts(d, s.BaselineS), Suspects: suspectsOf(d.Suspects),
			Advice: d.Advice, Curves: curveViews(d), Breakdown: gpuBreakdownOf(d, s.BaselineS), Rows: rowsOf(d.Accumulating, s.SnapshotsS), RowsNote: gpuRowsNote(d),
		}
		if i > 0 {
			v.ID = fmt.Sprintf("device-%d", i+1)
		}
		if len(s.GPUMemory) > 1 || d.Process != s.Process.PID {
			v.Title += " of " + strings.TrimSpace(d.Command+" ("+pidText(d.Process)+")")
		}
		if d.Reason != "" {
			v.Reason = "What the driver counts is not known: " + d.Reason + "."
		}
		views = append(views, v)
	}
	return views
}

// deviceFacts are the numbers that people look for first.
func gpuFacts(d *summary.GPUMemory, boundary *float64) []fact {
	var facts []fact
	if rate := words.Rate(d.Verdict); d.RateBytesPerMin != nil || d.RateBytesPerStep != nil {
		value, interval, _ := strings.Cut(rate, " (")
		facts = append(facts, fact{"Rate", value, strings.TrimSuffix(interval, ")")})
	}
	if line := words.LimitLine(d.Verdict, words.AtGPULimit); line != "" {
		when, pace, conditional := strings.Cut(strings.TrimPrefix(line, words.AtGPULimit+" "), " if ")
		if conditional {
			pace = "if " + pace
		}
		facts = append(facts, fact{"The GPU is full", when, pace})
	}
	if d.HeadroomBytes != nil {
		facts = append(facts, fact{"Room", units.Bytes(float64(*d.HeadroomBytes)), "on the GPU that has least left"})
	}
	for _, c := range d.Curves {
		if c.Name != d.Judged {
			continue
		}
		if c.StartBytes != nil {
			facts = append(facts, fact{"At the boundary", units.Bytes(float64(*c.StartBytes)), strings.TrimSpace(words.CurveText(c.Name) + secondsNote(", after ", boundary))})
		}
		if c.EndBytes != nil {
			facts = append(facts, fact{"At the end", units.Bytes(float64(*c.EndBytes)), words.CurveText(c.Name)})
		}
	}
	return facts
}

// curveViews is the table of curves, of each what is known.
func curveViews(d *summary.GPUMemory) []curveView {
	var views []curveView
	for _, c := range d.Curves {
		v := curveView{
			Name: words.CurveText(c.Name), Start: sizeText(c.StartBytes), End: sizeText(c.EndBytes), Change: "-", Rate: "-",
			Verdict: strings.ReplaceAll(string(c.Class), "-", " "), Judged: c.Name == d.Judged,
		}
		if c.StartBytes != nil && c.EndBytes != nil {
			v.Change = units.Signed(float64(*c.EndBytes) - float64(*c.StartBytes))
		}
		if c.BytesPerMin != nil {
			v.Rate = units.Signed(float64(*c.BytesPerMin)) + "/min"
		}
		views = append(views, v)
	}
	return views
}

// deviceRowsNote says what the rows are, or why there are none.
func gpuRowsNote(d *summary.GPUMemory) string {
	if len(d.Accumulating) == 0 {
		return "Nothing on the device that was traced accumulated since the boundary."
	}
	return "Counted is what a stack holds on the device at the end beyond what it held at the boundary."
}
