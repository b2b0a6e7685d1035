package tracer

import (
	"github.com/allocscope/allocscope/tracer/source"
)

// A StepCounter is the counter of steps for tests, which call Update where the unwinder does.
type StepCounter struct {
	*source.Steps
	session *Session
}

// CountSteps makes a counter for a session's process and lets it look at the mappings of the moment.
func CountSteps(s *Session, symbol string) (StepCounter, error) {
	c := StepCounter{source.NewSteps(s.kernel, s.Process, symbol), s}
	return c, c.Update()
}

// Update lets it look at the mappings again.
func (c StepCounter) Update() error {
	maps, err := c.session.Process.Maps()
	if err == nil {
		c.Steps.Update(maps)
	}
	return err
}

func (c StepCounter) Source() source.Status { return c.Status() }

// Looked is how many files it has looked at.
func (c StepCounter) Looked() int { return len(c.Examined) }
