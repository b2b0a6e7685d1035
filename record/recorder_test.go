package record

import (
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A loss of one process changes the kind of its free memory in all snapshots, and of no other's.
func TestSnapshotsFreeUntilLoss(t *testing.T) {
	const lossy, other = 7, 8
	r, _ := openEnded(t)
	for at := range 3 {
		s := r.pretend(t, time.Duration(at)*time.Second)
		for _, pid := range []int{lossy, other} {
			stack := growth.NamedStack(pid, "[heap: free but resident]")
			s.Residents = append(s.Residents, growth.Resident{PID: pid})
			s.Holdings = append(s.Holdings, growth.Holding{Stack: stack, Kind: growth.KindRetained})
		}
	}

	latest := r.Latest()
	r.snapshots.unclassifyFree(latest)
	latest.Losses = growth.Losses{{Kind: growth.LossTruncatedStacks, Count: 9}}
	r.snapshots.unclassifyFree(latest)
	for _, s := range r.snapshots.all {
		if s.Holdings[0].Kind != growth.KindRetained {
			t.Errorf("without a loss of calls the first is %s", s.Holdings[0].Kind)
		}
	}

	latest.Losses.Add(growth.LossMissedReturn, "", 1)
	latest.Losses[1].PID = lossy
	r.snapshots.unclassifyFree(latest)
	for _, s := range r.snapshots.all {
		if s.Holdings[0].Kind != growth.KindUnclassified || s.Holdings[1].Kind != growth.KindRetained {
			t.Errorf("with one they are %s and %s", s.Holdings[0].Kind, s.Holdings[1].Kind)
		}
	}
}

// compiling adds a snapshot of a program that has allocated in so many stacks. Each tenth holds
// memory.
func (r *Recorder) compiling(t *testing.T, at time.Duration, stacks []*growth.Stack) {
	t.Helper()
	snapshot := r.pretend(t, at)
	snapshot.Holdings = make([]growth.Holding, 0, len(stacks))
	for i, s := range stacks {
		h := growth.Holding{Stack: s, Kind: growth.KindHeap, AllocBytes: 1e6, AllocObjects: 1}
		if i%10 == 0 {
			h.InuseBytes, h.InuseObjects = int64(i), 1
		}
		snapshot.Holdings = append(snapshot.Holdings, h)
	}
	r.snapshots.bound(true, r.files)
}

func stacksOf(n int) (stacks []*growth.Stack) {
	for id := range n {
		stacks = append(stacks, &growth.Stack{ID: uint64(id), PID: 7})
	}
	return stacks
}

func TestSnapshotsMemory(t *testing.T) {
	const stacks, bound = 4000, 45 << 20
	r, path := openEnded(t)
	all := stacksOf(stacks)
	before := heapBytes()
	for at := r.snapshots.next(); at <= 24*time.Hour; at = r.snapshots.next() {
		r.compiling(t, at, all)
	}
	if after := heapBytes(); after > before+bound {
		t.Errorf("%d snapshots of %d stacks take %d MiB", len(r.snapshots.all), stacks,
			(after-before)>>20)
	}
	mustHaveFiles(t, r, path)

	n := len(r.snapshots.all)
	if n < minSnapshots {
		t.Errorf("%d snapshots are left", n)
	}
	for _, i := range []int{0, n - 1} {
		if got := len(r.snapshots.all[i].Holdings); got != stacks {
			t.Errorf("snapshot %d of %d has %d stacks, want %d", i, n, got, stacks)
		}
	}
	if held := len(r.snapshots.all[n/2].Holdings); held != stacks/10 || r.snapshots.idleHoldings == 0 {
		t.Errorf("a snapshot in between has %d stacks, %d were left out", held,
			r.snapshots.idleHoldings)
	}
}

func TestSnapshotsFewStacks(t *testing.T) {
	const stacks = 1000
	r, _ := openEnded(t)
	for at := r.snapshots.next(); at < 100*time.Second; at = r.snapshots.next() {
		r.compiling(t, at, stacksOf(stacks))
	}
	if len(r.snapshots.all) != 100 || len(r.snapshots.all[50].Holdings) != stacks || r.snapshots.idleHoldings != 0 {
		t.Errorf("%d snapshots, one of %d stacks, %d were left out", len(r.snapshots.all),
			len(r.snapshots.all[50].Holdings), r.snapshots.idleHoldings)
	}
}

// heapBytes is the live memory in the heap of this program.
func heapBytes() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // objects that the first has found dead are swept
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// openEnded is a recorder without a session, whose snapshots the test takes.
func openEnded(t *testing.T) (r *Recorder, path string) {
	t.Helper()
	dir, path := createFolder(t)
	files := &Files{Folder: dir, report: func(Event) {}}
	return &Recorder{files: files, snapshots: snapshotSeries{period: time.Second}}, path
}

// pretend adds a snapshot as takeSnapshot does.
func (r *Recorder) pretend(t *testing.T, elapsed time.Duration) *growth.Snapshot {
	t.Helper()
	snapshot := &growth.Snapshot{Elapsed: elapsed}
	r.files.Write(folder.SnapshotFile(r.snapshots.add(snapshot, false)), func(w io.Writer) error {
		_, err := io.WriteString(w, elapsed.String())
		return err
	})
	r.snapshots.bound(true, r.files)

	if len(r.files.errors) > 0 {
		t.Fatal(r.files.errors)
	}

	return snapshot
}

// pretendUntil takes snapshots as often as the recorder checks for them.
func (r *Recorder) pretendUntil(t *testing.T, end time.Duration) {
	t.Helper()
	for at := r.snapshots.next(); at <= end; at = r.snapshots.next() {
		r.pretend(t, at)
	}
}

func TestSnapshotsThinned(t *testing.T) {
	r, path := openEnded(t)
	for _, end := range []time.Duration{time.Minute, time.Hour, 7 * 24 * time.Hour} {
		r.pretendUntil(t, end)
		n := len(r.snapshots.all)
		if n > maxSnapshots || end > time.Minute && n < maxSnapshots/2 {
			t.Errorf("%d snapshots after %s", n, end)
		}

		if first, last := r.snapshots.all[0].Elapsed, r.snapshots.all[n-1].Elapsed; first != 0 ||
			end-last > r.snapshots.period {
			t.Errorf("after %s the snapshots are from %s to %s", end, first, last)
		}

		for i := range n - 1 {
			if gap := r.snapshots.all[i+1].Elapsed - r.snapshots.all[i].Elapsed; gap > r.snapshots.period ||
				gap <= 0 {
				t.Errorf("after %s there is a gap of %s with %s between snapshots", end, gap,
					r.snapshots.period)
			}
		}

		mustHaveFiles(t, r, path)
	}
}

// mustHaveFiles checks for a file for each snapshot that is kept, and no other.
func mustHaveFiles(t *testing.T, r *Recorder, path string) {
	t.Helper()
	var want []string
	for _, s := range r.snapshots.all {
		want = append(want, filepath.Join(path, folder.SnapshotFile(s.file)))
		if content := readFile(t, path, folder.SnapshotFile(s.file)); content != s.Elapsed.String() {
			t.Errorf("%s is of %s, not of %s", folder.SnapshotFile(s.file), content, s.Elapsed)
		}
	}

	got := tracertest.Must(filepath.Glob(filepath.Join(path, "snapshots", "*.pb.gz")))(t)

	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestSnapshotsBaseline(t *testing.T) {
	for _, baseline := range []int{0, 1, 59, 60, 119} {
		r, path := openEnded(t)
		r.options.Warmup = time.Duration(baseline)*time.Second + 500*time.Millisecond
		r.pretendUntil(t, r.options.Warmup)
		r.snapshots.baseline = r.pretend(t, r.options.Warmup)
		r.pretendUntil(t, time.Hour)
		if start := r.pairFrom(r.options.Warmup).Start; start != r.snapshots.baseline {
			t.Errorf("growth counts from %s, not from %s", start.Elapsed,
				r.snapshots.baseline.Elapsed)
		}

		mustHaveFiles(t, r, path)
	}
}

// pairFrom is the pair of growth that counts from a moment.
func (r *Recorder) pairFrom(at time.Duration) conclude.Pair {
	return r.Recorded().PairOf(nil, trend.Window{From: at})
}

func TestPairOfWarmUpEnd(t *testing.T) {
	r, _ := openEnded(t)
	r.pretendUntil(t, 5*time.Hour)
	span := r.pairFrom(90 * time.Minute)
	if last := r.Latest(); span.End != last {
		t.Errorf("it ends at %s, not at %s", span.End.Elapsed, last.Elapsed)
	}

	if off := span.Start.Elapsed - 90*time.Minute; off.Abs() > r.snapshots.period/2 {
		t.Errorf("it counts from %s to %s", span.Start.Elapsed, span.End.Elapsed)
	}
}

// The last snapshots may fall into the teardown of the interpreter, or follow a spike.
func TestPairOfTeardown(t *testing.T) {
	const second = time.Second
	for want, test := range map[time.Duration]struct {
		exit time.Duration
		heap []int64
	}{
		3 * second: {6 * second, []int64{100, 200, 190, 290, 100, 50}},
		4 * second: {5 * second, []int64{100, 200, 210, 900, 220}},      // a spike
		5 * second: {20 * second, []int64{100, 200, 190, 290, 100, 50}}, // long before the exit
	} {
		mustEnd(t, test.exit, test.heap, want)
	}
}

func mustEnd(t *testing.T, exit time.Duration, heap []int64, want time.Duration) {
	t.Helper()
	r, path := openEnded(t)
	r.history.Add(growth.TreeSample{
		Members:   []growth.Member{{Process: growth.Process{PID: trainerPID}, Traced: true}},
		Processes: []growth.ProcessSample{{PID: trainerPID, Sample: growth.UnknownSample()}},
	})
	for i, bytes := range heap {
		r.pretend(t, time.Duration(i)*time.Second).Holdings = []growth.Holding{
			{Kind: growth.KindHeap, Stack: &growth.Stack{PID: trainerPID}, InuseBytes: bytes},
			{Kind: growth.KindHeap, Stack: &growth.Stack{PID: 1}, InuseBytes: 1000 * int64(i)},
		}
	}

	r.snapshots.dropTeardown(exit, r.history.Main(), r.files)
	if end := r.Latest().Elapsed; end != want {
		t.Errorf("growth ends at %s, want %s", end, want)
	}
	mustHaveFiles(t, r, path)
}

// Snapshots that cost 20 ms may take 0.3 of 0.02 of a core: one in 3.3 s. Those that cost 1 s would
// be further apart than five periods.
func TestPostpone(t *testing.T) {
	const duration = 10 * time.Minute
	for name, test := range map[string]struct {
		cost, every   time.Duration
		limits        overhead.Limits
		taken, spread int
	}{
		"cheap":        {5 * time.Millisecond, 0, overhead.Limits{OwnFloor: 0.02}, 601, 0},
		"expensive":    {20 * time.Millisecond, 0, overhead.Limits{OwnFloor: 0.02}, 191, 5},
		"slow":         {time.Second, 0, overhead.Limits{OwnFloor: 0.02}, 121, 1},
		"a large job":  {20 * time.Millisecond, 0, overhead.Limits{Limit: 0.1, OwnFloor: 0.02}, 601, 0},
		"no limit":     {time.Second, 0, overhead.Limits{}, 601, 0},
		"period given": {time.Second, time.Second, overhead.Limits{OwnFloor: 0.02}, 601, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSnapshotSeries(&Options{SnapshotEvery: test.every})
			s.period = time.Second
			for at := time.Duration(0); at <= duration; at = s.next() {
				s.add(&growth.Snapshot{Elapsed: at}, false)
				s.postpone(test.cost, 0,
					overhead.Overhead{Limits: test.limits, Elapsed: at, Traced: at})
			}

			taken := len(s.all)
			if off := taken - test.taken; max(off, -off) > test.spread {
				t.Errorf("%d snapshots, want %d", taken, test.taken)
			}
			if planned := 601; max(planned-taken-s.leftOut, s.leftOut+taken-planned) > maxStretch {
				t.Errorf("%d taken and %d left out of %d", taken, s.leftOut, planned)
			}
		})
	}
}

// The latest snapshot outside spikes has its births until the next one is there.
func TestBirthsInSpikes(t *testing.T) {
	stack := &growth.Stack{ID: 1, PID: 42}
	var s snapshotSeries
	for i, inSpike := range []bool{false, true, true, false} {
		s.add(&growth.Snapshot{
			Alive: []int{42},
			Holdings: []growth.Holding{{
				Stack: stack, Kind: growth.KindHeap, Births: []growth.Birth{{Bin: i}},
			}},
		}, inSpike)

		var with []int
		for k, n := range s.all {
			if n.Holdings[0].Births != nil {
				with = append(with, k)
			}
		}
		want := [][]int{{0}, {0, 1}, {0, 2}, {3}}[i]
		if !slices.Equal(with, want) {
			t.Errorf("after %d snapshots %v have births, want %v", i+1, with, want)
		}
	}
}

// TestBirthsBeforeBursts: the last snapshot before the first burst keeps its births, and no later one does
// but the latest.
func TestBirthsBeforeBursts(t *testing.T) {
	var s snapshotSeries
	for i := range 6 {
		snapshot := &growth.Snapshot{
			Elapsed: time.Duration(i) * time.Second, Alive: []int{7}, Bins: []time.Duration{time.Second},
			Holdings: []growth.Holding{{
				Stack: &growth.Stack{ID: 1, PID: 7}, Kind: growth.KindHeap, Births: []growth.Birth{{}},
			}},
		}
		if i > 2 {
			snapshot.Heap.Bursts = i
		}
		s.add(snapshot, false)
	}
	for i, n := range s.all {
		if hasBirths := len(n.Holdings[0].Births) > 0; hasBirths != (i == 2 || i == 5) {
			t.Errorf("snapshot %d: births %t", i, hasBirths)
		}
	}
}
