package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

const (
	// Without a duration, snapshots start at one a second; whenever there are this many, every other one is dropped and the
	// time between them doubles.
	mostSnapshots = 120
)

// recorder keeps what a trace yields while it goes on.
type recorder struct {
	session *tracer.Session
	folder  *folder.Folder
	flags   traceFlags
	began   time.Time
	display display
	marks   *marker
	looks   *growth.Looks // nil: judged once, at the end
	// deviceLooks are those at device memory, at the same times.
	deviceLooks *growth.Looks

	history       growth.History
	rows          *rowFiles
	lastSample    time.Time
	every         time.Duration // between snapshots
	snapshots     []numbered    // while what is traced lived, in order
	nextSnapshot  int
	failedWrites  []error
	changes       int // in what is watched, that have been said
	atEnd         *growth.Snapshot
	boundaryTaken bool
	boundary      *growth.Snapshot // nil where it was not planned or not reached
	hazard        growth.Class     // of the last look; empty: the limit was far
	verdict       string           // in a sentence; empty until the end
	onDevices     []string         // the same of device memory, for the comments of profiles
}

// snapshotEvery is the time between snapshots: sixty in a long trace, and thirty where they would be less than two seconds apart.
func snapshotEvery(duration time.Duration) time.Duration {
	return max(time.Second, duration/60, min(2*time.Second, duration/30))
}

// numbered is a snapshot and the number of its file.
type numbered struct {
	*growth.Snapshot
	file int
}

func newRecorder(session *tracer.Session, marks *marker, folder *folder.Folder, flags traceFlags) (*recorder, error) {
	r := &recorder{session: session, marks: marks, folder: folder, flags: flags, began: time.Now(), every: time.Duration(flags.snapshotEvery)}
	if r.every == 0 {
		r.every = snapshotEvery(time.Duration(flags.duration))
	}
	if flags.duration == 0 {
		r.looks, r.deviceLooks = growth.NewLooks(r.criteria()), growth.NewLooks(r.criteria())
	}
	var err error
	r.rows, err = openRows(folder)
	return r, err
}

// record samples and takes snapshots until the trace ends, and says why it did.
func (r *recorder) record(ctx context.Context) (ended string, err error) {
	defer r.display.clear()
	for {
		if err := r.tick(); err != nil {
			return endOf(ctx, r.session), errors.Join(err, r.rows.close())
		}
		wait := time.NewTimer(r.untilNext())
		select {
		case <-ctx.Done():
		case <-r.session.Done():
		case <-wait.C:
			if r.flags.duration == 0 || r.session.Elapsed() < time.Duration(r.flags.duration) {
				continue
			}
		}
		wait.Stop()
		ended = endOf(ctx, r.session)
		return ended, r.last()
	}
}

// tick does what is due.
func (r *recorder) tick() error {
	if time.Since(r.lastSample) >= r.flags.sampleEvery()-10*time.Millisecond {
		r.sample()
		r.look()
	}
	boundary, known := r.plannedBoundary()
	if known && !r.boundaryTaken && r.session.Elapsed() >= boundary {
		r.boundaryTaken = true
		err := r.takeSnapshot()
		r.boundary = r.latest()
		return err
	}
	if r.session.Elapsed() >= r.nextSnapshotTime() {
		return r.takeSnapshot()
	}
	return nil
}

// nextSnapshotTime counts from the last snapshot in whole periods, so that the boundary's own does not shift the others.
func (r *recorder) nextSnapshotTime() time.Duration {
	if len(r.snapshots) == 0 {
		return 0
	}
	return (r.snapshots[len(r.snapshots)-1].Elapsed/r.every + 1) * r.every
}

// untilNext is the time to the next thing that is due.
func (r *recorder) untilNext() time.Duration {
	elapsed := r.session.Elapsed()
	next := min(r.nextSnapshotTime()-elapsed, r.flags.sampleEvery()-time.Since(r.lastSample))
	if r.flags.duration != 0 {
		next = min(next, time.Duration(r.flags.duration)-elapsed)
	}
	if boundary, known := r.plannedBoundary(); known && !r.boundaryTaken {
		next = min(next, boundary-elapsed)
	}
	return max(next, 0)
}

// plannedBoundary is when the warm-up ends, where the user has said so.
func (r *recorder) plannedBoundary() (at time.Duration, known bool) {
	return time.Duration(r.flags.warmup), r.flags.warmup != 0
}

// sample follows the tree and adds a row to the timeline.
func (r *recorder) sample() {
	r.lastSample = time.Now()
	for _, change := range r.session.Follow() {
		logChange(change)
	}
	overhead := r.overhead()
	r.takeMarks()
	moment := r.session.Sample()
	if len(moment.Members) == 0 {
		return // all have just exited
	}
	row := r.history.Add(moment)
	if err := r.rows.write(row, moment); err != nil {
		r.writeFailed(err)
	}
	events, losses, err := r.session.Counters()
	if err == nil {
		r.display.show(row.Sample, r.latest(), events, losses, overhead)
	}
}

func (r *recorder) takeMarks() {
	for _, m := range r.marks.take() {
		r.history.Marks = append(r.history.Marks, growth.Mark{At: r.session.Elapsed() - time.Since(m.At), Text: m.Text})
	}
}

// look judges a trace without a known end, now and then.
func (r *recorder) look() {
	if r.looks == nil || !r.looks.Due(r.session.Elapsed().Seconds()) {
		return
	}
	all := r.judge()
	r.alarm(worst(all))
	r.lookAtDevices(all)
}

func (r *recorder) latest() *growth.Snapshot {
	if len(r.snapshots) == 0 {
		return nil
	}
	return r.snapshots[len(r.snapshots)-1].Snapshot
}

// takeSnapshot reads and writes what is alive.
func (r *recorder) takeSnapshot() error {
	snapshot, err := r.session.Snapshot(r.moments()...)
	if err != nil {
		return err
	}
	slog.Debug(fmt.Sprintf("snapshot at %s of %d live samples, %d stacks in %s", units.Duration(snapshot.Elapsed), snapshot.LiveObjects, len(snapshot.Holdings), snapshot.Took))
	if r.session.Err() != nil {
		r.atEnd = snapshot
		return nil
	}
	if latest := r.latest(); latest != nil {
		latest.DropBirths(snapshot.Alive)
	}
	n := numbered{snapshot, r.nextSnapshot}
	r.nextSnapshot++
	r.snapshots = append(r.snapshots, n)
	r.write(folder.SnapshotFile(n.file), r.profileWriter(snapshot.Everything(), 0, snapshot))
	if r.flags.duration == 0 && len(r.snapshots) >= mostSnapshots {
		r.thin()
	}
	return nil
}

// moments of the snapshots so far.
func (r *recorder) moments() []time.Duration {
	var moments []time.Duration
	for _, s := range r.snapshots {
		moments = append(moments, s.Elapsed)
	}
	return moments
}

// thin drops every other snapshot but the first, the last and that of a planned boundary.
func (r *recorder) thin() {
	kept := r.snapshots[:0]
	for i, s := range r.snapshots {
		if i%2 == 0 || i == len(r.snapshots)-1 || s.Snapshot == r.boundary {
			kept = append(kept, s)
			continue
		}
		if err := r.folder.Remove(folder.SnapshotFile(s.file)); err != nil {
			r.writeFailed(err)
		}
	}
	r.snapshots = kept
	r.every *= 2
}

// last takes the final sample and snapshot.
func (r *recorder) last() error {
	r.sample()
	err := r.takeSnapshot()
	if closed := r.rows.close(); closed != nil {
		r.writeFailed(closed)
	}
	return err
}

// write writes a file of the folder. What cannot be written is said once and makes the exit status non-zero; the trace
// goes on.
func (r *recorder) write(name string, content func(io.Writer) error) {
	if err := r.folder.WriteFile(name, content); err != nil {
		r.writeFailed(err)
	}
}

func (r *recorder) writeFailed(err error) {
	if len(r.failedWrites) == 0 {
		slog.Error(err.Error())
	}
	r.failedWrites = append(r.failedWrites, err)
}
