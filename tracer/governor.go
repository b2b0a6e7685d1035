package tracer

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/govern"
	"github.com/allocscope/allocscope/tracer/process"
)

// A governor keeps what tracing costs within bounds: it takes readings, and opens and closes the probes on the allocators as
// package govern decides.
type governor struct {
	session *Session
	stop    chan struct{}
	done    sync.WaitGroup
	meter   meter
	// tensorInterval is that of tensors while they are watched all the time; else 0
	tensorInterval uint64

	mu      sync.Mutex // of what others ask for
	decides *govern.Governor
	last    govern.Reading
	changes []OverheadChange
	shown   shownPrice
}

// shownPrice is where the totals stood when a price was told last.
type shownPrice struct{ cost, traced, open, at time.Duration }

// govern takes over the probes on the allocators.
func (s *Session) govern() {
	o := s.Options
	g := &governor{session: s, stop: make(chan struct{}), meter: newMeter(s)}
	g.decides = govern.New(govern.Options{
		Limit: o.Overhead, Prices: s.pricesOf(), Interval: s.asked, Duration: o.Duration, Maturity: s.watch.log.lag, Seed: rand.Uint64(),
		Heap: o.wants("heap"), Tensor: o.wants("tensor"), Steps: s.countsSteps(),
	})
	s.governor = g
	g.done.Go(g.run)
}

// mappingPrice is what a call that changes the address space costs more while it is traced, in ns, without the walk of its stack: two
// tracepoints and a notice.
const mappingPrice = 1500

// pricesOf are those of one event of each kind. Where the kernel has no sessions, the return of each call is probed, too; that is
// counted as it happens.
func (s *Session) pricesOf() govern.Prices {
	p := s.prices
	return govern.Prices{Entry: p.Entry, Stepped: p.Stepped, Return: p.Return, Fault: p.Fault, Mapping: mappingPrice}
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
			g.note(HeapOff, fmt.Sprintf("the heap is watched no more: %v", err))
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
func (g *governor) decide() govern.Decision {
	reading, err := g.meter.read()
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

func (g *governor) note(mode HeapMode, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes = append(g.changes, OverheadChange{At: g.session.Elapsed(), Mode: mode, Text: text})
}

// obey does what has been decided.
func (g *governor) obey(d govern.Decision) error {
	s := g.session
	window := g.decides.Mode() != govern.Full
	isOpen, inWindow := s.watch.state()
	if !d.Heap && isOpen {
		if err := s.closeHeap(); err != nil {
			return err
		}
	}
	if err := s.attachTensors(d.Tensor); err != nil {
		return err
	}
	if !d.Heap || !window { // in a window it is as before: open for those who count the calls
		g.tensorInterval = 0
		if d.Tensor {
			g.tensorInterval = d.TensorInterval
		}
	}
	if err := s.setIntervals(d.Interval, g.tensorInterval); err != nil {
		return err
	}
	switch {
	case d.Heap && !isOpen:
		return s.openHeap(window, d.Interval)
	case d.Heap && inWindow != window:
		s.watch.goOn(window)
	}
	return nil
}

// Overhead is what tracing has cost so far. Without a limit that is not measured.
func (s *Session) Overhead() Overhead {
	told := Overhead{Limit: s.Options.Overhead, Mode: HeapOff, Interval: s.watch.currentInterval()}
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
	told.InProbes, told.Own = totals.InProbes, g.last.Own
	told.Traced = max(0, g.last.Traced-totals.InProbes)
	told.Windows, told.Open = totals.Windows, totals.Open
	told.StepBefore, told.StepSince = totals.StepBefore, totals.StepSince
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

// meter reads what tracing has done and what the traced processes have used.
type meter struct {
	session *Session
	zero    govern.Reading // what the counters had counted before
	sum     govern.Reading // of what cannot be read as a total
	targets map[*target]usage
	own     time.Duration
	started bool // up
}

// usage of a target when it was looked at last.
type usage struct {
	cpu    time.Duration
	faults int64
}

func newMeter(s *Session) meter {
	m := meter{session: s, targets: make(map[*target]usage), own: process.OwnCPUTime()}
	m.zero, _ = readEvents(s.kernel) // else calibration counts, which is little
	return m
}

// read takes a reading.
func (m *meter) read() (govern.Reading, error) {
	now, err := readEvents(m.session.kernel)
	if err != nil {
		return now, err
	}
	now.Entries -= m.zero.Entries
	now.Stepped -= m.zero.Stepped
	now.TensorEntries -= m.zero.TensorEntries
	now.Returns -= m.zero.Returns
	now.MappingCalls -= m.zero.MappingCalls
	now.Samples -= m.zero.Samples
	now.Walk -= m.zero.Walk
	now.KernelWalk -= m.zero.KernelWalk
	now.At = m.session.Elapsed()
	m.readTargets()
	m.readOwn()
	now.Traced, now.Faults, now.Own = m.sum.Traced, m.sum.Faults, m.sum.Own
	now.Steps, now.Timed = m.session.stepTimes.take(m.session.watch)
	return now, nil
}

func (m *meter) readTargets() {
	for _, t := range m.session.list() {
		cpu, err := t.process.CPUTime()
		stat, statErr := t.process.Stat()
		if err != nil || statErr != nil {
			continue // it has ended
		}
		now := usage{cpu, stat.MinorFaults + stat.MajorFaults}
		if before, ok := m.targets[t]; ok {
			m.sum.Traced += max(0, now.cpu-before.cpu)
			m.sum.Faults += uint64(max(0, now.faults-before.faults))
		}
		m.targets[t] = now
	}
}

// readOwn leaves out the start, until the unwind tables have been made.
func (m *meter) readOwn() {
	now := process.OwnCPUTime()
	m.started = m.started || !m.session.tables.Busy()
	if m.started {
		m.sum.Own += now - m.own
	}
	m.own = now
}
