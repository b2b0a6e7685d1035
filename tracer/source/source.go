// Package source attaches the probes and tracepoints that see memory change hands.
//
// A source is of one process or of all. Sources heap, tensor, cuda and step probe libraries of one
// process: each is a [Library], and [Libraries] drives them. Sources mapping and fault see all
// processes: [System] attaches them once. The registry names them all.
//
// # The life cycle of a library's source
//
//	         library is mapped             Pause
//	waiting ───────────────────► attached ◄───────► paused
//	   │                            │        Open      │
//	   │ TurnOff                    │                  │
//	   ▼                            ▼                  ▼
//	  off        refused, or closed by Stop or Close: for good
//
// It has to do with these events:
//   - Attach: Libraries.Attach has each source check the files that are mapped, while the target is
//     still waiting.
//   - A library that dlopen(3) loads: the unwinder reads the mappings again, and Libraries.Update
//     has each source check the files that are new. Source heap alone chooses once, among all
//     files: a target without an allocator is attached to again.
//   - A library that is replaced on disk: a process keeps the file that it has mapped. The new one
//     is another file, which is checked when it is mapped.
//   - fork(2): the child inherits the breakpoints, which Sweep removes.
//   - execve(2): the probes belong to the process. They are closed at once, since they would be in
//     the libraries of the next program too.
//   - Exit: the kernel has removed the breakpoints. Close closes the links.
//   - The next process with the PID: Forget deletes the entries in the kernel's maps.
//   - Losses: a call between Pause and Open is not seen. Tensors.Complete, GPU.Active and the probe
//     periods of source heap (package estimate) say which data that spoils.
//
// Producers and the [Shim] sample the heap within the program. Source heap attaches to the
// producers of its process; the session attaches to the shim, once for all processes. Python needs
// no probe: package stack reads its frames.
package source

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// A registration is a source: of a process, if it has library, or of all processes, if it has
// attach.
type registration struct {
	name    string
	library func(*Libraries, LibraryOptions) Library
	attach  func(*kernel.Kernel, SystemOptions) (Status, []link.Link)
	// forget deletes the entries of processes from the source's maps; nil: it has none with entries
	// by process, or closing the source deletes them.
	forget func(k *kernel.Kernel, isGone func(tgid uint32) bool) error
}

// registry has all sources, in the order in which people see them:
//   - heap: the functions of the C allocator
//   - tensor: the functions that PyTorch allocates CPU tensors with
//   - cuda: the CUDA driver API, and the blocks of PyTorch's CUDA caching allocator
//   - mapping: the system calls that change the address space
//   - fault: page faults
//   - step: training steps
var registry = []registration{
	{name: "heap", forget: forgetObjects, library: func(l *Libraries, o LibraryOptions) Library {
		l.Heap = NewHeap(o.Kernel, o.Process, o.Shim)
		return l.Heap
	}},
	{name: "tensor", forget: forgetTensors, library: func(l *Libraries, o LibraryOptions) Library {
		l.Tensors = NewTensors(o.Kernel, o.Process)
		l.Tensors.enter(paused)
		return l.Tensors
	}},
	{name: "cuda", forget: forgetGPU, library: func(l *Libraries, o LibraryOptions) Library {
		l.GPU = NewGPU(o.Kernel, o.Process)
		return l.GPU
	}},
	{name: "mapping", forget: forgetMappings, attach: attachMapping},
	{name: "fault", forget: forgetFaults, attach: attachFaults},
	{name: "step", library: func(l *Libraries, o LibraryOptions) Library {
		l.Steps = NewSteps(o.Kernel, o.Process, o.StepSymbol)
		return l.Steps
	}},
}

// Names returns the names of all sources.
func Names() (names []string) {
	for _, r := range registry {
		names = append(names, r.name)
	}
	return names
}

// A Status describes whether a source is attached, for people.
type Status struct {
	Name string
	// PID is the process that the source probes, 0 for all.
	PID int
	// Reason is why the source is not attached, or not to all its functions. It is empty if there is
	// nothing to report.
	Reason string
	// Code is the kind of Reason, and File the library or the program that it is about; empty: the
	// text alone says it.
	Code growth.SourceReason
	File string
	// Gap is the data that the source does not see; empty: none. Allocator is the one that is in File,
	// where the gap is its objects.
	Gap       growth.SourceGap
	Allocator string
	// Attached is set once probes were attached, and stays set while they are closed for a time.
	Attached bool
	// Off is set if the user did not ask for the source.
	Off bool
	// Err is the error behind Reason, nil if there is none.
	Err error
	// Producers are the files that sample the heap themselves, whose probes source heap uses instead of
	// malloc's.
	Producers []string
	// Details are lines for --debug: each probed function, its place, and the reason for the place.
	Details []string
}

// insteadOf begins the reason of a heap whose producers are not used.
const insteadOf = "malloc is probed instead: "

// Failure is Reason by its code. Only a reason that has none, and the refusal of a producer, keep
// their text.
func (s Status) Failure() growth.SourceFailure {
	failure := growth.SourceFailure{
		Reason: s.Code, File: growth.Printable(s.File), Detail: growth.Printable(s.Reason),
	}
	switch s.Code {
	case "":
		if s.Gap == growth.GapAllocator {
			failure.Detail = s.Allocator
		}
		if s.Reason != "" {
			failure.Reason = growth.SourceOther
		}
	case growth.SourceProducer:
		failure.Detail = strings.TrimPrefix(failure.Detail, insteadOf)
	default:
		failure.Detail = ""
	}
	return failure
}

// failed is the status of a source of a process that an error has refused.
func failed(name string, p *process.Process, err error) Status {
	s := Status{Name: name, Reason: err.Error(), Err: err}
	switch {
	case errors.Is(err, errNoShim):
		s.Code = growth.SourceNoShim
	case errors.Is(err, probe.ErrNoAllocator):
		s.Code = growth.SourceNoAllocator
	case errors.Is(err, probe.ErrGo):
		s.Code = growth.SourceGo
	case errors.Is(err, probe.Err32Bit):
		s.Code, s.File = growth.Source32Bit, p.Executable
	}
	return s
}

// details returns a line for each function in the files, probed or not.
func details(files ...probe.FileSites) (lines []string) {
	for _, file := range files {
		path := file.Mapping.Path
		for _, s := range file.Sites {
			lines = append(lines, fmt.Sprintf("%s in %s at file offset %#x: %s",
				s.Function.Name, path, s.Offset, s.Reason))
		}
		for _, function := range file.Unprobed {
			lines = append(lines, fmt.Sprintf("not probed in %s: %s", path, function))
		}
	}
	return lines
}

// WithRemedy returns a remedy in the form in which it follows an error, or "" if there is none.
func WithRemedy(remedy string) string {
	if remedy == "" {
		return ""
	}
	return " (" + remedy + ")"
}

// InParallel calls all functions at once and joins their errors. The kernel waits for the end of
// the probes that are running, for each probe that it detaches.
func InParallel(calls []func() error) error {
	errs := make([]error, len(calls))
	var running sync.WaitGroup
	for i, call := range calls {
		running.Go(func() { errs[i] = call() })
	}
	running.Wait()
	return errors.Join(errs...)
}
