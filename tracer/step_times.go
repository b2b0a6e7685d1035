package tracer

import (
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// stepTimes are the steps of training since they were taken last, of all targets.
type stepTimes struct {
	mu    sync.Mutex
	last  map[uint32]stepMoment // by PID
	spans []stepSpan
}

// A stepMoment is when a process had made so many steps, in ns, CLOCK_MONOTONIC.
type stepMoment struct{ time, calls uint64 }

// A stepSpan is the time in which so many steps were made.
type stepSpan struct{ from, to, steps uint64 }

// mostSpans bounds what is kept until it is taken.
const mostSpans = 4096

// told takes in a notice.
func (s *stepTimes) add(n bpf.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = make(map[uint32]stepMoment)
	}
	before, ok := s.last[n.Tgid]
	s.last[n.Tgid] = stepMoment{n.Time, n.Length}
	if !ok || n.Time <= before.time || n.Length <= before.calls {
		return
	}
	if len(s.spans) < mostSpans {
		s.spans = append(s.spans, stepSpan{before.time, n.Time, n.Length - before.calls})
	}
}

// forget a process whose PID may be another's soon.
func (s *stepTimes) forget(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, pid)
}

// take gives how long the new ones took.
func (s *stepTimes) take(overlaps func(from, to uint64) bool) (timed []controller.Step) {
	s.mu.Lock()
	spans := s.spans
	s.spans = nil
	s.mu.Unlock()
	for _, span := range spans {
		timed = append(timed, controller.Step{
			Duration: time.Duration((span.to - span.from) / span.steps),
			Probed:   overlaps(span.from, span.to),
		})
	}
	return timed
}
