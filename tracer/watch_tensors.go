package tracer

import (
	"fmt"

	"github.com/allocscope/allocscope/bpf"
)

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
	if err := s.kernel.open(w.inForce()); err != nil || !ends {
		return err
	}
	return s.handOverTensors()
}

// handOverTensors moves the tensors that are alive among the survivors of the heap: their frees are not seen any more.
func (s *Session) handOverTensors() error {
	now := monotonic()
	return s.moveObjects(bpf.KernelMapTensors, bpf.KernelMapLive, func(key bpf.KernelAddress, a *bpf.KernelAllocation) {
		s.watch.survivors.known[key] = followed{born: a.Born, size: a.Size, stack: a.Stack, seen: now}
	})
}

// moveObjects moves all that are in one of the kernel's maps to another, and tells which could be. What finds no room there is lost.
func (s *Session) moveObjects(from, to string, moved func(bpf.KernelAddress, *bpf.KernelAllocation)) error {
	var keys []bpf.KernelAddress
	var values []bpf.KernelAllocation
	err := readMap(s.kernel.Maps[from], func(key *bpf.KernelAddress, a *bpf.KernelAllocation) {
		keys, values = append(keys, *key), append(values, *a)
	})
	if err != nil {
		return fmt.Errorf("read map %s: %w", from, err)
	}
	deleteAll(s.kernel.Maps[from], keys)
	for i, key := range keys {
		if s.kernel.Maps[to].Put(key, values[i]) != nil { // it is full
			s.watch.unfollowed += uint64(len(keys) - i)
			break
		}
		if moved != nil {
			moved(key, &values[i])
		}
	}
	return nil
}

// attachTensors attaches the probes on tensors in all targets, or detaches them. Where that fails, the target's source tells, or they go
// with our end.
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
			work = append(work, t.tensors.open)
		} else {
			work = append(work, t.tensors.close)
		}
	}
	_ = atOnce(work)
	if attach {
		return nil
	}
	w.tensorEpoch++
	return s.kernel.Variables[bpf.KernelVarTensorEpoch].Set(w.tensorEpoch)
}
