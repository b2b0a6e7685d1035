package tracer

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// startController starts the controller, which keeps the overhead within its limit.
func (s *Session) startController() {
	takeSteps := func() []controller.Step { return s.stepTimes.take(s.probing.overlaps) }
	s.meter = overhead.NewMeter(s.kernel, &s.reading, s.Elapsed, s.usage, s.tables.Busy, takeSteps)

	costs := overhead.CostsOf(s.costs)
	s.probing.mu.Lock()
	s.probing.progress, s.probing.costs = s.meter.Count, costs
	s.probing.mu.Unlock()

	o := s.Options
	s.controller = overhead.Start(controller.Options{
		Limit: o.Overhead, Costs: costs, Interval: s.askedInterval, Duration: o.Duration,
		Maturity: s.probing.schedule.Lag, Seed: rand.Uint64(),
		Heap: o.wants("heap"), Tensor: o.wants("tensor"), Blocks: o.wants("cuda"),
		Steps: s.targets.countSteps(),
	}, s.probing, s.meter, s.Elapsed)
}

// usage returns what each target's process has used since its start, by target.
func (s *Session) usage() map[any]overhead.Usage {
	used := make(map[any]overhead.Usage)
	for _, t := range s.targets.list() {
		cpu, err := t.process.CPUTime()
		stat, statErr := t.process.Stat()
		if err != nil || statErr != nil {
			continue // it has ended
		}
		used[t] = overhead.Usage{
			CPU: cpu, Faults: stat.MinorFaults + stat.MajorFaults, Steps: max(0, t.steps.Count()),
		}
	}
	return used
}

// countSteps reports whether training steps of any target are counted.
func (s *targetSet) countSteps() bool {
	for _, t := range s.list() {
		if t.steps.Count() != growth.Unknown {
			return true
		}
	}
	return false
}

// Overhead returns what tracing has cost so far. Without a limit, the costs are not measured.
func (s *Session) Overhead() overhead.Overhead {
	if s.controller != nil {
		return s.controller.Overhead()
	}
	o := overhead.Overhead{
		Mode: overhead.HeapOff, Interval: s.probing.Interval(), Elapsed: s.Elapsed(),
	}
	if s.Options.wants("heap") {
		o.Mode = overhead.HeapFull
	}
	return o
}

// overheadSample returns the costs since the last call.
func (s *Session) overheadSample() growth.Price {
	if s.controller == nil {
		return growth.Price{Overhead: growth.Unknown, Probed: growth.Unknown}
	}
	return s.controller.Cost()
}

// Costs returns the costs of the probes on this machine, as measured before tracing started. The error
// is the reason why some are defaults. Zeros: the overhead has no limit, and nothing was measured.
func (s *Session) Costs() (calibrate.Costs, error) { return s.costs, s.costsErr }

// stepTimes collects the times of the training steps of all targets until the controller takes them.
type stepTimes struct {
	mu    sync.Mutex
	last  map[uint32]stepCount // by PID
	spans []stepSpan
}

// A stepCount is the number of steps that a process had made at a time in ns, CLOCK_MONOTONIC.
type stepCount struct{ time, steps uint64 }

// A stepSpan is a time, in ns, CLOCK_MONOTONIC, in which a process made some steps.
type stepSpan struct{ from, to, steps uint64 }

// maxStepSpans bounds what is kept if nothing takes it.
const maxStepSpans = 4096

// add adds an event of kind bpf.EventStep, whose Length is the number of steps so far.
func (s *stepTimes) add(event bpf.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.last == nil {
		s.last = make(map[uint32]stepCount)
	}
	before, ok := s.last[event.Tgid]
	now := stepCount{event.Time, event.Length}
	s.last[event.Tgid] = now
	if !ok || now.time <= before.time || now.steps <= before.steps {
		return
	}
	if len(s.spans) < maxStepSpans {
		s.spans = append(s.spans, stepSpan{before.time, now.time, now.steps - before.steps})
	}
}

// forget forgets a process: another one may get its PID.
func (s *stepTimes) forget(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, pid)
}

// take returns the mean step times of the spans since the last call. overlaps reports whether probes
// were open in a span.
func (s *stepTimes) take(overlaps func(from, to uint64) bool) (steps []controller.Step) {
	s.mu.Lock()
	spans := s.spans
	s.spans = nil
	s.mu.Unlock()

	for _, span := range spans {
		steps = append(steps, controller.Step{
			Duration: time.Duration((span.to - span.from) / span.steps),
			Probed:   overlaps(span.from, span.to),
		})
	}
	return steps
}
