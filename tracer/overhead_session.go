package tracer

import (
	"math/rand/v2"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/cilium/ebpf/link"
)

// govern begins to keep what tracing costs within bounds.
func (s *Session) govern() {
	o := s.Options
	costs := pricesOf(s.prices)
	s.meter = newMeter(s.kernel, &s.reading, s.Elapsed, s.usage, s.tables.Busy, func() []controller.Step { return s.stepTimes.take(s.watch.overlaps) })
	s.watch.mu.Lock()
	s.watch.progress, s.watch.costs = s.meter.count, costs
	s.watch.mu.Unlock()
	s.governor = Govern(controller.Options{
		Limit: o.Overhead, Prices: costs, Interval: s.asked, Duration: o.Duration, Maturity: s.watch.log.lag, Seed: rand.Uint64(),
		Heap: o.wants("heap"), Tensor: o.wants("tensor"), Steps: s.countsSteps(), Blocks: o.wants("cuda"),
	}, s.watch, s.meter, s.Elapsed)
}

// usage is what each target has used so far, by the target.
func (s *Session) usage() map[any]Usage {
	used := make(map[any]Usage)
	for _, t := range s.targets.list() {
		cpu, err := t.process.CPUTime()
		stat, statErr := t.process.Stat()
		if err != nil || statErr != nil {
			continue // it has ended
		}
		used[t] = Usage{cpu, stat.MinorFaults + stat.MajorFaults, max(0, t.steps.count())}
	}
	return used
}

// countsSteps tells whether steps of training are seen.
func (s *Session) countsSteps() bool {
	for _, t := range s.targets.list() {
		if t.steps.count() != growth.Unknown {
			return true
		}
	}
	return false
}

// Overhead is what tracing has cost so far. Without a limit that is not measured.
func (s *Session) Overhead() Overhead {
	if s.governor != nil {
		return s.governor.Overhead()
	}
	o := Overhead{Mode: HeapOff, Interval: s.watch.Interval(), Elapsed: s.Elapsed()}
	if s.Options.wants("heap") {
		o.Mode = HeapFull
	}
	return o
}

// price is what has been spent since it was asked for last.
func (s *Session) price() growth.Price {
	if s.governor == nil {
		return growth.Price{Overhead: growth.Unknown, Probed: growth.Unknown}
	}
	return s.governor.price()
}

// Prices of what probes do on this machine, as measured before counting began; an error says why some are defaults. Zeros:
// the overhead has no limit, and nothing was measured.
func (s *Session) Prices() (calibrate.Prices, error) { return s.prices, s.unpriced }

// detachBeside closes links whose probes nobody meets any more, while the session goes on.
func (s *Session) detachBeside(links []link.Link) {
	s.watcher.Go(func() { _ = probe.Close(links) }) // what cannot be detached goes with our end
}
