package record

import (
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
)

// Bounds of a summary.
const (
	// MaxRowsPerKind is of the RSS breakdown, for each process and kind.
	MaxRowsPerKind   = 20
	maxSuspects      = 10
	maxSummaryStacks = 50 // of accumulating memory
)

// summarize makes the summary of the trace.
func (e *Ending) summarize() (*summary.Summary, error) {
	r, t, result := e.recorder, e.trace, &e.result
	events, losses, err := r.meter.counters()
	if err != nil {
		return nil, err
	}

	main, pair := &result.Main, result.Pair
	baseline := summary.Seconds(pair.Start.Elapsed)
	overhead := withLag(r.meter.overhead(), pair.End.Heap)

	s := &summary.Summary{
		Version: r.options.Version, CommandLine: r.options.CommandLine, Started: r.profiles.started,
		DurationS: summary.Seconds(r.session.Elapsed()), Ended: e.reason,
		Kernel: kernelRelease(), Architecture: runtime.GOARCH,
		Notes: r.notes, Process: r.ProcessOf(main.History), Processes: processesOf(&r.history, result.All),
		Outlier: summary.OutlierOf(result.Outlier), Groups: groupsOf(result.Groups),
		Related: relatedOf(result.Related), Together: togetherOf(result.Together),
		Outside: summary.OutsideOf(result.Outside), Container: summary.ContainerOf(result.Container),
		Target:        r.asked.summary(r.session.Started()),
		ContinuedFrom: r.earlier.Continued(r.began), Gaps: r.earlier.gapsUntil(r.began),

		Verdict:   summary.VerdictOf(main.Verdict, summary.AxisSeconds),
		BaselineS: &baseline, RSS: rssOf(result), Steps: stepsOf(result.Steps),
		Limit: limitOf(result.Headroom),

		Accumulating: summary.Accumulating(result.Grown, summary.Period{
			Elapsed: pair.Elapsed(), End: pair.End, Components: t.Components, Snapshots: t.Snapshots,
		}, maxSummaryStacks),
		Live:     summary.LiveOf(pair.End.Holdings),
		Mappings: summary.MappingsOf(pair.End.Mappings),
		GPUs:     summary.GPUsOf(r.history.GPUs),

		IntervalBytes: overhead.IntervalBytes, Overhead: overhead, Events: events,
		SnapshotsS: secondsOfAll(r.snapshots.times()), Files: r.rows.names(),
		Sources: sourcesOf(r.session.Sources()),
	}

	s.Software = r.session.Software(s.Process.PID)
	s.Objects = summary.ObjectsOf(result.Before, result.After)
	s.Keepers = summary.KeepersOf(result.Keepers)

	if r.asked.PID != s.Process.PID {
		s.Asked = r.asked.PID
	}

	for _, c := range main.Suspects[:min(maxSuspects, len(main.Suspects))] {
		s.Suspects = append(s.Suspects, summary.SuspectOf(c))
	}

	for _, m := range r.history.Marks {
		s.Marks = append(s.Marks, summary.Mark{AtS: summary.Seconds(m.At), Text: m.Text})
	}

	addBreakdown(s, result)
	s.Losses, s.MarksDropped = losses, r.marks.Dropped()
	s.Stopped = r.session.IsStopped(s.Process.PID)
	s.Condition = summary.ConditionOf(main.History)

	s.GPUMemory = gpuSummaries(t, result.All)
	if s.SpikeMemory = e.spikeMemory(); s.SpikeMemory.IsCaptured() {
		s.Files["spikes"] = folder.SpikesFile
	}
	r.oom.read(&r.history)
	s.OOMKills = r.oom.summaries(r.session.Elapsed())
	s.SnapshotsInSpikes = main.InSpikes
	s.TargetEnded, s.Launched = r.options.EndsTarget, r.options.Launched
	s.Evidence = summary.EvidenceOf(result.Evidence)
	s.AddLimits(func(file string) growth.DebugPackage {
		return r.session.FindDebugPackage(s.Process.PID, file)
	})
	return s, nil
}

func secondsOfAll(times []time.Duration) []float64 {
	seconds := []float64{}
	for _, at := range times {
		seconds = append(seconds, summary.Seconds(at))
	}
	return seconds
}

// ProcessOf returns a process in the form of the summary; nil means the process of --pid.
func (r *Recorder) ProcessOf(process *growth.ProcessHistory) summary.Process {
	if process == nil {
		return r.asked.Process
	}
	return summary.Process{
		PID: process.PID, Command: process.Command, Executable: process.Executable,
		Arguments: process.Arguments,
	}
}

// processesOf are the processes of the tree that are traced, or are neither workers nor too
// short-lived to matter.
func processesOf(h *growth.History, all []conclude.Process) []summary.TreeProcess {
	var processes []summary.TreeProcess
	for _, t := range h.Processes {
		if (t.Role.IsWorker() || h.IsShortLived(t)) && !t.Traced {
			continue
		}

		p := summary.TreeProcess{
			PID: t.PID, StartTicks: t.Start, Parent: t.Parent, Role: t.Role, Command: t.Command, Traced: t.Traced,
			FirstS: summary.Seconds(t.First), LastS: summary.Seconds(t.Last),
			StartBytes: summary.Known(t.Timeline.RSSAt(t.First)),
			EndBytes:   summary.Known(t.Timeline.RSSAt(t.Last)),
		}

		if t.Role == growth.RoleRank {
			p.Rank = &t.Rank
		}

		i := slices.IndexFunc(all, func(p conclude.Process) bool { return p.History == t })
		if i >= 0 {
			p.SetVerdict(all[i].Verdict)
		}
		if t.Traced {
			p.Identity = summary.IdentityOf(t.Identity)
		}

		processes = append(processes, p)
	}

	return processes
}

// groupsOf are groups of workers in the form of the summary.
func groupsOf(all []conclude.Group) []summary.Group {
	var groups []summary.Group
	for _, g := range all {
		v := summary.VerdictOf(g.Verdict, summary.AxisSeconds)
		out := summary.Group{
			Role: g.Role, Service: g.Service, Parent: g.Parent,
			Processes: g.Count, EachBytes: summary.Known(g.RSS),
			PrivateBytes: summary.Known(g.Private), PSSBytes: summary.Known(g.PSS),
			Verdict: v.Class, RateBytesPerMin: v.Rate, Traced: g.Traced, LargestPID: g.Largest,
			Replaced: g.Replaced, ReplacedGrowing: g.Growing, ReplacedGrowthBytes: g.Grown,
			ReplacedLifeS: summary.Seconds(g.Life),
		}
		if of := g.Generations; of != nil {
			out.ReplacedTraced = of.Traced
			for _, c := range of.Suspects[:min(maxSuspects, len(of.Suspects))] {
				out.ReplacedSuspects = append(out.ReplacedSuspects, summary.SuspectOf(c))
			}
		}
		groups = append(groups, out)
	}
	return groups
}

// relatedOf are other processes in the form of the summary.
func relatedOf(others []growth.OtherProcess) []summary.Related {
	var related []summary.Related
	for _, o := range others {
		r := summary.Related{
			PID: o.PID, Command: o.Command, Relation: o.Relation, GrowthBytes: o.Growth,
			SinceS: math.Round(o.Since*1000) / 1000,
		}
		if o.Rate > 0 {
			r.RateBytesPerMin = summary.Finite(math.Round(o.Rate * 60))
		}
		related = append(related, r)
	}
	return related
}

// togetherOf is the forecast for a memory in the form of the summary; nil: there is none.
func togetherOf(t *conclude.Together) *summary.Together {
	if t == nil {
		return nil
	}
	return &summary.Together{
		Limit: *limitOf(t.Headroom), ToLimitS: math.Round(t.ToLimit*1000) / 1000,
		RateBytesPerMin: math.Round(t.Rate * 60), PIDs: append([]int{}, t.With...), Workers: t.Workers,
		Outside: t.Outside,
	}
}

// rssOf is the RSS of the main process in the form of the summary.
func rssOf(r *conclude.Result) summary.RSS {
	rss := summary.RSS{
		StartBytes:    summary.Known(r.RSS.Start),
		BaselineBytes: summary.Known(r.RSS.Baseline), EndBytes: summary.Known(r.RSS.End),
		PeakBytes: summary.Known(r.RSS.Peak), PeakBefore: r.RSS.PeakBefore,
	}
	if r.RSS.Baseline != growth.Unknown && r.RSS.End != growth.Unknown {
		rss.GrowthBytesPerMin = summary.BytesPerMin(r.RSS.End-r.RSS.Baseline, r.Scanned.Elapsed())
	}
	return rss
}

// stepsOf are training steps in the form of the summary.
func stepsOf(s *conclude.Steps) *summary.Steps {
	if s == nil {
		return nil
	}
	steps := &summary.Steps{Count: s.Count, PerMin: s.PerSecond * 60}
	if !math.IsNaN(s.Growth) {
		steps.GrowthBytesPerStep = new(int64(math.Round(s.Growth)))
	}
	return steps
}

// limitOf is a memory limit in the form of the summary; nil: none is known.
func limitOf(first growth.Headroom) *summary.Limit {
	if first.Of == "" {
		return nil
	}
	return &summary.Limit{Of: first.Of, Bytes: first.Bytes, HeadroomBytes: first.Left}
}

// addBreakdown adds the RSS breakdown, and the diagnoses and the advice that follow from it.
func addBreakdown(s *summary.Summary, r *conclude.Result) {
	start, end := r.Scanned.Start, r.Scanned.End
	s.Breakdown = summary.BreakdownOf(r.Rows, MaxRowsPerKind, end.Losses)
	s.Residents = summary.ResidentsOf(start.Residents, end.Residents)

	s.Diagnoses = append(summary.DiagnosesOf(s.Process.PID, r.Main.Diagnoses),
		summary.DiagnosesOf(0, r.TreeDiagnoses)...)
	s.Advice = r.Advice
}
