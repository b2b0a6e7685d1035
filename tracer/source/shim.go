package source

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// A Shim is the preloaded library of a session, which samples the heap of every process that maps
// it. Its probes are attached by its inode, in all processes. Its methods may be called by several
// goroutines.
type Shim struct {
	kernel   *kernel.Kernel
	file     *hostile.File // the very library
	producer *probe.Producer
	starts   []symbol.Probe // that a program passes when it begins
	markers  []symbol.Probe // whose number attached shows the library the interval
	holds    []symbol.Probe // whose number attached makes programs that start wait, until it changes

	mu       sync.Mutex
	links    []link.Link // of the frees and of the starts
	sampling []link.Link // of the allocations; none while the interval is 0
	marking  []link.Link // of the first markers
	holding  []link.Link
	isClosed bool
}

// AttachShim attaches to the library in an open file, which no process has mapped before. The file
// must stay open until Close. Nothing is sampled until the interval is set, and no program is held.
func AttachShim(k *kernel.Kernel, library *os.File) (s *Shim, err error) {
	file, err := hostile.Own(library)
	if err != nil {
		return nil, err
	}
	s = &Shim{kernel: k, file: file}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Name(), err)
	}

	s.links, err = probe.AttachEach(k.Mode, *s.producer, s.starts, k.Program, bpf.ProgShimStart)
	if err != nil {
		return nil, err
	}
	links, err := probe.AttachFrees(k.Mode, *s.producer, k.Program, k.ProducerCookie, 0)
	s.links = append(s.links, links...)
	if err != nil {
		return nil, err
	}
	return s, s.followForks()
}

// followForks marks the descendants of the command.
func (s *Shim) followForks() error {
	program, err := s.kernel.Program(bpf.ProgOnFork)
	if err != nil {
		return err
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		return fmt.Errorf("attach to forks: %w", err)
	}
	s.links = append(s.links, l)
	return nil
}

// read finds the probes.
func (s *Shim) read() error {
	file, err := symbol.Open(s.file, s.file.Name())
	if err != nil {
		return err
	}
	if s.producer, err = probe.ReadProducer(s.file, file); err != nil {
		return err
	}
	probes, err := file.Probes(shim.Provider)
	if err != nil {
		return err
	}
	for _, p := range probes {
		switch p.Name {
		case shim.StartProbe:
			s.starts = append(s.starts, p)
		case shim.IntervalProbe:
			s.markers = append(s.markers, p)
		case shim.HoldProbe:
			s.holds = append(s.holds, p)
		}
	}
	return nil
}

// Is reports whether a producer of a process is the library. nil is none.
func (s *Shim) Is(p probe.Producer) bool { return s != nil && s.producer.File == p.File }

// SetInterval sets the mean number of bytes between samples, rounded down to a power of two; 0:
// nothing is sampled, and frees are seen still. It takes effect at the next slow path of each
// thread, in all processes. Without markers the library would choose the interval: it must not
// sample then.
func (s *Shim) SetInterval(interval uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if interval == 0 {
		return s.stop()
	}
	wanted := min(shim.MarkersOf(interval), len(s.markers))
	if wanted < len(s.marking) {
		gone := s.marking[wanted:]
		s.marking = s.marking[:wanted:wanted]
		return closeEach(gone)
	}
	if s.isClosed {
		return nil
	}

	more, err := s.attachEach(s.markers[len(s.marking):wanted])
	s.marking = append(s.marking, more...)
	if err != nil || s.sampling != nil {
		return err
	}
	s.sampling, err = probe.AttachAllocs(
		s.kernel.Mode, *s.producer, s.kernel.Program, s.kernel.ProducerCookie, 0)
	return err
}

// stop ends the sampling, and then takes the markers away.
func (s *Shim) stop() error {
	sampling, marking := s.sampling, s.marking
	s.sampling, s.marking = nil, nil
	return errors.Join(closeEach(sampling), closeEach(marking))
}

// Hold makes programs that start wait. A second call lets them go on, and makes the next ones wait:
// it attaches to one more marker, or detaches from all but one.
func (s *Shim) Hold() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.isClosed {
		return nil
	}
	if len(s.holding) == len(s.holds) {
		gone := s.holding[1:]
		s.holding = s.holding[:1:1]
		return closeEach(gone)
	}
	more, err := s.attachEach(s.holds[len(s.holding) : len(s.holding)+1])
	s.holding = append(s.holding, more...)
	return err
}

// Prepare makes the next call of Hold a short one. The kernel waits for a grace period, some ms,
// before it changes a breakpoint, unless it has changed one just now (rcu_sync_enter for
// dup_mmap_sem of kernel/events/uprobes.c). So this attaches to a probe a second time, and detaches.
func (s *Shim) Prepare() error {
	links, err := s.attachEach(s.starts)
	return errors.Join(err, closeEach(links))
}

// Release lets the programs that wait go on, and makes no others wait.
func (s *Shim) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	all := s.holding
	s.holding = nil
	return closeEach(all)
}

func (s *Shim) attachEach(probes []symbol.Probe) ([]link.Link, error) {
	return probe.AttachEach(
		s.kernel.Mode, *s.producer, probes, s.kernel.Program, bpf.ProgShimMarker)
}

// Close detaches for good. The library goes on without sampling.
func (s *Shim) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.isClosed = true
	all := append(s.links, s.holding...)
	s.links, s.holding = nil, nil
	return InParallel([]func() error{s.stop, func() error { return closeEach(all) }})
}

// closeEach closes all links at once.
func closeEach(links []link.Link) error {
	var calls []func() error
	for _, l := range links {
		calls = append(calls, func() error { return probe.Close([]link.Link{l}) })
	}
	return InParallel(calls)
}
