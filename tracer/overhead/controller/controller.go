// Package controller decides when the allocator probes are open, so that tracing costs no more
// than its limit. It is pure: readings go in, decisions come out. The clock and the seed of the
// random numbers are inputs too, so that every course of events can be repeated.
//
// # State machine
//
// A [growth.HeapMode] is one of full, bursts and off. Coarser is mode full with a larger sampling
// interval: of the powers of two from 4 KiB to 4 MiB, the finest that the budget pays for.
//
//		            (1)            (2)
//		     off --------> full <-------> coarser
//		   (start)         |  ^    (3)     |  ^
//		               (4) |  | (5)    (4) |  | (5)
//		                   v  |            v  |
//		                 bursts <-----------> off
//		                             (6)
//
//	 1. The first steps of training have been timed without probes, or there are none.
//	 2. Stack walks take more than a third of the budget, or allocscope itself takes more CPU time
//	    than it may: the sampling interval doubles. Where walks spend the credit, the interval
//	    grows at once by the factor needed.
//	 3. Stack walks take less than an eighth of the budget: the interval shrinks, within a second
//	    of the start, and one to ten minutes after (2).
//	 4. The probes have spent their credit, which is the allowance of six seconds, and not by
//	    walks alone.
//	 5. Three bursts in a row were calm: they took less than 0.6 of the budget. The number doubles
//	    each time that full mode then lasts for less than ten minutes (exponential backoff).
//	 6. A burst of 0.1 s fits the budget every half a minute, or it does not. In mode off such a
//	    burst still comes every one to ten minutes, to see whether that has changed.
//
// The budget is a token bucket (budget.go). Two sources have rules of their own (sources.go):
// tensor probes may stay open between bursts, and probes of GPU blocks are open all the time, in
// bursts, or closed for good.
package controller

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// Options of a controller.
type Options struct {
	// Limit is the largest share of the elapsed time that the probes may take from any thread, in
	// (0, 1]. Any other value means 0.03. allocscope itself may take this share of the CPU time of
	// the traced processes.
	Limit float64
	Costs Costs
	// Interval is the mean number of bytes between samples; 0: the controller chooses it.
	Interval uint64
	// Duration of the trace; 0: unknown.
	Duration time.Duration
	// Heap, Tensor and Steps report which sources there are.
	Heap, Tensor, Steps bool
	// Producer: the processes sample their heap themselves, so that samples alone have a cost. The
	// mode is always full.
	Producer bool
	// Blocks: there may be blocks of PyTorch's caching allocator for GPUs.
	Blocks bool
	// Seed of the times at which bursts begin.
	Seed uint64
	// Maturity is the age from which the objects of a burst count; 0: a minute. The mean time
	// between bursts is at most half of it.
	Maturity time.Duration
}

// withDefaults replaces values out of range.
func (o Options) withDefaults() Options {
	if !(o.Limit > 0 && o.Limit <= 1) {
		o.Limit = 0.03
	}
	o.Limit = max(o.Limit, 1e-6)

	c := &o.Costs
	for _, ns := range []*float64{
		&c.Entry, &c.Stepped, &c.Return, &c.Fault, &c.Mapping, &c.DriverCall, &c.Block,
	} {
		if !(*ns >= 0) {
			*ns = 0
		}
		*ns = min(*ns, 1e6)
	}

	if o.Maturity <= 0 {
		o.Maturity = time.Minute
	}
	o.Interval = min(o.Interval, math.MaxUint32)
	return o
}

// isAuto reports whether the controller chooses the intervals.
func (o *Options) isAuto() bool { return o.Interval == 0 }

// hasHeapAndTensor reports whether tensors are probed beside the heap, and not instead of it.
func (o *Options) hasHeapAndTensor() bool { return o.Heap && o.Tensor }

// A Decision has the settings that the session applies until the next reading.
type Decision struct {
	// Heap and Tensor report whether the probes of these sources shall be attached.
	Heap, Tensor bool
	// Interval and TensorInterval are the mean numbers of bytes between samples. They are set for
	// detached probes, too.
	Interval, TensorInterval uint64
	// Blocks reports whether GPU blocks are sampled, each BlockInterval bytes on average. If not,
	// only their totals are read. BlocksPaused: they will be sampled again.
	Blocks, BlocksPaused bool
	BlockInterval        uint64
	// BlockBurst is how long blocks are sampled at a time, at least, where they are in bursts.
	BlockBurst time.Duration
	// ListBlocks: the next reading has to say whether the list of blocks can be read.
	ListBlocks bool
	// Wait is the time until the next reading.
	Wait time.Duration
}

// A Change is a change of the mode or of an interval: when since counting began, and why.
type Change struct {
	At   time.Duration
	Mode growth.HeapMode
	growth.OverheadChange
}

// maxChanges bounds the changes that are kept until Changes is called.
const maxChanges = 256

// Totals since counting began.
type Totals struct {
	// InProbes is the CPU time that all probes took from the traced processes, by their costs, and
	// Busiest the part of it in the thread in which they took most.
	InProbes, Busiest time.Duration
	// StepBefore is the median time of a step before the heap was probed. StepSince is the mean
	// over all later steps, where steps with and without probes count by their medians. 0: there
	// were too few steps.
	StepBefore, StepSince time.Duration
	// StepBetween is the median time of the later steps without probes, between bursts; 0:
	// there were too few.
	StepBetween time.Duration
	// Bursts is the number of bursts so far, and Open how long probes were open in all modes.
	Bursts int
	Open   time.Duration
}

// A Controller keeps the cost of tracing within its limit. Times are in seconds.
type Controller struct {
	options Options
	random  *rand.Rand
	last    Reading
	now     float64 // time that the readings have covered

	budget  budget
	steps   steps
	tensor  tensor
	blocks  blocks
	changes []Change

	mode    growth.HeapMode
	started bool    // the first steps have been timed
	full    backoff // until every call is probed again
	fullAt  float64 // when mode full began

	burst        burst
	forecast     costForecast
	scheduleFrom float64 // when the last burst ended
	pauseFactor  float64 // the next pause as a multiple of the planned one

	// The sampling intervals in these modes.
	fullInterval  fullInterval
	burstInterval uint64 // bytes

	inProbes, busiest, open float64
	bursts                  int
}

// New makes a controller. The probes are closed until its first decision.
func New(o Options) *Controller {
	o = o.withDefaults()
	c := &Controller{
		options:       o,
		random:        rand.New(rand.NewPCG(o.Seed, 0)),
		budget:        budget{limit: o.Limit, throttle: 1},
		steps:         steps{random: rand.New(rand.NewPCG(o.Seed, 1))},
		tensor:        tensor{backoff: newBackoff(), interval: defaultInterval},
		blocks:        blocks{isOpen: o.Blocks, interval: FirstBlockInterval, calm: newBackoff()},
		mode:          growth.HeapOff,
		full:          newBackoff(),
		fullInterval:  fullInterval{bytes: defaultInterval, fullTuning: probeTuning},
		burstInterval: firstBurstInterval,
	}

	if o.Interval != 0 {
		c.fullInterval.bytes, c.burstInterval = o.Interval, o.Interval
		c.tensor.interval, c.blocks.interval = o.Interval, o.Interval
	}
	if o.Producer {
		c.fullInterval.fullTuning = producerTuning
	}
	return c
}

// Decide takes the counters read now, and returns what to apply until the next reading.
func (c *Controller) Decide(r Reading) Decision {
	u := c.options.Costs.between(c.last, r)
	if c.options.Producer { // a coarser interval saves all of it, traps as well
		u.kernel -= u.producers
		u.probes += u.producers
		u.walking = u.probes
	}
	c.last = r
	c.now += u.elapsed
	c.inProbes += u.all
	c.busiest += u.inside()
	if c.isBetweenBursts() {
		u.idle = u.probes
	}

	c.budget.account(u)
	c.steps.add(r.Timed, c.started)
	if c.started {
		c.change(c.steps.check(&c.budget, c.now))
	}
	c.adjustMode(u)
	c.blocks.setLength(r.Steps, c.now)
	c.change(c.blocks.check(u, r.BlocksListed, &c.options, &c.budget.spent, c.now))
	return c.decision()
}

func (c *Controller) decision() Decision {
	isOpen := c.started && (c.mode == growth.HeapFull || c.burst.phase == burstOpen)
	d := Decision{
		Heap:           c.options.Heap && isOpen,
		Tensor:         c.options.Tensor && (isOpen || c.tensor.alwaysOpen),
		Interval:       c.interval(),
		TensorInterval: c.interval(),
		Blocks:         c.blocks.isOpen,
		BlocksPaused:   !c.blocks.isOpen && c.blocks.pausedUntil != 0,
		BlockInterval:  c.blocks.interval,
		BlockBurst:     duration(c.blocks.length),
		ListBlocks:     c.blocks.asks,
		Wait:           duration(max(min(c.wait(), c.blocks.wait(c.now)), minWait)),
	}

	if c.options.hasHeapAndTensor() && c.tensor.alwaysOpen {
		d.TensorInterval = c.tensor.interval
	}
	return d
}

// The time until the next reading, in seconds. Open probes are read often, so that a storm of
// calls is seen soon. After calmSeconds with less than calmShare of the time allowed, a storm may
// last calmWait: a seventh of the time allowed in a minute, at 3%. A producer's finest interval
// leaves less room.
const (
	openWait   = 0.1
	tensorWait = 0.25
	calmWait   = slotSeconds
	closedWait = 1.0
	minWait    = 0.005
)

func (c *Controller) wait() float64 {
	switch {
	case !c.options.Heap && !c.options.Tensor:
		return closedWait
	case c.takesLittle():
		return calmWait
	case !c.started, c.mode == growth.HeapFull, c.burst.phase == burstDetaching:
		return openWait
	case c.burst.phase == burstOpen:
		return min(openWait, c.burst.from+c.burst.length-c.now)
	case c.tensor.alwaysOpen:
		return min(tensorWait, c.untilNextBurst(c.plan()))
	}
	return min(closedWait, c.untilNextBurst(c.plan()))
}

const (
	calmSeconds = 3.0
	calmShare   = 0.1
)

// takesLittle reports whether the probes are open in mode full and have taken little for a while.
func (c *Controller) takesLittle() bool {
	recent := c.budget.spent.sum(calmSeconds)
	return c.mode == growth.HeapFull && c.started && !c.options.Producer &&
		c.now-c.fullAt >= calmSeconds && recent.probes < calmShare*recent.allowed
}

// Mode returns the mode in force.
func (c *Controller) Mode() growth.HeapMode { return c.mode }

// change notes a change of the mode in force, or of a source. Without a reason there was none.
func (c *Controller) change(why growth.OverheadChange) {
	if why.Reason == "" {
		return
	}
	c.changes = append(c.changes, Change{At: duration(c.now), Mode: c.mode, OverheadChange: why})
	c.changes = c.changes[max(0, len(c.changes)-maxChanges):]
}

// changeForCost notes a change for the cost of the probes if they were always open.
func (c *Controller) changeForCost(why growth.OverheadChange, u timeUse) {
	why.Source = "heap"
	if !c.options.Heap {
		why.Source = "tensor"
	}
	why.Share, why.Calls = u.rate(), u.entries/max(u.elapsed, 1e-3)
	c.change(why)
}

// Changes returns the changes since its last call, in the order of time.
func (c *Controller) Changes() []Change {
	changes := c.changes
	c.changes = nil
	return changes
}

// Totals returns the totals since counting began.
func (c *Controller) Totals() Totals {
	open := c.open
	switch {
	case c.started && c.mode == growth.HeapFull:
		open += c.now - c.fullAt
	case c.burst.phase == burstOpen:
		open += c.now - c.burst.from
	}

	return Totals{
		InProbes:    duration(c.inProbes),
		Busiest:     duration(c.busiest),
		StepBefore:  duration(c.steps.medianBefore()),
		StepSince:   duration(c.steps.meanSince()),
		StepBetween: duration(c.steps.medianBetween()),
		Bursts:      c.bursts,
		Open:        duration(open),
	}
}

func duration(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), 1e9) * float64(time.Second))
}
