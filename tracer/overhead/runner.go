package overhead

import (
	"errors"
	"sync"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// Probes are the probes of all traced processes.
type Probes interface {
	// IsOpen reports whether the allocators' calls are probed now.
	IsOpen() bool
	// OpenHeap attaches the heap probes, for a burst or until further notice, with a sampling
	// interval in bytes.
	OpenHeap(burst bool, interval uint64) error
	CloseHeap() error
	// AttachTensors attaches the tensor probes, or detaches them.
	AttachTensors(attach bool) error
	// SetIntervals sets the sampling intervals of the heap and of tensors, in bytes. With a
	// tensor interval of 0, tensors count as heap objects.
	SetIntervals(heap, tensor uint64) error
	// FollowBlocks follows the blocks of PyTorch's caching allocator with a sampling interval in
	// bytes, or only reads their totals.
	FollowBlocks(follow bool, interval uint64) error
	// PauseBlocks stops following blocks until the next call of FollowBlocks. In between they are
	// followed for so long, at least.
	PauseBlocks(burst time.Duration) error
	// ListsBlocks reports whether PyTorch's own list of its blocks can be read in all processes.
	ListsBlocks() bool
	// Interval returns the sampling interval of the heap, in bytes.
	Interval() uint64
	// TensorsAlone reports whether source heap is off, so that bursts are of tensors.
	TensorsAlone() bool
	// CheckLiveness checks the objects of past bursts, if that is due.
	CheckLiveness()
}

// A Runner keeps the cost of tracing within a limit. It takes readings, and opens and closes the
// allocator probes as package controller decides.
type Runner struct {
	probes  Probes
	meter   *Meter
	limits  Limits
	elapsed func() time.Duration
	stop    chan struct{}
	done    sync.WaitGroup
	// tensorInterval is the sampling interval of tensors while their probes stay open; else 0.
	tensorInterval uint64
	blocksListed   bool // by the last answer of ListsBlocks

	mu         sync.Mutex // of the fields below, but for reported
	controller *controller.Controller
	last       controller.Reading
	changes    []Change
	leftOut    int
	gaveUp     bool       // nothing is probed any more
	reported   costTotals // when Cost was called last
}

// costTotals are totals since tracing started: the time taken from the thread that is slowed down
// most, the CPU time of allocscope, how long probes were open, and the time itself.
type costTotals struct{ slowed, own, open, at time.Duration }

// Start starts a Runner, which runs until it is closed. It sets the limit of the options.
func Start(
	limits Limits, options controller.Options, probes Probes, m *Meter, elapsed func() time.Duration,
) *Runner {
	options.Limit = limits.Limit
	r := &Runner{
		probes:     probes,
		meter:      m,
		limits:     limits,
		elapsed:    elapsed,
		stop:       make(chan struct{}),
		controller: controller.New(options),
	}
	r.done.Go(r.run)
	return r
}

// Close stops the Runner. The probes stay as they are.
func (r *Runner) Close() {
	close(r.stop)
	r.done.Wait()
}

// run applies decisions until it is stopped, or until probes cannot be opened or closed.
func (r *Runner) run() {
	for {
		decision := r.decide()
		if err := r.apply(decision); err != nil {
			r.giveUp(err)
			return
		}
		r.probes.CheckLiveness()

		wait := time.NewTimer(decision.Wait)
		select {
		case <-r.stop:
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

// decide takes a reading and returns what to do. If the reading fails, it decides by the last one.
func (r *Runner) decide() controller.Decision {
	reading, err := r.meter.Read()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.last = reading
	}
	r.last.BlocksListed = r.blocksListed

	decision := r.controller.Decide(r.last)
	r.note(r.controller.Changes()...)
	return decision
}

// maxChanges bounds the changes that are listed.
const maxChanges = 1000

// note adds changes. The caller holds r.mu.
func (r *Runner) note(changes ...Change) {
	n := min(len(changes), maxChanges-len(r.changes))
	r.changes = append(r.changes, changes[:n]...)
	r.leftOut += len(changes) - n
}

// apply opens and closes probes as decided.
func (r *Runner) apply(d controller.Decision) error {
	p := r.probes
	burst := r.controller.Mode() != growth.HeapFull
	isOpen := p.IsOpen()
	if p.TensorsAlone() {
		d.Heap = d.Tensor
	}

	if !d.Heap && isOpen {
		if err := p.CloseHeap(); err != nil {
			return err
		}
	}
	if err := p.AttachTensors(d.Tensor); err != nil {
		return err
	}

	// In a heap burst the tensor interval stays: it is set only while tensors count for themselves.
	if !d.Heap || !burst || p.TensorsAlone() {
		r.tensorInterval = 0
		if d.Tensor {
			r.tensorInterval = d.TensorInterval
		}
	}
	if err := p.SetIntervals(d.Interval, r.tensorInterval); err != nil {
		return err
	}
	if err := r.applyToBlocks(d); err != nil {
		return err
	}

	if d.Heap && !isOpen {
		return p.OpenHeap(burst, d.Interval)
	}
	return nil
}

// applyToBlocks follows blocks as decided.
func (r *Runner) applyToBlocks(d controller.Decision) error {
	if d.ListBlocks {
		r.blocksListed = r.probes.ListsBlocks()
	}
	if d.BlocksPaused {
		return r.probes.PauseBlocks(d.BlockBurst)
	}
	return r.probes.FollowBlocks(d.Blocks, d.BlockInterval)
}

// giveUp closes the probes for good, as far as that is possible.
func (r *Runner) giveUp(cause error) {
	p := r.probes
	if p.IsOpen() {
		cause = errors.Join(cause, p.CloseHeap())
	}
	cause = errors.Join(cause,
		p.AttachTensors(false), p.SetIntervals(p.Interval(), 0), p.FollowBlocks(false, 0))

	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaveUp = true
	r.changes = append(r.changes, Change{
		At: r.elapsed(), Mode: growth.HeapOff,
		OverheadChange: growth.OverheadChange{Reason: growth.OverheadFailed, Error: cause.Error()},
	})
}

// Overhead returns the cost of tracing so far.
func (r *Runner) Overhead() Overhead {
	interval, elapsed := r.probes.Interval(), r.elapsed()
	r.mu.Lock()
	defer r.mu.Unlock()

	mode := r.controller.Mode()
	if r.gaveUp {
		mode = growth.HeapOff
	}
	totals := r.controller.Totals()
	return Overhead{
		Limits:      r.limits,
		Elapsed:     elapsed,
		Traced:      max(0, r.last.Traced-totals.InProbes),
		InProbes:    totals.InProbes,
		Busiest:     totals.Busiest,
		Waited:      r.last.Waited,
		InShim:      r.last.InShim,
		OwnCPU:      r.meter.own.take(false),
		Mode:        mode,
		Interval:    interval,
		Bursts:      totals.Bursts,
		Open:        totals.Open,
		StepBefore:  totals.StepBefore,
		StepSince:   totals.StepSince,
		StepBetween: totals.StepBetween,
		Changes:     r.changes[:len(r.changes):len(r.changes)],
		LeftOut:     r.leftOut,
	}
}

// AddStart says that allocscope has spent so much CPU time on the start of another target.
func (r *Runner) AddStart(cost time.Duration) { r.meter.own.addStart(cost) }

// End says that the trace has ended: allocscope's CPU time from now on is of its end.
func (r *Runner) End() { r.meter.own.end() }

// Cost returns the cost since it was called last. It is not safe for concurrent use.
func (r *Runner) Cost() growth.OverheadSample {
	o := r.Overhead()
	before := r.reported
	now := costTotals{slowed: o.slowed(), own: o.Own, open: o.Open, at: r.elapsed()}
	r.reported = now

	elapsed := now.at - before.at
	return growth.OverheadSample{
		Slowdown:    ratio(now.slowed-before.slowed, elapsed, 1e6),
		Own:         ratio(now.own-before.own, elapsed, 1e6),
		ProbedShare: ratio(now.open-before.open, elapsed, 1e3),
	}
}

// ratio returns part/whole in parts of 1/unit, or growth.Unknown if it has no meaning.
func ratio(part, whole time.Duration, unit float64) int64 {
	if whole <= 0 || part < 0 {
		return growth.Unknown
	}
	return int64(float64(part) / float64(whole) * unit)
}
