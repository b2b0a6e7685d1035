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
	"github.com/allocscope/allocscope/growth/conclude"
)

const (
	maxTableRows     = 10 // of the tables, and of suspects in the summary
	maxSummaryStacks = 50 // of accumulating memory
)

// finish ends the rows, writes the profiles, the summary and the report, prints the result, and
// returns the verdicts. It searches who keeps the growing memory until searching ends, and then
// calls searched.
func (r *Recorder) finish(
	searching context.Context, searched func(), ended string,
) ([]flagvalue.Outcome, error) {
	t := r.Recorded()
	all := t.Judge()
	r.objects.finish(searching, t, conclude.MainOf(all), ended)
	searched()
	if err := r.rows.close(); err != nil {
		r.files.note(err)
	}

	t = r.Recorded()
	t.Others = r.session.OtherProcesses()
	for i := range all {
		t.JudgeGPU(&all[i])
	}
	r.checks.addLast(all)
	t.HasEnded = r.options.EndsTarget || ended == summary.EndedExit || ended == summary.EndedOutOfMemory
	e := ending{recorder: r, trace: t, result: t.Conclude(all), reason: ended}
	r.headline = words.Headline(summary.VerdictOf(e.result.Main.Verdict, summary.AxisSeconds))
	r.gpuHeadlines = gpuComments(e.result.All)

	e.writeProfiles()
	err := e.writeSummary()
	return outcomesOf(&e.result), err
}

// An ending is a trace that has ended, with its result.
type ending struct {
	recorder *Recorder
	trace    *conclude.Trace
	result   conclude.Result
	reason   string // why it has ended, as the summary has it
}

// writeProfiles writes the memory that was alive at the baseline and at the end, and its growth.
func (e *ending) writeProfiles() {
	r, start, end := e.recorder, e.result.Pair.Start, e.result.Pair.End
	r.files.write(folder.WarmupFile, r.profileWriter(start.AllHoldings(), r.began, start))
	r.files.write(folder.PlateauFile, r.profileWriter(end.AllHoldings(), r.began, end))
	grown := slices.Concat(e.result.Grown, e.result.GrownOnGPUs)
	r.files.write(folder.GrowthFile, r.profileWriter(grown, start.Elapsed, end))
}

// writeSummary writes the summary and the report, and prints the result.
func (e *ending) writeSummary() error {
	r := e.recorder
	s, err := e.summarize()
	if err != nil {
		return err
	}

	if s.SpikeMemory = e.spikeMemory(); s.SpikeMemory.IsCaptured() {
		s.Files["spikes"] = folder.SpikesFile
	}
	place := PlaceOf(r.files.folder.Path())
	s.Text = words.ResultOf(s, place).Text()
	r.files.write(folder.SummaryFile, s.Write)
	r.files.write(folder.ReportFile, r.env.WriteReport(r.files.folder))

	err = e.print(s, place)
	if n := len(r.files.errors); err == nil && n > 0 {
		err = fmt.Errorf("%d files could not be written, first: %w", n, r.files.errors[0])
	}
	return err
}

// print prints the result as the user wants it.
func (e *ending) print(s *summary.Summary, place words.Place) error {
	o, out := &e.recorder.options, e.recorder.env.Out
	if o.JSON {
		return s.Write(out)
	}

	if !o.Quiet {
		fmt.Fprintln(out)
	}
	return PrintResult(out, s, place, Print{o.Quiet, o.Details, o.Color})
}

// PlaceOf is where the commands of a result are typed: in this shell, about a folder.
func PlaceOf(dir string) words.Place {
	return words.Place{Dir: dir, Sudo: os.Geteuid() != 0 || os.Getenv("SUDO_UID") != ""}
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
		Processes:  commandsOf(&r.history),
		Comments:   r.comments(to),
		Components: r.options.Components.Rules,
	}
	return func(w io.Writer) error { return profile.Write(w, holdings, info) }
}

// commandsOf are the commands of the traced processes, by PID.
func commandsOf(h *growth.History) map[int]string {
	commands := make(map[int]string)
	for _, t := range h.Traced() {
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
