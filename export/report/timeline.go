package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/verdict"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// timelineOf is the chart over time; nil if there are fewer than two rows.
func timelineOf(s *summary.Summary, rows []growth.Row) *timelineData {
	rows = withGaps(increasing(thinned(rows)), s.Gaps)
	if len(rows) < 2 {
		return nil
	}

	t := &timelineData{
		Phases: phasesOf(s.Verdict), GPUPhases: gpuPhasesOf(s), Marks: marksOf(s),
		Spikes: spikesOf(s), BaselineS: s.BaselineS, Slope: slopeOf(s, rows[len(rows)-1].Elapsed),
		Steps: stepsOf(rows), Probing: probingOf(s), Changes: changesOf(s),
	}

	for i := range rows {
		t.TimeS = append(t.TimeS, summary.Seconds(rows[i].Elapsed))
	}

	t.Series = curvesOf(s, rows)

	if len(t.Series) == 0 {
		return nil
	}

	return t
}

// increasing leaves out rows that are not later than the one before.
func increasing(rows []growth.Row) []growth.Row {
	var later []growth.Row
	for _, row := range rows {
		row.Elapsed = row.Elapsed.Round(time.Millisecond)
		if len(later) == 0 || row.Elapsed > later[len(later)-1].Elapsed {
			later = append(later, row)
		}
	}

	return later
}

// curvesOf returns the curves with any known value. The process tree has one if it is more than the
// traced processes.
func curvesOf(s *summary.Summary, rows []growth.Row) []curve {
	traced := tracedAt(s, rows)
	curves := []curve{
		{
			Key: "rss", Label: "RSS", Unit: "bytes", Shown: true,
			Values: values(rows, func(r *growth.Row) int64 { return r.RSS }),
		},
		{
			Key: "private", Label: "private", Unit: "bytes", Shown: true,
			Values: values(rows, func(r *growth.Row) int64 { return r.Private }),
		},
		{
			Key: "pss", Label: "PSS", Unit: "bytes",
			Values: values(rows, func(r *growth.Row) int64 { return r.PSS }),
		},
		{
			Key: "tensors", Label: "tensors", Unit: "bytes",
			Values: values(rows, func(r *growth.Row) int64 { return r.TensorBytes }),
		},
	}

	var tree, workers bool
	for i := range rows {
		tree = tree || rows[i].Tree.RSS != rows[i].RSS && rows[i].Tree.RSS != growth.Unknown
		workers = workers || rows[i].Tree.Processes > traced[i]
	}

	if tree {
		curves = append(curves, curve{
			Key: "tree", Label: "RSS of the tree", Unit: "bytes", Shown: true,
			Values: values(rows, func(r *growth.Row) int64 { return r.Tree.RSS }),
		})
	}

	if workers {
		c := curve{Key: "workers", Label: "other processes", Unit: "count"}
		for i := range rows {
			c.Values = append(c.Values, known(max(rows[i].Tree.Processes-traced[i], -1)))
		}
		curves = append(curves, c)
	}

	var found []curve
	for _, c := range append(curves, gpuCurvesOf(rows)...) {
		for _, value := range c.Values {
			if value != nil {
				found = append(found, c)
				break
			}
		}
	}

	return found
}

func values(rows []growth.Row, of func(*growth.Row) int64) []*int64 {
	list := make([]*int64, len(rows))
	for i := range rows {
		list[i] = known(of(&rows[i]))
	}
	return list
}

// known is nil for negative values, all of which are unknown.
func known(value int64) *int64 {
	if value < 0 {
		return nil
	}
	return new(min(value, maxExact))
}

// tracedAt is the number of traced processes at each row.
func tracedAt(s *summary.Summary, rows []growth.Row) []int64 {
	traced := make([]int64, len(rows))
	for _, p := range s.Processes {
		for i := range rows {
			if at := summary.Seconds(rows[i].Elapsed); p.Traced && at >= p.FirstS && at <= p.LastS {
				traced[i]++
			}
		}
	}

	return traced
}

// stepsOf never decrease, although a process that ends takes its steps out of the sum; nil if none
// were counted.
func stepsOf(rows []growth.Row) []*int64 {
	steps := values(rows, func(r *growth.Row) int64 { return r.Steps })
	var most int64
	for _, step := range steps {
		if step != nil {
			most = max(most, *step)
			*step = most
		}
	}

	if most == 0 {
		return nil
	}

	return steps
}

// phaseTexts describe what a process did in a phase.
var phaseTexts = map[verdict.PhaseKind]string{
	verdict.PhaseWarmup: "warm-up", verdict.PhaseFlat: "flat", verdict.PhaseRelease: "release",
	verdict.PhasePlateau: "plateau",
	verdict.PhaseGrowth:  "growth", verdict.PhaseSlowdown: "slowing growth",
	verdict.PhaseOpen: "not judged yet",
}

func phaseText(kind verdict.PhaseKind) string {
	if text, ok := phaseTexts[kind]; ok {
		return text
	}
	return string(kind)
}

func phasesOf(v summary.Verdict) []phaseBand {
	bands := []phaseBand{}
	for _, p := range v.Phases {
		if p.From != nil && p.To != nil {
			bands = append(bands, phaseBand{
				span{*p.From, *p.To}, string(p.Kind), phaseText(p.Kind),
			})
		}
	}

	return bands
}

func marksOf(s *summary.Summary) []markLine {
	marks := []markLine{}
	for _, m := range s.Marks {
		marks = append(marks, markLine(m))
	}
	return marks
}

func spikesOf(s *summary.Summary) []span {
	spikes := []span{}
	if s.Spikes == nil {
		return spikes
	}

	for _, spike := range s.Spikes.Spans {
		if spike.From != nil && spike.To != nil {
			spikes = append(spikes, span{*spike.From, *spike.To})
		}
	}

	return spikes
}

// slopeOf is the line of the last segment, which begins with the plateau, after a restart, or with
// the trace.
func slopeOf(s *summary.Summary, end time.Duration) *slope {
	if s.Rate == nil || s.RateLow == nil || s.RateHigh == nil || s.LevelBytes == nil ||
		s.InSteps() {
		return nil
	}

	line := slope{
		span: span{ToS: summary.Seconds(end)}, LevelBytes: *s.LevelBytes,
		BytesPerS: *s.Rate / 60, LowBytesPerS: *s.RateLow / 60,
		HighBytesPerS: *s.RateHigh / 60, Label: words.Rate(s.Verdict),
	}

	switch {
	case s.PlateauFrom != nil:
		line.FromS = *s.PlateauFrom
	case s.RestartedAt != nil:
		line.FromS = *s.RestartedAt
	}

	if line.FromS >= line.ToS {
		return nil
	}

	if s.LevelAt != nil {
		line.LevelBytes += line.BytesPerS * ((line.FromS+line.ToS)/2 - *s.LevelAt)
	}

	return &line
}

// A gpuMeasure is a curve of GPU memory. Its key is that in the page's data.
type gpuMeasure struct {
	key, label string
	of         func(*growth.Row) int64
}

// gpuMeasures are the measures of a process, in the order of preference: each includes the next
// one.
var gpuMeasures = []gpuMeasure{
	{"gpu_used", gpuLabel(summary.GPUUsed), func(r *growth.Row) int64 { return r.GPUUsed }},
	{
		"gpu_reserved", gpuLabel(summary.GPUReserved),
		func(r *growth.Row) int64 { return r.CudaReserved },
	},
	{"gpu_driver", gpuLabel(summary.GPUDriver), func(r *growth.Row) int64 { return r.CudaDriver }},
	{
		"gpu_allocated", gpuLabel(summary.GPUAllocated),
		func(r *growth.Row) int64 { return r.CudaAllocated },
	},
}

func gpuLabel(name string) string { return "GPU memory (" + words.CurveText(name) + ")" }

var pinnedMeasure = gpuMeasure{
	"pinned", "pinned host memory", func(r *growth.Row) int64 { return r.Pinned },
}

// known is the number of rows at which a measure is known. It is 0 where the process does not use a
// GPU.
func (m gpuMeasure) known(rows []growth.Row) int {
	known, used := 0, false
	for i := range rows {
		if value := m.of(&rows[i]); value >= 0 {
			known++
			used = used || value > 0
		}
	}

	if !used {
		return 0
	}

	return known
}

// mainGPUMeasure is the first that is known at half as many rows as any: NVML may stop reporting
// early.
func mainGPUMeasure(rows []growth.Row) (main gpuMeasure, ok bool) {
	longest := 0
	for _, m := range gpuMeasures {
		longest = max(longest, m.known(rows))
	}

	for _, m := range gpuMeasures {
		if n := m.known(rows); n > 0 && 2*n >= longest {
			return m, true
		}
	}

	return main, false
}

// gpuCurvesOf returns the curves with any known value. The main one is shown at first.
func gpuCurvesOf(rows []growth.Row) []curve {
	main, _ := mainGPUMeasure(rows)
	var curves []curve
	for _, m := range append(gpuMeasures[:len(gpuMeasures):len(gpuMeasures)], pinnedMeasure) {
		if m.known(rows) > 0 {
			curves = append(curves, curve{
				Key: m.key, Label: m.label, Unit: "bytes", Shown: m.key == main.key,
				Values: values(rows, m.of),
			})
		}
	}

	return curves
}

// gpuMemoryOf is the GPU memory of the main process; nil if it has none, or it is unknown.
func gpuMemoryOf(s *summary.Summary) *summary.GPUMemory {
	for i := range s.GPUMemory {
		if s.GPUMemory[i].Process == s.Process.PID {
			return &s.GPUMemory[i]
		}
	}
	return nil
}

// gpuPhasesOf are the phases of the verdict on GPU memory; nil if there is none.
func gpuPhasesOf(s *summary.Summary) []phaseBand {
	d := gpuMemoryOf(s)
	if d == nil {
		return nil
	}

	bands := phasesOf(d.Verdict)
	for i := range bands {
		bands[i].Label = "GPU: " + bands[i].Label
	}

	return bands
}

// gpuText describes the shown curve of GPU memory; empty if there is none.
func gpuText(s *summary.Summary, t *timelineData) string {
	text := ""
	for _, c := range t.Series {
		if c.Shown && isGPUCurve(c.Key) {
			text = curveText(c, t.TimeS)
		}
	}

	if d := gpuMemoryOf(s); d != nil && text != "" {
		text += " " + words.Headline(d.Verdict) + "."
	}

	return text
}

func isGPUCurve(key string) bool {
	for _, m := range gpuMeasures {
		if m.key == key {
			return true
		}
	}
	return false
}

// curveText describes a curve of bytes in a sentence; empty if nothing is known of it.
func curveText(c curve, times []float64) string {
	var first, last, most *int64
	var mostAt float64
	for i, value := range c.Values {
		if value == nil {
			continue
		}

		if first == nil {
			first = value
		}

		if last = value; most == nil || *value > *most {
			most, mostAt = value, times[i]
		}
	}

	if first == nil {
		return ""
	}

	size := func(bytes *int64) string { return units.Bytes(float64(*bytes)) }
	over := strings.ToUpper(c.Label[:1]) + c.Label[1:] + " over " +
		units.Span(times[len(times)-1], false, math.Round) + ": "
	if size(first) == size(most) && size(last) == size(most) {
		return over + "never more than " + size(most) + "."
	}

	return over +
		fmt.Sprintf("%s at first, %s at last, at most %s after %s.", size(first), size(last),
			size(most), units.Span(mostAt, false, math.Round))
}

// maxPoints is the number of rows that are drawn as they are: four hours at one per second.
const maxPoints = 15_000

// thinned reduces rows to maxPoints. In each run of rows it keeps the lowest and the highest RSS of
// the traced processes and of the tree, the same for GPU memory if there is any, and one row at
// which RSS is unknown. So spikes and gaps stay.
func thinned(rows []growth.Row) []growth.Row {
	if len(rows) <= maxPoints {
		return rows
	}

	of := []func(*growth.Row) int64{
		func(r *growth.Row) int64 { return r.RSS },
		func(r *growth.Row) int64 { return r.Tree.RSS },
	}
	if main, ok := mainGPUMeasure(rows); ok {
		of = append(of, main.of)
	}

	runs := maxPoints / (2*len(of) + 1)
	var kept []growth.Row
	for i := range runs {
		kept = append(kept, extremes(rows[i*len(rows)/runs:(i+1)*len(rows)/runs], of)...)
	}

	return kept
}

// extremes returns the rows of a run with extreme values, in order. Values that are read rarely
// move to the last of them.
func extremes(run []growth.Row, values []func(*growth.Row) int64) []growth.Row {
	at := []int{slices.IndexFunc(run, func(r growth.Row) bool { return r.RSS == growth.Unknown })}
	for _, of := range values {
		at = append(at, extreme(run, of, func(a, b int64) bool { return a < b }),
			extreme(run, of, func(a, b int64) bool { return a > b }))
	}

	slices.Sort(at)

	var kept []growth.Row
	for _, i := range slices.Compact(at) {
		if i >= 0 {
			kept = append(kept, run[i])
		}
	}

	last := &kept[len(kept)-1]
	for _, r := range run {
		fill(&last.Private, r.Private)
		fill(&last.PSS, r.PSS)
	}

	return kept
}

// fill replaces an unknown value.
func fill(to *int64, value int64) {
	if *to == growth.Unknown {
		*to = value
	}
}

// extreme is the index of the first of the extreme values, by less; -1 if none is known.
func extreme(run []growth.Row, of func(*growth.Row) int64, less func(a, b int64) bool) int {
	best := -1
	for i := range run {
		value := of(&run[i])
		if value != growth.Unknown && (best < 0 || less(value, of(&run[best]))) {
			best = i
		}
	}

	return best
}

type timedRow struct {
	at float64 // seconds
	phaseRow
}

// phaseRowsOf lists phases, spikes, marks and changes of the probes in the order of time.
func phaseRowsOf(s *summary.Summary) []phaseRow {
	all := phaseSpans(s.Verdict, "")
	for _, spike := range spikesOf(s) {
		all = append(all, spanRow(spike.FromS, spike.ToS, "spike", ""))
	}

	if d := gpuMemoryOf(s); d != nil {
		all = append(all, phaseSpans(d.Verdict, "GPU: ")...)
	}

	for _, m := range s.Marks {
		all = append(all, timedRow{
			m.AtS, phaseRow{units.Seconds(m.AtS), "", "mark: " + m.Text, ""},
		})
	}

	for _, c := range changesIn(s) {
		all = append(all, timedRow{
			c.AtS, phaseRow{units.Seconds(c.AtS), "", "probes: " + words.OverheadChange(c.OverheadChange), ""},
		})
	}

	slices.SortStableFunc(all, func(a, b timedRow) int { return cmp.Compare(a.at, b.at) })

	var rows []phaseRow
	for _, row := range all {
		rows = append(rows, row.phaseRow)
	}

	return rows
}

func spanRow(from, to float64, what, rate string) timedRow {
	return timedRow{from, phaseRow{units.Seconds(from), units.Seconds(to), what, rate}}
}

// phaseSpans are the phases of a verdict that have a start and an end.
func phaseSpans(v summary.Verdict, of string) []timedRow {
	var spans []timedRow
	for _, p := range v.Phases {
		rate := ""
		if p.Rate != nil {
			rate = units.Signed(*p.Rate) + "/min"
		}
		if p.From != nil && p.To != nil {
			spans = append(spans, spanRow(*p.From, *p.To, of+phaseText(p.Kind), rate))
		}
	}

	return spans
}
