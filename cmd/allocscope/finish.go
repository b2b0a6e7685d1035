package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

const (
	topStacks  = 10 // in the table, and of culprits and what was given back in the summary
	mostStacks = 50 // of what accumulates in the summary
)

// span is the two snapshots between which growth is counted.
type span struct{ start, end *growth.Snapshot }

func (s span) elapsed() time.Duration { return s.end.Elapsed - s.start.Elapsed }

// choose gives the boundary and the end of a judgement. A process that has exited has torn down what it held, so the last
// snapshot of its life counts; only where there is none after the first, what was left at its death.
func (r *recorder) choose(f judged) span {
	start, end := &growth.Snapshot{}, r.atEnd // nothing was alive before the first snapshot
	own := r.snapshotsOf(f.track)
	if n := len(own); n > 1 || n == 1 && end == nil {
		end = own[n-1]
	}
	if end == nil {
		return span{start, start}
	}
	for _, s := range own {
		if s != end && (s.Elapsed-f.Window.From).Abs() < (start.Elapsed-f.Window.From).Abs() {
			start = s
		}
	}
	return span{start, end}
}

// snapshotsOf are those in which a process was traced; all where there is none.
func (r *recorder) snapshotsOf(track *growth.Track) []*growth.Snapshot {
	var own []*growth.Snapshot
	for _, s := range r.snapshots {
		if track == nil || track.IsIn(s.Snapshot) {
			own = append(own, s.Snapshot)
		}
	}
	return own
}

// finish writes the profiles and the summary, prints the result, and gives the verdicts.
func (r *recorder) finish(out io.Writer, ended string) ([]outcome, error) {
	all := r.judge()
	r.settle(all)
	found := worst(all)
	found.Verdict = r.covered(found.Verdict)
	r.verdict = words.Headline(summary.VerdictOf(found.Verdict, summary.AxisSeconds))
	devices := r.judgeDevices(all)
	r.settleDevices(devices)
	r.onDevices = deviceComments(devices)
	span := r.choose(found)
	grown := growth.Between(span.start, span.end)
	var trends []growth.StackTrend
	for _, f := range all {
		trends = append(trends, f.Trends...)
	}
	growth.Label(grown, trends)
	r.write(folder.WarmupFile, r.profileWriter(span.start.Everything(), 0, span.start))
	r.write(folder.PlateauFile, r.profileWriter(span.end.Everything(), 0, span.end))
	r.write(folder.GrowthFile, r.profileWriter(slices.Concat(grown, grownOnDevices(span, devices)), span.start.Elapsed, span.end))
	outcomes := outcomesOf(found.Class, devices)
	s, err := r.summarize(found, all, span, grown, ended)
	if err != nil {
		return outcomes, err
	}
	s.GPUMemory = r.devices(devices)
	r.write(folder.SummaryFile, s.Write)
	r.write(folder.ReportFile, reportWriter(r.folder))
	if r.flags.json {
		err = s.Write(out)
	} else {
		err = printResult(out, s, r.folder.Path())
	}
	if err == nil && len(r.failedWrites) > 0 {
		err = fmt.Errorf("%d files could not be written, first: %w", len(r.failedWrites), r.failedWrites[0])
	}
	return outcomes, err
}

// profileWriter writes holdings that cover the trace from a moment to a snapshot.
func (r *recorder) profileWriter(holdings []growth.Holding, from time.Duration, to *growth.Snapshot) func(io.Writer) error {
	info := profile.Info{
		Time:       r.began.Add(from),
		Duration:   to.Elapsed - from,
		Interval:   sampledEvery(to),
		Executable: r.executable(),
		Processes:  r.commands(),
		Comments:   r.comments(to),
		Components: r.flags.owners.rules,
	}
	return func(w io.Writer) error { return profile.Write(w, holdings, info) }
}

// comments are what a profile must say to be understood on its own.
func (r *recorder) comments(s *growth.Snapshot) []string {
	comments := []string{
		"allocscope " + versionText(),
		fmt.Sprintf("kernel %s %s", kernelRelease(), runtime.GOARCH),
		fmt.Sprintf("sampling interval %d bytes", max(s.Interval, 1)),
	}
	comments = append(comments, overheadComments(inWindows(r.overhead(), s.Watch), s.Watch)...)
	if r.verdict != "" {
		comments = append(comments, "verdict "+r.verdict)
	}
	comments = append(comments, r.onDevices...)
	for _, s := range r.session.Sources() {
		line := sourceText(s) + ": attached"
		switch {
		case s.Off:
			line = sourceText(s) + ": off"
		case !s.Attached:
			line = sourceText(s) + ": not attached"
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

// warnings say what a reader of the numbers must know.
func (r *recorder) warnings(s *summary.Summary) []string {
	var warnings []string
	for _, source := range s.Sources {
		if source.Reason != "" {
			warnings = append(warnings, fmt.Sprintf("source %s: %s", source.Name, source.Reason))
		}
	}
	for _, l := range s.Losses {
		warnings = append(warnings, fmt.Sprintf("%d %s", l.Count, l.Reason))
	}
	if n := r.marks.dropped(); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%d marks were not taken: there were too many", n))
	}
	if s.Ended == summary.EndedExit {
		warnings = append(warnings, fmt.Sprintf("%s after %.1f s: what it held until then is written", s.Ended, s.DurationS))
	}
	if r.session.Stopped(s.Process.PID) {
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
