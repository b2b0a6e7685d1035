package tracer

import (
	"errors"
	"sync"
)

// detach takes all probes away, at a time: for each of them the kernel waits until nobody is inside.
func (s *Session) detach() error {
	var closes []func() error
	for _, t := range s.list() {
		closes = append(closes, t.detach)
	}
	for _, l := range s.links {
		closes = append(closes, l.Close)
	}
	errs := make([]error, len(closes))
	var detaching sync.WaitGroup
	for i, end := range closes {
		detaching.Go(func() { errs[i] = end() })
	}
	detaching.Wait()
	return errors.Join(errs...)
}
