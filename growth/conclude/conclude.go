package conclude

import (
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/spike"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A Result is all that a trace shows.
type Result struct {
	// All traced processes, and the Main one, which the result is about. Its verdict alone takes
	// other processes and memory outside of processes into account. Related are other processes
	// that grow much besides.
	All     []Process
	Main    Process
	Related []growth.OtherProcess
	// Outside is memory of the job outside of the traced processes, where it grows; nil: there is
	// none.
	Outside *Outside
	// Container is the memory of the cgroup of the job; nil: it is in none that is known.
	Container *Container
	// Together is when memory runs out by all that grows in it; nil: the main process is most of
	// that.
	Together *Together
	// Headroom of the main process until its first limit.
	Headroom growth.Headroom
	Groups   []Group
	Outlier  *Outlier // nil: no rank stands out

	// Pair has the snapshots between which growth is measured, and Scanned the same for pages.
	Pair, Scanned Pair
	// Grown is the memory that accumulated on the host, and GrownOnGPUs on GPUs, with the trends of
	// stacks.
	Grown, GrownOnGPUs []growth.Holding
	RSS                RSS
	Steps              *Steps // nil: no steps were seen

	// Rows of RSS, of all processes. Main has its own diagnoses; TreeDiagnoses are for the process
	// tree, nil where the other processes are negligible.
	Rows          []breakdown.Row
	TreeDiagnoses []diagnosis.Diagnosis
	Advice        []advice.Advice

	// Before and After are the census nearest to the baseline and the last one; nil: there is none.
	Before, After *census.Result
	Keepers       []keeper.Search

	// Evidence for and against a leak of the main process.
	Evidence Evidence
}

// RSS of the main process in bytes; Unknown where it is.
type RSS struct {
	Start, Baseline, End int64
	// Peak is the highest RSS as the kernel counts, where that is much higher than all samples;
	// else Unknown. PeakBefore: it was as high before the trace.
	Peak       int64
	PeakBefore bool
}

// minPeak is how many times the highest sample a peak is that is worth a word.
const minPeak = 1.5

// Steps of training since the baseline.
type Steps struct {
	Count     int64
	PerSecond float64
	// Growth in bytes per step; NaN: unknown.
	Growth float64
}

// Conclude returns the result of a trace by the judgements of its processes. It decides copies of
// them by the checks so far.
func (t *Trace) Conclude(judged []Process) Result {
	all := slices.Clone(judged)
	for i := range all {
		t.AddChecks(&all[i])
	}

	r := Result{All: all, Main: MainOf(all)}
	r.Headroom = t.Headroom(r.Main.History)
	r.Groups, r.Outlier = t.groups(r.Headroom), outlierOf(all)
	r.Container = containerOf(t)
	t.addOthers(&r)
	r.Together = t.together(&r)
	t.nameOthers(&r)

	r.Pair = t.PairOf(r.Main.History, r.Main.Window)
	r.Scanned = t.ScannedPair(r.Main.History, r.Pair)
	r.addGrowth()
	r.RSS, r.Steps = rssOf(r.Main.History, r.Scanned), stepsOf(r.Main, r.Pair)
	r.RSS.addPeak(r.Main.History, t.Snapshots)

	r.Rows = breakdown.RSS(r.Scanned.Start, r.Scanned.End)
	t.addCauses(&r)
	r.Before, r.After = census.Around(t.CensusesOf(r.Main.History), r.Pair.Start.Elapsed)
	r.Keepers = t.KeepersOf(r.Main.History)
	isOnGPU := r.Main.GPU != nil && r.Main.GPU.Class.Grows()
	if r.Main.Reason == verdict.ReasonGrowthEnded && !isOnGPU {
		r.Keepers = withoutRates(r.Keepers)
	}
	r.Evidence = t.evidence(&r)

	return r
}

// addGrowth adds the memory that accumulated between the ends of the pair.
func (r *Result) addGrowth() {
	var trends, onGPUs []trend.StackTrend
	for _, p := range r.All {
		trends = append(trends, p.Trends...)
		if p.GPU != nil {
			onGPUs = append(onGPUs, p.GPU.Trends...)
		}
	}

	r.Grown = growth.Between(r.Pair.Start, r.Pair.End)
	trend.Label(r.Grown, trends)
	r.GrownOnGPUs = growth.Between(r.Pair.Start.OnGPUs(), r.Pair.End.OnGPUs())

	trend.Label(r.GrownOnGPUs, onGPUs)
}

// rssOf is the RSS of a process: at the start by its timeline outside spikes, at the baseline and
// the end by the snapshots of the breakdown.
func rssOf(process *growth.ProcessHistory, scanned Pair) RSS {
	if process == nil {
		return RSS{
			Start: growth.Unknown, Baseline: growth.Unknown, End: growth.Unknown,
			Peak: growth.Unknown,
		}
	}

	rss := RSS{
		Start:    spike.Without(process.Timeline).RSSAt(0),
		Baseline: rssAt(scanned.Start, process), End: rssAt(scanned.End, process),
		Peak: growth.Unknown,
	}
	if !isResident(scanned.Start, process) && isResident(scanned.End, process) {
		rss.Baseline = growth.Unknown // it has ended before it was scanned: the breakdown has its end alone
	}
	return rss
}

// addPeak sets the peak of RSS that no sample shows. snapshots are of all processes.
func (r *RSS) addPeak(process *growth.ProcessHistory, snapshots []*growth.Snapshot) {
	if process == nil {
		return
	}

	var peaks []int64
	highest := int64(1)
	for _, s := range snapshots {
		for _, p := range s.Residents {
			if p.PID == process.PID && p.Peak > 0 {
				peaks, highest = append(peaks, p.Peak), max(highest, p.RSS)
			}
		}
	}
	for _, s := range process.Timeline {
		highest = max(highest, s.RSS)
	}
	if last := len(peaks) - 1; last >= 0 && float64(peaks[last]) >= minPeak*float64(highest) {
		r.Peak, r.PeakBefore = peaks[last], peaks[0] == peaks[last]
	}
}

// rssAt is the RSS of a process at a snapshot, or by its timeline where the snapshot has none.
func rssAt(s *growth.Snapshot, process *growth.ProcessHistory) int64 {
	for _, p := range s.Residents {
		if p.PID == process.PID && p.RSS != growth.Unknown {
			return p.RSS
		}
	}
	return process.Timeline.RSSAt(s.Elapsed)
}

func isResident(s *growth.Snapshot, process *growth.ProcessHistory) bool {
	return slices.ContainsFunc(s.Residents,
		func(p growth.Resident) bool { return p.PID == process.PID })
}

// stepsOf are the training steps since the baseline; nil: no steps were seen.
func stepsOf(p Process, pair Pair) *Steps {
	if p.History == nil || math.IsNaN(p.StepsPerSecond) {
		return nil
	}
	return &Steps{
		Count:     p.History.Timeline.StepsSince(pair.Start.Elapsed),
		PerSecond: p.StepsPerSecond, Growth: p.Rate / p.StepsPerSecond,
	}
}

// addCauses adds the diagnoses of the tree and the advice, which follow from the rows.
func (t *Trace) addCauses(r *Result) {
	pid := t.pidOf(r.Main.History)
	resident := make(map[int]int64)

	for _, p := range r.Scanned.End.Residents {
		resident[p.PID] = max(0, p.RSS)
	}
	if OtherProcesses(pid, resident) > 0 {
		r.TreeDiagnoses = diagnosis.Diagnose(t.treeEvidence(r))
	}

	walked := make(map[int]diagnosis.Diagnosis)
	for _, d := range r.Main.Diagnoses {
		if d.Free != 0 {
			walked[pid] = d
		}
	}

	r.Advice = advice.Advise(advice.Evidence{
		Walked:    walked,
		Breakdown: r.Rows, Start: r.Scanned.Start.Residents, End: r.Scanned.End.Residents,
		Components: t.Components,
		CacheStart: t.cacheAt(r.Scanned.Start.Elapsed), CacheEnd: t.cacheAt(r.Scanned.End.Elapsed),
	})
}

// treeEvidence is the evidence for the diagnosis of the process tree. It grows where a traced
// process or a group of workers does.
func (t *Trace) treeEvidence(r *Result) diagnosis.Evidence {
	e := diagnosis.Evidence{
		Class: r.Main.Class, Rows: r.Rows, Elapsed: r.Scanned.Elapsed(),
		Missing: claim.Missing(r.Scanned.End), Components: t.Components,
	}

	classes := []verdict.Class{}
	for _, p := range r.All {
		e.Trends = append(e.Trends, p.Trends...)
		classes = append(classes, p.Class)
	}
	for _, g := range r.Groups {
		classes = append(classes, g.Verdict.Class)
	}

	for _, class := range classes {
		if class.Severity() > e.Class.Severity() {
			e.Class = class
		}
	}
	return e
}

// minOtherShare is the share of the RSS of one process below which the memory of all others is too
// little for a breakdown of its own.
const minOtherShare = 0.05

// OtherProcesses is the number of processes besides one that have resident memory. resident has the
// bytes by PID. The number is 0 where their memory is negligible beside the memory of the one.
func OtherProcesses(pid int, resident map[int]int64) int {
	others, sum := 0, int64(0)
	for other, bytes := range resident {
		if other != pid && bytes > 0 {
			others++
			sum += bytes
		}
	}

	if float64(sum) < minOtherShare*float64(resident[pid]) {
		return 0
	}
	return others
}
