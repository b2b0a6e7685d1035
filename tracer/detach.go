package tracer

import (
	"errors"
	"sync"
)

// detach takes all probes away, at a time: for each of them the kernel waits until nobody is inside.
func (s *Session) detach() error {
	var closes []func() error
	for _, t := range s.targets.list() {
		closes = append(closes, t.detach)
	}
	for _, l := range s.links {
		closes = append(closes, l.Close)
	}
	return parallel(closes)
}

// parallel does all at a time.
func parallel(work []func() error) error {
	errs := make([]error, len(work))
	var working sync.WaitGroup
	for i, do := range work {
		working.Go(func() { errs[i] = do() })
	}
	working.Wait()
	return errors.Join(errs...)
}
