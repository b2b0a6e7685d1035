package overhead

import (
	"errors"
	"slices"
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
	// Interval returns the sampling interval of the heap, in bytes.
	Interval() uint64
	// TensorsAlone reports whether source heap is off, so that bursts are those of tensors.
	TensorsAlone() bool
	// CheckLiveness checks the objects of past bursts, if that is due.
	CheckLiveness()
}

// Controller keeps the cost of tracing within a limit. It takes readings, and opens and closes the
// allocator probes as package controller decides.
type Controller struct {
	probes  Probes
	meter   *Meter
	limit   float64 // share of the traced processes' CPU time
	elapsed func() time.Duration
	stop    chan struct{}
	done    sync.WaitGroup
	// tensorInterval is the sampling interval of tensors while their probes stay open; else 0.
	tensorInterval uint64

	mu         sync.Mutex // of the fields below, but for reported
	controller *controller.Controller
	last       controller.Reading
	changes    []Change
	gaveUp     bool       // nothing is probed any more
	reported   costTotals // when Cost was called last
}

// costTotals are totals since tracing started: the CPU time of tracing and of the traced
// processes, how long probes were open, and the time itself.
type costTotals struct{ cost, traced, open, at time.Duration }

// Start starts a controller, which runs until it is closed.
func Start(
	options controller.Options, probes Probes, m *Meter, elapsed func() time.Duration,
) *Controller {
	c := &Controller{
		probes:     probes,
		meter:      m,
		limit:      options.Limit,
		elapsed:    elapsed,
		stop:       make(chan struct{}),
		controller: controller.New(options),
	}
	c.done.Go(c.run)
	return c
}

// Close stops the controller. The probes stay as they are.
func (c *Controller) Close() {
	close(c.stop)
	c.done.Wait()
}

// run applies decisions until it is stopped, or until probes cannot be opened or closed.
func (c *Controller) run() {
	for {
		decision := c.decide()
		if err := c.apply(decision); err != nil {
			c.giveUp(err)
			return
		}
		c.probes.CheckLiveness()

		wait := time.NewTimer(decision.Wait)
		select {
		case <-c.stop:
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

// decide takes a reading and returns what to do. If the reading fails, it decides by the last one.
func (c *Controller) decide() controller.Decision {
	reading, err := c.meter.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = reading
	}

	decision := c.controller.Decide(c.last)
	c.changes = append(c.changes, c.controller.Changes()...)
	return decision
}

// apply opens and closes probes as decided.
func (c *Controller) apply(d controller.Decision) error {
	p := c.probes
	burst := c.controller.Mode() != controller.Full
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
		c.tensorInterval = 0
		if d.Tensor {
			c.tensorInterval = d.TensorInterval
		}
	}
	if err := p.SetIntervals(d.Interval, c.tensorInterval); err != nil {
		return err
	}
	if err := p.FollowBlocks(d.Blocks, d.BlockInterval); err != nil {
		return err
	}

	if d.Heap && !isOpen {
		return p.OpenHeap(burst, d.Interval)
	}
	return nil
}

// giveUp closes the probes for good, as far as that is possible.
func (c *Controller) giveUp(cause error) {
	p := c.probes
	if p.IsOpen() {
		cause = errors.Join(cause, p.CloseHeap())
	}
	cause = errors.Join(cause,
		p.AttachTensors(false), p.SetIntervals(p.Interval(), 0), p.FollowBlocks(false, 0))

	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaveUp = true
	c.changes = append(c.changes, Change{
		At: c.elapsed(), Mode: HeapOff,
		OverheadChange: growth.OverheadChange{Reason: growth.OverheadFailed, Err: cause},
	})
}

// Overhead returns what tracing has cost so far.
func (c *Controller) Overhead() Overhead {
	interval, elapsed := c.probes.Interval(), c.elapsed()
	c.mu.Lock()
	defer c.mu.Unlock()

	mode := c.controller.Mode()
	if c.gaveUp {
		mode = HeapOff
	}
	totals := c.controller.Totals()
	return Overhead{
		Limit:       c.limit,
		Elapsed:     elapsed,
		Traced:      max(0, c.last.Traced-totals.InProbes),
		InProbes:    totals.InProbes,
		Own:         c.last.Own,
		Mode:        mode,
		Interval:    interval,
		Bursts:      totals.Bursts,
		Open:        totals.Open,
		StepBefore:  totals.StepBefore,
		StepSince:   totals.StepSince,
		StepBetween: totals.StepBetween,
		Changes:     slices.Clone(c.changes),
	}
}

// Cost returns the cost since it was called last. It is not safe for concurrent use.
func (c *Controller) Cost() growth.OverheadSample {
	o := c.Overhead()
	before := c.reported
	now := costTotals{
		cost: o.InProbes + o.Own, traced: o.Traced, open: o.Open, at: c.elapsed(),
	}
	c.reported = now
	return growth.OverheadSample{
		CPUShare:    ratio(now.cost-before.cost, now.traced-before.traced, 1e6),
		ProbedShare: ratio(now.open-before.open, now.at-before.at, 1e3),
	}
}

// ratio returns part/whole in parts of 1/unit, or growth.Unknown if it has no meaning.
func ratio(part, whole time.Duration, unit float64) int64 {
	if whole <= 0 || part < 0 {
		return growth.Unknown
	}
	return int64(float64(part) / float64(whole) * unit)
}
