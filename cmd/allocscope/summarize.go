package main

import (
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// summarize puts together what summary.json says.
func (r *recorder) summarize(found judged, all []judged, span span, grown []growth.Holding, ended string) (*summary.Summary, error) {
	events, losses, err := r.session.Counters()
	if err != nil {
		return nil, err
	}
	boundary := summary.Seconds(span.start.Elapsed)
	looked := r.lookedAt(found.track, span)
	overhead := inWindows(r.overhead(), span.end.Watch)
	s := &summary.Summary{
		Version: versionText(), CommandLine: os.Args, Started: r.began, DurationS: summary.Seconds(r.session.Elapsed()), Ended: ended,
		Verdict: summary.VerdictOf(found.Verdict, summary.AxisSeconds),
		Process: r.processOf(found.track), Processes: r.processes(all), Groups: r.groups(),
		Kernel: kernelRelease(), Architecture: runtime.GOARCH, IntervalBytes: overhead.IntervalBytes, Overhead: overhead,
		BaselineS: &boundary, RSS: sizesOf(found.track, looked), Live: summary.LiveOf(span.end.Holdings), Mappings: summary.MappingsOf(span.end.Mappings),
		Accumulating: summary.Accumulating(grown, r.course(span), mostStacks), SnapshotsS: r.snapshotSeconds(), Released: summary.Releases(span.end.Releases, topStacks),
		GPUs: summary.GPUsOf(r.history.GPUs), Steps: stepsOf(found, span.start.Elapsed), Limit: r.limit(), Events: summary.Events(events),
		Files: r.files(),
	}
	if asked := r.session.Process.PID; asked != s.Process.PID {
		s.Asked = asked
	}
	for _, c := range found.Culprits[:min(topStacks, len(found.Culprits))] {
		s.Suspects = append(s.Suspects, summary.SuspectOf(c))
	}
	for _, m := range r.history.Marks {
		s.Marks = append(s.Marks, summary.Mark{AtS: summary.Seconds(m.At), Text: m.Text})
	}
	for _, l := range losses {
		s.Losses = append(s.Losses, summary.Loss{Reason: l.Reason, Count: l.Count})
	}
	r.account(s, looked)
	s.Sources = r.sources()
	s.Warnings = r.warnings(s)
	return s, nil
}

// files of the folder, by what is in them.
func (r *recorder) files() map[string]string {
	files := map[string]string{
		"growth": folder.GrowthFile, "warmup": folder.WarmupFile, "plateau": folder.PlateauFile,
		"timeline": folder.TimelineFile, "processes": folder.ProcessesFile, "report": folder.ReportFile,
	}
	if r.rows.gpus != nil {
		files["gpus"] = folder.GPUsFile
	}
	return files
}

// course of what has grown in a span.
func (r *recorder) course(span span) summary.Period {
	course := summary.Period{Elapsed: span.elapsed(), End: span.end, Components: r.flags.owners.rules}
	for _, s := range r.snapshots {
		course.Snapshots = append(course.Snapshots, s.Snapshot)
	}
	return course
}

func (r *recorder) snapshotSeconds() []float64 {
	moments := []float64{}
	for _, s := range r.snapshots {
		moments = append(moments, summary.Seconds(s.Elapsed))
	}
	return moments
}

func (r *recorder) sources() []summary.Source {
	var sources []summary.Source
	for _, source := range r.session.Sources() {
		state := summary.SourceAttached
		switch {
		case source.Off:
			state = summary.SourceOff
		case !source.Attached:
			state = summary.SourceFailed
		}
		sources = append(sources, summary.Source{Name: source.Name, PID: source.PID, State: state, Reason: source.Reason})
	}
	return sources
}

// processOf is the process that the trace is about; the one that was asked for where none was traced.
func (r *recorder) processOf(track *growth.Track) summary.Process {
	if track == nil {
		p := r.session.Process
		return summary.Process{PID: p.PID, Command: p.Command(), Executable: p.Executable, Arguments: p.Arguments}
	}
	return summary.Process{PID: track.PID, Command: track.Command, Executable: track.Executable, Arguments: track.Arguments}
}

// executable is the program of the main process.
func (r *recorder) executable() string { return r.processOf(r.history.Main()).Executable }

// commands of the traced processes by PID.
func (r *recorder) commands() map[int]string {
	commands := make(map[int]string)
	for _, t := range r.history.Traced() {
		commands[t.PID] = t.Command
	}
	return commands
}

// processes of the tree that are no workers, or are traced. Glimpses are left out.
func (r *recorder) processes(all []judged) []summary.TreeProcess {
	var processes []summary.TreeProcess
	for _, t := range r.history.Tracks {
		if (t.Role.IsWorker() || r.history.IsGlimpse(t)) && !t.Traced {
			continue
		}
		p := summary.TreeProcess{
			PID: t.PID, Parent: t.Parent, Role: t.Role, Command: t.Command, Traced: t.Traced,
			FirstS: summary.Seconds(t.First), LastS: summary.Seconds(t.Last),
			StartBytes: summary.Known(t.Timeline.RSSAt(t.First)), EndBytes: summary.Known(t.Timeline.RSSAt(t.Last)),
		}
		if t.Role == growth.RoleRank {
			p.Rank = &t.Rank
		}
		if i := slices.IndexFunc(all, func(f judged) bool { return f.track == t }); i >= 0 {
			p.Verdict = all[i].Class
		}
		processes = append(processes, p)
	}
	return processes
}

// groups of workers, and whether what they hold together grows.
func (r *recorder) groups() []summary.Group {
	var groups []summary.Group
	for _, g := range r.history.Groups() {
		v := summary.VerdictOf(growth.Judge(g.History, growth.Setting{}, r.criteria()), summary.AxisSeconds)
		groups = append(groups, summary.Group{
			Role: g.Role, Processes: g.Count, EachBytes: summary.Known(g.RSS), PrivateBytes: summary.Known(g.Private), PSSBytes: summary.Known(g.PSS),
			Verdict: v.Class, RateBytesPerMin: v.RateBytesPerMin,
		})
	}
	return groups
}

// sizesOf is the resident memory of a process: at the start by its timeline, at the boundary and the end by the snapshots, as
// in the ledger. Where no snapshot has it, the timeline tells.
func sizesOf(track *growth.Track, looked span) summary.RSS {
	if track == nil {
		return summary.RSS{}
	}
	boundary, end := rssIn(looked.start, track), rssIn(looked.end, track)
	rss := summary.RSS{StartBytes: summary.Known(track.Timeline.RSSAt(0)), BaselineBytes: summary.Known(boundary), EndBytes: summary.Known(end)}
	if boundary != growth.Unknown && end != growth.Unknown {
		rss.GrowthBytesPerMin = summary.BytesPerMin(end-boundary, looked.elapsed())
	}
	return rss
}

// rssIn is the RSS of a process at a snapshot.
func rssIn(s *growth.Snapshot, track *growth.Track) int64 {
	for _, p := range s.Residents {
		if p.PID == track.PID && p.RSS != growth.Unknown {
			return p.RSS
		}
	}
	return track.Timeline.RSSAt(s.Elapsed)
}

// stepsOf are the steps since the boundary; nil where none were seen.
func stepsOf(f judged, boundary time.Duration) *summary.Steps {
	if math.IsNaN(f.StepsPerSecond) || f.track == nil {
		return nil
	}
	steps := &summary.Steps{Count: f.track.Timeline.StepsSince(boundary), PerMin: f.StepsPerSecond * 60}
	if !math.IsNaN(f.Rate) {
		perStep := int64(math.Round(f.Rate / f.StepsPerSecond))
		steps.GrowthBytesPerStep = &perStep
	}
	return steps
}

// limit that is met first, at the end.
func (r *recorder) limit() *summary.Limit {
	n := len(r.history.Rows)
	if n == 0 {
		return nil
	}
	room, of := r.history.Rows[n-1].Around.Room()
	if room == growth.Unknown {
		return nil
	}
	return &summary.Limit{Of: of, HeadroomBytes: room}
}

// covered says so where something outside the tree grows, and the tree does not.
func (r *recorder) covered(v growth.Verdict) growth.Verdict {
	return growth.Covered(v, &r.history, r.session.OtherProcesses(), r.criteria())
}
