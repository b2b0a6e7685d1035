package tracer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
)

// A watch is how the allocators of all targets are watched: all the time, in windows, or not at all. All open and close
// together.
type watch struct {
	mu        sync.Mutex // held while probes come and go, and while the live map is read
	log       watchLog
	survivors survivors
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
	unfollowed   uint64 // tensors for which there was no room among the survivors
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
	s.watch.tensorsAlone = !s.Options.wants("heap") && s.Options.wants("tensor")
	if err := s.followBlocks(s.Options.wants("cuda"), s.Options.Interval); err != nil { // what is missed of them cannot be made up for
		return fmt.Errorf("follow blocks on GPUs: %w", err)
	}
	if s.Options.Overhead > 0 {
		s.watch.interval = s.Options.Interval // until the governor decides
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
// is given up, and its source says why.
func (s *Session) openHeap(window bool, interval uint64) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range s.list() {
		t.openHeap()
	}
	if err := s.nextEpoch(); err != nil {
		return fmt.Errorf("begin to count: %w", err)
	}
	if w.tensorsAlone { // their frees are seen again
		if err := s.moveObjects(bpf.KernelMapLive, bpf.KernelMapTensors, nil); err != nil {
			return err
		}
	}
	w.log.open(monotonic(), window)
	s.countWork(&w.log.outside)
	w.interval = interval
	return s.kernel.open(w.inForce())
}

// nextEpoch makes the kernel side forget the calls of the heap that are under way.
func (s *Session) nextEpoch() error {
	s.watch.epoch++
	return s.kernel.Variables[bpf.KernelVarEpoch].Set(s.watch.epoch)
}

// openHeap attaches the probes. Of a process that is ending nothing is given up: what is known of it stays.
func (t *target) openHeap() {
	if t.err() != nil {
		return
	}
	if err := t.heap.open(); err != nil && !t.process.Ends() {
		t.heap.giveUp(err)
	}
}

// inForce are the intervals that the kernel side goes by now.
func (w *watch) inForce() (interval, tensorInterval uint64) {
	switch isOpen := w.log.isOpen(); {
	case isOpen && !w.tensorsAlone:
		return w.interval, w.tensorInterval
	case !isOpen && w.tensorsAlone:
		return 0, 0
	}
	return 0, w.tensorInterval
}

// closeHeap ends counting, detaches the probes, and takes stock.
func (s *Session) closeHeap() error {
	s.reading.Lock()
	defer s.reading.Unlock()
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.log.close(monotonic())
	err := errors.Join(s.kernel.open(w.inForce()), s.nextEpoch())
	w.log.close(monotonic()) // nothing counts from now on
	if w.log.spells[ended].window {
		s.countWork(&w.log.inside)
	} else { // it is neither
		s.countWork(&work{})
	}
	probed := make(map[uint32]bool)
	var closes []func() error
	for _, t := range s.list() {
		probed[uint32(t.process.PID)] = t.err() == nil && (len(t.heap.links) > 0 || w.tensorsAlone && t.tensors.watches())
		closes = append(closes, t.heap.close)
	}
	_ = atOnce(closes) // what cannot be detached goes with our end
	if w.tensorsAlone {
		err = errors.Join(err, s.moveObjects(bpf.KernelMapTensors, bpf.KernelMapLive, nil))
	}
	err = errors.Join(err, s.afterSpell(w.log.spells[ended], probed))
	if w.log.spells[ended].window {
		s.printNew(w.log.spells[ended])
	}
	return errors.Join(err, s.foldTallies(w.factors(s.list(), ended)))
}

// factors tell how much time a spell stands for in each of the targets, in parts of its length.
func (w *watch) factors(targets []*target, spell int) func(tgid uint32) float64 {
	from := joined(targets)
	return func(tgid uint32) float64 { return w.log.factor(spell, from[tgid]) }
}

// joined is when counting began in each of the targets, in ns, by PID.
func joined(targets []*target) map[uint32]uint64 {
	from := make(map[uint32]uint64, len(targets))
	for _, t := range targets {
		from[uint32(t.process.PID)] = t.joined
	}
	return from
}

// countsFrom notes that a target counts from now on, and gives that as time since the start of the trace.
func (s *Session) countsFrom(t *target) time.Duration {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	t.joined = monotonic()
	return time.Duration(t.joined - s.started)
}

// lost is how many tensors could not be followed.
func (w *watch) lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unfollowed
}

// hadWindows tells whether the heap was watched in windows, between which nobody sees what is freed.
func (w *watch) hadWindows() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.hadWindows()
}

// isOpen tells whether calls are watched now.
func (w *watch) isOpen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.isOpen()
}

// currentInterval is the mean number of bytes between samples.
func (w *watch) currentInterval() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.interval
}

// watchesHeap tells whether holders of a target's heap are known, be it from windows, and whether all are: it is watched all
// the time.
func (s *Session) watchesHeap(t *target) (some, all bool) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	log := &s.watch.log
	some = len(log.spells) > 0 && t.heap.source().Attached
	return some, some && log.isOpen() && !log.hadWindows()
}

// describe it for a snapshot.
func (w *watch) describe(started uint64) growth.Watch {
	told := w.log.watch(started)
	if told.Windows > 0 {
		told.Blind = w.survivors.blind()
	}
	return told
}

// join attaches the probes in a new target where others are watched now. functions are those of its allocator.
func (s *Session) join(t *target, functions []probe.Target) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	t.heap.functions = functions
	if s.watch.log.isOpen() {
		t.openHeap()
	}
	if s.watch.tensors {
		_ = t.tensors.open() // the source tells
	}
	_ = t.cuda.followBlocks(s.watch.blockInterval != 0) // likewise
}

// leaveHeap detaches the probes of a target for good.
func (s *Session) leaveHeap(t *target) error {
	s.watch.mu.Lock()
	links := t.heap.links
	t.heap.links, t.heap.functions = nil, nil
	s.watch.mu.Unlock()
	return probe.Close(links)
}

// forget what was learnt of a target, once the kernel side has nothing of it any more.
func (s *Session) forget(t *target) {
	s.watch.mu.Lock()
	s.watch.survivors.forget(t)
	s.watch.mu.Unlock()
	s.stepTimes.forget(uint32(t.process.PID))
}
