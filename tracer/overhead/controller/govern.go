// Package govern decides when the probes on the allocator are open, so that tracing costs no more than was asked for. It is
// pure: readings go in, decisions come out. Clock and random numbers are given to it, so that any course can be repeated.
package controller

import (
	"math/rand/v2"
	"time"
)

// A Mode is how the allocator is watched.
type Mode string

// The modes, the costliest first.
const (
	Full    Mode = "full"    // every call is probed
	Windows Mode = "windows" // calls are probed now and then
	Off     Mode = "off"     // not even that is affordable, or it has not begun
)

// Options of a governor.
type Options struct {
	// Limit is the largest share of the traced processes' CPU time that tracing may take, in (0, 1]; 0.03 where it is not.
	Limit  float64
	Prices Prices
	// Interval is the mean number of bytes between samples that the user wants; 0: chosen by what is seen.
	Interval uint64
	// Duration of the trace; 0: not known.
	Duration time.Duration
	// Heap, Tensor and Steps tell which sources there are.
	Heap, Tensor, Steps bool
	// Blocks: there may be events of torch's allocator for CUDA.
	Blocks bool
	// Seed of the times at which windows open.
	Seed uint64
	// Maturity is the age at which what was born in a window counts; 0: a minute. Windows are at most half of it apart on average.
	Maturity time.Duration
}

// A Decision says what is to be done until the next reading.
type Decision struct {
	// Heap and Tensor tell whether the probes of these sources are to be attached from now on.
	Heap, Tensor bool
	// Interval and TensorInterval are the mean numbers of bytes between samples, also of probes that are closed.
	Interval, TensorInterval uint64
	// Blocks tells whether blocks on GPUs are to be followed, each BlockInterval bytes on average, or their totals alone be read.
	Blocks        bool
	BlockInterval uint64
	// Wait is the time until the next reading is wanted.
	Wait time.Duration
}

// A Change is what has been changed, why and when since counting began.
type Change struct {
	At   time.Duration
	Mode Mode
	Text string
}

// Totals since counting began.
type Totals struct {
	// InProbes is what probes of all sources took of the traced processes' CPU time, by their prices.
	InProbes time.Duration
	// StepBefore is the median time of a step before heap was probed, and StepSince the mean over all later steps, of which
	// those with probes and those without count by their medians; 0: too few were seen.
	StepBefore, StepSince time.Duration
	// StepBetween is the median of the later steps without probes, those between windows; 0: too few were seen.
	StepBetween time.Duration
	// Windows that there were, and how long they were Open together.
	Windows int
	Open    time.Duration
}

// A Governor keeps tracing within its limit.
type Governor struct {
	options   Options
	random    *rand.Rand
	last      Reading
	now       float64 // seconds that the readings have covered
	budget    budget
	steps     steps
	mode      Mode
	begun     bool // the first steps have been timed
	window    window
	foresight foresight
	full      patience // until every call is probed again
	tensor    tensor
	blocks    blocks
	// fullInterval and windowInterval are used in these modes; intervalAt is when the former was changed.
	fullInterval, windowInterval uint64
	intervalAt                   float64
	openedAt                     float64 // when every call came to be probed
	restFrom, pace               float64 // when the last window was over, and the rest until the next by what is planned
	steerAt, throttledAt         float64 // when steps are looked at next, and when the budget was last changed by them
	inProbes, open               float64 // s
	windows                      int
	changes                      []Change
}

// New makes a governor. The probes are closed until its first decision.
func New(o Options) *Governor {
	o = o.sane()
	g := &Governor{
		options: o, mode: Off,
		random: rand.New(rand.NewPCG(o.Seed, 0)),
		steps:  steps{random: rand.New(rand.NewPCG(o.Seed, 1))},
		budget: budget{limit: o.Limit, throttle: 1},
		full:   patient(), tensor: tensor{patience: patient(), interval: defaultInterval},
		blocks:       blocks{isOpen: o.Blocks, interval: defaultInterval},
		fullInterval: defaultInterval, windowInterval: firstWindowInterval,
	}
	if o.Interval != 0 {
		g.fullInterval, g.windowInterval, g.tensor.interval, g.blocks.interval = o.Interval, o.Interval, o.Interval, o.Interval
	}
	return g
}

// Decide takes in what has been counted and tells what to do until the next reading.
func (g *Governor) Decide(r Reading) Decision {
	s := g.options.Prices.between(g.last, r)
	g.last = r
	g.now += s.elapsed
	g.inProbes += s.inside()
	if g.isClosed() {
		s.idle = s.probes
	}
	g.budget.account(s)
	g.steps.add(r.Timed, g.begun)
	g.steer()
	g.climb(s)
	g.watchBlocks(s)
	return g.decision()
}

// climb goes up or down the ladder.
func (g *Governor) climb(s spending) {
	switch {
	case !g.options.Heap && !g.options.Tensor:
	case !g.begun:
		g.begin()
	case g.mode == Full:
		g.watchFull()
	default:
		g.watchTensor()
		g.watchWindow(s)
	}
}
