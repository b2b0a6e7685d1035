package tracer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/process"
)

// kernelWalkShare is the part of the limit that stack walks for mapping calls and page faults may
// take.
const kernelWalkShare = 0.4

// startRunner starts the overhead controller, which keeps the overhead within its limit.
func (s *Session) startRunner() error {
	takeSteps := func() []controller.Step {
		s.events.Flush() // steps wake nobody
		return s.stepTimes.Take(s.probing.overlaps)
	}
	liveShare := func() float64 {
		return float64(s.liveObjects.Load()) / float64(s.Options.MaxLive)
	}
	meter := overhead.NewMeter(
		s.kernel, &s.reading, s.sinceOpened, s.targets.usage, s.tables.Busy, liveShare, takeSteps,
		func() time.Duration { return process.OwnCPUTime() - time.Duration(s.walks.Load()) })

	costs := overhead.CostsOf(s.costs)
	err := errors.Join(s.kernel.SetCosts(overhead.Charges(costs)),
		s.kernel.LimitWalks(kernelWalkShare*s.Options.Overhead))
	if err != nil {
		return err
	}
	s.probing.mu.Lock()
	s.probing.progress.read, s.probing.progress.costs = meter.Count, costs
	s.probing.mu.Unlock()

	o := s.Options
	interval := s.askedInterval
	if s.launched != nil && interval != 0 {
		interval = o.Interval // it was rounded
	}
	limits := overhead.Limits{Limit: o.Overhead, OwnFloor: o.OwnFloor}
	s.runner = overhead.Start(limits, controller.Options{
		Costs: costs, Interval: interval, Duration: o.Duration,
		Maturity: s.probing.schedule.Lag, Seed: rand.Uint64(),
		Heap: o.wants("heap"), Tensor: o.wants("tensor"), Blocks: o.wants("cuda"),
		Steps: s.launched == nil && s.targets.countSteps(), Producer: s.launched != nil,
	}, s.probing, meter, s.sinceOpened)
	return nil
}

// usage returns the usage of each target's process since its start, by target.
func (s *targetSet) usage() map[any]overhead.Usage {
	used := make(map[any]overhead.Usage)
	for _, t := range s.list() {
		cpu, err := t.process.CPUTime()
		stat, statErr := t.process.Stat()
		if err != nil || statErr != nil {
			continue // it has ended
		}
		used[t] = overhead.Usage{
			CPU: cpu, Faults: stat.MinorFaults + stat.MajorFaults,
			Steps: max(0, t.sources.Steps.Count()),
		}
	}
	return used
}

// countSteps reports whether training steps of any target are counted.
func (s *targetSet) countSteps() bool {
	for _, t := range s.list() {
		if t.sources.Steps.Count() != growth.Unknown {
			return true
		}
	}
	return false
}

// Overhead returns the cost of tracing so far, by the clock of Elapsed, and divides allocscope's
// own CPU time by it from then on. Without a limit, the costs are not measured.
func (s *Session) Overhead() overhead.Overhead {
	if s.runner != nil {
		o := s.runner.Overhead()
		o.SeesWaits, o.Objects = s.system.SeesWaits(), s.ObjectsCPUTime()
		s.own.Set(o.Use())
		o.Changes = slices.Clone(o.Changes)
		for i := range o.Changes {
			o.Changes[i].At += s.Opened()
		}
		return o
	}
	o := overhead.Overhead{
		Mode: growth.HeapOff, Interval: s.probing.Interval(), Elapsed: s.sinceOpened(),
	}
	if s.Options.wants("heap") {
		o.Mode = growth.HeapFull
	}
	return o
}

// overheadSample returns the costs since the last call.
func (s *Session) overheadSample() growth.OverheadSample {
	if s.runner == nil {
		return growth.OverheadSample{
			Slowdown: growth.Unknown, Own: growth.Unknown, ProbedShare: growth.Unknown,
		}
	}
	return s.runner.Cost()
}
