package tracer_test

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Two flushes at a time wake the reader once: each has to get its answer.
func TestEveryFlushIsAnswered(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "windows.c"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	done := make(chan struct{})
	var flushing sync.WaitGroup
	for range 8 {
		flushing.Go(func() {
			for range 500 {
				s.Flush()
			}
		})
	}
	go func() { flushing.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a flush waits for ever")
	}
}

func startWindowsProgram(t *testing.T) *tracertest.Target {
	t.Helper()
	target := tracertest.Start(t, tracertest.Build(t, "windows.c"))
	target.Await("ready")
	return target
}

// heapOf is what is said of source heap of a process.
func heapOf(s *tracer.Session, pid int) source.Status {
	for _, source := range s.Sources() {
		if source.Name == "heap" && source.PID == pid {
			return source
		}
	}
	return source.Status{}
}

func TestATargetThatCannotBeProbedLeavesTheOthers(t *testing.T) {
	target, s := startWindows(t)
	other := startWindowsProgram(t)
	if err := s.Attach(other.PID()); err != nil {
		t.Fatal(err)
	}
	s.MisplaceHeap(other.PID())
	within(t, target, s, "keep 1000 100")
	mustStand(t, snapshot(t, s), "kept_here", 1000, 100, s.Factor())
	if source := heapOf(s, other.PID()); source.Attached || !strings.Contains(source.Reason, "no such file") {
		t.Errorf("%+v", source)
	}
}

func TestATargetThatEndsBetweenWindowsKeepsWhatIsKnown(t *testing.T) {
	target, s := startWindows(t)
	other := startWindowsProgram(t)
	if err := s.Attach(other.PID()); err != nil {
		t.Fatal(err)
	}
	if err := s.OpenWindow(1); err != nil {
		t.Fatal(err)
	}
	carryOut(other, "keep 300 100")
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
	pid := other.PID()
	s.MisplaceHeap(pid) // what attaching to a process that is ending says depends on the moment
	other.Hangup()
	s.EndUnnoticed(pid)
	within(t, target, s)
	if source := heapOf(s, pid); !source.Attached {
		t.Errorf("%+v", source)
	}
	if n := s.Followed(); n != 300 {
		t.Errorf("%d objects are followed, want 300", n)
	}
}

func TestAWindowOfANewTargetStandsForTheTimeThatItCounts(t *testing.T) {
	target, s := startWindows(t)
	within(t, target, s)
	time.Sleep(500 * time.Millisecond)
	other := startWindowsProgram(t)
	if err := s.OpenWindow(1); err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(other.PID()); err != nil { // while it is open
		t.Fatal(err)
	}
	carryOut(target, "keep 1000 100")
	carryOut(other, "other 1000 100", "churn 100 100")
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
	taken := snapshot(t, s)
	mustStand(t, taken, "kept_here", 1000, 100, s.Factor())
	mustStand(t, taken, "other_here", 1000, 100, 1)
	for _, h := range taken.Holdings {
		if h.Kind == growth.KindHeap && h.Stack.PID == other.PID() && h.Stack.Frames[1].Function == "churn_here" && h.AllocObjects != 100 {
			t.Errorf("churn_here has allocated %.1f objects, want 100", h.AllocObjects)
		}
	}
}

func TestASnapshotWithinAWindowDoesNotTakeItsTallies(t *testing.T) {
	target := startWindowsProgram(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, MaxStacks: 4})
	s.Mature(time.Nanosecond)
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
	if err := s.OpenWindow(1); err != nil {
		t.Fatal(err)
	}
	carryOut(target, "keep 10 100", "keep 10 200", "keep 10 400", "keep 10 800", "keep 10 1600", "keep 10 3200") // 6 of 8 tallies
	snapshot(t, s)
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
	objects := 0.0
	for _, h := range snapshot(t, s).Holdings {
		if h.Kind == growth.KindHeap {
			objects += h.AllocObjects
		}
	}
	if want := 60 * s.Factor(); math.Abs(objects-want) > 0.01 || s.Factor() < 1.001 {
		t.Errorf("%.2f objects were allocated, want %.2f", objects, want)
	}
}

func TestDeathsWhileEveryCallIsWatchedTellNothingOfWindows(t *testing.T) {
	target, s := startWindows(t)
	within(t, target, s, "keep 400 100")
	if err := s.OpenFully(1); err != nil {
		t.Fatal(err)
	}
	carryOut(target, "drop 150")
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
	if n := s.Followed(); n != 250 {
		t.Errorf("%d objects are followed, want 250", n)
	}
	for _, h := range snapshot(t, s).Holdings {
		if h.Evidence != nil && (h.Evidence.Hazard != (growth.HazardRate{})) {
			t.Errorf("%+v", *h.Evidence)
		}
	}
}

func TestWhatWasLearntOfATargetGoesWithIt(t *testing.T) {
	target, s := startWindows(t)
	other := startWindowsProgram(t)
	if err := s.Attach(other.PID()); err != nil {
		t.Fatal(err)
	}
	within(t, target, s, "keep 10 100")
	read, remembered := s.Meter()
	for range 2 {
		if err := read(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.OpenWindow(1); err != nil {
		t.Fatal(err)
	}
	carryOut(other, "keep 300 100")
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
	s.PollSurvivors()
	if hazards, allocators := s.Learnt(); hazards != 2 || allocators != 2 {
		t.Errorf("%d hazards and %d allocators are known, want 2 and 2", hazards, allocators)
	}
	if err := s.Detach(other.PID()); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	if hazards, allocators := s.Learnt(); hazards != 1 || allocators != 1 || s.Followed() != 10 || remembered() != 1 {
		t.Errorf("%d hazards, %d allocators, %d objects and %d processes are known, want 1, 1, 10 and 1", hazards, allocators, s.Followed(), remembered())
	}
}

// heldTensors fills the kernel's map of tensors.
func heldTensors(t *testing.T, s *tracer.Session, pid, n int) {
	t.Helper()
	for i := range n {
		key := bpf.Address{Address: 4096 * uint64(i+1), Tgid: uint32(pid)}
		value := bpf.Allocation{Size: 100, Born: 1, Interval: 1, Kind: bpf.KindTensor}
		if err := s.Maps()["tensors"].Put(key, value); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTensorsThatAreHandedOverAreFollowed(t *testing.T) {
	target, s := startWindows(t)
	heldTensors(t, s, target.PID(), 7)
	if err := s.HandOverTensors(); err != nil {
		t.Fatal(err)
	}
	if inTensors, inLive := size(t, s, "tensors"), size(t, s, "live"); inTensors != 0 || inLive != 7 || s.Followed() != 7 {
		t.Errorf("%d in tensors, %d in live, %d followed; want 0, 7 and 7", inTensors, inLive, s.Followed())
	}
}

func TestTensorsForWhichThereIsNoRoomAreALoss(t *testing.T) {
	target := startWindowsProgram(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, MaxLive: 8})
	carryOut(target, "keep 8 100")
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
	heldTensors(t, s, target.PID(), 5)
	if err := s.HandOverTensors(); err != nil {
		t.Fatal(err)
	}
	_, losses, err := s.Counters()
	if err != nil || len(losses) != 1 || losses[0].Count != uint64(5+8-s.Followed()) || s.Followed() >= 13 {
		t.Errorf("%+v, %v; %d are followed", losses, err, s.Followed())
	}
}

func TestTensorsAloneAreWatchedInWindows(t *testing.T) {
	h := startTensors(t)
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Sources: []string{"tensor"}})
	s.Mature(time.Nanosecond)
	if err := s.CloseTensorWindow(); err != nil {
		t.Fatal(err)
	}
	h.do("keep 20 5000") // nobody watches
	if err := s.OpenTensorWindow(1); err != nil {
		t.Fatal(err)
	}
	h.do("keep 100 5000")
	if err := s.CloseTensorWindow(); err != nil {
		t.Fatal(err)
	}
	taken, bytes := snapshot(t, s), int64(0)
	for _, h := range taken.Holdings {
		bytes += h.InuseBytes
	}
	if want := s.Factor() * 100 * 5000; taken.Heap.Bursts != 1 || s.Factor() < 1.001 || math.Abs(float64(bytes)-want) > 0.1*want {
		t.Errorf("%d bytes are held, want about %.0f; %+v", bytes, want, taken.Heap)
	}
	if err := s.OpenTensorWindow(1); err != nil {
		t.Fatal(err)
	}
	h.do("drop 120") // all that were kept
	if err := s.CloseTensorWindow(); err != nil {
		t.Fatal(err)
	}
	if n := s.Followed(); n != 0 {
		t.Errorf("%d objects are followed after the release of all", n)
	}
}
