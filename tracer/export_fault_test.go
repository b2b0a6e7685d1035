package tracer

import (
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
)

// A Fault is a sampled page fault for tests.
type Fault struct {
	Page, Stack uint64
	Stands      float64
	Copied      bool
}

// AttachFaults attaches source fault; the caller closes the links.
func (s *Session) AttachFaults(interval uint64) (Source, []link.Link) {
	return attachFaults(s.kernel, interval)
}

// Faults are the sampled page faults by process.
func (s *Session) Faults() (map[int][]Fault, error) {
	read, err := readFaults(s.kernel)
	faults := make(map[int][]Fault)
	for tgid, of := range read {
		for _, f := range of {
			faults[int(tgid)] = append(faults[int(tgid)], Fault{f.page, f.stack, f.stands, f.copied})
		}
	}
	return faults, err
}

// ForgetFaults forgets those of some pages of a process.
func (s *Session) ForgetFaults(pid int, pages []uint64) { forgetFaults(s.kernel, uint32(pid), pages) }

// SampledFaults is how many have been sampled since the attach.
func (s *Session) SampledFaults() (uint64, error) {
	values, err := readCounters(s.kernel.Maps[bpf.KernelMapCounters])
	if err != nil {
		return 0, err
	}
	return values[bpf.KernelCounterCOUNT_FAULTS], nil
}

// MaxFaults is how many pages the kernel side remembers faults of.
const MaxFaults = maxFaults

// FaultPeriod is the number of page faults of which one is sampled.
func FaultPeriod(interval uint64) uint64 { return faultPeriod(interval) }
