package tracer

import (
	"math/rand/v2"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/cilium/ebpf/link"
)

// govern begins to keep what tracing costs within bounds.
func (s *Session) govern() {
	o := s.Options
	costs := overhead.CostsOf(s.prices)
	s.meter = overhead.NewMeter(s.kernel, &s.reading, s.Elapsed, s.usage, s.tables.Busy, func() []controller.Step { return s.stepTimes.take(s.probing.overlaps) })
	s.probing.mu.Lock()
	s.probing.progress, s.probing.costs = s.meter.Count, costs
	s.probing.mu.Unlock()
	s.controller = overhead.Start(controller.Options{
		Limit: o.Overhead, Costs: costs, Interval: s.asked, Duration: o.Duration, Maturity: s.probing.schedule.Lag, Seed: rand.Uint64(),
		Heap: o.wants("heap"), Tensor: o.wants("tensor"), Steps: s.countsSteps(), Blocks: o.wants("cuda"),
	}, s.probing, s.meter, s.Elapsed)
}

// usage is what each target has used so far, by the target.
func (s *Session) usage() map[any]overhead.Usage {
	used := make(map[any]overhead.Usage)
	for _, t := range s.targets.list() {
		cpu, err := t.process.CPUTime()
		stat, statErr := t.process.Stat()
		if err != nil || statErr != nil {
			continue // it has ended
		}
		used[t] = overhead.Usage{cpu, stat.MinorFaults + stat.MajorFaults, max(0, t.steps.Count())}
	}
	return used
}

// countsSteps tells whether steps of training are seen.
func (s *Session) countsSteps() bool {
	for _, t := range s.targets.list() {
		if t.steps.Count() != growth.Unknown {
			return true
		}
	}
	return false
}

// Overhead is what tracing has cost so far. Without a limit that is not measured.
func (s *Session) Overhead() overhead.Overhead {
	if s.controller != nil {
		return s.controller.Overhead()
	}
	o := overhead.Overhead{Mode: overhead.HeapOff, Interval: s.probing.Interval(), Elapsed: s.Elapsed()}
	if s.Options.wants("heap") {
		o.Mode = overhead.HeapFull
	}
	return o
}

// price is what has been spent since it was asked for last.
func (s *Session) price() growth.OverheadSample {
	if s.controller == nil {
		return growth.OverheadSample{CPUShare: growth.Unknown, ProbedShare: growth.Unknown}
	}
	return s.controller.Cost()
}

// Prices of what probes do on this machine, as measured before counting began; an error says why some are defaults. Zeros:
// the overhead has no limit, and nothing was measured.
func (s *Session) Costs() (calibrate.Costs, error) { return s.prices, s.unpriced }

// detachBeside closes links whose probes nobody meets any more, while the session goes on.
func (s *Session) detachBeside(links []link.Link) {
	s.watcher.Go(func() { _ = probe.Close(links) }) // what cannot be detached goes with our end
}
