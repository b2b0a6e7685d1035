package nvml

import (
	"cmp"
	"fmt"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/gpu/nvml"
)

const (
	// answerBound is how long a caller waits for NVML.
	answerBound = 500 * time.Millisecond
	// staleReadings is for how many readings in turn the figures of an earlier one stand for those that are late.
	staleReadings = 3
)

// A Monitor reads NVML. Its methods may be called from one goroutine at a time.
//
// NVML is asked on a goroutine of its own, one call at a time: in a broken driver a call may block for good. No method waits
// for it longer than half a second.
type Monitor struct {
	reader *reader // of the goroutine while there is one
	bound  time.Duration
	answer chan Reading // of the goroutine
	busy   bool         // there is a goroutine
	closed bool
	last   Reading
	missed int // readings in turn that were late
}

// Open loads NVML. library: path of libnvidia-ml.so.1; empty: where the dynamic linker finds it. It runs inside this program, so
// it must be the machine's own, never one of a container that is looked at, and a program loads one library in its life. While
// NVML is open the driver cannot be unloaded, as with every program that uses a GPU.
//
// The errors are *Absence. A driver that is slow to start is no error: the readings say so until it has started.
func Open(library string) (*Monitor, error) {
	return open(newDriver(library), answerBound)
}

func open(d driver, bound time.Duration) (*Monitor, error) {
	m := &Monitor{reader: &reader{driver: d}, bound: bound, answer: make(chan Reading, 1)}
	m.begin(func() Reading {
		if m.reader.start() != nil {
			return m.reader.without(m.reader.down)
		}
		return Reading{}
	})
	if m.await() && m.reader.down != nil {
		return nil, m.reader.down
	}
	return m, nil
}

// Read asks for everything once. Where NVML does not answer in time, it gives the reading before with the reason, for a few
// readings; after those the figures are growth.Unknown.
func (m *Monitor) Read() Reading {
	if m.closed {
		return Reading{Reason: "NVML is closed"}
	}
	if m.busy && !m.poll() {
		return m.late()
	}
	m.begin(m.reader.read)
	if !m.await() {
		return m.late()
	}
	return m.last
}

// Close ends NVML. Where NVML does not answer, it is left as it is, and the error says so. The monitor is of no use then.
func (m *Monitor) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	if !m.busy || m.await() {
		m.begin(func() Reading {
			m.reader.stop()
			return Reading{}
		})
		if m.await() {
			return nil
		}
	}
	return fmt.Errorf("close NVML: no answer within %v (the driver hangs: see dmesg)", m.bound)
}

// begin has the goroutine do something, which must not be busy.
func (m *Monitor) begin(work func() Reading) {
	m.busy = true
	go func() { m.answer <- work() }()
}

// await waits for the answer as long as is allowed; false: there is none.
func (m *Monitor) await() bool {
	timer := time.NewTimer(m.bound)
	defer timer.Stop()
	select {
	case reading := <-m.answer:
		m.take(reading)
	case <-timer.C:
		return m.poll()
	}
	return true
}

// poll takes the answer if there is one.
func (m *Monitor) poll() bool {
	select {
	case reading := <-m.answer:
		m.take(reading)
		return true
	default:
		return false
	}
}

func (m *Monitor) take(reading Reading) { m.last, m.busy, m.missed = reading, false, 0 }

// late is what is told while NVML does not answer.
func (m *Monitor) late() Reading {
	reading := m.last
	reading.Reason = fmt.Sprintf("NVML has not answered within %v", m.bound)
	if m.missed++; m.missed > staleReadings {
		reading.GPUs = unread(reading.GPUs)
	} else if len(reading.GPUs) > 0 {
		reading.Reason += ": these are figures of the reading before"
	}
	return reading
}

// Monitor is what NVML tells of the GPUs, from when a process that uses one was found. The zero value has asked for nothing.
type Monitor struct {
	opening chan openedNVML // nil: nobody needs it yet, or it has been opened
	Asked   bool
	monitor *nvml.Monitor // nil: there is none
	absent  string        // why; empty: it is not known yet
	last    nvml.Reading
}

// openedNVML is what came of opening NVML.
type openedNVML struct {
	monitor *nvml.Monitor
	err     error
}

// read takes a reading. Opening NVML may take long, and goes on beside.
func (g *Monitor) Read(library string) {
	if !g.Asked {
		g.Asked, g.opening = true, make(chan openedNVML, 1)
		go func(to chan<- openedNVML) {
			monitor, err := nvml.Open(library)
			to <- openedNVML{monitor, err}
		}(g.opening)
	}
	select {
	case opened := <-g.opening:
		g.take(opened)
	default:
	}
	if g.monitor != nil {
		g.last = g.monitor.Read()
	}
}

func (g *Monitor) take(opened openedNVML) {
	g.opening, g.monitor = nil, opened.monitor
	if opened.err != nil {
		g.monitor, g.absent = nil, opened.err.Error()
	}
}

// close ends NVML.
func (g *Monitor) Close() error {
	if g.opening != nil {
		g.take(<-g.opening) // it waits for no more than half a second
	}
	if g.monitor == nil {
		return nil
	}
	return g.monitor.Close()
}

// used is what a process has of all GPUs together, in bytes, by its PID in the initial namespace, which NVML goes by; Unknown, with
// the reason, where it does not tell. 0 stands for a PID that is not known.
func (g *Monitor) Used(pid int) (bytes int64, reason string) {
	if g.monitor == nil {
		return growth.Unknown, g.absent
	}
	if pid == 0 {
		return growth.Unknown, "NVML counts PIDs of the host, and this one's is not known before its first call of CUDA since the attach"
	}
	isListed := false
	for _, on := range g.last.GPUs {
		for _, p := range on.Processes {
			switch {
			case p.PID != pid:
			case p.Used == growth.Unknown:
				return growth.Unknown, cmp.Or(g.last.Reason, "NVML lists the process and does not tell its memory")
			default:
				bytes += p.Used
				isListed = true
			}
		}
	}
	if !isListed {
		return growth.Unknown, cmp.Or(g.last.Reason, "NVML does not list the process")
	}
	return bytes, ""
}

// samples are the GPUs' own. traced are the PIDs of traced processes, by those that NVML goes by.
func (g *Monitor) Samples(traced map[int]int) []growth.GPUSample {
	var samples []growth.GPUSample
	for _, on := range g.last.GPUs {
		sample := growth.GPUSample{
			Index: on.Index, Instance: on.Instance, UUID: on.UUID, Name: on.Name, Used: on.Used, Total: on.Total,
		}
		for _, p := range on.Processes {
			if pid, ok := traced[p.PID]; ok {
				sample.Users = append(sample.Users, pid)
			}
		}
		samples = append(samples, sample)
	}
	return samples
}
