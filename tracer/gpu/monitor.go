package gpu

import (
	"cmp"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/gpu/nvml"
)

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
