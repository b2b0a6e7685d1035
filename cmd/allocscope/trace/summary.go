package trace

import (
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// summarize makes the summary of a trace, but for GPU memory.
func (r *Recorder) summarize(
	main ProcessVerdict,
	all []ProcessVerdict,
	pair SnapshotPair,
	grown []growth.Holding,
	ended string,
) (*summary.Summary, error) {
	events, losses, err := r.counters()
	if err != nil {
		return nil, err
	}

	baseline := summary.Seconds(pair.Start.Elapsed)
	scanned := r.ScannedPair(main.Process, pair)
	overhead := withLag(r.overhead(), pair.End.Heap)

	s := &summary.Summary{
		Version: r.env.Version, CommandLine: r.env.CommandLine, Started: r.started,
		DurationS: summary.Seconds(r.session.Elapsed()), Ended: ended,
		Kernel: kernelRelease(), Architecture: runtime.GOARCH,
		Notes: r.notes, Process: r.ProcessOf(main.Process), Processes: r.processes(all),
		Outlier: outlierOf(all), Groups: r.groups(), Related: r.related, Target: r.target(),
		ContinuedFrom: r.continuedFrom(), Gaps: r.gaps(),

		Verdict:   summary.VerdictOf(main.Verdict, summary.AxisSeconds),
		BaselineS: &baseline, RSS: sizesOf(main.Process, scanned),
		Steps: stepsOf(main, pair.Start.Elapsed), Limit: r.limit(main.Process),

		Accumulating: summary.Accumulating(grown, r.accumulationContext(pair), maxSummaryStacks),
		Live:         summary.LiveOf(pair.End.Holdings),
		Mappings:     summary.MappingsOf(pair.End.Mappings),
		GPUs:         summary.GPUsOf(r.history.GPUs),

		IntervalBytes: overhead.IntervalBytes, Overhead: overhead, Events: summary.Events(events),
		SnapshotsS: r.snapshotSeconds(), Files: r.files(), Sources: r.sources(),
	}

	s.Objects = summary.ObjectsOf(r.Censuses(main.Process, pair.Start.Elapsed))
	s.Keepers = summary.KeepersOf(r.Keepers(main.Process))

	if r.asked.PID != s.Process.PID {
		s.Asked = r.asked.PID
	}

	for _, c := range main.Suspects[:min(maxTableRows, len(main.Suspects))] {
		s.Suspects = append(s.Suspects, summary.SuspectOf(c))
	}

	for _, m := range r.history.Marks {
		s.Marks = append(s.Marks, summary.Mark{AtS: summary.Seconds(m.At), Text: m.Text})
	}

	for _, l := range losses {
		s.Losses = append(s.Losses, summary.Loss{
			Code: l.Kind, Reason: words.Loss(l), Count: l.Count, PID: l.PID, Bytes: l.Bytes,
		})
	}

	r.addBreakdown(s, scanned, main, all)
	isStopped := r.session.IsStopped(s.Process.PID)
	s.Warnings = words.Warnings(s, r.marks.Dropped(), isStopped)
	return s, nil
}

// files of the folder, by what is in them.
func (r *Recorder) files() map[string]string {
	files := map[string]string{
		"growth": folder.GrowthFile, "warmup": folder.WarmupFile, "plateau": folder.PlateauFile,
		"timeline": folder.TimelineFile, "processes": folder.ProcessesFile,
		"report": folder.ReportFile,
	}
	if r.rows.gpus != nil {
		files["gpus"] = folder.GPUsFile
	}
	if r.rows.objects != nil {
		files["objects"] = folder.ObjectsFile
	}
	return files
}

// accumulationContext is what stacks that have grown are compared with.
func (r *Recorder) accumulationContext(pair SnapshotPair) summary.Period {
	c := summary.Period{Elapsed: pair.Elapsed(), End: pair.End, Components: r.options.Components.Rules}
	for _, s := range r.snapshots {
		c.Snapshots = append(c.Snapshots, s.Snapshot)
	}
	return c
}

func (r *Recorder) snapshotSeconds() []float64 {
	seconds := []float64{}
	for _, s := range r.snapshots {
		seconds = append(seconds, summary.Seconds(s.Elapsed))
	}
	return seconds
}

func (r *Recorder) sources() []summary.Source {
	var sources []summary.Source
	for _, s := range r.session.Sources() {
		state := summary.SourceAttached
		switch {
		case s.Off:
			state = summary.SourceOff
		case !s.Attached:
			state = summary.SourceFailed
		}
		sources = append(sources, summary.Source{
			Name: s.Name, PID: s.PID, State: state,
			Reason: sourceReason(s), Producers: s.Producers,
		})
	}
	return sources
}

// ProcessOf returns a process in the form of the summary; nil means the process of --pid.
func (r *Recorder) ProcessOf(process *growth.ProcessHistory) summary.Process {
	if process == nil {
		return r.asked
	}
	return summary.Process{
		PID: process.PID, Command: process.Command, Executable: process.Executable,
		Arguments: process.Arguments,
	}
}

// processes of the tree that are traced, or are neither workers nor too short-lived to matter.
func (r *Recorder) processes(all []ProcessVerdict) []summary.TreeProcess {
	var processes []summary.TreeProcess
	for _, t := range r.history.Processes {
		if (t.Role.IsWorker() || r.history.IsShortLived(t)) && !t.Traced {
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

		i := slices.IndexFunc(all, func(v ProcessVerdict) bool { return v.Process == t })
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

// groups of workers, and whether the sum of each group grows.
func (r *Recorder) groups() []summary.Group {
	var groups []summary.Group
	for _, g := range r.history.Groups() {
		judged := verdict.Judge(g.History, verdict.Setting{}, r.criteria())
		v := summary.VerdictOf(judged, summary.AxisSeconds)
		groups = append(groups, summary.Group{
			Role: g.Role, Processes: g.Count, EachBytes: summary.Known(g.RSS),
			PrivateBytes: summary.Known(g.Private), PSSBytes: summary.Known(g.PSS),
			Verdict: v.Class, RateBytesPerMin: v.RateBytesPerMin,
		})
	}
	return groups
}

// sizesOf is the RSS of a process: at the start by its timeline, at the baseline and the end by the
// snapshots of the breakdown.
func sizesOf(process *growth.ProcessHistory, scanned SnapshotPair) summary.RSS {
	if process == nil {
		return summary.RSS{}
	}

	baseline, end := rssAt(scanned.Start, process), rssAt(scanned.End, process)
	if !isResident(scanned.Start, process) && isResident(scanned.End, process) {
		baseline = growth.Unknown // it has ended before it was scanned: the breakdown has its end alone
	}
	rss := summary.RSS{
		StartBytes:    summary.Known(process.Timeline.RSSAt(0)),
		BaselineBytes: summary.Known(baseline), EndBytes: summary.Known(end),
	}

	if baseline != growth.Unknown && end != growth.Unknown {
		rss.GrowthBytesPerMin = summary.BytesPerMin(end-baseline, scanned.Elapsed())
	}
	return rss
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
	return slices.ContainsFunc(s.Residents, func(p growth.Resident) bool { return p.PID == process.PID })
}

// stepsOf are the training steps since the baseline; nil: no steps were seen.
func stepsOf(v ProcessVerdict, baseline time.Duration) *summary.Steps {
	if math.IsNaN(v.StepsPerSecond) || v.Process == nil {
		return nil
	}

	steps := &summary.Steps{
		Count: v.Process.Timeline.StepsSince(baseline), PerMin: v.StepsPerSecond * 60,
	}

	if !math.IsNaN(v.Rate) {
		perStep := int64(math.Round(v.Rate / v.StepsPerSecond))
		steps.GrowthBytesPerStep = &perStep
	}
	return steps
}

// limit is the memory limit that a process would reach first, at the end; nil: none is known.
func (r *Recorder) limit(main *growth.ProcessHistory) *summary.Limit {
	first := r.Headroom(main)
	if first.Of == "" {
		return nil
	}
	return &summary.Limit{Of: first.Of, Bytes: first.Bytes, HeadroomBytes: first.Left}
}

// MaxRowsPerKind bounds the rows of the RSS breakdown, for each process and kind.
const MaxRowsPerKind = 20

// addBreakdown adds the RSS breakdown at the ends of a pair, and the diagnoses and the advice that
// follow from it.
func (r *Recorder) addBreakdown(
	s *summary.Summary, pair SnapshotPair, main ProcessVerdict, all []ProcessVerdict,
) {
	rows := breakdown.RSS(pair.Start, pair.End)
	s.Breakdown = summary.BreakdownOf(rows, MaxRowsPerKind, pair.End.Losses)
	s.Residents = summary.ResidentsOf(pair.Start.Residents, pair.End.Residents)

	s.Diagnoses = summary.DiagnosesOf(s.Process.PID, main.Diagnoses)
	if words.OtherProcesses(s) > 0 {
		tree := diagnosis.Diagnose(r.treeEvidence(s, rows, pair, all))
		s.Diagnoses = append(s.Diagnoses, summary.DiagnosesOf(0, tree)...)
	}

	walked := make(map[int]diagnosis.Diagnosis)
	for _, d := range main.Diagnoses {
		if d.Free != 0 {
			walked[s.Process.PID] = d
		}
	}
	s.Advice = summary.AdviceOf(advice.Advise(advice.Evidence{
		Walked:    walked,
		Breakdown: rows, Start: pair.Start.Residents, End: pair.End.Residents,
		Components: r.options.Components.Rules,
		CacheStart: r.cacheAt(pair.Start.Elapsed), CacheEnd: r.cacheAt(pair.End.Elapsed),
	}))
}

// treeEvidence is what the process tree is diagnosed by. It grows where a traced process or a group
// of workers does.
func (r *Recorder) treeEvidence(
	s *summary.Summary, rows []breakdown.Row, pair SnapshotPair, all []ProcessVerdict,
) diagnosis.Evidence {
	e := diagnosis.Evidence{
		Class: s.Class, Rows: rows, Elapsed: pair.Elapsed(),
		Missing: claim.Missing(pair.End), Components: r.options.Components.Rules,
	}
	classes := []verdict.Class{}
	for _, v := range all {
		e.Trends = append(e.Trends, v.Trends...)
		classes = append(classes, v.Class)
	}
	for _, g := range s.Groups {
		classes = append(classes, g.Verdict)
	}

	for _, class := range classes {
		if class.Severity() > e.Class.Severity() {
			e.Class = class
		}
	}
	return e
}

// cacheAt is the page cache of the container at the sample nearest to a time; Unknown before the
// first sample.
func (r *Recorder) cacheAt(at time.Duration) int64 {
	cache, nearest := int64(growth.Unknown), time.Duration(-1)
	for _, row := range r.history.Rows {
		if distance := (row.Elapsed - at).Abs(); nearest < 0 || distance < nearest {
			cache, nearest = row.System.CgroupCache, distance
		}
	}
	return cache
}
