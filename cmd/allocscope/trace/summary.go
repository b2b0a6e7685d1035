package trace

import (
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// summarize makes the summary of a trace, but for GPU memory.
func (r *Recorder) summarize(
	main ProcessVerdict,
	all []ProcessVerdict,
	pair SnapshotPair,
	grown []growth.Holding,
	ended string,
) (*export.Summary, error) {
	events, losses, err := r.session.Counters()
	if err != nil {
		return nil, err
	}

	baseline := export.Seconds(pair.Start.Elapsed)
	scanned := r.ScannedPair(main.Process, pair)
	overhead := withLag(r.overhead(), pair.End.Watch)

	s := &export.Summary{
		Version: r.env.Version, CommandLine: os.Args, Started: r.started,
		DurationS: export.Seconds(r.session.Elapsed()), Ended: ended,
		Kernel: kernelRelease(), Architecture: runtime.GOARCH,
		Process: r.ProcessOf(main.Process), Processes: r.processes(all), Groups: r.groups(),

		Verdict:   export.VerdictOf(main.Verdict, export.AxisSeconds),
		BoundaryS: &baseline, RSS: sizesOf(main.Process, scanned),
		Steps: stepsOf(main, pair.Start.Elapsed), Limit: r.limit(),

		Accumulating: export.Accumulating(grown, r.accumulationContext(pair), maxSummaryStacks),
		Live:         export.LiveOf(pair.End.Holdings),
		Mappings:     export.MappingsOf(pair.End.Mappings),
		Released:     export.Releases(pair.End.Releases, maxTableRows),
		GPUs:         export.GPUsOf(r.history.GPUs),

		IntervalBytes: overhead.IntervalBytes, Overhead: overhead, Events: export.Events(events),
		SnapshotsS: r.snapshotSeconds(), Files: r.files(), Sources: r.sources(),
	}

	if asked := r.session.Process.PID; asked != s.Process.PID {
		s.Asked = asked
	}

	for _, c := range main.Culprits[:min(maxTableRows, len(main.Culprits))] {
		s.Culprits = append(s.Culprits, export.CulpritOf(c))
	}

	for _, m := range r.history.Marks {
		s.Marks = append(s.Marks, export.Mark{AtS: export.Seconds(m.At), Text: m.Text})
	}

	for _, l := range losses {
		s.Losses = append(s.Losses, export.Loss(l))
	}

	r.addBreakdown(s, scanned)
	s.Warnings = r.warnings(s)
	return s, nil
}

// files of the folder, by what is in them.
func (r *Recorder) files() map[string]string {
	files := map[string]string{
		"growth": export.GrowthFile, "warmup": export.WarmupFile, "plateau": export.PlateauFile,
		"timeline": export.TimelineFile, "processes": export.ProcessesFile,
		"report": export.ReportFile,
	}
	if r.rows.gpus != nil {
		files["gpus"] = export.GPUsFile
	}
	return files
}

// accumulationContext is what stacks that have grown are compared with.
func (r *Recorder) accumulationContext(pair SnapshotPair) export.Course {
	c := export.Course{Elapsed: pair.Elapsed(), End: pair.End, Owners: r.options.Components.Rules}
	for _, s := range r.snapshots {
		c.Snapshots = append(c.Snapshots, s.Snapshot)
	}
	return c
}

func (r *Recorder) snapshotSeconds() []float64 {
	seconds := []float64{}
	for _, s := range r.snapshots {
		seconds = append(seconds, export.Seconds(s.Elapsed))
	}
	return seconds
}

func (r *Recorder) sources() []export.Source {
	var sources []export.Source
	for _, s := range r.session.Sources() {
		state := export.SourceAttached
		switch {
		case s.Off:
			state = export.SourceOff
		case !s.Attached:
			state = export.SourceFailed
		}
		sources = append(sources, export.Source{
			Name: s.Name, PID: s.PID, State: state,
			Reason: s.Reason,
		})
	}
	return sources
}

// ProcessOf returns a process in the form of the summary; nil stands for the process of --pid.
func (r *Recorder) ProcessOf(process *growth.Track) export.Process {
	if process == nil {
		p := r.session.Process
		return export.Process{
			PID: p.PID, Command: p.Command(), Executable: p.Executable, Arguments: p.Arguments,
		}
	}
	return export.Process{
		PID: process.PID, Command: process.Command, Executable: process.Executable,
		Arguments: process.Arguments,
	}
}

// processes of the tree that are traced, or are neither workers nor too short-lived to matter.
func (r *Recorder) processes(all []ProcessVerdict) []export.TreeProcess {
	var processes []export.TreeProcess
	for _, t := range r.history.Tracks {
		if (t.Role.IsWorker() || r.history.IsGlimpse(t)) && !t.Traced {
			continue
		}

		p := export.TreeProcess{
			PID: t.PID, Parent: t.Parent, Role: t.Role, Command: t.Command, Traced: t.Traced,
			FirstS: export.Seconds(t.First), LastS: export.Seconds(t.Last),
			StartBytes: export.Known(t.Timeline.RSSAt(t.First)),
			EndBytes:   export.Known(t.Timeline.RSSAt(t.Last)),
		}

		if t.Role == growth.RoleRank {
			p.Rank = &t.Rank
		}

		i := slices.IndexFunc(all, func(v ProcessVerdict) bool { return v.Process == t })
		if i >= 0 {
			p.Verdict = all[i].Class
		}

		processes = append(processes, p)
	}

	return processes
}

// groups of workers, and whether the sum of each group grows.
func (r *Recorder) groups() []export.Group {
	var groups []export.Group
	for _, g := range r.history.Groups() {
		judged := growth.Judge(g.History, growth.Setting{}, r.criteria())
		v := export.VerdictOf(judged, export.AxisSeconds)
		groups = append(groups, export.Group{
			Role: g.Role, Processes: g.Count, EachBytes: export.Known(g.RSS),
			PrivateBytes: export.Known(g.Private), PSSBytes: export.Known(g.PSS),
			Verdict: v.Class, RateBytesPerMin: v.RateBytesPerMin,
		})
	}
	return groups
}

// sizesOf is the RSS of a process: at the start by its timeline, at the baseline and the end by the
// snapshots of the breakdown.
func sizesOf(process *growth.Track, scanned SnapshotPair) export.RSS {
	if process == nil {
		return export.RSS{}
	}

	baseline, end := rssAt(scanned.Start, process), rssAt(scanned.End, process)
	rss := export.RSS{
		StartBytes:    export.Known(process.Timeline.RSSAt(0)),
		BoundaryBytes: export.Known(baseline), EndBytes: export.Known(end),
	}

	if baseline != growth.Unknown && end != growth.Unknown {
		rss.GrowthBytesPerMin = export.BytesPerMin(end-baseline, scanned.Elapsed())
	}
	return rss
}

// rssAt is the RSS of a process at a snapshot, or by its timeline where the snapshot has none.
func rssAt(s *growth.Snapshot, process *growth.Track) int64 {
	for _, p := range s.Residents {
		if p.PID == process.PID && p.RSS != growth.Unknown {
			return p.RSS
		}
	}
	return process.Timeline.RSSAt(s.Elapsed)
}

// stepsOf are the training steps since the baseline; nil: no steps were seen.
func stepsOf(v ProcessVerdict, baseline time.Duration) *export.Steps {
	if math.IsNaN(v.StepsPerSecond) || v.Process == nil {
		return nil
	}

	steps := &export.Steps{
		Count: v.Process.Timeline.StepsSince(baseline), PerMin: v.StepsPerSecond * 60,
	}

	if !math.IsNaN(v.Rate) {
		perStep := int64(math.Round(v.Rate / v.StepsPerSecond))
		steps.GrowthBytesPerStep = &perStep
	}
	return steps
}

// limit is the memory limit that would be reached first, at the end; nil: none is known.
func (r *Recorder) limit() *export.Limit {
	n := len(r.history.Rows)
	if n == 0 {
		return nil
	}

	headroom, of := r.history.Rows[n-1].Around.Room()
	if headroom == growth.Unknown {
		return nil
	}
	return &export.Limit{Of: of, RoomBytes: headroom}
}

// MaxRowsPerKind bounds the rows of the RSS breakdown, for each process and kind.
const MaxRowsPerKind = 20

// addBreakdown adds the RSS breakdown at the ends of a pair, and the advice that follows from it.
func (r *Recorder) addBreakdown(s *export.Summary, pair SnapshotPair) {
	rows := growth.Ledger(pair.Start, pair.End)
	s.Ledger = export.LedgerOf(rows, MaxRowsPerKind)
	s.Residents = export.ResidentsOf(pair.Start.Residents, pair.End.Residents)
	s.Advice = export.AdviceOf(growth.Advise(growth.Evidence{
		Ledger: rows, Start: pair.Start.Residents, End: pair.End.Residents,
		Owners:     r.options.Components.Rules,
		CacheStart: r.cacheAt(pair.Start.Elapsed), CacheEnd: r.cacheAt(pair.End.Elapsed),
	}))
}

// cacheAt is the page cache of the container at the sample nearest to a time; Unknown before the
// first sample.
func (r *Recorder) cacheAt(at time.Duration) int64 {
	cache, nearest := int64(growth.Unknown), time.Duration(-1)
	for _, row := range r.history.Rows {
		if distance := (row.Elapsed - at).Abs(); nearest < 0 || distance < nearest {
			cache, nearest = row.Around.CgroupCache, distance
		}
	}
	return cache
}
