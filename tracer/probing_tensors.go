package tracer

import (
	"fmt"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/cilium/ebpf"
)

// setIntervals changes the number of bytes between samples of what is open. At a tensor interval of 0 tensors count for the heap
// from now on.
func (w *probing) SetIntervals(interval, tensorInterval uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.interval == interval && w.tensorInterval == tensorInterval {
		return nil
	}
	ends := w.tensorInterval != 0 && tensorInterval == 0
	w.interval, w.tensorInterval = interval, tensorInterval
	if err := w.kernel.SetIntervals(w.activeIntervals()); err != nil || !ends {
		return err
	}
	return w.handOverTensors()
}

// handOverTensors moves the tensors that are alive among the survivors of the heap: their frees are not seen any more.
func (w *probing) handOverTensors() error {
	now := kernel.Monotonic()
	return w.moveObjects(w.kernel.Tensors, w.kernel.Live, func(key bpf.Address, a *bpf.Allocation) {
		w.tracker.Adopt(key, a, now)
	})
}

// moveObjects moves all that are in one of the kernel's maps to another, and tells which could be. What finds no room there is lost.
func (w *probing) moveObjects(from, to *ebpf.Map, moved func(bpf.Address, *bpf.Allocation)) error {
	var keys []bpf.Address
	var values []bpf.Allocation
	err := kernel.ReadMap(from, func(key *bpf.Address, a *bpf.Allocation) {
		keys, values = append(keys, *key), append(values, *a)
	})
	if err != nil {
		return fmt.Errorf("read map %v: %w", from, err)
	}
	kernel.DeleteKeys(from, keys)
	for i, key := range keys {
		if to.Put(key, values[i]) != nil { // it is full
			w.untracked += uint64(len(keys) - i)
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
func (w *probing) AttachTensors(attach bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tensors == attach {
		return nil
	}
	w.tensors = attach
	var work []func() error
	for _, t := range w.targets.list() {
		if attach {
			work = append(work, t.tensors.Open)
		} else {
			work = append(work, t.tensors.Close)
		}
	}
	_ = parallel(work)
	if attach {
		return nil
	}
	w.tensorEpoch++
	return w.kernel.TensorEpoch.Set(w.tensorEpoch)
}

// followBlocks follows blocks in all targets from now on, one in so many bytes, or reads their totals alone.
func (w *probing) FollowBlocks(follow bool, interval uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !follow {
		interval = 0
	}
	if w.blockInterval == interval {
		return nil
	}
	if err := w.kernel.BlockInterval.Set(uint32(interval)); err != nil {
		return err
	}
	w.blockInterval = interval
	for _, t := range w.targets.list() {
		_ = t.gpu.FollowBlocks(follow) // the source tells what cannot be attached; what cannot be detached goes with our end
	}
	if follow {
		return nil
	}
	return kernel.DeleteWhere(w.kernel.GpuLive, func(_ *bpf.GpuAddress, m *bpf.GpuMemory) bool {
		return m.Kind == bpf.KindBlock
	})
}
