package nvml

import (
	"fmt"
	"time"
)

const (
	// answerTimeout is how long a caller waits for NVML.
	answerTimeout = 500 * time.Millisecond
	// maxStaleReadings is how many late readings in a row show the figures of the last complete
	// one.
	maxStaleReadings = 3
)

// A Monitor reads NVML. Its methods may be called by one goroutine at a time.
//
// A goroutine of its own calls NVML, one call at a time, as a call may block forever in a broken
// driver. No method waits for it longer than half a second.
type Monitor struct {
	reader  *reader // used by the goroutine while busy
	timeout time.Duration
	answer  chan Reading // from the goroutine
	busy    bool         // the goroutine is running
	closed  bool
	last    Reading
	late    int // readings in a row without an answer
}

// Open loads NVML from the path library, or from where the dynamic linker finds libnvidia-ml.so.1
// if it is empty. The library runs inside this program: it must be the host's, never a traced
// container's. A program can load only one. While NVML is open the driver cannot be unloaded, as
// with every program that uses a GPU.
//
// The errors are *UnavailableError. A driver that is slow to start is no error: the readings give
// it as their Reason until it has started.
func Open(library string) (*Monitor, error) {
	return open(newDriver(library), answerTimeout)
}

func open(d driver, timeout time.Duration) (*Monitor, error) {
	m := &Monitor{reader: &reader{driver: d}, timeout: timeout, answer: make(chan Reading, 1)}

	m.begin(func() Reading {
		if m.reader.start() != nil {
			return m.reader.failed(m.reader.startError)
		}
		return Reading{}
	})
	if m.await() && m.reader.startError != nil {
		return nil, m.reader.startError
	}

	return m, nil
}

// Read reads all GPUs once. If NVML does not answer in time, the reading shows the figures of the
// last complete one, for a few readings, and growth.Unknown after those.
func (m *Monitor) Read() Reading {
	if m.closed {
		return Reading{Reason: "NVML is closed"}
	}
	if m.busy && !m.poll() {
		return m.lateReading()
	}

	m.begin(m.reader.read)
	if !m.await() {
		return m.lateReading()
	}
	return m.last
}

// Close shuts NVML down; the monitor cannot be used afterwards. If NVML does not answer, it stays
// as it is, and Close returns an error.
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
	return fmt.Errorf("close NVML: no answer within %v (the driver hangs: see dmesg)", m.timeout)
}

// begin runs work on the goroutine, which must not be busy.
func (m *Monitor) begin(work func() Reading) {
	m.busy = true
	go func() { m.answer <- work() }()
}

// await waits for the answer up to the timeout, and reports whether it came.
func (m *Monitor) await() bool {
	timer := time.NewTimer(m.timeout)
	defer timer.Stop()

	select {
	case reading := <-m.answer:
		m.accept(reading)
	case <-timer.C:
		return m.poll()
	}
	return true
}

// poll accepts the answer if it has come, and reports whether it has.
func (m *Monitor) poll() bool {
	select {
	case reading := <-m.answer:
		m.accept(reading)
		return true
	default:
		return false
	}
}

func (m *Monitor) accept(reading Reading) { m.last, m.busy, m.late = reading, false, 0 }

// lateReading returns the reading for a call that NVML does not answer in time.
func (m *Monitor) lateReading() Reading {
	reading := m.last
	reading.Waited = m.timeout
	reading.Reason = fmt.Sprintf("NVML has not answered within %v", m.timeout)

	if m.late++; m.late > maxStaleReadings {
		reading.GPUs = withoutFigures(reading.GPUs)
	} else if len(reading.GPUs) > 0 {
		reading.Reason += ": these are figures of the reading before"
	}
	return reading
}
