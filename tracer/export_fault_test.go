package tracer

import (
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/source"
)

// A Fault is a sampled page fault for tests.
type Fault struct {
	Page, Stack uint64
	Stands      float64
	Copied      bool
}

// AttachFaults attaches source fault; the caller closes the links.
func (s *Session) AttachFaults(interval uint64) (source.Status, []link.Link) {
	return source.AttachFaults(s.kernel, interval)
}

// Faults are the sampled page faults by process.
func (s *Session) Faults() (map[int][]Fault, error) {
	read, err := source.ReadFaults(s.kernel)
	faults := make(map[int][]Fault)
	for tgid, of := range read {
		for _, f := range of {
			faults[int(tgid)] = append(faults[int(tgid)], Fault{f.Page, f.Stack, f.Weight, f.Copied})
		}
	}
	return faults, err
}

// ForgetFaults forgets those of some pages of a process.
func (s *Session) ForgetFaults(pid int, pages []uint64) {
	source.ForgetFaults(s.kernel, uint32(pid), pages)
}

// SampledFaults is how many have been sampled since the attach.
func (s *Session) SampledFaults() (uint64, error) {
	values, err := kernel.ReadCounters(s.kernel.Counters)
	if err != nil {
		return 0, err
	}
	return values[bpf.CountFaults], nil
}

// MaxFaults is how many pages the kernel side remembers faults of.
const MaxFaults = kernel.MaxFaults

// FaultPeriod is the number of page faults of which one is sampled.
func FaultPeriod(interval uint64) uint64 { return source.FaultPeriod(interval) }
