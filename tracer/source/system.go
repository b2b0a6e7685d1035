package source

import (
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/kernel"
)

// SystemOptions choose the sources of all processes.
type SystemOptions struct {
	// FaultInterval is the mean number of bytes between sampled page faults.
	FaultInterval uint64
	// Wants reports whether a source is wanted.
	Wants func(name string) bool
}

// A System has the sources that the kernel has for all processes at once. Their BPF programs ignore
// all processes but the targets.
type System struct {
	statuses []Status
	links    []link.Link // of the sources, of the events that end a target, and of waits
	// seesWaits is set where the time is counted that threads wait for allocscope.
	seesWaits bool
}

// SeesWaits reports whether the time is counted that threads of the targets wait for allocscope.
func (s *System) SeesWaits() bool { return s.seesWaits }

// AttachSystem attaches the sources that are wanted. A source that cannot be attached has its
// reason in its status. Without execve nothing can be traced.
func AttachSystem(k *kernel.Kernel, o SystemOptions) (*System, error) {
	exec, err := attachExec(k)
	if err != nil {
		return nil, err
	}
	s := &System{links: []link.Link{exec}}
	if oom, err := attachOOM(k); err == nil { // else a kill looks like any exit
		s.links = append(s.links, oom)
	}
	waits, err := attachWaits(k)
	s.seesWaits = err == nil
	s.links = append(s.links, waits...)

	for _, r := range registry {
		if r.attach == nil {
			continue
		}

		status, links := Status{Name: r.name, Off: true}, []link.Link(nil)
		if o.Wants(r.name) {
			status, links = r.attach(k, o)
		}
		s.statuses, s.links = append(s.statuses, status), append(s.links, links...)
	}
	return s, nil
}

// Statuses returns the states of the sources.
func (s *System) Statuses() []Status { return slices.Clone(s.statuses) }

// IsAttached reports whether a source is attached.
func (s *System) IsAttached(name string) bool {
	return slices.ContainsFunc(s.statuses, func(of Status) bool {
		return of.Name == name && of.Attached
	})
}

// Close detaches for good.
func (s *System) Close() error {
	var closes []func() error
	for _, l := range s.links {
		closes = append(closes, l.Close)
	}
	return InParallel(closes)
}
