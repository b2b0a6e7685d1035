package tracer

import (
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/bpf"
)

// attachesTensors tells whether a new target's tensors are to be probed at once.
func (w *watch) attachesTensors() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tensors
}

// setIntervals changes the number of bytes between samples of what is open. At a tensor interval of 0 tensors count for the heap
// from now on.
func (s *Session) setIntervals(interval, tensorInterval uint64) error {
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.interval == interval && w.tensorInterval == tensorInterval {
		return nil
	}
	ends := w.tensorInterval != 0 && tensorInterval == 0
	w.interval, w.tensorInterval = interval, tensorInterval
	if !w.log.isOpen() {
		interval = 0
	}
	if err := s.kernel.open(interval, tensorInterval); err != nil || !ends {
		return err
	}
	return s.handOverTensors()
}

// handOverTensors moves the tensors that are alive among the survivors of the heap: their frees are not seen any more.
func (s *Session) handOverTensors() error {
	tensors, live := s.kernel.Maps[bpf.KernelMapTensors], s.kernel.Maps[bpf.KernelMapLive]
	var keys []bpf.KernelAddress
	var values []bpf.KernelAllocation
	err := readMap(tensors, func(key *bpf.KernelAddress, a *bpf.KernelAllocation) {
		keys, values = append(keys, *key), append(values, *a)
	})
	if err != nil {
		return fmt.Errorf("read map of tensors: %w", err)
	}
	deleteAll(tensors, keys)
	var errs []error
	for i, key := range keys {
		if err := live.Put(key, values[i]); err != nil {
			errs = append(errs, fmt.Errorf("follow a tensor: %w", err))
			break // the map is full
		}
		s.watch.survivors.known[key] = followed{values[i].Born, values[i].Size, values[i].Stack, monotonic()}
	}
	return errors.Join(errs...)
}

// attachTensors attaches the probes on tensors in all targets, or detaches them.
func (s *Session) attachTensors(attach bool) error {
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tensors == attach {
		return nil
	}
	w.tensors = attach
	var work []func() error
	for _, t := range s.list() {
		if attach {
			work = append(work, func() error { _ = t.tensors.open(); return nil }) // the source tells
		} else {
			work = append(work, t.tensors.close)
		}
	}
	return atOnce(work)
}
