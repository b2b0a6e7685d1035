// Package record records a trace: it samples the processes and takes snapshots of them until the
// trace ends, and writes rows and profiles into the folder as it goes. It knows no flag and no
// terminal. Its caller chooses the options, shows the progress, and writes and prints the result.
package record

import (
	"context"
	"errors"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
)

// ErrCommandEnded is the cause of a context that ends since the command that the trace has started
// has ended, though processes that it has started may live on.
var ErrCommandEnded = errors.New("the command has ended")

// sampleTolerance is how much earlier than its period a sample may be taken.
const sampleTolerance = 10 * time.Millisecond

// A Session is a *tracer.Session; in a test, days of one.
type Session interface {
	Elapsed() time.Duration
	Follow() []tracer.Change
	Sample() growth.TreeSample
	Snapshot(born ...time.Duration) (*growth.Snapshot, error)
	SpikeSnapshot() (*growth.Snapshot, error)
	SetMoment(m tracer.Moment)
	// These may be called while others are.
	TracedPIDs() []int
	Census(context.Context, tracer.CensusOptions) (*objects.Census, error)
	Search(context.Context, tracer.KeeperSearch) ([]keeper.Search, error)
	ObjectsCPUTime() time.Duration
	HurryObjects()
	Surroundings() growth.Surroundings
	Sources() []source.Status
	Counters() (growth.Events, growth.Losses, error)
	Overhead() overhead.Overhead
	IsStopped(pid int) bool
	IsOutOfMemory(pid int) bool
	FindDebugPackage(pid int, file string) growth.DebugPackage
	Software(pid int) growth.Software
	Allocators() []tracer.Allocator
	Done() <-chan struct{}
	Err() error
	// Started and Opened are as in *tracer.Session.
	Started() uint64
	Opened() time.Duration
}

// Recorder keeps the data of a trace while it runs.
type Recorder struct {
	options Options
	session Session
	report  func(Event)
	asked   Target
	files   *Files
	marks   *Marks
	earlier *Earlier      // nil: it continues none
	began   time.Duration // Elapsed when tracing began: 0, unless it continues an earlier trace
	end     Deadline

	history    growth.History
	rows       *rowFiles
	lastSample time.Time

	snapshots snapshotSeries
	spikes    spikeWatcher
	objects   objectWatch
	checks    checks
	meter     meter
	profiles  profiles
	results   resultSeries
	oom       oomWatch
	notes     notes
}

// A Setup has the session of a trace, and the places of its results.
type Setup struct {
	Session Session
	Asked   Target
	Files   *Files
	Marks   *Marks
	Earlier *Earlier       // nil: the trace continues none
	Notes   []summary.Note // of the start of the session
	Report  func(Event)
}

// New returns a recorder that has not begun.
func New(from Setup, options Options) (*Recorder, error) {
	of, report, files := from.Session, from.Report, from.Files
	r := &Recorder{
		session: of, options: options, report: report, asked: from.Asked, files: files,
		marks: from.Marks, earlier: from.Earlier, notes: from.Notes, began: of.Opened(),
		snapshots: newSnapshotSeries(&options), spikes: newSpikeWatcher(),
		checks: newChecks(&options, report), results: newResultSeries(of.Opened()),
		oom: newOOMWatch(),
	}
	r.end.set(r.began, &options)
	if r.earlier != nil {
		r.history = r.earlier.history
	}

	files.report = report
	var err error
	if r.rows, err = openRows(files.Folder); err != nil {
		return nil, err
	}

	r.objects = objectWatch{
		session: of, options: &r.options, report: report, began: r.began, end: &r.end, rows: r.rows,
		files: files, earlier: r.earlier.searches(),
	}
	r.meter = meter{session: of, snapshots: &r.snapshots, objects: &r.objects, report: report}
	r.profiles = profiles{
		session: of, options: &r.options, files: files, history: &r.history, meter: &r.meter,
		asked: from.Asked.Process, started: time.Now().Add(-of.Elapsed()),
	}
	return r, r.rows.writeEarlier(&r.history)
}

// Replay returns a recorder of earlier recordings, for benchmarks and tests of displays.
func Replay(
	of Session, options Options, history growth.History, snapshots ...*growth.Snapshot,
) *Recorder {
	r := &Recorder{session: of, options: options, history: history}
	r.end.set(0, &options)
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

// OwnUse returns how much of its limit allocscope itself uses.
func (r *Recorder) OwnUse() duty.Use { return r.session.Overhead().Use() }

// Deadline returns the end of the trace.
func (r *Recorder) Deadline() *Deadline { return &r.end }

// AddMark adds a mark. It returns false if there have been too many.
func (r *Recorder) AddMark(text string, at time.Time) bool { return r.marks.Add(text, at) }

// Latest returns the latest snapshot; nil: there is none.
func (r *Recorder) Latest() *growth.Snapshot { return r.snapshots.latest() }

// Recorded returns the record so far, to conclude from.
func (r *Recorder) Recorded() *conclude.Trace {
	t := &conclude.Trace{
		Options: conclude.Options{
			Criteria: r.options.criteria(), Limit: r.options.Limit,
			Warmup: r.options.Warmup, Tolerable: r.options.Tolerable,
			Components: r.options.Components,
		},
		PID: r.asked.PID, Began: r.began, History: &r.history, Exit: r.snapshots.exit,
		Checks: r.checks.rss, GPUChecks: r.checks.gpu, Keepers: r.objects.latest,
	}

	for _, s := range r.snapshots.all {
		t.Snapshots = append(t.Snapshots, s.Snapshot)
	}

	for _, c := range r.objects.counted {
		t.Censuses = append(t.Censuses, &c.Result)
	}
	return t
}

// Record samples and takes snapshots until the trace ends. It returns the ending after an error,
// too.
func (r *Recorder) Record(ctx context.Context) (*Ending, error) {
	for {
		if err := r.tick(); err != nil {
			return r.ending(ctx), err
		}

		wait := time.NewTimer(r.untilNextDue())
		select {
		case <-ctx.Done():
		case <-r.session.Done():
		case <-wait.C:
			if !r.checks.settled && (r.end.At() == 0 || r.session.Elapsed() < r.end.At()) {
				continue
			}
		}

		wait.Stop()
		return r.ending(ctx), r.finalSample()
	}
}

// ending returns the ending of a trace whose context may have ended.
func (r *Recorder) ending(ctx context.Context) *Ending {
	e := &Ending{recorder: r, reason: summary.EndedDuration}
	switch {
	case r.session.Err() != nil && r.isOutOfMemory():
		e.reason = summary.EndedOutOfMemory
	case r.session.Err() != nil:
		e.reason = summary.EndedExit
	case errors.Is(context.Cause(ctx), ErrCommandEnded):
		e.reason = summary.EndedExit
	case ctx.Err() != nil:
		e.reason = summary.EndedInterrupt
	case r.checks.settled:
		e.reason = summary.EndedSettled
	}
	return e
}

// isOutOfMemory reports whether the kernel has killed the process for want of memory.
func (r *Recorder) isOutOfMemory() bool {
	if r.session.IsOutOfMemory(r.options.PID) {
		r.oom.await(r.options.PID, &r.history)
		return true
	}
	r.oom.read(&r.history)
	return r.oom.has(r.options.PID)
}

// tick does all work that is due.
func (r *Recorder) tick() error {
	if time.Since(r.lastSample) >= r.options.samplePeriod()-sampleTolerance {
		r.sample(false)
		r.recheck()
		if r.Latest() != nil {
			r.objects.watch(r.Recorded)
		}
		if r.results.isDue(r) {
			r.results.write(r)
		}
	}

	if at := r.snapshots.planned; at != 0 && r.session.Elapsed() >= at {
		r.snapshots.planned = 0
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
		cost, err := r.spikes.take(r.session, r.report)
		r.snapshots.costs.Spend(cost) // so that all snapshots together take no more
		return err
	}
	return nil
}

// recheck judges a trace without a fixed end where that is due.
func (r *Recorder) recheck() {
	if r.checks.rss == nil || !r.checks.rss.Due((r.session.Elapsed() - r.began).Seconds()) {
		return
	}

	t := r.Recorded()
	all := t.Judge()
	r.checks.addRSS(conclude.MainOf(all))
	r.objects.searchAgain(t, conclude.MainOf(all))
	for i := range all {
		t.JudgeGPU(&all[i])
	}
	r.checks.addGPU(all)
	if r.options.UntilSettled != 0 {
		r.checks.settle(t, all, r.end.At())
	}
}

// untilNextDue returns the time until tick has something to do.
func (r *Recorder) untilNextDue() time.Duration {
	elapsed := r.session.Elapsed()
	next := min(r.snapshots.next()-elapsed, r.options.samplePeriod()-time.Since(r.lastSample))

	if end := r.end.At(); end != 0 {
		next = min(next, end-elapsed)
	}
	if r.checks.settled {
		next = 0
	}

	if at := r.snapshots.planned; at != 0 {
		next = min(next, at-elapsed)
	}
	return max(next, 0)
}

// sample follows the process tree and adds a row to the timeline, which may be the last one.
func (r *Recorder) sample(isLast bool) {
	r.lastSample = time.Now()
	for _, change := range r.session.Follow() {
		r.report(TreeChange{change})
		r.noteChange(ChangeNotes(change))
	}

	overhead := r.meter.overhead()
	r.addMarks()

	tree := r.session.Sample()
	if len(tree.Members) == 0 {
		return // all have just exited
	}
	if tree.System.CgroupHidden && r.options.Limit == 0 {
		r.notes.once(summary.Note{Code: summary.NoteLimitHidden}, r.report)
	}
	r.earlier.addSteps(tree)

	row := r.history.Add(tree)
	r.session.SetMoment(tracer.Moment{InSpike: r.spikes.addSample(&r.history), AtEnd: isLast})
	r.rows.last = func() error { return r.rows.write(row, tree) }
	if isLast || r.history.KeepsLast() { // else the files would grow until they cannot be read back
		r.rows.writeLast(r.files)
	}

	events, losses, err := r.meter.counters()
	if err == nil {
		r.report(Progress{
			Sample: row.Sample, Latest: r.Latest(), Events: events, Losses: losses,
			Overhead: overhead, End: r.end.At(), UntilSettled: r.options.UntilSettled != 0,
		})
	}
}

// noteChange adds the notes of a change, and the limits of the processes that are traced from now
// on.
func (r *Recorder) noteChange(more []summary.Note) {
	if len(more) == 0 || len(r.notes)+len(more) > maxNotes {
		return
	}
	r.notes = append(r.notes, more...)
	for _, note := range AllocatorNotes(r.session.Allocators(), r.options.HasBudget) {
		r.notes.once(note, r.report)
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

	r.report(SnapshotTaken{Snapshot: snapshot})
	if r.session.Err() != nil {
		r.snapshots.exit = snapshot
		return nil
	}

	isOpenEnded := r.options.Duration == 0 || r.options.SnapshotEvery == 0 // or it was extended
	file := r.snapshots.add(snapshot, r.spikes.has(snapshot))
	r.spikes.addSnapshot(snapshot, false)
	r.profiles.write(folder.SnapshotFile(file), snapshot.AllHoldings(), r.began, snapshot)
	r.snapshots.bound(isOpenEnded, r.files)
	return nil
}

// finalSample takes the last sample and the last snapshot.
func (r *Recorder) finalSample() error {
	r.sample(true)
	r.rows.writeLast(r.files) // of the sample before, if all processes have exited
	err := r.takeSnapshot()
	if r.session.Err() != nil {
		r.snapshots.dropTeardown(r.session.Elapsed(), r.history.Main(), r.files)
	}
	return err
}
