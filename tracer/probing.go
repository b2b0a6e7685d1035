package tracer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
)

// probing opens and closes the probes on the allocators of all targets, which are open all the
// time, in bursts, or not at all. The controller calls its exported methods (overhead.Probes).
type probing struct {
	kernel  *kernel.Kernel
	targets *targetSet
	tallies tallies
	reading *sync.Mutex   // the session's
	started func() uint64 // start of the trace, ns, CLOCK_MONOTONIC
	shim    *source.Shim  // samples the heap of a command that the session has started; or nil

	progress progressReader
	blockProbing

	mu       sync.Mutex // held while probes come and go, and while the live map is read
	schedule estimate.Schedule
	// calibrated are the PIDs whose resident heap the schedule has readings of.
	calibrated []int
	tracker    liveness.Tracker
	// epoch is incremented when the heap opens and closes, tensorEpoch when the probes on tensors
	// have been detached. The BPF programs ignore returns of calls of an earlier epoch.
	epoch, tensorEpoch uint32
	underWay           callsUnderWay
	// interval and tensorInterval are the bytes between samples of both sources. interval is kept
	// while the heap is closed. tensorInterval 0: tensors are sampled as objects of the heap.
	interval, tensorInterval uint64
	tensors                  bool   // the probes on tensors are attached
	tensorsAlone             bool   // the heap is not wanted, and bursts are of tensors
	untracked                uint64 // tensors that SetIntervals has lost
}

// startProbing opens all probes. If the overhead has a limit, it measures the costs of the probes
// instead, and the controller opens them later.
func (s *Session) startProbing(ctx context.Context) error {
	p := &probing{
		kernel: s.kernel, targets: &s.targets.targetSet, reading: &s.reading,
		started:      func() uint64 { return s.started },
		schedule:     estimate.Schedule{Lag: estimate.Maturity(s.Options.Duration)},
		tracker:      liveness.NewTracker(s.own.Account(duty.Liveness)),
		tensorsAlone: !s.Options.wants("heap") && s.Options.wants("tensor"),
	}
	p.underWay.counters = s.kernel.Counters
	p.tallies = tallies{kernel: s.kernel, targets: p.targets, tensorsAlone: p.tensorsAlone}
	p.blockProbing = blockProbing{
		kernel: p.kernel, targets: p.targets, tallies: &p.tallies, mu: &p.mu,
	}
	s.probing = p

	// Blocks are sampled from the start: those that are missed now would be missed for good.
	if err := p.FollowBlocks(s.Options.wants("cuda"), s.Options.blockInterval(s.askedInterval)); err != nil {
		return fmt.Errorf("sample blocks of GPUs: %w", err)
	}

	if s.Options.Overhead > 0 {
		p.interval = s.Options.Interval // until the controller changes it
		s.measureCosts(ctx)
		return ctx.Err()
	}
	if s.Options.Launch != nil { // launch opens the heap
		return nil
	}
	p.tensors, p.tensorInterval = true, s.Options.intervalOf("tensor")
	if err := p.OpenHeap(false, s.Options.intervalOf("heap")); err != nil {
		return fmt.Errorf("probe the heap: %w", err)
	}
	return nil
}

func (s *Session) measureCosts(ctx context.Context) {
	faultPeriod := source.FaultPeriod(s.Options.faultInterval(s.askedInterval))
	detach := func(links []link.Link) {
		// Nothing runs these probes any more. They may take as long to detach as all the rest of
		// Open.
		s.watcher.Go(func() { _ = probe.Close(links) })
	}
	s.costs, _ = overhead.MeasureCosts( // with an error, some are defaults
		ctx, s.kernel, s.Process, faultPeriod, calibrate.DefaultTimeout, detach)
}

// slowAttach is how long attaching may take for bursts to go on. All processes of the machine wait
// with their fork(2) for as long, each time. Tests make it longer.
var slowAttach = 5 * time.Second

// OpenHeap attaches the probes of source heap in all targets, and starts a probe period. A target
// where that fails gives up its heap, and the source's status has the reason.
func (p *probing) OpenHeap(burst bool, interval uint64) error {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()

	p.progress.addTo(&p.schedule.Outside)
	began := time.Now()
	for _, t := range p.targets.list() {
		if t.err() == nil {
			t.sources.Heap.Open()
		}
	}
	if took := time.Since(began); burst && took > slowAttach {
		return fmt.Errorf("attaching took %.1f s: %w", took.Seconds(), probe.ErrBlocked)
	}
	if err := p.nextEpoch(); err != nil {
		return fmt.Errorf("start a probe period: %w", err)
	}
	p.underWay.begin()
	if p.tensorsAlone { // their frees are seen again
		if err := p.moveObjects(p.kernel.Live, p.kernel.Tensors, nil); err != nil {
			return err
		}
	}

	p.schedule.Open(kernel.Monotonic(), burst)
	p.progress.addTo(&estimate.Progress{}) // some probes were attached already
	p.interval = interval
	return p.applyIntervals()
}

// nextEpoch makes the BPF programs forget the calls of the heap whose return they have missed.
func (p *probing) nextEpoch() error {
	p.epoch++
	return p.kernel.Epoch.Set(p.epoch)
}

// activeIntervals returns the intervals that the BPF programs use now.
func (p *probing) activeIntervals() (interval, tensorInterval uint64) {
	switch isOpen := p.schedule.IsOpen(); {
	case isOpen && !p.tensorsAlone:
		return p.interval, p.tensorInterval
	case !isOpen && p.tensorsAlone:
		return 0, 0
	}
	return 0, p.tensorInterval
}

// applyIntervals has the BPF programs use the present intervals, and the shim the interval of the
// heap.
func (p *probing) applyIntervals() error {
	interval, tensorInterval := p.activeIntervals()
	if p.shim != nil {
		if err := p.shim.SetInterval(interval); err != nil {
			return fmt.Errorf("set the sampling interval of the shim: %w", err)
		}
	}
	return p.kernel.SetIntervals(interval, tensorInterval)
}

// CloseHeap ends the probe period and detaches its probes. Then it updates the tracked objects and
// takes the tallies out of the kernel.
func (p *probing) CloseHeap() error {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()

	ended := p.schedule.Close(kernel.Monotonic())
	err := p.applyIntervals()
	p.schedule.Close(kernel.Monotonic()) // events were counted until now
	period := p.schedule.Periods[ended]
	if period.Burst {
		p.progress.addTo(&p.schedule.Inside)
	} else { // continuous probing is neither inside nor outside of bursts
		p.progress.addTo(&estimate.Progress{})
	}

	p.underWay.await()                    // entries are ignored by now
	err = errors.Join(err, p.nextEpoch()) // a tensor's call would miss the return of an older one
	probed, detachErr := p.detachHeap()
	err = errors.Join(err, detachErr)
	p.progress.addTo(&estimate.Progress{}) // some probes were still attached
	if p.tensorsAlone {
		err = errors.Join(err, p.moveObjects(p.kernel.Tensors, p.kernel.Live, nil))
	}

	exposure := p.schedule.ExposureSeconds(period)
	observeErr := p.tracker.Observe(p.kernel.Live, period.From, period.To, exposure, probed)
	if period.Burst {
		p.inspectNew(period)
	}
	return errors.Join(err, observeErr, p.tallies.fold(p.extrapolation(ended)))
}

// detachHeap detaches the probes of source heap, and returns the PIDs of the targets that had any. It
// is an error only if the kernel has not done so in time.
func (p *probing) detachHeap() (map[uint32]bool, error) {
	probed := make(map[uint32]bool)
	var pauses []func() error
	for _, t := range p.targets.list() {
		hadProbes := t.sources.Heap.Active() || p.tensorsAlone && t.sources.Tensors.Active()
		probed[uint32(t.process.PID)] = t.err() == nil && hadProbes
		pauses = append(pauses, t.sources.Heap.Pause)
	}
	if err := source.InParallel(pauses); errors.Is(err, probe.ErrBlocked) {
		return probed, err
	}
	return probed, nil // the kernel detaches the rest when allocscope exits
}

// extrapolation returns the factors by which the counts of a probe period are multiplied, by
// process.
func (p *probing) extrapolation(period int) func(tgid uint32) float64 {
	since := tracedSince(p.targets.list())
	return func(tgid uint32) float64 { return p.schedule.Extrapolation(period, since[tgid]) }
}

// tracedSince returns when tracing of each target started, in ns, by PID. The caller holds
// probing.mu.
func tracedSince(targets []*target) map[uint32]uint64 {
	since := make(map[uint32]uint64, len(targets))
	for _, t := range targets {
		since[uint32(t.process.PID)] = t.tracedSince
	}
	return since
}

// noteStart records that tracing of a target starts now, and returns the time since the start of
// the trace.
func (p *probing) noteStart(t *target) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()

	t.tracedSince = kernel.Monotonic()
	return time.Duration(t.tracedSince - p.started())
}

// openIn attaches the probes in a new target that are open in the others.
func (p *probing) openIn(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.schedule.IsOpen() && t.err() == nil {
		t.sources.Heap.Open()
	}
	if p.tensors {
		_ = t.sources.Tensors.Open() // its status has the error, here and below
	}
	p.followIn(t.sources.GPU)
}

// forget deletes the tracker's data on a target. The kernel has no objects of it any more.
func (p *probing) forget(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tracker.Forget(uint32(t.process.PID))
}

// SetIntervals changes the bytes between samples. A tensor interval of 0 samples tensors as
// objects of the heap from now on.
func (p *probing) SetIntervals(interval, tensorInterval uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.interval == interval && p.tensorInterval == tensorInterval {
		return nil
	}

	tensorsEnd := p.tensorInterval != 0 && tensorInterval == 0
	p.interval, p.tensorInterval = interval, tensorInterval
	if err := p.applyIntervals(); err != nil || !tensorsEnd {
		return err
	}

	// The tensors that are alive are objects of the heap from now on, as their frees are not seen.
	now := kernel.Monotonic()
	return p.moveObjects(p.kernel.Tensors, p.kernel.Live, func(key bpf.Address, a *bpf.Allocation) {
		p.tracker.Adopt(key, a, now)
	})
}

// AttachTensors attaches the probes on tensors in all targets, or detaches them. The status of a
// target's source has the reason why they could not be attached.
func (p *probing) AttachTensors(attach bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.tensors == attach {
		return nil
	}

	p.tensors = attach
	var calls []func() error
	for _, t := range p.targets.list() {
		if attach {
			calls = append(calls, t.sources.Tensors.Open)
		} else {
			calls = append(calls, t.sources.Tensors.Pause)
		}
	}
	_ = source.InParallel(calls)
	if attach {
		return nil
	}

	p.tensorEpoch++
	return p.kernel.TensorEpoch.Set(p.tensorEpoch)
}

// TensorsAlone reports whether the heap is not wanted, so that bursts are of tensors.
func (p *probing) TensorsAlone() bool { return p.tensorsAlone }

// IsOpen reports whether a probe period is going on.
func (p *probing) IsOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.schedule.IsOpen()
}

// Interval returns the mean number of bytes between samples of the heap.
func (p *probing) Interval() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.interval
}

// overlaps reports whether probes were open at any time between two moments.
func (p *probing) overlaps(from, to uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.schedule.Overlaps(from, to)
}

// hadBursts reports whether the heap was sampled in bursts. Frees between them are not seen.
func (p *probing) hadBursts() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.schedule.HadBursts()
}

// lost counts the tensors that could not be tracked.
func (p *probing) lost() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.untracked
}

// coversHeap reports whether allocation sites of a target's heap are known, and whether they are
// known of every allocation since tracing started, because probing was continuous.
func (p *probing) coversHeap(t *target) (some, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if len(t.sources.Heap.Producers) > 0 {
		return true, true
	}
	some = len(p.schedule.Periods) > 0 && t.sources.Heap.Status().Attached
	return some, some && p.schedule.IsOpen() && !p.schedule.HadBursts()
}

// forgetStacks bounds the memory of the targets' stacks after a snapshot.
func (p *probing) forgetStacks() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tallies.forgetStacks()
}

// describe returns how the heap was probed. The caller holds mu.
func (p *probing) describe(started uint64) growth.HeapCoverage {
	coverage := p.schedule.Coverage(started)
	if coverage.Bursts > 0 {
		coverage.Untrackable = p.tracker.UntrackableReason()
	}
	return coverage
}

// calibrate compares the estimates of a snapshot with the resident heap, for later snapshots.
func (p *probing) calibrate(estimator *estimate.Estimator, snapshot *growth.Snapshot) {
	resident, known := snapshot.ResidentHeap()
	p.mu.Lock()
	defer p.mu.Unlock()

	if !known || !slices.Equal(p.calibrated, snapshot.Alive) {
		p.schedule.ForgetResident()
		p.calibrated = slices.Clone(snapshot.Alive)
	}
	if known {
		p.schedule.Calibrate(estimator, kernel.Monotonic(), resident)
	}
}

// estimator returns the estimator of a snapshot. The caller holds mu for as long as it is used.
func (p *probing) estimator(
	since map[uint32]uint64, bins estimate.BirthBins,
) *estimate.Estimator {
	now := kernel.Monotonic()
	return estimate.NewEstimator(&p.schedule, &p.tracker, p.tensorsAlone, now, since, bins)
}

// unprobed returns the objects of a target that were born while no probe was open.
func (p *probing) unprobed(t *target, objects []estimate.MappedObject) []estimate.MappedObject {
	if len(t.sources.Heap.Producers) > 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.schedule.Unprobed(objects)
}
