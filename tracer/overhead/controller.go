package overhead

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// Probes are the probes of all traced processes, as the governor opens and closes them.
type Probes interface {
	// IsOpen reports whether the allocators' calls are probed now.
	IsOpen() bool
	// OpenHeap attaches the probes of the heap, for a window or until further notice, with so many bytes between samples.
	OpenHeap(window bool, interval uint64) error
	CloseHeap() error
	// AttachTensors attaches the probes of tensors, or detaches them.
	AttachTensors(attach bool) error
	// SetIntervals sets the bytes between samples of the heap and of tensors; a tensor interval of 0 makes tensors count for the heap.
	SetIntervals(heap, tensor uint64) error
	// FollowBlocks follows the blocks of the CUDA allocator with so many bytes between samples, or only reads their totals.
	FollowBlocks(follow bool, interval uint64) error
	// Interval is the bytes between samples of the heap.
	Interval() uint64
	// TensorsAlone reports that the heap is not wanted, and that windows are those of tensors.
	TensorsAlone() bool
	// CheckLiveness looks at the objects of past windows, where that is due.
	CheckLiveness()
}

// A governor keeps what tracing costs within bounds: it takes readings, and opens and closes the probes on the allocators as
// package govern decides.
type Controller struct {
	probes  Probes
	meter   *Meter
	limit   float64
	elapsed func() time.Duration
	stop    chan struct{}
	done    sync.WaitGroup
	// tensorInterval is that of tensors while they are watched all the time; else 0
	tensorInterval uint64

	mu         sync.Mutex // of what others ask for
	controller *controller.Controller
	last       controller.Reading
	changes    []Change
	shown      reportedCost
	gaveUp     bool // nothing is probed any more
}

// reportedCost is where the totals stood when a price was told last.
type reportedCost struct{ cost, traced, open, at time.Duration }

// Govern takes over the probes on the allocators.
func Start(options controller.Options, probes Probes, m *Meter, elapsed func() time.Duration) *Controller {
	g := &Controller{
		probes: probes, meter: m, limit: options.Limit, elapsed: elapsed, stop: make(chan struct{}), controller: controller.New(options),
	}
	g.done.Go(g.run)
	return g
}

// mappingCostNS is what a call that changes the address space costs more while it is traced, in ns, without the walk of its stack: two
// tracepoints and a notice.
const mappingCostNS = 1500

// CostsOf are those of one event of each kind. Where the kernel has no sessions, the return of each call is probed, too; that is
// counted as it happens.
func CostsOf(p calibrate.Costs) controller.Costs {
	return controller.Costs{Entry: p.Entry, Stepped: p.Stepped, Return: p.Return, Fault: p.Fault, Mapping: mappingCostNS, DriverCall: p.Entry + p.Return}
}

func (g *Controller) Close() {
	close(g.stop)
	g.done.Wait()
}

// run until it is stopped. Where probes cannot be opened or closed, nothing is probed any more.
func (g *Controller) run() {
	for {
		decision := g.decide()
		if err := g.apply(decision); err != nil {
			g.giveUp(err)
			return
		}
		g.probes.CheckLiveness()
		wait := time.NewTimer(decision.Wait)
		select {
		case <-g.stop:
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

// decide takes a reading.
func (g *Controller) decide() controller.Decision {
	reading, err := g.meter.Read()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil { // else as if time stood still
		g.last = reading
	}
	decision := g.controller.Decide(g.last)
	for _, c := range g.controller.Changes() {
		g.changes = append(g.changes, Change{At: c.At, Mode: HeapMode(c.Mode), Text: c.Text})
	}
	return decision
}

// giveUp closes what is open, as far as that is possible, for good.
func (g *Controller) giveUp(why error) {
	p := g.probes
	if p.IsOpen() {
		why = errors.Join(why, p.CloseHeap())
	}
	why = errors.Join(why, p.AttachTensors(false), p.SetIntervals(p.Interval(), 0), p.FollowBlocks(false, 0))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gaveUp = true
	text := fmt.Sprintf("the heap is watched no more: %v", why)
	g.changes = append(g.changes, Change{At: g.elapsed(), Mode: HeapOff, Text: text})
}

// obey does what has been decided.
func (g *Controller) apply(d controller.Decision) error {
	p := g.probes
	window := g.controller.Mode() != controller.Full
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
	if !d.Heap || !window || p.TensorsAlone() { // in a window it is as before: open for those who count the calls
		g.tensorInterval = 0
		if d.Tensor {
			g.tensorInterval = d.TensorInterval
		}
	}
	if err := p.SetIntervals(d.Interval, g.tensorInterval); err != nil {
		return err
	}
	if err := p.FollowBlocks(d.Blocks, d.BlockInterval); err != nil {
		return err
	}
	if d.Heap && !isOpen {
		return p.OpenHeap(window, d.Interval)
	}
	return nil
}

// Overhead is what tracing has cost so far.
func (g *Controller) Overhead() Overhead {
	told := Overhead{Limit: g.limit, Mode: HeapOff, Interval: g.probes.Interval(), Elapsed: g.elapsed()}
	g.mu.Lock()
	defer g.mu.Unlock()
	totals := g.controller.Totals()
	told.Mode = HeapMode(g.controller.Mode())
	if g.gaveUp {
		told.Mode = HeapOff
	}
	told.InProbes, told.Own = totals.InProbes, g.last.Own
	told.Traced = max(0, g.last.Traced-totals.InProbes)
	told.Bursts, told.Open = totals.Bursts, totals.Open
	told.StepBefore, told.StepBetween, told.StepSince = totals.StepBefore, totals.StepBetween, totals.StepSince
	told.Changes = append(told.Changes, g.changes...)
	return told
}

// price is what has been spent since it was asked for last. One goroutine may ask.
func (g *Controller) Cost() growth.OverheadSample {
	o := g.Overhead()
	before := g.shown
	g.shown = reportedCost{cost: o.InProbes + o.Own, traced: o.Traced, open: o.Open, at: g.elapsed()}
	return growth.OverheadSample{
		CPUShare:    ratio(g.shown.cost-before.cost, g.shown.traced-before.traced, 1e6),
		ProbedShare: ratio(g.shown.open-before.open, g.shown.at-before.at, 1e3),
	}
}

func ratio(part, whole time.Duration, unit float64) int64 {
	if whole <= 0 || part < 0 {
		return growth.Unknown
	}
	return int64(float64(part) / float64(whole) * unit)
}
