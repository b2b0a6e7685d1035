package tracer

import (
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/process"
)

// meter reads what tracing has done and what the processes of the tree have used.
type meter struct {
	session *Session
	zero    controller.Reading // what the counters had counted before
	sum     controller.Reading // of what cannot be read as a total
	targets map[*target]usage
	own     time.Duration
	started bool // up
}

// usage of a target when it was looked at last.
type usage struct {
	cpu    time.Duration
	faults int64
	steps  int64
}

func newMeter(s *Session) *meter {
	m := &meter{session: s, targets: make(map[*target]usage), own: process.OwnCPUTime()}
	m.zero, _ = readEvents(s.kernel) // else calibration counts, which is little
	return m
}

// read takes a reading.
func (m *meter) read() (controller.Reading, error) {
	m.session.reading.Lock()
	now, err := m.count()
	m.session.reading.Unlock()
	if err == nil {
		now.Timed = m.session.stepTimes.take(m.session.watch)
	}
	return now, err
}

// count is a reading without the times of steps. The session's reading is held.
func (m *meter) count() (controller.Reading, error) {
	now, err := readEvents(m.session.kernel)
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
	now.DeviceCalls -= m.zero.DeviceCalls
	now.Blocks -= m.zero.Blocks
	now.BlockTime -= m.zero.BlockTime
	now.BlockWalk -= m.zero.BlockWalk
	now.At = m.session.Elapsed()
	m.readTargets()
	m.readOwn()
	now.Traced, now.Faults, now.Own, now.Steps = m.sum.Traced, m.sum.Faults, m.sum.Own, m.sum.Steps
	return now, nil
}

func (m *meter) readTargets() {
	targets := make(map[*target]usage)
	for _, t := range m.session.list() {
		cpu, err := t.process.CPUTime()
		stat, statErr := t.process.Stat()
		if err != nil || statErr != nil {
			continue // it has ended
		}
		now := usage{cpu, stat.MinorFaults + stat.MajorFaults, max(0, t.steps.count())}
		if before, ok := m.targets[t]; ok {
			m.sum.Traced += max(0, now.cpu-before.cpu)
			m.sum.Faults += uint64(max(0, now.faults-before.faults))
			m.sum.Steps += int(max(0, now.steps-before.steps))
		}
		targets[t] = now
	}
	m.targets = targets
}

// readOwn leaves out the start, until the unwind tables have been made.
func (m *meter) readOwn() {
	now := process.OwnCPUTime()
	m.started = m.started || !m.session.tables.Busy()
	if m.started {
		m.sum.Own += now - m.own
	}
	m.own = now
}
