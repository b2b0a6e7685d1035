package record

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/report"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A trainer leaks by leakPerHour. At a sixth of the time it executes itself, and at a third its
// launcher starts it again. torch.compile makes stacksPerHour.
const (
	leakPerHour   = 600 << 20
	epoch         = 20 * time.Second
	stacksPerHour = 100
)

// days is a session whose trainer leaks, whose clock is synctest's.
type days struct {
	length  time.Duration
	started time.Time
	marks   *Marks
	epochs  int
}

func (d *days) Elapsed() time.Duration { return time.Since(d.started) }
func (d *days) Started() uint64        { return 1 }
func (d *days) Opened() time.Duration  { return 0 }

// Follow marks the epochs.
func (d *days) Follow() []tracer.Change {
	for ; d.Elapsed() >= time.Duration(d.epochs)*epoch; d.epochs++ {
		d.marks.Add(fmt.Sprintf("epoch %d", d.epochs), time.Now())
	}
	return nil
}

// trainer returns the trainer of a moment, and how long its program has run.
func (d *days) trainer() (growth.Process, time.Duration) {
	p := growth.Process{PID: 100, Parent: 1, Command: "train.py", Role: growth.RoleTrainer, Rank: growth.Unknown}
	switch now := d.Elapsed(); {
	case now >= d.length/3:
		p.PID, p.Born = 200, d.length/3
	case now >= d.length/6:
		p.Born = d.length / 6
	}
	return p, d.Elapsed() - p.Born
}

// rss warms up for two minutes, leaks, and is 2 GiB higher for some seconds of each epoch.
func (d *days) rss() int64 {
	_, age := d.trainer()
	warm := (5 << 30) * (1 - math.Exp(-age.Minutes()))
	rss := int64(warm) + int64(age.Hours()*leakPerHour)
	if age%epoch > epoch-3*time.Second {
		rss += 2 << 30
	}
	return rss
}

// Sample has the launcher, the trainer, and two workers of each epoch.
func (d *days) Sample() growth.TreeSample {
	sample := growth.TreeSample{
		Elapsed: d.Elapsed(),
		System: growth.SystemMemory{
			Available: 1 << 40, SwapFree: growth.Unknown, CgroupUsed: growth.Unknown, CgroupLimit: growth.Unknown,
		},
	}
	add := func(p growth.Process, traced bool, rss int64) {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = sample.Elapsed, rss
		sample.Members = append(sample.Members, growth.Member{Process: p, Traced: traced, From: max(0, p.Born)})
		sample.Processes = append(sample.Processes, growth.ProcessSample{PID: int64(p.PID), Sample: s})
	}
	add(growth.Process{PID: 1, Command: "torchrun", Role: growth.RoleLauncher, Rank: growth.Unknown}, false, 1<<20)
	trainer, _ := d.trainer()
	add(trainer, true, d.rss())
	for worker := range 2 {
		add(growth.Process{
			PID: 1000 + 2*d.epochs + worker, Parent: trainer.PID, Born: time.Duration(d.epochs) * epoch,
			Role: growth.RoleLoaderWorker, Rank: growth.Unknown,
		}, false, 400<<20)
	}
	return sample
}

// Snapshot has the stack that leaks, one that holds the rest, and those that a compiler has made,
// which hold nothing.
func (d *days) Snapshot(born ...time.Duration) (*growth.Snapshot, error) {
	trainer, age := d.trainer()
	s := &growth.Snapshot{
		Elapsed: d.Elapsed(), Interval: 1, Alive: []int{trainer.PID}, Bins: append(born, d.Elapsed()),
	}
	leaked := int64(age.Hours() * leakPerHour)
	hold := func(name string, bytes int64) {
		stack := growth.NamedStack(trainer.PID, "", name, "main")
		s.Holdings = append(s.Holdings, growth.Holding{
			Stack: stack, Kind: growth.KindHeap, InuseBytes: bytes, ResidentBytes: bytes,
			InuseObjects: float64(bytes) / 4096, AllocBytes: float64(bytes), AllocObjects: float64(bytes) / 4096,
		})
	}
	hold("leaks", leaked)
	hold("holds", d.rss()-leaked)
	for i := range int(age.Hours() * stacksPerHour) {
		hold(fmt.Sprintf("compiled_%d", i), 0)
	}
	s.Residents = []growth.Resident{{PID: trainer.PID, Traced: true, HeapTraced: true, RSS: d.rss(), Scanned: 1}}
	return s, nil
}

func (d *days) SpikeSnapshot() (*growth.Snapshot, error) { return d.Snapshot() }
func (d *days) SetMoment(tracer.Moment)                  {}

func (d *days) TracedPIDs() []int { return nil }

func (d *days) Census(context.Context, tracer.CensusOptions) (*objects.Census, error) {
	return nil, objects.ErrNoPython
}

func (d *days) Search(context.Context, tracer.KeeperSearch) ([]keeper.Search, error) {
	return nil, nil
}
func (d *days) ObjectsCPUTime() time.Duration { return 0 }
func (d *days) HurryObjects()                 {}

func (d *days) Allocators() []tracer.Allocator { return nil }

func (d *days) Surroundings() (none growth.Surroundings) { return none }
func (d *days) Sources() []source.Status                 { return []source.Status{{Name: "heap", Attached: true}} }

func (d *days) Overhead() overhead.Overhead                      { return overhead.Overhead{Elapsed: d.Elapsed()} }
func (d *days) IsStopped(int) bool                               { return false }
func (d *days) FindDebugPackage(int, string) growth.DebugPackage { return growth.DebugPackage{} }
func (d *days) Software(int) growth.Software                     { return growth.Software{} }
func (d *days) IsOutOfMemory(int) bool                           { return false }
func (d *days) Done() <-chan struct{}                            { return nil }
func (d *days) Err() error                                       { return nil }
func (d *days) Counters() (growth.Events, growth.Losses, error) {
	return growth.Events{}, nil, nil
}

func (d *days) newRecorder(t *testing.T, dir *folder.Folder) *Recorder {
	t.Helper()
	r, err := New(Setup{
		Session: d, Asked: Target{Process: summary.Process{PID: 1}}, Files: &Files{Folder: dir},
		Marks: d.marks, Report: func(Event) {},
	}, Options{PID: 1, Speed: 1})
	tracertest.NoError(t, err)
	return r
}

// record records the whole time.
func (d *days) record(t *testing.T, dir *folder.Folder) *Ending {
	t.Helper()
	d.started, d.marks = time.Now(), &Marks{}
	r := d.newRecorder(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), d.length)
	defer cancel()
	ended, err := r.Record(ctx)
	if err != nil || ended.reason != summary.EndedInterrupt {
		t.Fatalf("the trace has ended by %q, %v", ended.reason, err)
	}
	return ended
}

func openFiles(t *testing.T) int {
	t.Helper()
	files := tracertest.Must(os.ReadDir("/proc/self/fd"))(t)
	return len(files)
}

// TestDays bounds the memory and CPU time of hours of tracing, and reads their files.
// ALLOCSCOPE_HOURS is how many; `make soak` takes 72, some minutes.
func TestDays(t *testing.T) {
	hours := 0.5
	if text := os.Getenv("ALLOCSCOPE_HOURS"); text != "" {
		var err error
		if hours, err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatal(err)
		}
	}
	d := &days{length: time.Duration(hours * float64(time.Hour))}
	dir, path := createFolder(t)
	synctest.Test(t, func(t *testing.T) {
		const maxMemory = 200 << 20
		memory, files := heapBytes(), openFiles(t)
		ended := d.record(t, dir)
		r := ended.recorder
		took := int64(heapBytes()) - int64(memory)
		t.Logf("memory: %.0f MiB; %d snapshots, %d rows", float64(took)/(1<<20), len(r.snapshots.all), len(r.history.Rows))
		if took > maxMemory {
			t.Errorf("it takes %d MiB of memory", took>>20)
		}
		ended.Search(t.Context())
		result := tracertest.Must(ended.Finish())(t)
		r.files.Write(folder.SummaryFile, result.Summary.Write)
		if now := openFiles(t); now > files {
			t.Errorf("%d files are open, %d before", now, files)
		}
		runtime.KeepAlive(r)
	})
	d.checkFiles(t, path)
}

// checkFiles checks the sizes of the files, and their contents.
func (d *days) checkFiles(t *testing.T, path string) {
	t.Helper()
	const maxBytes = 200 << 20
	var total int64
	err := filepath.Walk(path, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			total += info.Size()
		}
		return err
	})
	t.Logf("files: %.1f MiB", float64(total)/(1<<20))
	if err != nil || total > maxBytes {
		t.Errorf("the folder has %d MiB, %v", total>>20, err)
	}

	dir := tracertest.Must(folder.Open(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}))(t)
	defer dir.Close()
	trace, err := report.Read(dir)
	if err != nil || len(trace.Missing) > 0 {
		t.Fatalf("read the folder: %v, missing %q", err, trace.Missing)
	}
	got, rate := trace.Summary, 0.0
	if got.Rate != nil {
		rate = *got.Rate
	}
	if !got.Class.Grows() || got.Process.PID != 200 || math.Abs(rate*60/leakPerHour-1) > 0.05 {
		t.Errorf("the verdict on PID %d is %s, by %.0f bytes a minute", got.Process.PID, got.Class,
			rate)
	}
	if n := len(trace.Summary.Marks); n != min(d.epochs, 10_000) {
		t.Errorf("%d marks of %d epochs", n, d.epochs)
	}
	if last := trace.Rows[len(trace.Rows)-1].Elapsed; last != d.length {
		t.Errorf("the last row is of %s", last)
	}
	if most := trace.Summary.Accumulating[0]; most.Function != "leaks" {
		t.Errorf("%s accumulates most", most.Function)
	}
}

// TestThinnedRows samples where the history keeps every second sample, and then all processes exit.
func TestThinnedRows(t *testing.T) {
	dir, path := createFolder(t)
	d := &days{length: time.Hour, started: time.Now().Add(-time.Minute), marks: &Marks{}}
	r := d.newRecorder(t, dir)
	long := growth.TreeSample{Members: make([]growth.Member, 1), Processes: make([]growth.ProcessSample, 1)}
	long.Members[0].Traced = true
	for r.history.KeepsLast() {
		r.history.Add(long)
	}
	kept := len(r.history.Rows)

	const samples = 8
	for range samples {
		r.sample(false)
	}
	r.session = exited{d}
	if err := r.finalSample(); err != nil {
		t.Error(err)
	}
	read, err := rows.ReadTimeline(strings.NewReader(readFile(t, path, folder.TimelineFile)))
	last := r.history.Rows[len(r.history.Rows)-1].Elapsed
	if want := len(r.history.Rows) - kept + 1; err != nil || len(read) != want || want > samples/2+1 ||
		(read[want-1].Elapsed-last).Abs() > time.Millisecond {
		t.Errorf("%d rows, want %d, %v", len(read), want, err)
	}
}

// exited is days after the exit of all processes.
type exited struct{ *days }

func (exited) Sample() growth.TreeSample { return growth.TreeSample{} }
