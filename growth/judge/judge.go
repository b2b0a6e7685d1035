// Package judge judges a traced process: whether its RSS leaks, which stacks and causes explain the
// growth, and whether it is the right process to trace.
package judge

import (
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/spike"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A Case is a traced process with the data by which it is judged.
type Case struct {
	Process *growth.ProcessHistory
	// Headroom is by how much the RSS can grow until it meets a limit, in bytes; Unknown without
	// one. GPUHeadroom is the free memory of the process's fullest GPU, for the judgement of GPU
	// memory alone.
	Headroom    int64
	GPUHeadroom int64
	Marks       []growth.Mark
	// Snapshots of the trace, in order.
	Snapshots []*growth.Snapshot
	// Warmup is when the warm-up ends by the user, since the start of the trace; 0: it is to be
	// found.
	Warmup time.Duration
	// Tolerable is growth in bytes per second that the user calls harmless.
	Tolerable float64
	Criteria  verdict.Criteria
	// Censuses of the objects of the process, in order.
	Censuses []*census.Result
	// Components maps stacks to components; nil: by the built-in rules.
	Components *component.Rules
}

// A Judgement is the result of a case. X of its Verdict is seconds since the start of the trace.
type Judgement struct {
	// Verdict is Decide of Judged, the verdict on the RSS alone, and of Findings.
	verdict.Verdict
	Judged   verdict.Verdict
	Findings verdict.Findings
	// Window over which the stacks were judged: from the end of the warm-up to the last snapshot of
	// the process's life.
	Window   trend.Window
	Trends   []trend.StackTrend
	Suspects []trend.Suspect
	// Diagnoses of the growth of RSS; nil where it does not grow, or its pages were not scanned.
	Diagnoses []diagnosis.Diagnosis
	// StepsPerSecond in the window; NaN without steps.
	StepsPerSecond float64
	// InSpikes: less than two snapshots lie outside spikes of RSS, so that a compared
	// snapshot has memory of a spike.
	InSpikes bool
}

// Process judges the RSS of a process, and the stacks that hold its growth.
func Process(c Case) Judgement {
	timeline := c.Process.Timeline
	j := Judgement{Judged: verdict.Judge(timeline.Series(), c.Setting(), c.Criteria)}

	snapshots, isCalm := c.OwnSnapshots()
	j.InSpikes = !isCalm
	judged := j.Judged
	if ended, ok := judged.EndedGrowth(); ok {
		judged.From = ended.From
	}
	seen := c.seenLonger(judged, snapshots)
	j.Window = c.StackWindow(judged, seen)
	j.Trends = trend.JudgeStacks(seen, j.Window, j.rateIn(timeline))
	j.Suspects = c.Suspects(j.Trends, seen, j.Window)
	j.StepsPerSecond = stepsPerSecond(timeline, j.Window)

	calm := spike.Without(timeline)
	rssAt := func(x float64) int64 {
		return calm.RSSAt(time.Duration(x * float64(time.Second)))
	}
	j.Findings.StacksAccumulate = c.IsSuspected(j.Judged, j.Trends, rssAt)
	j.diagnose(c, seen)

	j.Decide()
	return j
}

// rateIn is the growth of RSS over the window of stacks, in bytes per second.
func (j *Judgement) rateIn(timeline growth.Timeline) float64 {
	if j.Judged.Reason != verdict.ReasonGrowthEnded {
		return j.Judged.Rate
	}
	calm := spike.Without(timeline)
	grown := calm.RSSAt(j.Window.To) - calm.RSSAt(j.Window.From)
	return float64(grown) / (j.Window.To - j.Window.From).Seconds()
}

// Decide decides the verdict again, by Findings that have changed.
func (j *Judgement) Decide() { j.Verdict = verdict.Decide(j.Judged, j.Findings) }

// diagnose divides the growth of RSS among its causes, and finds which of them is most of it.
func (j *Judgement) diagnose(c Case, snapshots []*growth.Snapshot) {
	evidence, ok := j.evidence(c, snapshots)
	if !ok {
		return
	}
	j.Diagnoses = diagnosis.Diagnose(evidence)

	if !j.isReplaced() {
		j.Findings.Bound = boundOf(scanned(snapshots), evidence)
	}

	main, ok := diagnosis.MainOf(j.Diagnoses)
	switch {
	case !ok || !j.Judged.Class.Grows():
	case main.Cause == diagnosis.Fragmentation:
		j.Findings.Fragmentation = diagnosis.KeptShare(j.Diagnoses) <= maxKeptShare+keptShareNoise
	case main.Cause == diagnosis.PageCache:
		j.Findings.WithoutFiles = new(c.withoutFiles())
	}
}

// isReplaced reports whether most of the growth is an object that is replaced by larger ones: each
// of them is filled, and no size is the last one.
func (j *Judgement) isReplaced() bool {
	return slices.ContainsFunc(j.Suspects, func(s trend.Suspect) bool {
		return s.Trend == growth.TrendReplaced && s.Share >= minReplacedShare
	})
}

// minReplacedShare is the share of the growth of such an object.
const minReplacedShare = 0.5

// maxKeptShare is the share of the growth that objects which are kept may have beside
// fragmentation, and keptShareNoise is by how much two traces of one program differ in it.
const maxKeptShare, keptShareNoise = 0.2, 0.025

// scanned are the snapshots at which the pages of a process were scanned.
func scanned(snapshots []*growth.Snapshot) []*growth.Snapshot {
	return slices.DeleteFunc(slices.Clone(snapshots),
		func(s *growth.Snapshot) bool { return len(s.Residents) == 0 })
}

// evidence for the diagnosis of the growth over the window.
func (j *Judgement) evidence(
	c Case, snapshots []*growth.Snapshot,
) (e diagnosis.Evidence, ok bool) {
	scanned := scanned(snapshots)
	if len(scanned) < 2 {
		return e, false
	}

	start, end := scanned[0], scanned[len(scanned)-1]
	distance := func(s *growth.Snapshot) time.Duration { return (s.Elapsed - j.Window.From).Abs() }
	for _, s := range scanned[:len(scanned)-1] {
		if distance(s) < distance(start) {
			start = s
		}
	}

	e = diagnosis.Evidence{
		PID: c.Process.PID, Class: j.Judged.Class, Rows: breakdown.RSS(start, end),
		HasEnded: j.Judged.Reason == verdict.ReasonGrowthEnded,
		Start:    start.Elapsed, Elapsed: end.Elapsed - start.Elapsed,
		Trends: j.Trends, Missing: claim.Missing(c.Snapshots[len(c.Snapshots)-1]), Components: c.Components,
		Freed: freedBetween(start, end),
	}
	before, after := census.Around(c.Censuses, e.Start)
	if bytes, margin, ok := census.GrownStorages(c.Censuses, before, after); ok {
		e.Storages = diagnosis.Storages{
			Bytes: bytes, Margin: margin, From: before.Elapsed, To: after.Elapsed,
		}
	}
	for _, s := range scanned {
		if walk := s.Residents[0].Walk; walk != nil {
			e.Walks = append(e.Walks, *walk)
		}
	}
	return e, true
}

// freedBetween is how much traced stacks of the heap have freed between two snapshots, in bytes; nil:
// it is not known, since the heap was probed in bursts.
func freedBetween(start, end *growth.Snapshot) *float64 {
	if end.Heap.Bursts > 0 || len(end.Losses) > 0 {
		return nil
	}
	return new(freedUntil(end) - freedUntil(start))
}

func freedUntil(s *growth.Snapshot) (bytes float64) {
	for i := range s.Holdings {
		if h := &s.Holdings[i]; h.Kind == growth.KindHeap {
			bytes += h.AllocBytes - float64(h.InuseBytes)
		}
	}
	return bytes
}

// withoutFiles is the verdict on the memory besides mapped files.
func (c Case) withoutFiles() verdict.Verdict {
	series := c.Process.Timeline.SeriesOf(func(s *growth.Sample) int64 {
		if s.Anonymous == growth.Unknown || s.Shared == growth.Unknown {
			return growth.Unknown
		}
		return s.Anonymous + s.Shared
	})
	return verdict.Judge(series, c.Setting(), c.Criteria)
}

// Setting has the facts besides the process's timeline.
func (c Case) Setting() verdict.Setting {
	s := verdict.Setting{Age: c.age(), Tolerable: c.Tolerable}
	if len(c.Process.Timeline) > 0 && c.Headroom != growth.Unknown {
		if rss := c.Process.Timeline.RSSAt(c.Process.Last); rss != growth.Unknown {
			s.Limit = float64(rss + c.Headroom)
		}
	}

	end, cycle := growth.EpochsOf(c.Marks)
	if c.Warmup != 0 {
		end = &c.Warmup
	}
	if end != nil {
		s.EpochEnd = new(end.Seconds())
	}
	s.Cycle = cycle.Seconds()

	s.Start = new(math.Inf(-1)) // all samples are of one process: no fall is a restart

	return s
}

// age of the process at its first sample, in seconds.
func (c Case) age() float64 {
	if len(c.Process.Timeline) == 0 {
		return 0
	}
	return max(0, (c.Process.Timeline[0].Elapsed - c.Process.Born).Seconds())
}

// OwnSnapshots are the snapshots of the process's life outside its spikes, with its holdings alone;
// false as of spike.Outside.
func (c Case) OwnSnapshots() (own []*growth.Snapshot, isCalm bool) {
	for _, s := range c.Snapshots {
		if c.Process.IsIn(s) {
			own = append(own, s)
		}
	}

	own, isCalm = spike.Outside(own, c.Process.Timeline)
	for i, s := range own {
		own[i] = s.Of(c.Process.PID)
	}
	return own, isCalm
}

// minExplained is the share of the growth of RSS below which the largest suspect explains nothing.
const minExplained = 0.02

// Suspects are the suspects of the trends, with the code that the process mapped newly in the
// window. There are none where they explain next to nothing of the growth: in a short trace the line
// that imports a module may be the only one whose growth is proven.
func (c Case) Suspects(
	trends []trend.StackTrend, snapshots []*growth.Snapshot, w trend.Window,
) []trend.Suspect {
	suspects := trend.Suspects(trends, c.Components)
	if len(suspects) > 0 && suspects[0].Share < minExplained {
		return nil
	}
	for i := range suspects {
		if s := &suspects[i]; s.ThroughCompiler() {
			s.NewCode = newCode(c.Process.PID, snapshots, w)
		}
	}
	return suspects
}

// newCode is how many executable files a process maps newly in a window, per second.
func newCode(pid int, snapshots []*growth.Snapshot, w trend.Window) float64 {
	var files []int64
	var at []time.Duration
	for _, s := range snapshots {
		i := slices.IndexFunc(s.Residents, func(r growth.Resident) bool { return r.PID == pid })
		if i < 0 || s.Elapsed < w.From || s.Elapsed > w.To {
			continue
		}
		files, at = append(files, s.Residents[i].CodeFiles), append(at, s.Elapsed)
	}
	if len(files) < 2 {
		return 0
	}

	last := len(files) - 1
	return float64(files[last]-files[0]) / (at[last] - at[0]).Seconds()
}

// StackWindow is the window over which stacks are judged. It begins with the last segment of a
// verdict, and not before all growth comes from bursts.
func (c Case) StackWindow(v verdict.Verdict, snapshots []*growth.Snapshot) trend.Window {
	if len(snapshots) == 0 {
		return trend.Window{}
	}

	// At the start of a trace, replacements of memory from before tracing started look like growth.
	const ignoredShare = 0.1
	last := snapshots[len(snapshots)-1]
	w := trend.Window{From: c.Process.From, To: last.Elapsed}
	w.From += time.Duration(ignoredShare * float64(w.To-w.From))

	for _, from := range []float64{v.Start, v.From} {
		at := time.Duration(from * float64(time.Second))
		if !math.IsNaN(from) && at > w.From && at < w.To {
			w.From = at
		}
	}
	if c.Warmup != 0 && c.Warmup < w.To {
		w.From = max(c.Warmup, c.Process.From) // it may be of an earlier trace
	}
	if settled := last.Heap.Settled(); settled < w.To {
		w.From = max(w.From, settled)
	}

	return w
}

// seenLonger are the snapshots by which stacks are judged: all, or those from before the first burst, if
// they show the growth of a verdict for longer than the bursts do.
func (c Case) seenLonger(v verdict.Verdict, snapshots []*growth.Snapshot) []*growth.Snapshot {
	isBeforeBursts := func(s *growth.Snapshot) bool {
		hasBirths := slices.ContainsFunc(s.Holdings, func(h growth.Holding) bool { return len(h.Births) > 0 })
		return s.Heap.Bursts == 0 && hasBirths
	}
	full := len(snapshots)
	for full > 0 && !isBeforeBursts(snapshots[full-1]) {
		full--
	}
	if full == 0 || full == len(snapshots) {
		return snapshots
	}

	last, before := snapshots[len(snapshots)-1], snapshots[full-1]
	seen := before.Elapsed - c.StackWindow(v, snapshots[:full]).From
	if begin := time.Duration(v.From * float64(time.Second)); !math.IsNaN(v.From) && begin >= before.Elapsed ||
		seen <= last.Elapsed-last.Heap.Settled() {
		return snapshots
	}
	return snapshots[:full]
}

// IsSuspected is true where growth is not long enough for a leak, and yet it was traced for a
// while past its warm-up and half of it lies in stacks that accumulate. at returns the judged size
// at an X, in bytes.
func (c Case) IsSuspected(
	v verdict.Verdict, trends []trend.StackTrend, at func(x float64) int64,
) bool {
	const tolerance = 0.99 // a trace of five minutes has samples for a little less
	seconds := (c.Process.Last - c.Process.First).Seconds()
	if v.Class != verdict.ClassGrowing || v.Length < c.Criteria.MinPlateauLength ||
		seconds < tolerance*c.Criteria.MinLeakLength/2 || !c.isWarm(v, at) {
		return false
	}

	explained := 0.0
	for i := range trends {
		if t := &trends[i]; t.Accumulates() {
			explained += t.Share
		}
	}
	return explained >= 0.5
}

// isWarm is true where the process is old, an epoch is over, or the growth before the last segment
// was faster by at least a quarter. A pause in growth that goes on as before ends no warm-up.
func (c Case) isWarm(v verdict.Verdict, at func(x float64) int64) bool {
	switch {
	case c.age() >= c.Criteria.MatureAge:
		return true
	case math.IsNaN(v.From):
		return false
	case c.Setting().EpochEnd != nil:
		return true
	}
	return float64(at(v.From)-at(v.Start)) >= 1.25*v.Rate*(v.From-v.Start)
}

// stepsPerSecond is the rate of training steps in a window.
func stepsPerSecond(timeline growth.Timeline, w trend.Window) float64 {
	first, last := growth.Sample{Steps: growth.Unknown}, growth.Sample{Steps: growth.Unknown}
	for _, s := range timeline {
		if s.Steps == growth.Unknown || s.Elapsed < w.From || s.Elapsed > w.To {
			continue
		}
		if first.Steps == growth.Unknown {
			first = s
		}
		last = s
	}

	if last.Steps <= first.Steps {
		return math.NaN()
	}
	return float64(last.Steps-first.Steps) / (last.Elapsed - first.Elapsed).Seconds()
}

// OtherGrowth is the process outside the traced tree, started by it, that grows most, where it grows
// more than the tree; nil: none does. rows are of the time over which the others have grown, which are
// sorted by growth. Less than the criteria's MinPlateauLength shows nothing.
func OtherGrowth(
	rows []growth.Row, others []growth.OtherProcess, c verdict.Criteria,
) *verdict.OtherGrowth {
	tree, ok := growthOf(rows, func(r growth.Row) int64 { return r.Tree.RSS })
	started := slices.IndexFunc(others,
		func(o growth.OtherProcess) bool { return o.Relation == growth.RelationStarted })
	if !ok || started < 0 {
		return nil
	}

	elapsed, other := rows[len(rows)-1].Elapsed-rows[0].Elapsed, others[started]
	if elapsed.Seconds() < c.MinPlateauLength || float64(other.Growth) < c.MinOutsideGrowth ||
		tree >= other.Growth {
		return nil
	}
	return &verdict.OtherGrowth{
		PID: other.PID, Command: other.Command, Growth: other.Growth, TreeGrowth: tree,
	}
}

// growthOf is the median of the last rows less the median of the first; false for too few rows.
func growthOf(rows []growth.Row, value func(growth.Row) int64) (bytes int64, ok bool) {
	const few = 5
	if len(rows) < 2*few {
		return 0, false
	}

	median := func(rows []growth.Row) int64 {
		var values []int64
		for _, r := range rows {
			values = append(values, value(r))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	first, last := median(rows[:few]), median(rows[len(rows)-few:])

	return last - first, first != growth.Unknown && last != growth.Unknown
}
