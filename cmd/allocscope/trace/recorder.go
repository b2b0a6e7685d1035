package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/mark"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
)

// sampleTolerance is how much earlier than its period a sample may be taken.
const sampleTolerance = 10 * time.Millisecond

// Display shows the progress of a trace.
type Display interface {
	// Show shows the progress after each sample.
	Show(console.Progress)
	// Clear removes the display, before the result is printed. It may be called again.
	Clear()
}

// A session is a *tracer.Session; in a test, days of one.
type session interface {
	Elapsed() time.Duration
	Follow() []tracer.Change
	Sample() growth.TreeSample
	Snapshot(born ...time.Duration) (*growth.Snapshot, error)
	SpikeSnapshot() (*growth.Snapshot, error)
	SetSpike(on bool)
	// These may be called while others are.
	TracedPIDs() []int
	Census(context.Context, tracer.CensusOptions) (*objects.Census, error)
	Search(context.Context, tracer.KeeperSearch) ([]keeper.Search, error)
	ObjectsCPUTime() time.Duration
	HurryObjects()
	OtherProcesses() []growth.OtherProcess
	Sources() []source.Status
	Counters() (tracer.Events, growth.Losses, error)
	Overhead() overhead.Overhead
	IsStopped(pid int) bool
	IsOutOfMemory(pid int) bool
	Allocators() []tracer.Allocator
	Done() <-chan struct{}
	Err() error
	// Started and Opened are as in *tracer.Session.
	Started() uint64
	Opened() time.Duration
}

// Recorder keeps the data of a trace while it runs.
type Recorder struct {
	env     Environment
	options Options
	session session
	asked   summary.Process // of --pid
	// startTicks is growth.Process.Start of asked; 0: unknown.
	startTicks int64
	files      outputFiles
	display    Display
	marks      *mark.Receiver
	started    time.Time     // when Elapsed was 0
	began      time.Duration // Elapsed when tracing began: 0, unless it continues an earlier trace
	// end is Elapsed when the trace ends, at the latest; 0: without end. Extend moves it.
	end     atomic.Int64
	earlier *earlierTrace // nil: it continues none

	history    growth.History
	rows       *rowFiles
	lastSample time.Time

	snapshots snapshotSeries
	spikes    spikeWatcher
	objects   objectWatch

	checks checks

	userMemoryLimit int64 // bytes

	headline      string   // the verdict in a sentence; empty until the end
	gpuHeadlines  []string // the same of GPU memory, for the comments of profiles
	loggedChanges int      // changes of the overhead controller
	notes         notes
}

func newRecorder(
	of session, asked summary.Process, marks *mark.Receiver, dir *folder.Folder, options Options,
	earlier *earlierTrace,
) (*Recorder, error) {
	r := &Recorder{
		session: of, asked: asked, marks: marks, files: outputFiles{folder: dir}, options: options, earlier: earlier,
		started: time.Now().Add(-of.Elapsed()), began: of.Opened(),
		snapshots: newSnapshotSeries(&options), spikes: newSpikeWatcher(),
	}
	r.setEnd()
	if earlier != nil {
		r.history = earlier.history
	}

	r.checks = newChecks(&options)

	var err error
	if r.rows, err = openRows(dir); err != nil {
		return nil, err
	}
	r.objects = objectWatch{
		session: of, options: &r.options, began: r.began, rows: r.rows, files: &r.files,
	}
	return r, r.rows.writeEarlier(&r.history)
}

// Replay returns a recorder of earlier recordings, for benchmarks and tests of displays.
func Replay(
	of session, options Options, history growth.History, snapshots ...*growth.Snapshot,
) *Recorder {
	r := &Recorder{session: of, options: options, history: history}
	r.setEnd()
	for i, s := range snapshots {
		r.snapshots.all = append(r.snapshots.all, numberedSnapshot{s, i})
	}
	return r
}

// Options returns the options of the trace.
func (r *Recorder) Options() *Options { return &r.options }

// History returns the samples so far.
func (r *Recorder) History() *growth.History { return &r.history }

// Elapsed returns the time since tracing started, or since the first of the traces that it
// continues.
func (r *Recorder) Elapsed() time.Duration { return r.session.Elapsed() }

// Began returns Elapsed when tracing began: 0, unless it continues an earlier trace.
func (r *Recorder) Began() time.Duration { return r.began }

// AddMark adds a mark. It returns false if there have been too many.
func (r *Recorder) AddMark(text string, at time.Time) bool { return r.marks.Add(text, at) }

// Latest returns the latest snapshot; nil: there is none.
func (r *Recorder) Latest() *growth.Snapshot { return r.snapshots.latest() }

// record samples and takes snapshots until the trace ends. It returns why it ended.
func (r *Recorder) record(ctx context.Context) (ended string, err error) {
	defer r.display.Clear()

	for {
		if err := r.tick(); err != nil {
			return r.endReason(ctx), err
		}

		wait := time.NewTimer(r.untilNextDue())
		select {
		case <-ctx.Done():
		case <-r.session.Done():
		case <-wait.C:
			if !r.checks.settled && (r.End() == 0 || r.session.Elapsed() < r.End()) {
				continue
			}
		}

		wait.Stop()

		ended = r.endReason(ctx)
		return ended, r.finalSample()
	}
}

// endReason returns why a trace ends, for the summary.
func (r *Recorder) endReason(ctx context.Context) string {
	switch {
	case r.session.Err() != nil && r.session.IsOutOfMemory(r.options.PID):
		return summary.EndedOutOfMemory
	case r.session.Err() != nil:
		return summary.EndedExit
	case errors.Is(context.Cause(ctx), ErrCommandEnded):
		return summary.EndedExit
	case ctx.Err() != nil:
		return summary.EndedInterrupt
	case r.checks.settled:
		return summary.EndedSettled
	}
	return summary.EndedDuration
}

// tick does all work that is due.
func (r *Recorder) tick() error {
	if time.Since(r.lastSample) >= r.options.samplePeriod()-sampleTolerance {
		r.sample(false)
		r.recheck()
		r.watchObjects()
	}

	baseline, planned := r.options.plannedBaseline()
	if planned && !r.snapshots.baselineTaken && r.session.Elapsed() >= baseline {
		r.snapshots.baselineTaken = true
		err := r.takeSnapshot()
		r.snapshots.baseline = r.Latest()
		return err
	}

	if r.session.Elapsed() >= r.snapshots.next() {
		var err error
		cost := process.MeasureCPUTime(func() { err = r.takeSnapshot() })
		r.snapshots.postpone(cost, r.began, r.session.Overhead())
		return err
	}

	if r.spikes.isDue(r.session, r.snapshots.next(), r.options.samplePeriod()) {
		return r.takeSpikeSnapshot()
	}
	return nil
}

// plannedBaseline returns the end of the warm-up by --warmup.
func (o *Options) plannedBaseline() (at time.Duration, planned bool) {
	return time.Duration(o.Warmup), o.Warmup != 0
}

// untilNextDue returns the time until tick has something to do.
func (r *Recorder) untilNextDue() time.Duration {
	elapsed := r.session.Elapsed()
	next := min(r.snapshots.next()-elapsed, r.options.samplePeriod()-time.Since(r.lastSample))

	if end := r.End(); end != 0 {
		next = min(next, end-elapsed)
	}
	if r.checks.settled {
		next = 0
	}

	if baseline, planned := r.options.plannedBaseline(); planned && !r.snapshots.baselineTaken {
		next = min(next, baseline-elapsed)
	}
	return max(next, 0)
}

// sample follows the process tree and adds a row to the timeline, which may be the last one.
func (r *Recorder) sample(isLast bool) {
	r.lastSample = time.Now()
	for _, change := range r.session.Follow() {
		r.noteChange(logChange(change))
	}

	overhead := r.overhead()
	r.addMarks()

	tree := r.session.Sample()
	if len(tree.Members) == 0 {
		return // all have just exited
	}
	r.notes.once(tree.System.CgroupHidden && r.options.Limit.Bytes == 0, summary.Note{Code: summary.NoteLimitHidden})
	r.earlier.addSteps(tree)

	row := r.history.Add(tree)
	r.spikes.addSample(&r.history, r.session)
	r.rows.last = func() error { return r.rows.write(row, tree) }
	if isLast || r.history.KeepsLast() { // else the files would grow until they cannot be read back
		r.rows.writeLast(&r.files)
	}

	events, losses, err := r.counters()
	if err == nil {
		r.display.Show(console.Progress{
			Sample: row.Sample, Latest: r.Latest(), Events: events, Losses: losses,
			Overhead: overhead, End: r.End(), UntilSettled: r.options.UntilSettled != 0,
		})
	}
}

// counters are the session's, with the losses of the recorder.
func (r *Recorder) counters() (tracer.Events, growth.Losses, error) {
	events, losses, err := r.session.Counters()
	losses.Add(growth.LossIdleHoldings, "", r.snapshots.idleHoldings)
	return events, losses, err
}

// maxNotes bounds the notes of a trace whose processes are started repeatedly.
const maxNotes = 32

// notes are the notes of a summary.
type notes []summary.Note

// once logs a note that applies, and adds it, unless it is there.
func (n *notes) once(applies bool, note summary.Note) {
	if applies && len(*n) < maxNotes && !slices.Contains(*n, note) {
		slog.Warn(words.Note(note))
		*n = append(*n, note)
	}
}

// noteChange adds the notes of a change, and the limits of the processes that are traced from now
// on.
func (r *Recorder) noteChange(more []summary.Note) {
	if len(more) == 0 || len(r.notes)+len(more) > maxNotes {
		return
	}
	r.notes = append(r.notes, more...)
	for _, note := range r.options.allocatorNotes(r.session.Allocators()) {
		r.notes.once(true, note)
	}
}

func (r *Recorder) addMarks() {
	for _, m := range r.marks.Drain() {
		at := r.session.Elapsed() - time.Since(m.At)
		r.history.Marks = append(r.history.Marks, growth.Mark{At: at, Text: m.Text})
	}
}

// takeSnapshot reads and writes the live memory.
func (r *Recorder) takeSnapshot() error {
	snapshot, err := r.session.Snapshot(r.snapshots.times()...)
	if err != nil {
		return err
	}

	slog.Debug(fmt.Sprintf(
		"snapshot at %s of %d live samples, %d stacks in %s",
		units.Duration(snapshot.Elapsed),
		snapshot.LiveObjects,
		len(snapshot.Holdings),
		snapshot.Took,
	))

	if r.session.Err() != nil {
		r.snapshots.exit = snapshot
		return nil
	}

	isOpenEnded := r.options.Duration == 0 || r.options.SnapshotEvery == 0 // or it was extended
	file := r.snapshots.add(snapshot)
	r.spikes.addSnapshot(snapshot, false)
	r.files.write(folder.SnapshotFile(file), r.profileWriter(snapshot.AllHoldings(), r.began, snapshot))
	r.snapshots.bound(isOpenEnded, &r.files)

	limitMemory(r.userMemoryLimit)
	return nil
}

// finalSample takes the last sample and the last snapshot.
func (r *Recorder) finalSample() error {
	r.sample(true)
	r.rows.writeLast(&r.files) // of the sample before, if all processes have exited
	err := r.takeSnapshot()
	if r.session.Err() != nil {
		r.snapshots.dropTeardown(r.session.Elapsed(), r.history.Main(), &r.files)
	}
	return err
}
