package gpu

import (
	"errors"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/gpu/nvml"
)

// Monitor reads NVML once a process that uses a GPU has been found. The zero value has not opened
// NVML.
type Monitor struct {
	Started bool            // NVML is being opened, or has been
	opening chan openedNVML // nil: NVML is not being opened
	monitor *nvml.Monitor   // nil: not opened, or not available
	err     error           // why NVML is not available; nil: it is, or this is not known yet
	last    nvml.Reading
}

// openedNVML is the result of nvml.Open.
type openedNVML struct {
	monitor *nvml.Monitor
	err     error
}

// Read takes a reading. The first call begins to open NVML, which may take long, in another
// goroutine. There are no figures before that has ended. library is the path of libnvidia-ml.so.1;
// empty: where the dynamic linker finds it.
func (m *Monitor) Read(library string) {
	if !m.Started {
		m.Started, m.opening = true, make(chan openedNVML, 1)
		go func(to chan<- openedNVML) {
			monitor, err := nvml.Open(library)
			to <- openedNVML{monitor: monitor, err: err}
		}(m.opening)
	}

	select {
	case opened := <-m.opening:
		m.setOpened(opened)
	default:
	}

	if m.monitor != nil {
		m.last = m.monitor.Read()
	}
}

// setOpened takes the result of nvml.Open.
func (m *Monitor) setOpened(opened openedNVML) {
	m.opening, m.monitor, m.err = nil, opened.monitor, opened.err
}

// Close closes NVML, after it has been opened.
func (m *Monitor) Close() error {
	if m.opening != nil {
		m.setOpened(<-m.opening) // nvml.Open waits for half a second at most
	}
	if m.monitor == nil {
		return nil
	}
	return m.monitor.Close()
}

// Used returns the memory of a process on all GPUs, in bytes, or growth.Unknown and why it is
// unknown; no reason: NVML is being opened. pid is the process's PID in the initial PID namespace,
// as NVML counts; 0: it is not known.
func (m *Monitor) Used(pid int) (bytes int64, why growth.GPUUnknown) {
	if m.monitor == nil {
		return growth.Unknown, m.unavailable()
	}
	if pid == 0 {
		return growth.Unknown, growth.GPUUnknown{Reason: growth.GPUUnknownPID}
	}

	isListed := false
	for _, g := range m.last.GPUs {
		for _, p := range g.Processes {
			switch {
			case p.PID != pid:
			case p.Used == growth.Unknown:
				return growth.Unknown, m.unread(growth.GPUWithoutMemory)
			default:
				bytes += p.Used
				isListed = true
			}
		}
	}

	if !isListed {
		return growth.Unknown, m.unread(growth.GPUNotListed)
	}
	return bytes, growth.GPUUnknown{}
}

// unavailableReasons are the errors of nvml.Open that have a code.
var unavailableReasons = map[error]growth.GPUReason{
	nvml.ErrNotBuilt: growth.GPUNotBuilt, nvml.ErrNoLibrary: growth.GPUNoLibrary,
	nvml.ErrLibrary: growth.GPUBadLibrary, nvml.ErrNoDriver: growth.GPUNoDriver,
	nvml.ErrMismatch: growth.GPUMismatch, nvml.ErrNoPermission: growth.GPUNoPermission,
}

// unavailable is why NVML could not be opened. It is empty while NVML is being opened.
func (m *Monitor) unavailable() growth.GPUUnknown {
	if m.err == nil {
		return growth.GPUUnknown{}
	}

	why := growth.GPUUnknown{Reason: growth.GPUOther, Detail: growth.Detail(m.err.Error())}
	unavailable, ok := errors.AsType[*nvml.UnavailableError](m.err)
	if !ok {
		return why
	}
	for err, reason := range unavailableReasons {
		if errors.Is(unavailable, err) {
			why = growth.GPUUnknown{Reason: reason, NVIDIA: unavailable.NVIDIA}
		}
	}
	if why.Reason == growth.GPUBadLibrary {
		_, detail, _ := strings.Cut(unavailable.Err.Error(), ": ")
		why.Detail = growth.Detail(detail)
	}
	return why
}

// unread is why parts of the last reading are missing, or else the given reason.
func (m *Monitor) unread(otherwise growth.GPUReason) growth.GPUUnknown {
	switch {
	case m.last.Waited != 0:
		return growth.GPUUnknown{Reason: growth.GPUNoAnswer, Waited: m.last.Waited.Seconds()}
	case m.last.Reason != "":
		return growth.GPUUnknown{Reason: growth.GPUOther, Detail: growth.Detail(m.last.Reason)}
	}
	return growth.GPUUnknown{Reason: otherwise}
}

// Samples returns the memory of each GPU, and its traced users. traced maps PIDs in the initial
// PID namespace to those that allocscope uses.
func (m *Monitor) Samples(traced map[int]int) []growth.GPUSample {
	var samples []growth.GPUSample
	for _, g := range m.last.GPUs {
		sample := growth.GPUSample{
			Index: g.Index, Instance: g.Instance, UUID: g.UUID, Name: g.Name,
			Used: g.Used, Total: g.Total,
		}
		for _, p := range g.Processes {
			if pid, ok := traced[p.PID]; ok {
				sample.Users = append(sample.Users, pid)
			}
		}
		samples = append(samples, sample)
	}

	return samples
}
