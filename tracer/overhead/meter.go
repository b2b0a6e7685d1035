package overhead

import (
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// Usage counts the work of a process since its start.
type Usage struct {
	CPU    time.Duration
	Faults int64 // page faults
	Steps  int64 // of training
}

// Meter reads the work of the probes, and the usage of the traced processes.
type Meter struct {
	kernel  *kernel.Kernel
	reading *sync.Mutex // held while processes are read
	elapsed func() time.Duration
	usage   func() map[any]Usage // by target
	busy    func() bool          // unwind tables are being made
	live    func() float64       // how full the live map is
	steps   func() []controller.Step
	own     ownMeter

	counted controller.Reading // by the counters before the meter was made
	sum     controller.Reading // of the counts read by process, of Busiest, Waited and InShim
	Targets map[any]Usage      // at the last reading
}

// NewMeter returns a meter that counts from now on. Count needs reading to be held.
func NewMeter(
	k *kernel.Kernel, reading *sync.Mutex, elapsed func() time.Duration,
	usage func() map[any]Usage, busy func() bool, live func() float64,
	steps func() []controller.Step, own func() time.Duration,
) *Meter {
	m := &Meter{
		kernel: k, reading: reading, elapsed: elapsed, usage: usage, busy: busy, live: live, steps: steps,
		own: ownMeter{read: own}, Targets: make(map[any]Usage),
	}
	m.counted, _ = readCounters(k) // without it the calibration counts too, which is little
	return m
}

// Read takes a reading.
func (m *Meter) Read() (controller.Reading, error) {
	m.reading.Lock()
	now, err := m.Count()
	m.reading.Unlock()

	if err == nil {
		now.Timed = m.steps()
	}
	return now, err
}

// Count takes a reading without the times of steps. The caller holds reading.
func (m *Meter) Count() (controller.Reading, error) {
	now, err := readCounters(m.kernel)
	if err != nil {
		return now, err
	}
	now.Entries -= m.counted.Entries
	now.Stepped -= m.counted.Stepped
	now.TensorEntries -= m.counted.TensorEntries
	now.Returns -= m.counted.Returns
	now.MappingCalls -= m.counted.MappingCalls
	now.Samples -= m.counted.Samples
	now.NewStacks -= m.counted.NewStacks
	now.Walk -= m.counted.Walk
	now.KernelWalk -= m.counted.KernelWalk
	now.DriverCalls -= m.counted.DriverCalls
	now.ProducerCalls -= m.counted.ProducerCalls
	now.ProducerSamples -= m.counted.ProducerSamples
	now.ProducerWalk -= m.counted.ProducerWalk
	now.Blocks -= m.counted.Blocks
	now.BlockSamples -= m.counted.BlockSamples
	now.BlockWalk -= m.counted.BlockWalk

	now.At = m.elapsed()
	m.readTargets()
	own := m.own.take(m.elapsed() >= startPeriod && !m.busy())
	busiest, err := m.kernel.TakeBusiest()
	if err != nil {
		return now, err
	}
	m.sum.Busiest += busiest.InProbes
	m.sum.Waited += busiest.Waited
	m.sum.InShim += busiest.InShim
	now.Traced, now.Faults = m.sum.Traced, m.sum.Faults
	now.Own = own.Own
	now.Steps, now.Busiest, now.Waited = m.sum.Steps, m.sum.Busiest, m.sum.Waited
	now.InShim = m.sum.InShim
	now.LiveShare = m.live()
	return now, nil
}

// readTargets adds the usage of the traced processes since the last reading. A new process counts
// from its second reading on.
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

// startPeriod is the least time that a start takes: libraries are read, and the first stacks named.
const startPeriod = 5 * time.Second

// readCounters reads the kernel side's counters of events that have a cost.
func readCounters(k *kernel.Kernel) (controller.Reading, error) {
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
		NewStacks:     values[bpf.CountNewStacks],
		Walk:          time.Duration(values[bpf.CountWalkNs]),
		KernelWalk:    time.Duration(values[bpf.CountKernelWalkNs]),
		DriverCalls:   values[bpf.CountGpuCalls],
		Blocks:        values[bpf.CountBlocks],
		BlockSamples:  values[bpf.CountBlockSamples],
		BlockWalk:     time.Duration(values[bpf.CountBlockWalkNs]),

		ProducerCalls:   values[bpf.CountProducerCalls],
		ProducerSamples: values[bpf.CountProducerSamples],
		ProducerWalk:    time.Duration(values[bpf.CountProducerWalkNs]),
	}, nil
}
