package tracer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// A governor keeps what tracing costs within bounds: it takes readings, and opens and closes the probes on the allocators as
// package govern decides.
type governor struct {
	session *Session
	stop    chan struct{}
	done    sync.WaitGroup
	// tensorInterval is that of tensors while they are watched all the time; else 0
	tensorInterval uint64

	mu      sync.Mutex // of what others ask for
	decides *controller.Governor
	last    controller.Reading
	changes []OverheadChange
	shown   shownPrice
	gaveUp  bool // nothing is probed any more
}

// shownPrice is where the totals stood when a price was told last.
type shownPrice struct{ cost, traced, open, at time.Duration }

// govern takes over the probes on the allocators.
func (s *Session) govern() {
	o := s.Options
	g := &governor{session: s, stop: make(chan struct{})}
	s.meter = newMeter(s)
	g.decides = controller.New(controller.Options{
		Limit: o.Overhead, Prices: s.pricesOf(), Interval: s.asked, Duration: o.Duration, Maturity: s.watch.log.lag, Seed: rand.Uint64(),
		Heap: o.wants("heap"), Tensor: o.wants("tensor"), Steps: s.countsSteps(), Blocks: o.wants("cuda"),
	})
	s.governor = g
	g.done.Go(g.run)
}

// mappingPrice is what a call that changes the address space costs more while it is traced, in ns, without the walk of its stack: two
// tracepoints and a notice.
const mappingPrice = 1500

// pricesOf are those of one event of each kind. Where the kernel has no sessions, the return of each call is probed, too; that is
// counted as it happens.
func (s *Session) pricesOf() controller.Prices {
	p := s.prices
	return controller.Prices{Entry: p.Entry, Stepped: p.Stepped, Return: p.Return, Fault: p.Fault, Mapping: mappingPrice, Device: p.Entry + p.Return}
}

// countsSteps tells whether steps of training are seen.
func (s *Session) countsSteps() bool {
	for _, t := range s.list() {
		if t.steps.count() != growth.Unknown {
			return true
		}
	}
	return false
}

func (g *governor) close() {
	close(g.stop)
	g.done.Wait()
}

// run until it is stopped. Where probes cannot be opened or closed, nothing is probed any more.
func (g *governor) run() {
	for {
		decision := g.decide()
		if err := g.obey(decision); err != nil {
			g.giveUp(err)
			return
		}
		g.session.pollSurvivors()
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
func (g *governor) decide() controller.Decision {
	reading, err := g.session.meter.read()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil { // else as if time stood still
		g.last = reading
	}
	decision := g.decides.Decide(g.last)
	for _, c := range g.decides.Changes() {
		g.changes = append(g.changes, OverheadChange{At: c.At, Mode: HeapMode(c.Mode), Text: c.Text})
	}
	return decision
}

// giveUp closes what is open, as far as that is possible, for good.
func (g *governor) giveUp(why error) {
	s := g.session
	if s.watch.isOpen() {
		why = errors.Join(why, s.closeHeap())
	}
	why = errors.Join(why, s.attachTensors(false), s.setIntervals(s.watch.currentInterval(), 0), s.followBlocks(false, 0))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gaveUp = true
	text := fmt.Sprintf("the heap is watched no more: %v", why)
	g.changes = append(g.changes, OverheadChange{At: s.Elapsed(), Mode: HeapOff, Text: text})
}

// obey does what has been decided.
func (g *governor) obey(d controller.Decision) error {
	s := g.session
	window := g.decides.Mode() != controller.Full
	isOpen := s.watch.isOpen()
	if s.watch.tensorsAlone {
		d.Heap = d.Tensor
	}
	if !d.Heap && isOpen {
		if err := s.closeHeap(); err != nil {
			return err
		}
	}
	if err := s.attachTensors(d.Tensor); err != nil {
		return err
	}
	if !d.Heap || !window || s.watch.tensorsAlone { // in a window it is as before: open for those who count the calls
		g.tensorInterval = 0
		if d.Tensor {
			g.tensorInterval = d.TensorInterval
		}
	}
	if err := s.setIntervals(d.Interval, g.tensorInterval); err != nil {
		return err
	}
	if err := s.followBlocks(d.Blocks, d.BlockInterval); err != nil {
		return err
	}
	if d.Heap && !isOpen {
		return s.openHeap(window, d.Interval)
	}
	return nil
}

// Overhead is what tracing has cost so far. Without a limit that is not measured.
func (s *Session) Overhead() Overhead {
	told := Overhead{Limit: s.Options.Overhead, Mode: HeapOff, Interval: s.watch.currentInterval(), Elapsed: s.Elapsed()}
	g := s.governor
	if g == nil {
		if s.Options.wants("heap") {
			told.Mode = HeapFull
		}
		return told
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	totals := g.decides.Totals()
	told.Mode = HeapMode(g.decides.Mode())
	if g.gaveUp {
		told.Mode = HeapOff
	}
	told.InProbes, told.Own = totals.InProbes, g.last.Own
	told.Traced = max(0, g.last.Traced-totals.InProbes)
	told.Windows, told.Open = totals.Windows, totals.Open
	told.StepBefore, told.StepBetween, told.StepSince = totals.StepBefore, totals.StepBetween, totals.StepSince
	told.Changes = append(told.Changes, g.changes...)
	return told
}

// price is what has been spent since it was asked for last.
func (s *Session) price() growth.Price {
	if s.governor == nil {
		return growth.Price{Overhead: growth.Unknown, Probed: growth.Unknown}
	}
	o := s.Overhead()
	g := s.governor
	before := g.shown
	g.shown = shownPrice{cost: o.InProbes + o.Own, traced: o.Traced, open: o.Open, at: s.Elapsed()}
	return growth.Price{
		Overhead: ratio(g.shown.cost-before.cost, g.shown.traced-before.traced, 1e6),
		Probed:   ratio(g.shown.open-before.open, g.shown.at-before.at, 1e3),
	}
}

func ratio(part, whole time.Duration, unit float64) int64 {
	if whole <= 0 || part < 0 {
		return growth.Unknown
	}
	return int64(float64(part) / float64(whole) * unit)
}
