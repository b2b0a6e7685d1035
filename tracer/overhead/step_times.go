package overhead

import (
	"sync"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// StepTimes collects the times of the training steps of all processes until the controller takes
// them. The zero value is empty. Its methods may be called concurrently.
type StepTimes struct {
	mu    sync.Mutex
	last  map[uint32]stepCount // by PID
	spans []stepSpan
}

// A stepCount is the number of steps that a process had made at a time in ns, CLOCK_MONOTONIC.
type stepCount struct{ time, steps uint64 }

// A stepSpan is a time, in ns, CLOCK_MONOTONIC, in which a process made some steps.
type stepSpan struct{ from, to, steps uint64 }

// maxStepSpans bounds the spans kept if nothing takes them.
const maxStepSpans = 4096

// Add records that a process has made so many steps since it started, at a time in ns,
// CLOCK_MONOTONIC.
func (s *StepTimes) Add(pid uint32, time, steps uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.last == nil {
		s.last = make(map[uint32]stepCount)
	}
	before, ok := s.last[pid]
	s.last[pid] = stepCount{time, steps}
	if !ok || time <= before.time || steps <= before.steps {
		return
	}
	if len(s.spans) < maxStepSpans {
		s.spans = append(s.spans, stepSpan{before.time, time, steps - before.steps})
	}
}

// Forget forgets a process: another one may get its PID.
func (s *StepTimes) Forget(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, pid)
}

// Take returns the mean step times of the spans since the last call. probed reports whether probes
// were open at any time in a span.
func (s *StepTimes) Take(probed func(from, to uint64) bool) (steps []controller.Step) {
	s.mu.Lock()
	spans := s.spans
	s.spans = nil
	s.mu.Unlock()

	for _, span := range spans {
		steps = append(steps, controller.Step{
			Duration: time.Duration((span.to - span.from) / span.steps),
			Probed:   probed(span.from, span.to),
		})
	}
	return steps
}
