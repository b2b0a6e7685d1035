package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
)

// maxSnapshots bounds the snapshots of a trace without a duration. They start at one a second.
// Whenever there are this many, every other one is dropped and the time between them doubles.
const maxSnapshots = 120

// maxHoldings bounds the holdings that all snapshots have, some 220 bytes each. They are not
// thinned below minSnapshots, which the judgement of stacks needs.
const (
	maxHoldings  = 1 << 17
	minSnapshots = 16
)

const (
	// snapshotOwnPart is the part of the limit of allocscope's own CPU time that snapshots may
	// take, and snapshotBurst what they may take in advance. They are taken further apart where
	// they cost more, but at most maxStretch periods.
	snapshotOwnPart = 0.3
	snapshotBurst   = 200 * time.Millisecond
	maxStretch      = 5

	// minSnapshotShare is the least share of a core that accrues for snapshots.
	minSnapshotShare = 1e-3
)

// sampleTolerance is how much earlier than its period a sample may be taken.
const sampleTolerance = 10 * time.Millisecond

// Display shows the progress of a trace.
type Display interface {
	// Show shows the progress after each sample.
	Show(console.Progress)
	// Clear removes what is shown, before the result is printed. It may be called again.
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
	// Started and Opened are those of *tracer.Session.
	Started() uint64
	Opened() time.Duration
}

// Recorder keeps what a trace yields while it runs.
type Recorder struct {
	env     Environment
	options Options
	session session
	asked   summary.Process // of --pid
	// startTicks is growth.Process.Start of asked; 0: unknown.
	startTicks int64
	folder     *folder.Folder
	display    Display
	marks      *mark.Receiver
	started    time.Time     // when Elapsed was 0
	began      time.Duration // Elapsed when tracing began: 0, unless it continues an earlier trace
	// end is Elapsed when the trace ends, at the latest; 0: without end. Extend moves it.
	end     atomic.Int64
	earlier *earlierTrace // nil: it continues none

	history    growth.History
	rows       *rowFiles
	unwritten  func() error // writes the rows of the last sample; nil: they are written
	lastSample time.Time

	snapshots      []numberedSnapshot // in order, while the process lived
	snapshotPeriod time.Duration
	costs          duty.Limiter  // of snapshots, where the user has not set their period
	notBefore      time.Duration // no snapshot is due before
	leftOut        int           // snapshots, for what they cost
	idleHoldings   uint64        // that boundHoldings has dropped
	spikes         spikeWatcher
	objects        objectWatch

	userMemoryLimit int64            // bytes
	nextFile        int              // number of the next snapshot's file
	exitSnapshot    *growth.Snapshot // of the ended process; nil: it lives
	baselineTaken   bool
	baseline        *growth.Snapshot // nil: not planned by --warmup, or not reached

	rechecks    *verdict.Rechecks // nil: judged once, at the end
	gpuRechecks *verdict.Rechecks // of GPU memory, at the same times
	warnedClass verdict.Class     // of the last check; empty: the limit was far
	settled     bool              // with --until-settled: nothing more is to be learned

	headline      string   // the verdict in a sentence; empty until the end
	gpuHeadlines  []string // the same of GPU memory, for the comments of profiles
	loggedChanges int      // changes of the overhead controller
	notes         []summary.Note
	writeErrors   []error
}

// numberedSnapshot is a snapshot and the number of its file.
type numberedSnapshot struct {
	*growth.Snapshot
	file int
}

// defaultSnapshotPeriod divides a duration by sixty, or by thirty where the periods would be
// shorter than two seconds.
func defaultSnapshotPeriod(duration time.Duration) time.Duration {
	return max(time.Second, duration/60, min(2*time.Second, duration/30))
}

func newRecorder(
	of session, asked summary.Process, marks *mark.Receiver, dir *folder.Folder, options Options,
	earlier *earlierTrace,
) (*Recorder, error) {
	r := &Recorder{
		session: of, asked: asked, marks: marks, folder: dir, options: options, earlier: earlier,
		started: time.Now().Add(-of.Elapsed()), began: of.Opened(),
		snapshotPeriod: time.Duration(options.SnapshotEvery),
		costs:          duty.Limiter{Burst: snapshotBurst},
		spikes:         newSpikeWatcher(), objects: objectWatch{session: of},
	}
	r.setEnd()
	if earlier != nil {
		r.history = earlier.history
	}

	if r.snapshotPeriod == 0 {
		r.snapshotPeriod = defaultSnapshotPeriod(time.Duration(options.Duration))
	}
	if options.isRechecked() {
		r.rechecks = verdict.NewRechecks(r.firstCheck())
		r.gpuRechecks = verdict.NewRechecks(r.firstCheck())
	}

	var err error
	if r.rows, err = openRows(dir); err != nil {
		return nil, err
	}
	return r, r.rows.writeEarlier(&r.history)
}

// Replay returns a recorder of what has been recorded before, for benchmarks and tests of displays.
func Replay(
	of session, options Options, history growth.History, snapshots ...*growth.Snapshot,
) *Recorder {
	r := &Recorder{session: of, options: options, history: history}
	r.setEnd()
	for i, s := range snapshots {
		r.snapshots = append(r.snapshots, numberedSnapshot{s, i})
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

// TracedNow returns how many processes are traced and alive.
func (r *Recorder) TracedNow() int {
	n, now := 0, r.history.Rows[len(r.history.Rows)-1].Elapsed
	for _, t := range r.history.Processes {
		if t.Traced && t.Last == now {
			n++
		}
	}
	return n
}

// Latest returns the latest snapshot; nil: there is none.
func (r *Recorder) Latest() *growth.Snapshot {
	if len(r.snapshots) == 0 {
		return nil
	}
	return r.snapshots[len(r.snapshots)-1].Snapshot
}

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
			if !r.settled && (r.End() == 0 || r.session.Elapsed() < r.End()) {
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
	case r.settled:
		return summary.EndedSettled
	}
	return summary.EndedDuration
}

// tick does what is due.
func (r *Recorder) tick() error {
	if time.Since(r.lastSample) >= r.options.samplePeriod()-sampleTolerance {
		r.sample(false)
		r.recheck()
		r.watchObjects()
	}

	baseline, planned := r.plannedBaseline()
	if planned && !r.baselineTaken && r.session.Elapsed() >= baseline {
		r.baselineTaken = true
		err := r.takeSnapshot()
		r.baseline = r.Latest()
		return err
	}

	if r.session.Elapsed() >= r.nextSnapshotTime() {
		var err error
		cost := process.MeasureCPUTime(func() { err = r.takeSnapshot() })
		r.postpone(cost, r.session.Overhead())
		return err
	}

	if r.spikes.isDue(r.session, r.nextSnapshotTime(), r.options.samplePeriod()) {
		return r.takeSpikeSnapshot()
	}
	return nil
}

// postpone decides how soon the next snapshot may follow one that has cost so much CPU time.
func (r *Recorder) postpone(cost time.Duration, o overhead.Overhead) {
	limit := o.OwnLimit()
	if limit == 0 || r.options.SnapshotEvery != 0 {
		return
	}

	r.costs.Share = max(minSnapshotShare,
		snapshotOwnPart*float64(limit)/float64(max(1, o.Elapsed)))
	now := time.Time{}.Add(o.Elapsed)
	r.costs.Accrue(now)
	r.costs.Spend(cost)
	planned := r.nextSnapshotTime()
	r.notBefore = r.began + o.Elapsed + min(r.costs.Rest(now), maxStretch*r.snapshotPeriod)
	r.leftOut += int((r.nextSnapshotTime() - planned) / r.snapshotPeriod)
}

// plannedBaseline returns the end of the warm-up by --warmup.
func (r *Recorder) plannedBaseline() (at time.Duration, planned bool) {
	return time.Duration(r.options.Warmup), r.options.Warmup != 0
}

// nextSnapshotTime counts in whole periods, so that the baseline snapshot does not shift the
// others.
func (r *Recorder) nextSnapshotTime() time.Duration {
	if len(r.snapshots) == 0 {
		return 0
	}
	after := max(r.snapshots[len(r.snapshots)-1].Elapsed, r.notBefore-1)
	return (after/r.snapshotPeriod + 1) * r.snapshotPeriod
}

// untilNextDue returns the time until tick has something to do.
func (r *Recorder) untilNextDue() time.Duration {
	elapsed := r.session.Elapsed()
	next := min(r.nextSnapshotTime()-elapsed, r.options.samplePeriod()-time.Since(r.lastSample))

	if end := r.End(); end != 0 {
		next = min(next, end-elapsed)
	}
	if r.settled {
		next = 0
	}

	if baseline, planned := r.plannedBaseline(); planned && !r.baselineTaken {
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
	r.noteOnce(tree.System.CgroupHidden && r.options.Limit.Bytes == 0, words.LimitHidden())
	r.earlier.addSteps(tree)

	row := r.history.Add(tree)
	r.spikes.addSample(&r.history, r.session)
	r.unwritten = func() error { return r.rows.write(row, tree) }
	if isLast || r.history.KeepsLast() { // else the files would grow until they cannot be read back
		r.writeRows()
	}

	events, losses, err := r.counters()
	if err == nil {
		r.display.Show(console.Progress{
			Sample: row.Sample, Latest: r.Latest(), Events: events, Losses: losses,
			Overhead: overhead, End: r.End(), UntilSettled: r.options.UntilSettled != 0,
		})
	}
}

// counters are those of the session, with the losses of the recorder.
func (r *Recorder) counters() (tracer.Events, growth.Losses, error) {
	events, losses, err := r.session.Counters()
	losses.Add(growth.LossIdleHoldings, "", r.idleHoldings)
	return events, losses, err
}

// writeRows writes the rows of the last sample, unless it has.
func (r *Recorder) writeRows() {
	if r.unwritten == nil {
		return
	}
	if err := r.unwritten(); err != nil {
		r.noteWriteError(err)
	}
	r.unwritten = nil
}

// maxNotes bounds the notes of a trace whose processes are started repeatedly.
const maxNotes = 32

// noteOnce logs a note that applies, and adds it to the summary, unless it is there.
func (r *Recorder) noteOnce(applies bool, note summary.Note) {
	if applies && len(r.notes) < maxNotes && !slices.Contains(r.notes, note) {
		slog.Warn(note.Text)
		r.notes = append(r.notes, note)
	}
}

// noteChange adds the notes of a change, and what limits the processes that are traced from now on.
func (r *Recorder) noteChange(notes []summary.Note) {
	if len(notes) == 0 || len(r.notes)+len(notes) > maxNotes {
		return
	}
	r.notes = append(r.notes, notes...)
	for _, note := range r.options.allocatorNotes(r.session.Allocators()) {
		r.noteOnce(true, note)
	}
}

func (r *Recorder) addMarks() {
	for _, m := range r.marks.Drain() {
		at := r.session.Elapsed() - time.Since(m.At)
		r.history.Marks = append(r.history.Marks, growth.Mark{At: at, Text: m.Text})
	}
}

// takeSnapshot reads and writes what is alive.
func (r *Recorder) takeSnapshot() error {
	snapshot, err := r.session.Snapshot(r.snapshotTimes()...)
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
		r.exitSnapshot = snapshot
		return nil
	}

	if latest := r.Latest(); latest != nil {
		latest.DropBirths(snapshot)
	}
	r.unclassifyFree(snapshot)
	r.spikes.addSnapshot(snapshot, false)

	n := numberedSnapshot{snapshot, r.nextFile}
	r.nextFile++
	r.snapshots = append(r.snapshots, n)
	r.writeFile(folder.SnapshotFile(n.file), r.profileWriter(snapshot.AllHoldings(), r.began, snapshot))

	isOpenEnded := r.options.Duration == 0 || r.options.SnapshotEvery == 0 // or it was extended
	if isOpenEnded && len(r.snapshots) >= maxSnapshots {
		r.thinSnapshots()
	}
	r.boundHoldings()
	limitMemory(r.userMemoryLimit)
	return nil
}

// unclassifyFree gives the free memory of earlier snapshots the kind that it has in the latest one, where
// losses have made it unknown: rows of both are compared.
func (r *Recorder) unclassifyFree(latest *growth.Snapshot) {
	for _, p := range latest.Residents {
		if _, ok := claim.May(claim.FreeMemory, p.PID, latest.Losses); ok {
			continue
		}

		for _, s := range r.snapshots {
			s.UnclassifyFree(p.PID)
		}
	}
}

func (r *Recorder) snapshotTimes() []time.Duration {
	var times []time.Duration
	for _, s := range r.snapshots {
		times = append(times, s.Elapsed)
	}
	return times
}

// boundHoldings bounds the memory of the snapshots. In those between the first and the latest it
// drops what holds nothing, and then every other one of them.
func (r *Recorder) boundHoldings() {
	for i, s := range r.snapshots {
		isEnd := i == 0 || i == len(r.snapshots)-1 || s.Snapshot == r.baseline
		if !isEnd && r.holdings() > maxHoldings {
			r.idleHoldings += uint64(s.DropIdle())
		}
	}
	for len(r.snapshots) > minSnapshots && r.holdings() > maxHoldings {
		r.thinSnapshots()
	}
}

// holdings is how many the snapshots have.
func (r *Recorder) holdings() (n int) {
	for _, s := range r.snapshots {
		n += len(s.Holdings) + len(s.GPUHoldings) + len(s.Others)
	}
	return n
}

// thinSnapshots drops every other snapshot but the first, the last and the planned baseline.
func (r *Recorder) thinSnapshots() {
	kept := r.snapshots[:0]
	for i, s := range r.snapshots {
		if i%2 == 0 || i == len(r.snapshots)-1 || s.Snapshot == r.baseline {
			kept = append(kept, s)
			continue
		}
		if err := r.folder.Remove(folder.SnapshotFile(s.file)); err != nil {
			r.noteWriteError(err)
		}
	}

	r.snapshots = kept
	r.snapshotPeriod *= 2
}

// finalSample takes the last sample and the last snapshot.
func (r *Recorder) finalSample() error {
	r.sample(true)
	r.writeRows() // of the sample before, if all processes have exited
	err := r.takeSnapshot()
	if r.session.Err() != nil {
		r.dropTeardown(r.session.Elapsed())
	}
	return err
}

// dropTeardown drops the last snapshots of a process that has exited then, if they have less of the
// heap than most before them: what a program frees at its end, it had kept until then. After a spike it
// has as much as most before.
func (r *Recorder) dropTeardown(exit time.Duration) {
	const keptShare, longest, fewest = 0.8, 10 * time.Second, 2
	main := r.history.Main()
	for n := len(r.snapshots); n > fewest && main != nil; n-- {
		last := r.snapshots[n-1]
		var before []float64
		for _, s := range r.snapshots[:n-1] {
			before = append(before, heapOf(s.Snapshot, main.PID))
		}
		slices.Sort(before)

		isKept := heapOf(last.Snapshot, main.PID) >= keptShare*before[len(before)/2]
		if isKept || exit-last.Elapsed > longest || last.Snapshot == r.baseline {
			return
		}
		if err := r.folder.Remove(folder.SnapshotFile(last.file)); err != nil {
			r.noteWriteError(err)
		}
		r.snapshots = r.snapshots[:n-1]
	}
}

// heapOf returns the bytes that a process has allocated and not freed.
func heapOf(s *growth.Snapshot, pid int) (bytes float64) {
	for _, h := range s.Holdings {
		if h.Stack.PID == pid && h.Kind == growth.KindHeap {
			bytes += float64(h.InuseBytes)
		}
	}
	return bytes
}

// writeFile writes a file of the folder. The trace goes on after an error.
func (r *Recorder) writeFile(name string, content func(io.Writer) error) {
	if err := r.folder.WriteFile(name, content); err != nil {
		r.noteWriteError(err)
	}
}

// noteWriteError logs the first error. All of them make the exit status non-zero.
func (r *Recorder) noteWriteError(err error) {
	if len(r.writeErrors) == 0 {
		slog.Error(err.Error())
	}
	r.writeErrors = append(r.writeErrors, err)
}
