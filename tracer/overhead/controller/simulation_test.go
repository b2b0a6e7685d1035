package controller

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A load is what a program does, all rates by second of CPU time that it would take untraced.
type load struct {
	cores              float64 // that it keeps busy untraced
	isBound            bool    // by them: what probes take comes out of its own work; else it takes more CPU time
	calls, stepped     float64
	tensors            float64 // calls, beside the others
	bytes, tensorBytes float64
	faults             float64
	step               float64 // CPU seconds of a step; 0: it has none
	blocks, blockBytes float64 // events of blocks on a GPU, and the bytes of each
}

// A simulation is of a program, the kernel's counters and the session that obeys the governor. It knows what really happens;
// the governor sees counters and prices alone.
type simulation struct {
	governor *Governor
	options  Options
	load     func(at float64) load
	// True prices; those that the governor has been given may differ.
	prices Prices
	own    float64 // parts of a core that allocscope takes whatever is open
	noise  float64 // of the CPU time of steps
	hidden float64 // slow-down of steps by open probes that no price tells
	random *rand.Rand

	now                   float64
	r                     Reading
	traced, walk, ownTime float64
	blockTime, blockWalk  float64
	counts                struct{ entries, stepped, tensors, returns, faults, samples, blocks float64 }
	heap, tensor          bool // attached at this moment
	wanted                Decision
	changeAt              float64 // when attaching or detaching will be done
	stepWork              float64 // left of the step
	stepBegan             float64
	stepProbed            bool

	// What has been seen, by ticks.
	native, cost []float64 // cumulative, seconds
	isOpen       []bool
	openings     []float64
	changes      []Change
}

const (
	tick        = 0.005 // s
	attachDelay = 0.010
	detachDelay = 0.040
	walkPrice   = 6e-6
	ownReading  = 60e-6
	ownSwitch   = 5e-3
	blockPrice  = 0.5e-6 // of an event, without the trap and the walk
)

var usual = Prices{Entry: 900, Stepped: 7000, Return: 700, Fault: 300, Mapping: 500}

func simulate(t *testing.T, o Options, l func(at float64) load) *simulation {
	t.Helper()
	if o.Limit == 0 {
		o.Limit = 0.03
	}
	if o.Prices == (Prices{}) {
		o.Prices = usual
	}
	s := &simulation{options: o, load: l, prices: o.Prices, own: 0.004, random: rand.New(rand.NewPCG(o.Seed, 1))}
	s.governor = New(o)
	return s
}

// run for so many seconds.
func (s *simulation) run(t *testing.T, seconds float64) *simulation {
	t.Helper()
	due := s.now
	for end := s.now + seconds; s.now < end; s.now += tick {
		if s.now >= due {
			due = s.now + s.decide(t)
		}
		s.obey()
		s.work()
	}
	return s
}

func (s *simulation) decide(t *testing.T) float64 {
	s.ownTime += ownReading
	c := &s.counts
	s.r.At, s.r.Traced = duration(s.now), duration(s.traced)
	s.r.Entries, s.r.Stepped, s.r.TensorEntries = uint64(c.entries), uint64(c.stepped), uint64(c.tensors)
	s.r.Returns, s.r.Faults, s.r.Samples = uint64(c.returns), uint64(c.faults), uint64(c.samples)
	s.r.Walk, s.r.Own = duration(s.walk), duration(s.ownTime)
	s.r.Blocks, s.r.BlockTime, s.r.BlockWalk = uint64(c.blocks), duration(s.blockTime), duration(s.blockWalk)
	d := s.governor.Decide(s.r)
	s.r.Timed = nil
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
	s.changes = append(s.changes, s.governor.Changes()...)
	return max(d.Wait.Seconds(), s.changeAt-s.now) // the session does one thing at a time
}

func (s *simulation) obey() {
	if s.now >= s.changeAt {
		s.heap, s.tensor = s.wanted.Heap, s.wanted.Tensor
	}
}

// work lets the program run for a tick.
func (s *simulation) work() {
	l := s.load(s.now)
	var entries, tensors, samples float64 // by second of native CPU time
	if s.heap {
		entries, samples = l.calls, l.bytes/float64(s.wanted.Interval)
	}
	if s.tensor {
		tensors = l.tensors
		samples += l.tensorBytes / float64(s.wanted.TensorInterval)
	}
	stepped := min(l.stepped, entries)
	returns := samples + tensors/4
	in := 1e-9*(s.prices.Entry*(entries-stepped+tensors)+s.prices.Stepped*stepped+s.prices.Return*returns) +
		(walkPrice+samplePrice*1e-9)*samples
	blockWalks, blockPart := s.workOnBlocks(l)
	kernel := 1e-9*s.prices.Fault*l.faults + blockPart + 1e-9*s.prices.Entry*l.blocks*of(s.wanted.Blocks)
	if s.heap {
		in += s.hidden
	}
	native := l.cores * tick
	if l.isBound {
		native /= 1 + in + kernel
	}
	s.counts.entries += (entries + tensors) * native
	s.counts.stepped += stepped * native
	s.counts.tensors += tensors * native
	s.counts.returns += returns * native
	s.counts.samples += samples * native
	s.counts.faults += l.faults * native
	s.walk += walkPrice * samples * native
	s.counts.blocks += l.blocks * of(s.wanted.Blocks) * native
	s.blockTime += blockPart * native
	s.blockWalk += blockWalks * native
	s.traced += native * (1 + in + kernel)
	s.ownTime += s.own * tick
	s.note(native, native*(in+kernel))
	s.takeSteps(l, native)
}

// workOnBlocks is what walking stacks for blocks takes, and all that an event takes beside its trap, by second of native CPU time.
func (s *simulation) workOnBlocks(l load) (walks, all float64) {
	if !s.wanted.Blocks {
		return 0, 0
	}
	walks = walkPrice * l.blocks / 2 * -math.Expm1(-l.blockBytes/float64(s.wanted.BlockInterval)) // one of two comes back
	return walks, walks + blockPrice*l.blocks
}

// of is 1 of what holds, and else 0.
func of(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

func (s *simulation) note(native, inside float64) {
	var n, c float64
	if len(s.native) > 0 {
		n, c = s.native[len(s.native)-1], s.cost[len(s.cost)-1]
	}
	s.native, s.cost = append(s.native, n+native), append(s.cost, c+inside)
	s.isOpen = append(s.isOpen, s.heap)
}

func (s *simulation) takeSteps(l load, native float64) {
	if l.step == 0 {
		return
	}
	s.stepProbed = s.stepProbed || s.heap
	for s.stepWork -= native; s.stepWork <= 0; s.stepWork += l.step * (1 + s.noise*s.random.Float64()) {
		// The step ended within this tick: as far before its end as work is left over.
		end := s.now + tick + s.stepWork/max(native, 1e-9)*tick
		s.r.Steps++
		s.r.Timed = append(s.r.Timed, Step{Duration: duration(end - s.stepBegan), Probed: s.stepProbed})
		s.stepBegan, s.stepProbed = end, s.heap
	}
}

// constant load.
func constant(l load) func(float64) load { return func(float64) load { return l } }

// trainer is bound by dispatching small operations: half a million calls a second, steps of 9 ms.
func trainer() load {
	return load{cores: 1, isBound: true, calls: 500_000, tensors: 50_000, bytes: 200e6, tensorBytes: 400e6, faults: 30_000, step: 0.009}
}

// storm of malloc and free on eight threads.
func storm() load { return load{cores: 8, isBound: true, calls: 200e6, bytes: 6e9} }

// sleeper hardly runs.
func sleeper() load { return load{cores: 0.002, calls: 50_000, bytes: 10e6, faults: 10_000} }

// mustKeepToLimit asserts that over any minute that begins between these times probes took no more than the limit, or a tenth
// more, of what the program did itself. A program that hardly runs counts as running for a fifth of a core.
func (s *simulation) mustKeepToLimit(t *testing.T, from, to float64) {
	t.Helper()
	const minute = int(60 / tick)
	var worst, at float64
	for i := int(from / tick); i < min(int(to/tick), len(s.cost)-minute); i++ {
		work := max(s.native[i+minute]-s.native[i], 60*quiet)
		if part := (s.cost[i+minute] - s.cost[i]) / work; part > worst {
			worst, at = part, float64(i)*tick
		}
	}
	if worst > 1.1*s.options.Limit {
		t.Errorf("in the minute from %.1f s on probes took %.2f %%, limit %.2f %%", at, 100*worst, 100*s.options.Limit)
	}
}

// part of the time between these that probes of heap were open.
func (s *simulation) part(from, to float64) float64 {
	var n float64
	for _, isOpen := range s.isOpen[int(from/tick):int(to/tick)] {
		if isOpen {
			n++
		}
	}
	return n * tick / (to - from)
}

// spacings of the windows that opened between these times, in seconds.
func (s *simulation) spacings(from, to float64) []float64 {
	var spacings []float64
	for i := 1; i < len(s.openings); i++ {
		if s.openings[i-1] >= from && s.openings[i] <= to {
			spacings = append(spacings, s.openings[i]-s.openings[i-1])
		}
	}
	return spacings
}

// changesBetween tells the changes in these seconds.
func (s *simulation) changesBetween(from, to float64) []Change {
	var changes []Change
	for _, c := range s.changes {
		if at := c.At.Seconds(); at >= from && at < to {
			changes = append(changes, c)
		}
	}
	return changes
}
