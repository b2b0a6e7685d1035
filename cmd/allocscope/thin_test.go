package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
)

// openEnded is a recorder without a session, whose snapshots the test takes.
func openEnded(t *testing.T) (r *recorder, path string) {
	t.Helper()
	path = newFolder(t)
	folder, err := folder.Create(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	return &recorder{folder: folder, every: time.Second}, path
}

// pretend adds a snapshot as takeSnapshot does.
func (r *recorder) pretend(t *testing.T, elapsed time.Duration) *growth.Snapshot {
	t.Helper()
	snapshot := &growth.Snapshot{Elapsed: elapsed}
	r.write(folder.SnapshotFile(r.nextSnapshot), func(w io.Writer) error { _, err := io.WriteString(w, elapsed.String()); return err })
	r.snapshots = append(r.snapshots, numbered{snapshot, r.nextSnapshot})
	r.nextSnapshot++
	if len(r.snapshots) >= mostSnapshots {
		r.thin()
	}
	if len(r.failedWrites) > 0 {
		t.Fatal(r.failedWrites)
	}
	return snapshot
}

// pretendUntil takes snapshots as often as the recorder wants them.
func (r *recorder) pretendUntil(t *testing.T, end time.Duration) {
	t.Helper()
	for at := r.nextSnapshotTime(); at <= end; at = r.nextSnapshotTime() {
		r.pretend(t, at)
	}
}

func TestSnapshotsOfAnOpenEndedTraceGetRareButStayEvenlySpaced(t *testing.T) {
	r, path := openEnded(t)
	for _, end := range []time.Duration{time.Minute, time.Hour, 7 * 24 * time.Hour} {
		r.pretendUntil(t, end)
		n := len(r.snapshots)
		if n > mostSnapshots || end > time.Minute && n < mostSnapshots/2 {
			t.Errorf("%d snapshots after %s", n, end)
		}
		if first, last := r.snapshots[0].Elapsed, r.snapshots[n-1].Elapsed; first != 0 || end-last > r.every {
			t.Errorf("after %s the snapshots are from %s to %s", end, first, last)
		}
		for i := range n - 1 {
			if gap := r.snapshots[i+1].Elapsed - r.snapshots[i].Elapsed; gap > r.every || gap <= 0 {
				t.Errorf("after %s there is a gap of %s with %s between snapshots", end, gap, r.every)
			}
		}
		mustHaveFiles(t, r, path)
	}
}

// mustHaveFiles wants a file for each snapshot that is kept, and no other.
func mustHaveFiles(t *testing.T, r *recorder, path string) {
	t.Helper()
	var want []string
	for _, s := range r.snapshots {
		want = append(want, filepath.Join(path, folder.SnapshotFile(s.file)))
		if content := readFile(t, path, folder.SnapshotFile(s.file)); content != s.Elapsed.String() {
			t.Errorf("%s is of %s, not of %s", folder.SnapshotFile(s.file), content, s.Elapsed)
		}
	}
	got := snapshotFiles(t, path)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestThePlannedBoundaryIsNeverThinnedOut(t *testing.T) {
	for _, boundary := range []int{0, 1, 2, 3, 58, 59, 60, 117, 118, 119, 120} {
		r, path := openEnded(t)
		r.flags.warmup = durationValue(time.Duration(boundary)*time.Second + 500*time.Millisecond)
		r.pretendUntil(t, time.Duration(r.flags.warmup))
		r.boundary = r.pretend(t, time.Duration(r.flags.warmup))
		r.pretendUntil(t, time.Hour)
		if start := r.choose(from(time.Duration(r.flags.warmup))).start; start != r.boundary {
			t.Errorf("growth counts from %s, not from %s", start.Elapsed, r.boundary.Elapsed)
		}
		mustHaveFiles(t, r, path)
	}
}

func TestGrowthCountsFromTheSnapshotNearestToTheEndOfTheWarmUp(t *testing.T) {
	r, _ := openEnded(t)
	r.pretendUntil(t, 5*time.Hour)
	span := r.choose(from(90 * time.Minute))
	if last := r.latest(); span.end != last {
		t.Errorf("it ends at %s, not at %s", span.end.Elapsed, last.Elapsed)
	}
	if off := span.start.Elapsed - 90*time.Minute; off.Abs() > r.every/2 {
		t.Errorf("it counts from %s to %s", span.start.Elapsed, span.end.Elapsed)
	}
}

// from is a judgement by which growth counts from a moment.
func from(at time.Duration) judged {
	return judged{Judgement: growth.Judgement{Window: growth.Window{From: at}}}
}

func TestASecondSnapshotOfALifeCountsMoreThanWhatWasLeftAtDeath(t *testing.T) {
	r, _ := openEnded(t)
	r.pretend(t, 0)
	r.atEnd = &growth.Snapshot{Elapsed: 1500 * time.Millisecond}
	if end := r.choose(from(0)).end; end != r.atEnd {
		t.Errorf("with one snapshot growth ends at %s", end.Elapsed)
	}
	second := r.pretend(t, time.Second)
	if end := r.choose(from(0)).end; end != second {
		t.Errorf("with two snapshots growth ends at %s", end.Elapsed)
	}
}
