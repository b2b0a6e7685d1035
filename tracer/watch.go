package tracer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
)

// A watch is how the allocators of all targets are watched: all the time, in windows, or not at all. All open and close
// together.
type watch struct {
	mu        sync.Mutex // held while probes come and go, and while the live map is read
	log       watchLog
	survivors survivors
	epoch     uint32
	// interval and tensorInterval are the bytes between samples of both sources, also while that of the heap is closed; 0: what
	// happens to tensors does not count for them, but for the heap.
	interval, tensorInterval uint64
	tensors                  bool // their probes are attached
}

func newWatch(duration time.Duration) *watch {
	return &watch{
		log: watchLog{lag: maturity(duration)},
		survivors: survivors{
			known: make(map[bpf.KernelAddress]followed), hazards: make(map[origin]*growth.Hazard), allocators: make(map[*target]allocator),
		},
	}
}

// startWatch measures prices where there is a limit, and leaves it to the governor when to open; else everything is open from the start.
func (s *Session) startWatch() error {
	s.watch = newWatch(s.Options.Duration)
	if s.Options.Overhead > 0 {
		s.prices, s.unpriced = s.kernel.measurePrices(s.Options.faultInterval(s.asked), calibrate.Patience, s.detachBeside)
		return nil
	}
	s.watch.tensors, s.watch.tensorInterval = true, s.Options.intervalOf("tensor")
	if err := s.openHeap(false, s.Options.intervalOf("heap")); err != nil {
		return fmt.Errorf("watch the heap: %w", err)
	}
	return nil
}

// openHeap attaches the probes of source heap in all targets, and then begins to count. In a target where that fails the heap
// is given up; the errors say so.
func (s *Session) openHeap(window bool, interval uint64) error {
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, t := range s.list() {
		if t.err() == nil {
			errs = append(errs, t.heap.open())
		}
	}
	w.epoch++
	errs = append(errs, s.kernel.Variables[bpf.KernelVarEpoch].Set(w.epoch))
	w.log.open(monotonic(), window)
	w.interval = interval
	return errors.Join(append(errs, s.kernel.open(interval, w.tensorInterval))...)
}

// closeHeap ends counting, detaches the probes, and takes stock.
func (s *Session) closeHeap() error {
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := []error{s.kernel.open(0, w.tensorInterval)}
	ended := w.log.close(monotonic())
	var detaching sync.WaitGroup
	var mu sync.Mutex
	for _, t := range s.list() {
		detaching.Go(func() {
			err := t.heap.close()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	detaching.Wait()
	errs = append(errs, s.afterSpell(w.log.spells[ended]), s.foldTallies(w.log.factor(ended)))
	return errors.Join(errs...)
}

// state tells whether calls are watched now, and in a window.
func (w *watch) state() (isOpen, inWindow bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.log.isOpen() {
		return false, false
	}
	return true, w.log.spells[len(w.log.spells)-1].window
}

// goOn makes of what is open a new spell.
func (w *watch) goOn(window bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := monotonic()
	w.log.close(now)
	w.log.open(now, window)
}

// currentInterval is the mean number of bytes between samples.
func (w *watch) currentInterval() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.interval
}

// watchesHeap tells whether holders of a target's heap are known, be it from windows.
func (s *Session) watchesHeap(t *target) bool {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	return len(s.watch.log.spells) > 0 && t.heap.source().Attached
}

// describe it for a snapshot.
func (w *watch) describe(started uint64) growth.Watch {
	told := w.log.watch(started)
	if told.Windows > 0 {
		told.Blind = w.survivors.blind()
	}
	return told
}

// joinHeap attaches the probes in a new target where others are watched now.
func (s *Session) joinHeap(t *target) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if s.watch.log.isOpen() {
		_ = t.heap.open() // the source tells
	}
}

// leaveHeap detaches the probes of a target for good.
func (s *Session) leaveHeap(t *target) error {
	s.watch.mu.Lock()
	links := t.heap.links
	t.heap.links, t.heap.functions = nil, nil
	s.watch.survivors.forget(t)
	s.watch.mu.Unlock()
	return probe.Close(links)
}
