package overhead

import (
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/process"
)

// meter reads what tracing has done and what the processes of the tree have used.
type Meter struct {
	kernel  *kernel.Kernel
	reading *sync.Mutex // held while processes are read
	elapsed func() time.Duration
	usage   func() map[any]Usage
	busy    func() bool // unwind tables are being made
	steps   func() []controller.Step
	zero    controller.Reading // what the counters had counted before
	sum     controller.Reading // of what cannot be read as a total
	Targets map[any]Usage
	own     time.Duration
	started bool // up
}

// Usage of a process since its start: CPU time, page faults and steps of training.
type Usage struct {
	CPU    time.Duration
	Faults int64
	Steps  int64
}

func NewMeter(k *kernel.Kernel, reading *sync.Mutex, elapsed func() time.Duration, usage func() map[any]Usage, busy func() bool, steps func() []controller.Step) *Meter {
	m := &Meter{
		kernel: k, reading: reading, elapsed: elapsed, usage: usage, busy: busy, steps: steps,
		Targets: make(map[any]Usage), own: process.OwnCPUTime(),
	}
	m.zero, _ = readEvents(k) // else calibration counts, which is little
	return m
}

// read takes a reading.
func (m *Meter) Read() (controller.Reading, error) {
	m.reading.Lock()
	now, err := m.Count()
	m.reading.Unlock()
	if err == nil {
		now.Timed = m.steps()
	}
	return now, err
}

// count is a reading without the times of steps. The session's reading is held.
func (m *Meter) Count() (controller.Reading, error) {
	now, err := readEvents(m.kernel)
	if err != nil {
		return now, err
	}
	now.Entries -= m.zero.Entries
	now.Stepped -= m.zero.Stepped
	now.TensorEntries -= m.zero.TensorEntries
	now.Returns -= m.zero.Returns
	now.MappingCalls -= m.zero.MappingCalls
	now.Samples -= m.zero.Samples
	now.Walk -= m.zero.Walk
	now.KernelWalk -= m.zero.KernelWalk
	now.DriverCalls -= m.zero.DriverCalls
	now.Blocks -= m.zero.Blocks
	now.BlockTime -= m.zero.BlockTime
	now.BlockWalk -= m.zero.BlockWalk
	now.At = m.elapsed()
	m.readTargets()
	m.readOwn()
	now.Traced, now.Faults, now.Own, now.Steps = m.sum.Traced, m.sum.Faults, m.sum.Own, m.sum.Steps
	return now, nil
}

func (m *Meter) readTargets() {
	targets := m.usage()
	for t, now := range targets {
		if before, ok := m.Targets[t]; ok {
			m.sum.Traced += max(0, now.CPU-before.CPU)
			m.sum.Faults += uint64(max(0, now.Faults-before.Faults))
			m.sum.Steps += int(max(0, now.Steps-before.Steps))
		}
	}
	m.Targets = targets
}

// readOwn leaves out the start, until the unwind tables have been made.
func (m *Meter) readOwn() {
	now := process.OwnCPUTime()
	m.started = m.started || !m.busy()
	if m.started {
		m.sum.Own += now - m.own
	}
	m.own = now
}

// readEvents reads what has been counted of events that cost something.
func readEvents(k *kernel.Kernel) (controller.Reading, error) {
	values, err := kernel.ReadCounters(k.Counters)
	if err != nil {
		return controller.Reading{}, err
	}
	return controller.Reading{
		Entries:       values[bpf.CountEntries],
		Stepped:       values[bpf.CountStepped],
		TensorEntries: values[bpf.CountTensorEntries],
		Returns:       values[bpf.CountReturns],
		MappingCalls:  values[bpf.CountMappingCalls],
		Samples:       values[bpf.CountSamples],
		Walk:          time.Duration(values[bpf.CountWalkNs]),
		KernelWalk:    time.Duration(values[bpf.CountKernelWalkNs]),
		DriverCalls:   values[bpf.CountGpuCalls],
		Blocks:        values[bpf.CountBlocks],
		BlockTime:     time.Duration(values[bpf.CountBlockNs]),
		BlockWalk:     time.Duration(values[bpf.CountBlockWalkNs]),
	}, nil
}
