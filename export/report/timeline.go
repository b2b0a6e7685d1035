package report

import (
	"time"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// timelineOf is the chart over time; nil where there are no two rows.
func timelineOf(s *export.Summary, rows []growth.Row) *timelineData {
	rows = increasing(thinned(rows))
	if len(rows) < 2 {
		return nil
	}
	t := &timelineData{
		Phases: phasesOf(s.Verdict), DevicePhases: devicePhasesOf(s), Marks: marksOf(s), Spikes: spikesOf(s), BoundaryS: s.BoundaryS, Slope: slopeOf(s, rows[len(rows)-1].Elapsed),
		Steps: stepsOf(rows), Probing: probingOf(s), Changes: changesOf(s),
	}
	for i := range rows {
		t.TimeS = append(t.TimeS, export.Seconds(rows[i].Elapsed))
	}
	t.Series = curvesOf(s, rows)
	if len(t.Series) == 0 {
		return nil
	}
	return t
}

// increasing leaves out rows that are no later than the one before.
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

// curvesOf are those of which anything is known. The tree is told where it is more than what is traced.
func curvesOf(s *export.Summary, rows []growth.Row) []curve {
	traced := tracedAt(s, rows)
	curves := []curve{
		{Key: "rss", Label: "RSS", Unit: "bytes", Shown: true, Values: values(rows, func(r *growth.Row) int64 { return r.RSS })},
		{Key: "private", Label: "private", Unit: "bytes", Shown: true, Values: values(rows, func(r *growth.Row) int64 { return r.Private })},
		{Key: "pss", Label: "PSS", Unit: "bytes", Values: values(rows, func(r *growth.Row) int64 { return r.PSS })},
		{Key: "tensors", Label: "tensors", Unit: "bytes", Values: values(rows, func(r *growth.Row) int64 { return r.TensorBytes })},
	}
	var tree, workers bool
	for i := range rows {
		tree = tree || rows[i].Tree.RSS != rows[i].RSS && rows[i].Tree.RSS != growth.Unknown
		workers = workers || rows[i].Tree.Processes > traced[i]
	}
	if tree {
		curves = append(curves, curve{Key: "tree", Label: "RSS of the tree", Unit: "bytes", Shown: true, Values: values(rows, func(r *growth.Row) int64 { return r.Tree.RSS })})
	}
	if workers {
		c := curve{Key: "workers", Label: "other processes", Unit: "count"}
		for i := range rows {
			c.Values = append(c.Values, known(max(rows[i].Tree.Processes-traced[i], -1)))
		}
		curves = append(curves, c)
	}
	var told []curve
	for _, c := range append(curves, deviceCurvesOf(rows)...) {
		for _, value := range c.Values {
			if value != nil {
				told = append(told, c)
				break
			}
		}
	}
	return told
}

func values(rows []growth.Row, of func(*growth.Row) int64) []*int64 {
	list := make([]*int64, len(rows))
	for i := range rows {
		list[i] = known(of(&rows[i]))
	}
	return list
}

// known is nil for what is unknown, as all that is negative.
func known(value int64) *int64 {
	if value < 0 {
		return nil
	}
	value = min(value, largest)
	return &value
}

// tracedAt is how many traced processes there were at each row.
func tracedAt(s *export.Summary, rows []growth.Row) []int64 {
	traced := make([]int64, len(rows))
	for _, p := range s.Processes {
		for i := range rows {
			if at := export.Seconds(rows[i].Elapsed); p.Traced && at >= p.FirstS && at <= p.LastS {
				traced[i]++
			}
		}
	}
	return traced
}

// stepsOf never decrease: a process that has ended takes its steps out of the sum. Nil where none were counted.
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

// phaseTexts are what a process did in a phase.
var phaseTexts = map[growth.PhaseKind]string{
	growth.PhaseWarmup: "warm-up", growth.PhaseFlat: "flat", growth.PhaseRelease: "release", growth.PhasePlateau: "plateau",
	growth.PhaseGrowth: "growth", growth.PhaseSlowdown: "slowing growth", growth.PhaseOpen: "not judged yet",
}

func phaseText(kind growth.PhaseKind) string {
	if text, ok := phaseTexts[kind]; ok {
		return text
	}
	return string(kind)
}

func phasesOf(v export.Verdict) []phaseBand {
	bands := []phaseBand{}
	for _, p := range v.Phases {
		if p.FromS != nil && p.ToS != nil {
			bands = append(bands, phaseBand{stretch{*p.FromS, *p.ToS}, string(p.Kind), phaseText(p.Kind)})
		}
	}
	return bands
}

func marksOf(s *export.Summary) []markLine {
	marks := []markLine{}
	for _, m := range s.Marks {
		marks = append(marks, markLine(m))
	}
	return marks
}

func spikesOf(s *export.Summary) []stretch {
	spikes := []stretch{}
	if s.Spikes == nil {
		return spikes
	}
	for _, span := range s.Spikes.Spans {
		if span.FromS != nil && span.ToS != nil {
			spikes = append(spikes, stretch{*span.FromS, *span.ToS})
		}
	}
	return spikes
}

// slopeOf is the line of the last regime, which begins with the plateau, or after a restart, or with the trace.
func slopeOf(s *export.Summary, end time.Duration) *slope {
	if s.RateBytesPerMin == nil || s.RateLow == nil || s.RateHigh == nil || s.LevelBytes == nil || s.InSteps() {
		return nil
	}
	line := slope{
		stretch: stretch{ToS: export.Seconds(end)}, LevelBytes: *s.LevelBytes,
		BytesPerS: *s.RateBytesPerMin / 60, LowBytesPerS: *s.RateLow / 60, HighBytesPerS: *s.RateHigh / 60, Label: words.Rate(s.Verdict),
	}
	switch {
	case s.PlateauFromS != nil:
		line.FromS = *s.PlateauFromS
	case s.RestartedAtS != nil:
		line.FromS = *s.RestartedAtS
	}
	if line.FromS >= line.ToS {
		return nil
	}
	if s.LevelAtS != nil {
		line.LevelBytes += line.BytesPerS * ((line.FromS+line.ToS)/2 - *s.LevelAtS)
	}
	return &line
}
