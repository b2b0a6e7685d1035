package gpu

import (
	"errors"

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

// Errors of Used, where NVML has not reported one of its own.
var (
	errUnknownPID = errors.New("NVML lists PIDs of the host, and this process's is not known " +
		"before its first call of CUDA since tracing started")
	errWithoutMemory = errors.New("NVML lists the process without its memory")
	errNotListed     = errors.New("NVML does not list the process")
)

// Used returns the memory of a process on all GPUs, in bytes, or growth.Unknown. The error is why
// it is unknown; nil: NVML is being opened. pid is the process's PID in the initial PID namespace,
// as NVML counts; 0: it is not known.
func (m *Monitor) Used(pid int) (bytes int64, err error) {
	if m.monitor == nil {
		return growth.Unknown, m.err
	}
	if pid == 0 {
		return growth.Unknown, errUnknownPID
	}

	isListed := false
	for _, g := range m.last.GPUs {
		for _, p := range g.Processes {
			switch {
			case p.PID != pid:
			case p.Used == growth.Unknown:
				return growth.Unknown, m.readError(errWithoutMemory)
			default:
				bytes += p.Used
				isListed = true
			}
		}
	}

	if !isListed {
		return growth.Unknown, m.readError(errNotListed)
	}
	return bytes, nil
}

// readError returns why parts of the last reading are missing, or else the given error.
func (m *Monitor) readError(otherwise error) error {
	if m.last.Reason != "" {
		return errors.New(m.last.Reason)
	}
	return otherwise
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
