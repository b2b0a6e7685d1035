package tracer

import (
	"fmt"

	"github.com/allocscope/allocscope/bpf"
)

// readTallies sums by stack what has been allocated since the attach.
func (w *watch) readTallies(sums map[origin]*sum, devices *deviceBooks) error {
	tallies := w.kernel.Maps[bpf.KernelMapTallies]
	entries := 0
	err := readMap(tallies, func(key *bpf.KernelTallyKey, t *bpf.KernelTally) {
		entries++
		devices.tallied(sums, key).addTally(key, t, 1)
	})
	if err != nil {
		return fmt.Errorf("read tallies: %w", err)
	}
	for _, t := range w.targets.list() {
		for id, folded := range t.folded {
			sumOf(sums, origin{uint32(t.process.PID), id}).addAllocated(folded)
		}
		for of, folded := range t.foldedDevices {
			sumOf(devices.sums, of).addAllocated(folded)
		}
	}
	if entries > int(tallies.MaxEntries()/2) && !w.log.inWindow() { // what its counts stand for is known at its end
		return w.foldTallies(func(uint32) float64 { return 1 })
	}
	return nil
}

// foldTallies empties the kernel's tallies into user space: before they are full, and at the end of a window, of which what has been
// counted stands for so much more, by process. What is added to an entry in the moment of its removal is lost.
func (w *watch) foldTallies(factor func(tgid uint32) float64) error {
	taken, devices := make(map[origin]*sum), newDeviceBooks()
	err := takeTallies(w.kernel.Maps[bpf.KernelMapTallies], func(key *bpf.KernelTallyKey) *sum { return devices.tallied(taken, key) }, func(key *bpf.KernelTallyKey) float64 {
		if !hasSpells(key.Kind, w.tensorsAlone) {
			return 1
		}
		return factor(key.Tgid)
	})
	w.notices.flush() // and with it every stack that the above may name
	for from, sum := range taken {
		if t := w.targets.find(from.tgid); t != nil {
			sumOf(t.folded, t.stacks.get(from.stack).ID).addAllocated(sum)
		}
	}
	for of, sum := range devices.sums {
		if t := w.targets.find(of.tgid); t != nil {
			of.stack = t.stacks.get(of.stack).ID
			sumOf(t.foldedDevices, of).addAllocated(sum)
		}
	}
	return err
}
