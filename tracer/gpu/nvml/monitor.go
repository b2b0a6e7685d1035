package nvml

import (
	"fmt"
	"time"
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
