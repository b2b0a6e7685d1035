package trace

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/trend"
)

const (
	maxTableRows     = 10 // of the tables, and of suspects in the summary
	maxSummaryStacks = 50 // of what accumulates
)

// SnapshotPair is the baseline snapshot and the final one, between which growth is measured.
type SnapshotPair struct{ Start, End *growth.Snapshot }

// Elapsed returns the time between the two.
func (p SnapshotPair) Elapsed() time.Duration { return p.End.Elapsed - p.Start.Elapsed }

// PairOf returns the baseline and the end of a judgement. A process that has exited has released
// its memory, so that the last snapshot of its life is the end. What was left at its exit is the
// end only where there is no snapshot after the first.
func (r *Recorder) PairOf(v ProcessVerdict) SnapshotPair {
	start, end := &growth.Snapshot{Elapsed: r.began}, r.exitSnapshot // nothing was alive before the first snapshot
	own := r.snapshotsOf(v.Process)
	if n := len(own); n > 1 || n == 1 && end == nil {
		end = own[n-1]
	}

	if end == nil {
		return SnapshotPair{start, start}
	}

	warmupEnd := v.Window.From
	for _, s := range own {
		if s != end && (s.Elapsed-warmupEnd).Abs() < (start.Elapsed-warmupEnd).Abs() {
			start = s
		}
	}

	return SnapshotPair{start, end}
}

// ScannedPair moves the ends of a pair to snapshots in which the pages of a process were scanned:
// from before its first snapshot to that one, and from after its death to the last one of its life.
func (r *Recorder) ScannedPair(process *growth.ProcessHistory, p SnapshotPair) SnapshotPair {
	pid := r.ProcessOf(process).PID
	scanned := func(s *growth.Snapshot) bool {
		return slices.ContainsFunc(s.Residents,
			func(p growth.Resident) bool { return p.PID == pid })
	}

	own := slices.DeleteFunc(r.snapshotsOf(process),
		func(s *growth.Snapshot) bool { return !scanned(s) })
	if n := len(own); n > 0 {
		if !scanned(p.Start) {
			p.Start = own[0]
		}
		if !scanned(p.End) {
			p.End = own[n-1]
		}
	}

	return p
}

// snapshotsOf returns the snapshots in which a process was traced; nil means every process.
func (r *Recorder) snapshotsOf(process *growth.ProcessHistory) []*growth.Snapshot {
	var own []*growth.Snapshot
	for _, s := range r.snapshots {
		if process == nil || process.IsIn(s.Snapshot) {
			own = append(own, s.Snapshot)
		}
	}
	return own
}

// finish ends the rows, writes the profiles, the summary and the report, prints the result, and
// returns the verdicts. It searches who keeps what grows until searching ends, and then calls
// searched.
func (r *Recorder) finish(
	searching context.Context, searched func(), ended string,
) ([]flagvalue.Outcome, error) {
	all := r.judge()
	r.finishObjects(searching, mainVerdict(all), ended)
	searched()
	if err := r.rows.close(); err != nil {
		r.noteWriteError(err)
	}
	gpus := r.judgeGPUs(all)
	r.addLastCheck(all, gpus)
	main := mainVerdict(all)
	r.checkOtherProcesses(&main.Judgement)
	r.headline = words.Headline(summary.VerdictOf(main.Verdict, summary.AxisSeconds))
	r.gpuHeadlines = gpuComments(gpus)

	pair := r.PairOf(main)
	grown := growth.Between(pair.Start, pair.End)
	var trends []trend.StackTrend

	for _, v := range all {
		trends = append(trends, v.Trends...)
	}

	trend.Label(grown, trends)

	r.writeFile(folder.WarmupFile, r.profileWriter(pair.Start.AllHoldings(), r.began, pair.Start))
	r.writeFile(folder.PlateauFile, r.profileWriter(pair.End.AllHoldings(), r.began, pair.End))
	grownEverywhere := slices.Concat(grown, grownOnGPUs(pair, gpus))
	r.writeFile(folder.GrowthFile, r.profileWriter(grownEverywhere, pair.Start.Elapsed, pair.End))

	outcomes := outcomesOf(main.Class, gpus)
	sum, err := r.summarize(main, all, pair, grown, ended)
	if err != nil {
		return outcomes, err
	}

	sum.GPUMemory = r.gpuSummaries(gpus)
	if sum.SpikeMemory = r.spikeMemory(main.Process); sum.SpikeMemory.IsCaptured() {
		sum.Files["spikes"] = folder.SpikesFile
	}
	place := PlaceOf(r.folder.Path())
	sum.TargetEnded, sum.Launched = r.options.EndsTarget, r.options.Launch != nil
	sum.Text = words.ResultOf(sum, place).Text()
	r.writeFile(folder.SummaryFile, sum.Write)
	r.writeFile(folder.ReportFile, r.env.WriteReport(r.folder))

	err = r.print(sum, place)

	if n := len(r.writeErrors); err == nil && n > 0 {
		err = fmt.Errorf("%d files could not be written, first: %w", n, r.writeErrors[0])
	}

	return outcomes, err
}

// print prints the result as the user wants it.
func (r *Recorder) print(s *summary.Summary, place words.Place) error {
	if r.options.JSON {
		return s.Write(r.env.Out)
	}

	o := r.options
	if !o.Quiet {
		fmt.Fprintln(r.env.Out)
	}
	return PrintResult(r.env.Out, s, place, Print{o.Quiet, o.Details, o.Color})
}

// PlaceOf is where the commands of a result are typed: in this shell, about a folder.
func PlaceOf(dir string) words.Place {
	return words.Place{Dir: dir, Sudo: os.Geteuid() != 0 || os.Getenv("SUDO_UID") != ""}
}

// checkOtherProcesses adds to a judgement whether another process of the job grows, and notes the
// others that grow much.
func (r *Recorder) checkOtherProcesses(j *judge.Judgement) {
	others := r.session.OtherProcesses()
	j.Findings.Other = judge.OtherGrowth(r.rowsSince(r.began), others, r.criteria())
	j.Decide()

	for _, o := range others {
		isHeadline := j.Other != nil && j.Other.PID == o.PID
		if !isHeadline && float64(o.Growth) >= r.criteria().MinOutsideGrowth {
			r.related = append(r.related, summary.Related{
				PID: o.PID, Command: o.Command, GrowthBytes: o.Growth,
			})
		}
	}
}

// profileWriter writes a profile of holdings between a time and a snapshot.
func (r *Recorder) profileWriter(
	holdings []growth.Holding, from time.Duration, to *growth.Snapshot,
) func(io.Writer) error {
	info := profile.Info{
		Time:       r.started.Add(from),
		Duration:   to.Elapsed - from,
		Interval:   effectiveInterval(to),
		Executable: r.ProcessOf(r.history.Main()).Executable,
		Processes:  r.commands(),
		Comments:   r.comments(to),
		Components: r.options.Components.Rules,
	}
	return func(w io.Writer) error { return profile.Write(w, holdings, info) }
}

// commands are those of the traced processes, by PID.
func (r *Recorder) commands() map[int]string {
	commands := make(map[int]string)
	for _, t := range r.history.Traced() {
		commands[t.PID] = t.Command
	}
	return commands
}

// comments let a profile be understood without the other files.
func (r *Recorder) comments(s *growth.Snapshot) []string {
	comments := []string{
		"allocscope " + r.env.Version,
		fmt.Sprintf("kernel %s %s", kernelRelease(), runtime.GOARCH),
		fmt.Sprintf("sampling interval %d bytes", max(s.Interval, 1)),
	}

	o := withLag(r.overhead(), s.Heap)
	comments = append(comments, words.HeapComments(o, s.Heap.Untrackable)...)
	if r.headline != "" {
		comments = append(comments, "verdict "+r.headline)
	}

	comments = append(comments, r.gpuHeadlines...)

	for _, s := range r.session.Sources() {
		line := sourceText(s) + ": attached"
		switch {
		case s.Off:
			line = sourceText(s) + ": off"
		case !s.Attached:
			line = sourceText(s) + ": not attached"
		}

		if reason := sourceReason(s); reason != "" {
			line += ": " + reason
		}
		if len(s.Producers) > 0 {
			line += " " + words.ByProducers(s.Producers)
		}

		comments = append(comments, line)
	}

	if _, losses, err := r.counters(); err == nil {
		for _, l := range losses {
			comments = append(comments, fmt.Sprintf("lost %d: %s", l.Count, words.Loss(l)))
		}
	}

	return comments
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// rowsSince returns the samples since a time.
func (r *Recorder) rowsSince(began time.Duration) []growth.Row {
	rows := r.history.Rows
	i := slices.IndexFunc(rows, func(row growth.Row) bool { return row.Elapsed >= began })
	if i < 0 {
		return nil
	}
	return rows[i:]
}
