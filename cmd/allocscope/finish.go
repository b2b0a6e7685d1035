package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

const topStacks = 10 // in the summary and the table

// span is the two snapshots between which growth is counted.
type span struct{ start, end *growth.Snapshot }

func (s span) elapsed() time.Duration { return s.end.Elapsed - s.start.Elapsed }

// choose gives the boundary and the end. A process that has exited has torn down what it held, so the last snapshot of its
// life counts; only where there is none after the first, what was left at its death. The boundary is the snapshot nearest
// to --warmup, or to half of the time there was.
func (r *recorder) choose() span {
	start, end := &growth.Snapshot{}, r.atEnd // nothing was alive before the first snapshot
	if n := len(r.snapshots); n > 1 || n == 1 && end == nil {
		end = r.snapshots[n-1].Snapshot
	}
	if end == nil {
		return span{start, start}
	}
	want := end.Elapsed / 2
	if planned, known := r.plannedBoundary(); known && planned < end.Elapsed {
		want = planned
	}
	for _, s := range r.snapshots {
		if s.Snapshot != end && (s.Elapsed-want).Abs() < (start.Elapsed-want).Abs() {
			start = s.Snapshot
		}
	}
	return span{start, end}
}

// finish writes the profiles and the summary, and prints the result.
func (r *recorder) finish(out io.Writer, ended string) error {
	span := r.choose()
	grown := growth.Between(span.start, span.end)
	r.write(export.WarmupFile, r.profileWriter(span.start.Holdings, 0, span.start.Elapsed))
	r.write(export.PlateauFile, r.profileWriter(span.end.Holdings, 0, span.end.Elapsed))
	r.write(export.GrowthFile, r.profileWriter(grown, span.start.Elapsed, span.end.Elapsed))
	summary, err := r.summarize(span, grown, ended)
	if err != nil {
		return err
	}
	r.write(export.SummaryFile, summary.Write)
	if r.flags.json {
		err = summary.Write(out)
	} else {
		err = printResult(out, summary, r.folder.Path())
	}
	if err == nil && len(r.failedWrites) > 0 {
		err = fmt.Errorf("%d files could not be written, first: %w", len(r.failedWrites), r.failedWrites[0])
	}
	return err
}

// profileWriter writes holdings that cover the trace from one moment to another.
func (r *recorder) profileWriter(holdings []growth.Holding, from, to time.Duration) func(io.Writer) error {
	info := export.Info{
		Time:       r.began.Add(from),
		Duration:   to - from,
		Interval:   r.session.Options.Interval,
		Executable: r.session.Process.Executable,
		Processes:  map[int]string{r.session.Process.PID: r.session.Process.Command()},
		Comments:   r.comments(),
	}
	return func(w io.Writer) error { return export.WriteProfile(w, holdings, info) }
}

// comments are what a profile must say to be understood on its own.
func (r *recorder) comments() []string {
	comments := []string{
		"allocscope " + versionText(),
		fmt.Sprintf("kernel %s %s", kernelRelease(), runtime.GOARCH),
		fmt.Sprintf("sampling interval %d bytes", r.session.Options.Interval),
	}
	for _, s := range r.session.Sources() {
		line := "source " + s.Name + ": attached"
		if !s.Attached {
			line = "source " + s.Name + ": not attached"
		}
		if s.Reason != "" {
			line += ": " + s.Reason
		}
		comments = append(comments, line)
	}
	if _, losses, err := r.session.Counters(); err == nil {
		for _, l := range losses {
			comments = append(comments, fmt.Sprintf("lost %d: %s", l.Count, l.Reason))
		}
	}
	return comments
}

// summarize puts together what summary.json says.
func (r *recorder) summarize(span span, grown []growth.Holding, ended string) (*export.Summary, error) {
	events, losses, err := r.session.Counters()
	if err != nil {
		return nil, err
	}
	process := r.session.Process
	boundary := export.Seconds(span.start.Elapsed)
	s := &export.Summary{
		Version: versionText(), CommandLine: os.Args, Started: r.began, DurationS: export.Seconds(r.session.Elapsed()), Ended: ended,
		Process: export.Process{PID: process.PID, Command: process.Command(), Executable: process.Executable, Arguments: process.Arguments},
		Kernel:  kernelRelease(), Architecture: runtime.GOARCH, IntervalBytes: r.session.Options.Interval,
		BoundaryS: &boundary, RSS: r.rss(span), Live: export.LiveOf(span.end.Holdings), Mappings: export.MappingsOf(span.end.Mappings),
		Accumulating: export.Accumulating(grown, span.elapsed(), topStacks), Released: export.Releases(span.end.Releases, topStacks),
		Events: export.Events(events),
		Files: map[string]string{
			"growth": export.GrowthFile, "warmup": export.WarmupFile, "plateau": export.PlateauFile, "timeline": export.TimelineFile,
		},
	}
	for _, l := range losses {
		s.Losses = append(s.Losses, export.Loss(l))
	}
	for _, source := range r.session.Sources() {
		state := export.SourceAttached
		if !source.Attached {
			state = export.SourceFailed
		}
		s.Sources = append(s.Sources, export.Source{Name: source.Name, State: state, Reason: source.Reason})
	}
	s.Warnings = r.warnings(s)
	return s, nil
}

// rss is the resident memory at the start, the boundary and the end.
func (r *recorder) rss(span span) export.RSS {
	if len(r.timeline) == 0 {
		return export.RSS{}
	}
	start, boundary, end := r.timeline[0].RSS, r.timeline.RSSAt(span.start.Elapsed), r.timeline[len(r.timeline)-1].RSS
	rss := export.RSS{StartBytes: &start, BoundaryBytes: &boundary, EndBytes: &end}
	rss.GrowthBytesPerMin = export.BytesPerMin(end-boundary, span.elapsed())
	return rss
}

// warnings say what a reader of the numbers must know.
func (r *recorder) warnings(s *export.Summary) []string {
	var warnings []string
	for _, source := range s.Sources {
		if source.Reason != "" {
			warnings = append(warnings, fmt.Sprintf("source %s: %s", source.Name, source.Reason))
		}
	}
	for _, l := range s.Losses {
		warnings = append(warnings, fmt.Sprintf("%d %s", l.Count, l.Reason))
	}
	if s.Ended == export.EndedExit || s.Ended == export.EndedExec {
		warnings = append(warnings, fmt.Sprintf("%s after %.1f s: what it held until then is written", s.Ended, s.DurationS))
	}
	if status, err := r.session.Process.Status(); err == nil && (status.State == 'T' || status.State == 't') {
		warnings = append(warnings, "the target is stopped")
	}
	return warnings
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}
