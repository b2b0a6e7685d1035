package tracer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
)

// A watch is how the allocators of all targets are watched: all the time, in windows, or not at all. All open and close
// together.
type probing struct {
	kernel  *kernel.Kernel
	targets *targetSet
	events  *eventReader
	reading *sync.Mutex   // held while a process is examined
	started func() uint64 // when counting began, ns, CLOCK_MONOTONIC
	// progress reads the meter, and costs are those of what it counts; nil where the overhead has no limit
	progress func() (controller.Reading, error)
	costs    controller.Costs
	worked   controller.Reading // the last reading for which progress was recorded

	mu       sync.Mutex // held while probes come and go, and while the live map is read
	schedule estimate.Schedule
	tracker  liveness.Tracker
	// epoch counts up when the heap opens and when it closes, and tensorEpoch when the probes of tensors have been detached: nobody
	// waits for the return of a call that began before
	epoch, tensorEpoch uint32
	// interval and tensorInterval are the bytes between samples of both sources, also while that of the heap is closed; 0: what
	// happens to tensors does not count for them, but for the heap.
	interval, tensorInterval uint64
	tensors                  bool   // their probes are attached
	blockInterval            uint64 // of blocks on GPUs, the bytes between samples; 0: they are not followed
	// tensorsAlone: source heap is not wanted, and the spells are those of tensors.
	tensorsAlone bool
	untracked    uint64 // tensors for which there was no room among the survivors
}

func newProbing(duration time.Duration) *probing {
	return &probing{
		targets: &targetSet{}, reading: &sync.Mutex{},
		schedule: estimate.Schedule{Lag: estimate.Maturity(duration)},
		tracker:  liveness.NewTracker(),
	}
}

// startWatch measures prices where there is a limit, and leaves it to the governor when to open; else everything is open from the start.
func (s *Session) startProbing(ctx context.Context) error {
	s.probing = newProbing(s.Options.Duration)
	s.probing.kernel, s.probing.targets, s.probing.reading = s.kernel, &s.targets, &s.reading
	s.probing.started = func() uint64 { return s.started }
	s.probing.tensorsAlone = !s.Options.wants("heap") && s.Options.wants("tensor")
	if err := s.probing.FollowBlocks(s.Options.wants("cuda"), s.Options.Interval); err != nil { // what is missed of them cannot be made up for
		return fmt.Errorf("follow blocks on GPUs: %w", err)
	}
	if s.Options.Overhead > 0 {
		s.probing.interval = s.Options.Interval // until the governor decides
		s.prices, s.unpriced = overhead.MeasureCosts(ctx, s.kernel, source.FaultPeriod(s.Options.faultInterval(s.asked)), calibrate.DefaultTimeout, s.detachBeside)
		return ctx.Err()
	}
	s.probing.tensors, s.probing.tensorInterval = true, s.Options.intervalOf("tensor")
	if err := s.probing.OpenHeap(false, s.Options.intervalOf("heap")); err != nil {
		return fmt.Errorf("watch the heap: %w", err)
	}
	return nil
}

// openHeap attaches the probes of source heap in all targets, and then begins to count. In a target where that fails the heap
// is given up, and its source says why.
func (w *probing) OpenHeap(window bool, interval uint64) error {
	w.reading.Lock()
	defer w.reading.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.targets.list() {
		t.openHeap()
	}
	if err := w.nextEpoch(); err != nil {
		return fmt.Errorf("begin to count: %w", err)
	}
	if w.tensorsAlone { // their frees are seen again
		if err := w.moveObjects(w.kernel.Live, w.kernel.Tensors, nil); err != nil {
			return err
		}
	}
	w.schedule.Open(kernel.Monotonic(), window)
	w.recordProgress(&w.schedule.Outside)
	w.interval = interval
	return w.kernel.SetIntervals(w.activeIntervals())
}

// nextEpoch makes the kernel side forget the calls of the heap that are under way.
func (w *probing) nextEpoch() error {
	w.epoch++
	return w.kernel.Epoch.Set(w.epoch)
}

// openHeap attaches the probes. Of a process that is ending nothing is given up: what is known of it stays.
func (t *target) openHeap() {
	if t.err() != nil {
		return
	}
	if err := t.heap.Open(); err != nil && !t.process.IsExiting() {
		t.heap.GiveUp(err)
	}
}

// inForce are the intervals that the kernel side goes by now.
func (w *probing) activeIntervals() (interval, tensorInterval uint64) {
	switch isOpen := w.schedule.IsOpen(); {
	case isOpen && !w.tensorsAlone:
		return w.interval, w.tensorInterval
	case !isOpen && w.tensorsAlone:
		return 0, 0
	}
	return 0, w.tensorInterval
}

// closeHeap ends counting, detaches the probes, and takes stock.
func (w *probing) CloseHeap() error {
	w.reading.Lock()
	defer w.reading.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.schedule.Close(kernel.Monotonic())
	err := errors.Join(w.kernel.SetIntervals(w.activeIntervals()), w.nextEpoch())
	w.schedule.Close(kernel.Monotonic()) // nothing counts from now on
	if w.schedule.Periods[ended].Burst {
		w.recordProgress(&w.schedule.Inside)
	} else { // it is neither
		w.recordProgress(&estimate.Progress{})
	}
	probed := make(map[uint32]bool)
	var closes []func() error
	for _, t := range w.targets.list() {
		probed[uint32(t.process.PID)] = t.err() == nil && (len(t.heap.Links) > 0 || w.tensorsAlone && t.tensors.Active())
		closes = append(closes, t.heap.Close)
	}
	_ = parallel(closes) // what cannot be detached goes with our end
	if w.tensorsAlone {
		err = errors.Join(err, w.moveObjects(w.kernel.Tensors, w.kernel.Live, nil))
	}
	err = errors.Join(err, w.tracker.Observe(w.kernel.Live, w.schedule.Periods[ended].From, w.schedule.Periods[ended].To, w.schedule.ExposureSeconds(w.schedule.Periods[ended]), probed))
	if w.schedule.Periods[ended].Burst {
		w.fingerprintNew(w.schedule.Periods[ended])
	}
	return errors.Join(err, w.foldTallies(w.factors(w.targets.list(), ended)))
}

// factors tell how much time a spell stands for in each of the targets, in parts of its length.
func (w *probing) factors(targets []*target, spell int) func(tgid uint32) float64 {
	from := tracedSince(targets)
	return func(tgid uint32) float64 { return w.schedule.Extrapolation(spell, from[tgid]) }
}

// joined is when counting began in each of the targets, in ns, by PID.
func tracedSince(targets []*target) map[uint32]uint64 {
	from := make(map[uint32]uint64, len(targets))
	for _, t := range targets {
		from[uint32(t.process.PID)] = t.tracedSince
	}
	return from
}

// countsFrom notes that a target counts from now on, and gives that as time since the start of the trace.
func (w *probing) countsFrom(t *target) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.tracedSince = kernel.Monotonic()
	return time.Duration(t.tracedSince - w.started())
}

// books opens those of a snapshot.
func (w *probing) estimator(joined map[uint32]uint64) *estimate.Estimator {
	return estimate.NewEstimator(&w.schedule, &w.tracker, w.tensorsAlone, kernel.Monotonic(), joined)
}

// TensorsAlone tells whether windows are those of tensors.
func (w *probing) TensorsAlone() bool { return w.tensorsAlone }

// overlaps tells whether calls were watched at any moment between two.
func (w *probing) overlaps(from, to uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.schedule.Overlaps(from, to)
}

// lost is how many tensors could not be followed.
func (w *probing) lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.untracked
}

// hadWindows tells whether the heap was watched in windows, between which nobody sees what is freed.
func (w *probing) hadBursts() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.schedule.HadBursts()
}

// isOpen tells whether calls are watched now.
func (w *probing) IsOpen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.schedule.IsOpen()
}

// currentInterval is the mean number of bytes between samples.
func (w *probing) Interval() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.interval
}

// watchesHeap tells whether holders of a target's heap are known, be it from windows, and whether all are: it is watched all
// the time.
func (w *probing) coversHeap(t *target) (some, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := &w.schedule
	some = len(log.Periods) > 0 && t.heap.Status().Attached
	return some, some && log.IsOpen() && !log.HadBursts()
}

// describe it for a snapshot.
func (w *probing) describe(started uint64) growth.Watch {
	told := w.schedule.Coverage(started)
	if told.Windows > 0 {
		told.Blind = w.tracker.UntrackableReason()
	}
	return told
}

// join attaches the probes in a new target where others are watched now. functions are those of its allocator.
func (w *probing) join(t *target, functions []probe.Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.heap.Functions = functions
	if w.schedule.IsOpen() {
		t.openHeap()
	}
	if w.tensors {
		_ = t.tensors.Open() // the source tells
	}
	_ = t.gpu.FollowBlocks(w.blockInterval != 0) // likewise
}

// leaveHeap detaches the probes of a target for good.
func (w *probing) leaveHeap(t *target) error {
	w.mu.Lock()
	links := t.heap.Links
	t.heap.Links, t.heap.Functions = nil, nil
	w.mu.Unlock()
	return probe.Close(links)
}

// forget what was learnt of a target, once the kernel side has nothing of it any more.
func (w *probing) forget(t *target) {
	w.mu.Lock()
	w.tracker.Forget(uint32(t.process.PID))
	w.mu.Unlock()
}
