package controller

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A load is the work of a program. All rates are by second of CPU time that it would take untraced.
type load struct {
	cores              float64 // that it keeps busy untraced
	isBound            bool    // CPU-bound: probes slow it down; else it takes more CPU time
	calls, stepped     float64
	tensors            float64 // calls, beside the others
	bytes, tensorBytes float64
	faults             float64
	step               float64 // CPU seconds of a step; 0: it has none
	blocks, blockBytes float64 // events of GPU blocks, and the bytes of each
}

func constant(l load) func(float64) load { return func(float64) load { return l } }

// trainer is bound by dispatching small operations: half a million calls a second, steps of 9 ms.
func trainer() load {
	return load{
		cores: 1, isBound: true, calls: 500_000, tensors: 50_000, bytes: 200e6, tensorBytes: 400e6,
		faults: 30_000, step: 0.009,
	}
}

func caller(calls float64) load { return load{cores: 1, isBound: true, calls: calls} }

// storm of malloc and free on eight threads.
func storm() load { return load{cores: 8, isBound: true, calls: 200e6, bytes: 6e9} }

func sleeper() load { return load{cores: 0.002, calls: 50_000, bytes: 10e6, faults: 10_000} }

// stormBetween is calm but for a storm from one second to another.
func stormBetween(begin, end float64, calm load) func(float64) load {
	return func(at float64) load {
		if at >= begin && at < end {
			return storm()
		}
		return calm
	}
}

// usual costs in ns.
var usual = Costs{Entry: 900, Stepped: 7000, Return: 700, Fault: 300, Mapping: 500, Block: 900}

// all sources there are, on a program with steps.
func all(seed uint64) Options {
	return Options{
		Heap: true, Tensor: true, Steps: true, Seed: seed, Limit: 0.03, Maturity: time.Minute,
		Costs: usual,
	}
}

// A simulation has a program, the kernel's counters and the session that applies the controller's
// decisions. It knows the true costs; the controller sees counters and its own costs alone.
type simulation struct {
	controller *Controller
	options    Options
	load       func(at float64) load
	costs      Costs   // the true ones
	own        float64 // cores that allocscope takes with any probes open
	noise      float64 // of the CPU time of steps
	hidden     float64 // slowdown by open probes that no cost explains
	isListed   bool    // the list of PyTorch's blocks can be read
	random     *rand.Rand

	now                   float64
	reading               Reading
	traced, walk, ownTime float64
	busiest               float64
	blockWalk             float64
	counts                eventCounts
	heap, tensor          bool // attached at this moment
	wanted                Decision
	changeAt              float64 // when attaching or detaching will be done
	stepWork              float64 // left of the step
	stepBegan             float64
	stepProbed            bool

	// By ticks: cumulative CPU seconds of the program and seconds of probes in its busiest thread,
	// and whether heap probes were open.
	native, cost []float64
	isOpen       []bool
	hasBlocks    []bool // whether blocks were sampled

	openings []float64
	changes  []Change
}

// eventCounts are the kernel's counters of events.
type eventCounts struct {
	entries, stepped, tensors, returns, faults, samples, blocks, blockSamples float64
}

// All but the tick's length in seconds are costs of the session and the kernel.
const (
	tick        = 0.005
	attachDelay = 0.010
	detachDelay = 0.040
	walkCost    = 6e-6
	ownReading  = 60e-6
	ownSwitch   = 5e-3
	totalsShare = 0.02 // of the time between bursts in which the totals of blocks are read
)

func simulate(o Options, l func(at float64) load) *simulation {
	return &simulation{
		controller: New(o), options: o, load: l, costs: o.Costs, own: 0.004,
		random: rand.New(rand.NewPCG(o.Seed, 1)),
	}
}

func (s *simulation) run(t *testing.T, seconds float64) *simulation {
	t.Helper()
	due := s.now
	for end := s.now + seconds; s.now < end; s.now += tick {
		if s.now >= due {
			due = s.now + s.decide(t)
		}
		if s.now >= s.changeAt {
			s.heap, s.tensor = s.wanted.Heap, s.wanted.Tensor
		}
		s.work()
	}
	return s
}

// decide takes a reading, and returns the time until the next one.
func (s *simulation) decide(t *testing.T) float64 {
	s.ownTime += ownReading
	n, r := &s.counts, &s.reading
	r.At, r.Traced, r.Own, r.Walk = duration(s.now), duration(s.traced), duration(s.ownTime),
		duration(s.walk)
	r.Entries, r.Stepped, r.TensorEntries = uint64(n.entries), uint64(n.stepped), uint64(n.tensors)
	r.Busiest = duration(s.busiest)
	r.Returns, r.Faults, r.Samples = uint64(n.returns), uint64(n.faults), uint64(n.samples)
	if s.options.Producer {
		r.ProducerCalls, r.Entries = r.Entries, 0
		r.ProducerSamples, r.Samples, r.Returns = r.Samples, 0, 0
		r.ProducerWalk, r.Walk = r.Walk, 0
	}
	r.Blocks, r.BlockSamples = uint64(n.blocks), uint64(n.blockSamples)
	r.BlockWalk = duration(s.blockWalk)

	d := s.controller.Decide(*r)
	r.Timed, r.BlocksListed = nil, s.isListed && (r.BlocksListed || d.ListBlocks)
	if d.Wait < time.Millisecond || d.Wait > time.Minute {
		t.Fatalf("after %.1f s the next reading is wanted in %v", s.now, d.Wait)
	}

	if d.Heap != s.wanted.Heap || d.Tensor != s.wanted.Tensor {
		s.ownTime += ownSwitch
		s.changeAt = s.now + attachDelay
		if s.wanted.Heap && !d.Heap {
			s.changeAt = s.now + detachDelay
		}
		if d.Heap && !s.wanted.Heap {
			s.openings = append(s.openings, s.now)
		}
	}
	s.wanted = d
	s.changes = append(s.changes, s.controller.Changes()...)
	return max(d.Wait.Seconds(), s.changeAt-s.now) // the session does one thing at a time
}

// work lets the program run for a tick. Rates are by second of native CPU time.
func (s *simulation) work() {
	l := s.load(s.now)
	var entries, tensors, samples, blocks float64
	if s.heap {
		entries, samples = l.calls, l.bytes/float64(s.wanted.Interval)
	}
	if s.heap && s.options.Producer { // a trap when an object comes, and one when it goes
		entries = 2 * samples
	}
	if s.tensor {
		tensors = l.tensors
		samples += l.tensorBytes / float64(s.wanted.TensorInterval)
	}
	switch {
	case s.wanted.Blocks:
		blocks = l.blocks
	case s.wanted.BlocksPaused:
		blocks = totalsShare * l.blocks
	}

	stepped := min(l.stepped, entries)
	returns := samples + tensors/4
	inside := 1e-9*s.costs.Entry*(entries-stepped+tensors) + 1e-9*s.costs.Stepped*stepped +
		1e-9*s.costs.Return*returns + (walkCost+SampleCost*1e-9)*samples
	// One of two blocks comes back, whose stack is not walked.
	var blockSamples float64
	if s.wanted.Blocks {
		blockSamples = blocks / 2 * -math.Expm1(-l.blockBytes/float64(s.wanted.BlockInterval))
	}
	inside += 1e-9*s.costs.Fault*l.faults + (walkCost+SampleCost*1e-9)*blockSamples +
		1e-9*s.costs.Block*blocks
	if s.heap {
		inside += s.hidden
	}

	native := l.cores * tick
	if l.isBound {
		native /= 1 + inside
	}
	s.counts.entries += (entries + tensors) * native
	s.counts.stepped += stepped * native
	s.counts.tensors += tensors * native
	s.counts.returns += returns * native
	s.counts.samples += samples * native
	s.counts.faults += l.faults * native
	s.counts.blocks += blocks * native
	s.walk += walkCost * samples * native
	s.counts.blockSamples += blockSamples * native
	s.blockWalk += walkCost * blockSamples * native
	s.traced += native * (1 + inside)
	s.ownTime += s.own * tick

	s.busiest += native * inside / max(l.cores, 1) // threads do the same
	s.native, s.cost = append(s.native, last(s.native)+native), append(s.cost, s.busiest)
	s.isOpen, s.hasBlocks = append(s.isOpen, s.heap), append(s.hasBlocks, s.wanted.Blocks)
	s.takeSteps(l, native)
}

func last(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

func (s *simulation) takeSteps(l load, native float64) {
	if l.step == 0 {
		return
	}
	s.stepProbed = s.stepProbed || s.heap
	for s.stepWork -= native; s.stepWork <= 0; s.stepWork += l.step * (1 +
		s.noise*s.random.Float64()) {
		// The step ended within this tick: as far before its end as work is left over.
		end := s.now + tick + s.stepWork/max(native, 1e-9)*tick
		s.reading.Steps++
		s.reading.Timed = append(s.reading.Timed,
			Step{Duration: duration(end - s.stepBegan), Probed: s.stepProbed})
		s.stepBegan, s.stepProbed = end, s.heap
	}
}

// mustKeepToLimit asserts that over any minute that begins between these seconds probes took no
// more than 1.1 times the limit.
func (s *simulation) mustKeepToLimit(t *testing.T, from, to float64) {
	t.Helper()
	const minute = int(60 / tick)
	var worst, at float64
	for i := int(from / tick); i < min(int(to/tick), len(s.cost)-minute); i++ {
		if share := (s.cost[i+minute] - s.cost[i]) / 60; share > worst {
			worst, at = share, float64(i)*tick
		}
	}
	if worst > 1.1*s.options.Limit {
		t.Errorf("in the minute from %.1f s on probes took %.2f%%, limit %.2f%%", at, 100*worst,
			100*s.options.Limit)
	}
}

// mustHaveBursts asserts that probes were opened at least every minute and a half.
func (s *simulation) mustHaveBursts(t *testing.T, from, to float64) {
	t.Helper()
	last := from
	for _, at := range append(slices.Clone(s.openings), to) {
		if at >= from && at-last > 90 {
			t.Errorf("no burst between %.1f and %.1f s", last, at)
		}
		last = max(last, at)
	}
}

func (s *simulation) mustBeIn(t *testing.T, mode growth.HeapMode) {
	t.Helper()
	if got := s.controller.Mode(); got != mode {
		t.Errorf("after %.0f s: mode %s, want %s; changes %v", s.now, got, mode, s.changes)
	}
}

// costShare is the time that probes took between these seconds, as a share of the time.
func (s *simulation) costShare(from, to float64) float64 {
	i, j := int(from/tick), min(int(to/tick), len(s.cost)-1)
	return (s.cost[j] - s.cost[i]) / (to - from)
}

// openShare is the share of the time between these seconds in which heap probes were open.
func (s *simulation) openShare(from, to float64) float64 {
	var n float64
	for _, isOpen := range s.isOpen[int(from/tick):int(to/tick)] {
		if isOpen {
			n++
		}
	}
	return n * tick / (to - from)
}

func (s *simulation) openingsSince(from float64) []float64 {
	return slices.DeleteFunc(slices.Clone(s.openings), func(at float64) bool { return at < from })
}

func (s *simulation) spacings(from float64) []float64 {
	var spacings []float64
	openings := s.openingsSince(from)
	for i := 1; i < len(openings); i++ {
		spacings = append(spacings, openings[i]-openings[i-1])
	}
	return spacings
}

func (s *simulation) changesBetween(from, to float64) []Change {
	return slices.DeleteFunc(slices.Clone(s.changes), func(c Change) bool {
		return c.At.Seconds() < from || c.At.Seconds() >= to
	})
}

func (s *simulation) changesFor(reasons ...growth.OverheadReason) []Change {
	return slices.DeleteFunc(slices.Clone(s.changes), func(c Change) bool {
		return !slices.Contains(reasons, c.Reason)
	})
}
