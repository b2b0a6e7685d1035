package tracer_test

import (
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestTensorCalls separates the calls of PyTorch's CPU allocator from calls of malloc.
func TestTensorCalls(t *testing.T) {
	t.Run("every allocator that serves tensors", testTensorCallsAllocatorServesTensors)
	t.Run("failed tensor leaves nothing to the next call", testTensorCallsFailedTensorLeaves)

	// PyTorch is imported once for all of these, one after the other. Bursts are not parallel.
	withOneProgram(t, []tensorCase{
		{"exception reaches the program beside other traces", testTensorCallsExceptionReachesProgram},
		{"unsampled tensor is not the heap's", testTensorCallsUnsampledTensorHeap},
		{"heap has tensors that do not count", testTensorCallsHeapTensorsDo},
		{"heap probes open and close", testTensorCallsHeapProbesOpen},
		{"tensor probes open and close", testTensorCallsTensorProbesOpen},
		{"call under way at the end of a burst", testTensorCallsCallWayEnd},
	})
}

// ofCalls are the sources that probe the functions which both may be called for: see exactHeap.
var ofCalls = []string{"heap", "tensor"}

func openCalls(t *testing.T, h tensorHolder, mode probe.Mode) *tracer.Session {
	t.Helper()
	return open(t, tracer.Options{PID: h.PID(), Interval: 1, Mode: mode, Sources: ofCalls})
}

// The kernel follows the returns of all processes that come to a place with a session's probe. Two
// ranks of a job both do.
func testTensorCallsExceptionReachesProgram(t *testing.T, h tensorHolder) {
	other := startTensors(t)
	for i, mode := range modes { // beside a trace in the next one
		beside := openCalls(t, other, modes[(i+1)%len(modes)])
		s := openCalls(t, h, mode)
		h.Do("fail 10")
		other.Do("keep 20 3000", "fail 10")
		must(t, errors.Join(s.Close(), beside.Close()))
	}
}

func testTensorCallsAllocatorServesTensors(t *testing.T) {
	t.Parallel()
	for i, a := range allocators { // each in some ways
		command := preloading(a.library, exec.Command(python, tracertest.Source("tensors.py")))
		h := tensorHolder{gpuProgram{startCommand(t, command), t}}
		for k := i; k < len(tensorWays); k += len(allocators) {
			way := tensorWays[k]
			t.Run(fmt.Sprint(a.name, way), func(t *testing.T) {
				h.t = t
				h.Do("age")
				s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Mode: way.mode, Sources: way.sources})
				h.Do("keep 300 777", "churn 1000 777", "fill 2 10000000", "drop 100", "fail 2",
					"keep 100 70000", "train 2")
				mustHoldTensors(t, s, h)
			})
		}
	}
}

func testTensorCallsUnsampledTensorHeap(t *testing.T, h tensorHolder) {
	for _, mode := range modes {
		h.Do("forget")
		s := open(t, tracer.Options{
			PID: h.PID(), Interval: 9000, Mode: mode, Sources: ofCalls,
		})

		h.Do("age", "keep 4000 3000")
		held := ofTensors(snapshot(t, s))
		kept := held[fmt.Sprintf("heap c10::alloc_cpu Holder.order_keep:%d", lineWith(t, "tensors.py", "keeps"))][0]
		if len(held) != 1 || kept < 3200 || kept > 4800 { // eight standard deviations
			t.Errorf(
				"%s: stacks through alloc_cpu hold %v (objects, bytes), want the 4000 tensors and nothing else",
				mode, held)
		}
		must(t, s.Close())
	}
}

func testTensorCallsHeapTensorsDo(t *testing.T, h tensorHolder) {
	line := lineWith(t, "tensors.py", "keeps")
	ofHeap := fmt.Sprintf("heap posix_memalign Holder.order_keep:%d", line)
	ofTensor := fmt.Sprintf("heap c10::alloc_cpu Holder.order_keep:%d", line)
	for _, mode := range modes {
		h.Do("age", "forget")
		s := openCalls(t, h, mode)

		must(t, tracer.Probing(s).SetIntervals(1, 0))

		h.Do("keep 70 5000", "churn 10 5000")
		mustAmount(t, "without tensors", ofTensors(snapshot(t, s)), amounts{ofHeap: {70, 70 * 5000}})
		must(t, tracer.Probing(s).SetIntervals(1, 1))

		h.Do("keep 30 5000", "churn 10 5000")
		mustAmount(t, "with tensors", ofTensors(snapshot(t, s)),
			amounts{ofHeap: {70, 70 * 5000}, ofTensor: {30, 30 * 5000}})
		mustLoseNothing(t, s)
		must(t, s.Close())
	}
}

// The heap's probes come and go while tensors are exact.
func testTensorCallsHeapProbesOpen(t *testing.T, h tensorHolder) {
	h.Do("keep 50 5000", "fill 5 300000")
	for _, mode := range modes {
		h.Do("age")
		s := openCalls(t, h, mode)
		for range 3 {
			closeHeap(t, s)
			h.Do("keep 100 3000", "churn 100 3000")
			mustHoldTensors(t, s, h)
			openBurst(t, s)
			h.Do("keep 100 3000", "churn 100 3000")
			mustHoldTensors(t, s, h)
		}
		mustLoseNothing(t, s)
		must(t, s.Close())
	}
}

// during calls do repeatedly until the work has ended.
func during(work, do func()) {
	var working sync.WaitGroup
	var ended atomic.Bool
	working.Go(func() {
		defer ended.Store(true)
		work()
	})

	for !ended.Load() {
		do()
	}
	working.Wait()
}

// While the probes on tensors come and go, a block belongs to the tensors or to the heap, never to
// both. A call that is under way when they go may be lost.
func testTensorCallsTensorProbesOpen(t *testing.T, h tensorHolder) {
	const turns, room = 3, 1 << 16 // room for tensors that live
	line := lineWith(t, "tensors.py", "keeps")
	for _, mode := range modes {
		h.Do("age", "forget")
		s := openCalls(t, h, mode)

		var want, got int64
		during(func() {
			for turn := range 2 * turns {
				if err := tracer.Probing(s).AttachTensors(turn%2 == 1); err != nil {
					t.Error(err)
				}
			}
		}, func() {
			if want+500 > room {
				h.Do("fail 1") // turns take long on a busy machine
				return
			}
			h.Do("keep 500 3000", "fail 1")
			want += 500
		})

		for name, held := range ofTensors(snapshot(t, s)) {
			if strings.HasSuffix(name, fmt.Sprintf(" Holder.order_keep:%d", line)) {
				got += held[0]
			}
		}
		if got > want || got < want-turns {
			t.Errorf("%s: %d objects are held, want %d, of which %d may be lost", mode, got, want,
				turns)
		}
		must(t, s.Close())
	}
}

func testTensorCallsFailedTensorLeaves(t *testing.T) {
	t.Parallel()
	library := tracertest.Build(t, "c10.cc", "-shared", "-fPIC")
	h := startTensors(t, "late")
	for _, mode := range []probe.Mode{probe.Session, probe.Single} {
		s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Mode: mode}) // mapping sees the library

		h.Do("library " + library + " 0 0")
		eventually(t, "a library is found", func() bool { return len(tensorFunctions(s)) > 0 })
		awaitTables(s)
		h.Do("library "+library+" 40 5000", "library "+library+" 70 5000 others")
		if count, bytes := tensorsOf(s); count != 40 || bytes != 40*5000 {
			t.Errorf("%s: %d tensors of %d bytes, want 40 of 5000", mode, count, bytes)
		}

		var others int64
		for _, held := range snapshot(t, s).Holdings {
			if passesThrough(held.Stack, "others") {
				others += int64(held.InuseObjects)
			}
		}
		if others != 70 {
			t.Errorf("%s: %d other blocks are held, want 70", mode, others)
		}
		must(t, s.Close())
	}
}

// The program is in the allocator when a burst ends, and then makes a tensor. That call is no
// longer waited for.
func testTensorCallsCallWayEnd(t *testing.T, h tensorHolder) {
	for _, mode := range []probe.Mode{probe.Session, probe.Multi} {
		h.Do("age", "forget")
		s := openCalls(t, h, mode)

		during(func() {
			for range 10 {
				time.Sleep(20 * time.Millisecond) // until it is in a call that counts
				if err := errors.Join(tracer.Probing(s).CloseHeap(),
					tracer.Probing(s).OpenHeap(true, 1)); err != nil {
					t.Error(err)
				}
			}
		}, func() { h.Do("clear 10 20000000") })
		if n := counted(t, s, bpf.DropMissedReturn); n > 0 {
			t.Errorf("%s: %d allocations are lost", mode, n)
		}

		mustHoldTensors(t, s, h)
		must(t, s.Close())
	}
}

// TestTensorBursts probes tensors in bursts.
func TestTensorBursts(t *testing.T) {
	t.Run("tensors become tracked objects", testTensorBurstsBecomeTracked)
	t.Run("tensors without room are a loss", testTensorBurstsWithoutRoom)
	t.Run("tensors alone in bursts", testTensorBurstsAloneBursts)
}

// openTensorBurst begins a burst of tensors where source heap is off, as the overhead controller
// does.
func openTensorBurst(t *testing.T, s *tracer.Session) {
	t.Helper()
	p := tracer.Probing(s)
	must(t, errors.Join(p.AttachTensors(true), p.SetIntervals(1, 1), p.OpenHeap(true, 1)))
}

func closeTensorBurst(t *testing.T, s *tracer.Session) {
	t.Helper()
	p := tracer.Probing(s)
	must(t, errors.Join(p.CloseHeap(), p.AttachTensors(false), p.SetIntervals(1, 0)))
}

// heldTensors fills the kernel's map of tensors.
func heldTensors(t *testing.T, s *tracer.Session, pid, n int) {
	t.Helper()
	for i := range n {
		key := bpf.Address{Address: 4096 * uint64(i+1), Tgid: uint32(pid)}
		value := bpf.Allocation{Size: 100, Born: 1, Interval: 1, Kind: bpf.KindTensor}
		must(t, tracer.Kernel(s).Tensors.Put(key, value))
	}
}

func testTensorBurstsBecomeTracked(t *testing.T) {
	target, s := startBursts(t)
	heldTensors(t, s, target.PID(), 7)
	must(t, tracer.Probing(s).SetIntervals(1, 0))
	k := tracer.Kernel(s)
	if inTensors, inLive := entriesOf(t, k.Tensors), entriesOf(t, k.Live); inTensors != 0 ||
		inLive != 7 || trackedObjects(s) != 7 {
		t.Errorf("%d in tensors, %d in live, %d tracked; want 0, 7 and 7", inTensors, inLive,
			trackedObjects(s))
	}
}

func testTensorBurstsWithoutRoom(t *testing.T) {
	target, s := openOn(t, startBurstsProgram(t), tracer.Options{Interval: 1, MaxLive: 8})

	target.Do("keep 8 100")
	closeHeap(t, s)
	heldTensors(t, s, target.PID(), 5)
	must(t, tracer.Probing(s).SetIntervals(1, 0))

	_, losses, err := s.Counters()
	if err != nil || len(losses) != 1 || losses[0].Count != uint64(5+8-trackedObjects(s)) ||
		trackedObjects(s) >= 13 {
		t.Errorf("%+v, %v; %d are tracked", losses, err, trackedObjects(s))
	}
}

func testTensorBurstsAloneBursts(t *testing.T) {
	h, s := openOn(t, startTensors(t), tracer.Options{Interval: 1, Sources: []string{"tensor"}})
	tracer.Schedule(s).Lag = time.Nanosecond
	closeTensorBurst(t, s)
	h.Do("keep 20 5000") // no probe is open
	openTensorBurst(t, s)
	h.Do("keep 100 5000")
	closeTensorBurst(t, s)
	taken, bytes := snapshot(t, s), int64(0)
	for _, h := range taken.Holdings {
		bytes += h.InuseBytes
	}

	if want := lastFactor(s) * 100 * 5000; taken.Heap.Bursts != 1 || lastFactor(s) < 1.001 ||
		math.Abs(float64(bytes)-want) > 0.1*want {
		t.Errorf("%d bytes are held, want about %.0f; %+v", bytes, want, taken.Heap)
	}

	openTensorBurst(t, s)
	h.Do("drop 120") // all that were kept
	closeTensorBurst(t, s)
	mustTrack(t, s, 0)
}
