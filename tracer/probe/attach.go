package probe

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/uprobe"
)

// A Mode is the kernel's way of attaching probes to functions.
type Mode = uprobe.Mode

// The modes, the best last. Automatic chooses the best that the kernel has.
const (
	Automatic = uprobe.Automatic
	Single    = uprobe.Single
	Multi     = uprobe.Multi
	Session   = uprobe.Session
)

// Programs returns a BPF program by its name, one of bpf.Prog*.
type Programs func(name string) (*ebpf.Program, error)

// Attach attaches the programs of the allocator's functions to all sites of a file in a process. It
// attaches all or nothing.
func Attach(mode Mode, file FileSites, programs Programs, pid int) ([]link.Link, error) {
	if mode == Session {
		return attachAll(file.Mapping.Path,
			func() ([]link.Link, error) { return attachSession(file, programs, pid) })
	}
	return attachAll(file.Mapping.Path,
		func() ([]link.Link, error) {
			return attachEntries(mode, file, programs, bpf.ProgHeapOnEntry, pid)
		},
		func() ([]link.Link, error) {
			returning := file.only(Function.returns)
			return attachReturns(mode, returning, programs, bpf.ProgHeapOnReturn, pid)
		})
}

// AttachCUDADriver attaches to the functions of the CUDA driver API in a process, all or none.
// Probes of returns come first: where the entry of a call has been seen, its return will be, too.
func AttachCUDADriver(mode Mode, file FileSites, programs Programs, pid int) ([]link.Link, error) {
	entries := file.only(func(f Function) bool { return !f.isExit() })
	return attachAll(file.Mapping.Path,
		func() ([]link.Link, error) {
			returning := file.only(Function.returns)
			return attachReturns(mode, returning, programs, bpf.ProgCudaOnReturn, pid)
		},
		func() ([]link.Link, error) {
			return attachEntries(mode, file.only(Function.isExit), programs, bpf.ProgCudaOnEntry, pid)
		},
		func() ([]link.Link, error) {
			return attachEntries(mode, entries, programs, bpf.ProgCudaOnEntry, pid)
		})
}

// AttachReturn attaches the program of returns from the CUDA driver API to functions in a process
// that is not traced: it counts nothing there, but the functions return through return probes.
func AttachReturn(mode Mode, file FileSites, programs Programs, pid int) ([]link.Link, error) {
	return attachAll(file.Mapping.Path, func() ([]link.Link, error) {
		return attachReturns(mode, file, programs, bpf.ProgCudaOnReturn, pid)
	})
}

// AttachBlocks attaches to the one function of a file to which blocks are reported.
func AttachBlocks(mode Mode, file FileSites, programs Programs, pid int) (link.Link, error) {
	return attachEntry(mode, file, programs, bpf.ProgOnBlock, pid)
}

// AttachStep attaches to the one site of a step function in a process. It uses a perf event in all
// modes: a single probe that fires a few times a second need not be cheap.
func AttachStep(file FileSites, programs Programs, pid int) (link.Link, error) {
	return attachEntry(Single, file, programs, bpf.ProgOnStep, pid)
}

// attachEntry attaches a program to the one site of a file in a process, without a return probe.
func attachEntry(mode Mode, file FileSites, programs Programs, name string, pid int) (link.Link, error) {
	links, err := attachAll(file.Mapping.Path,
		func() ([]link.Link, error) { return attachEntries(mode, file, programs, name, pid) })
	if err != nil {
		return nil, err
	}
	if len(links) == 0 {
		return nil, fmt.Errorf("attach to %s: no site", file.Mapping.Path)
	}
	return links[0], nil
}

// ErrBlocked means that the kernel has not attached or detached in time. For each probe, it takes the
// lock of the address space of every process that has mapped the file, and one of them keeps its own.
// fork(2) waits for as long, in all processes of the machine. Nothing can end that but the end of the
// process that keeps its lock.
var ErrBlocked = errors.New("the kernel waits for a process that keeps its address space locked")

const (
	// kernelLimit is the time that the kernel has to attach or to detach. It takes milliseconds, or
	// tens of seconds for single uprobes on a busy machine: for each it waits for all CPUs (RCU).
	kernelLimit = 2 * time.Minute
	// blockedLimit is the time that it has while an earlier call has not returned: all wait for the
	// same lock.
	blockedLimit = time.Second
)

// blocked are the calls that have not returned in time.
var blocked atomic.Int32

// within runs a call of the kernel. After kernelLimit it returns ErrBlocked, and runs late once the
// call has returned.
func within[T any](call func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	limit := time.NewTimer(kernelLimit)
	defer limit.Stop()
	if blocked.Load() > 0 {
		limit.Reset(blockedLimit)
	}

	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-limit.C:
		blocked.Add(1)
		go func() {
			r := <-done
			blocked.Add(-1)
			late(r.value)
		}()
		var none T
		return none, ErrBlocked
	}
}

// attachAll runs steps that return links. If one fails, it closes the links of all.
func attachAll(path string, steps ...func() ([]link.Link, error)) ([]link.Link, error) {
	attach := func() (all []link.Link, err error) {
		for _, step := range steps {
			links, err := step()
			all = append(all, links...)
			if err != nil {
				return nil, errors.Join(err, closeAll(all))
			}
		}
		return all, nil
	}
	links, err := within(attach, func(late []link.Link) { _ = closeAll(late) })
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", path, err)
	}
	return links, nil
}

// Close closes links, the last opened first. The error wraps ErrBlocked if that takes too long: the
// kernel goes on with it.
func Close(links []link.Link) error {
	if len(links) == 0 {
		return nil
	}
	detach := func() (struct{}, error) { return struct{}{}, closeAll(links) }
	if _, err := within(detach, func(struct{}) {}); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	return nil
}

func closeAll(links []link.Link) error {
	var errs []error
	for _, l := range slices.Backward(links) {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// attachEntries attaches a program to the entries of the functions of a file, all or none.
func attachEntries(
	mode Mode, file FileSites, programs Programs, name string, pid int,
) ([]link.Link, error) {
	return attachUprobes(mode, file, programs, name, pid, uprobe.Entry)
}

// attachReturns attaches a program to their returns, like attachEntries.
func attachReturns(
	mode Mode, file FileSites, programs Programs, name string, pid int,
) ([]link.Link, error) {
	return attachUprobes(mode, file, programs, name, pid, uprobe.Return)
}

func attachUprobes(
	mode Mode, file FileSites, programs Programs, name string, pid int, kind uprobe.Kind,
) ([]link.Link, error) {
	if len(file.Sites) == 0 {
		return nil, nil
	}
	program, err := programs(name)
	if err != nil {
		return nil, err
	}
	order := uprobe.Order{Mode: mode, Kind: kind, PID: pid}
	for _, s := range file.Sites {
		order.Points = append(order.Points,
			uprobe.Point{Name: s.Function.Name, Offset: s.Offset, Cookie: s.cookie()})
	}
	return uprobe.Attach(order, file.Path, program)
}

// only returns the file with those sites whose function is wanted.
func (f FileSites) only(isWanted func(Function) bool) FileSites {
	f.Sites = slices.Clone(f.Sites)
	f.Sites = slices.DeleteFunc(f.Sites, func(s Site) bool { return !isWanted(s.Function) })
	return f
}

// attachSession attaches one session for all functions whose returns can be probed. Functions that
// may throw are no part of it. If another tool probes the same instruction, the kernel does not ask
// our program whether to probe the return, and no exception can pass a return probe.
func attachSession(file FileSites, programs Programs, pid int) ([]link.Link, error) {
	hasReturns := slices.ContainsFunc(file.Sites, func(s Site) bool { return s.Function.returns() })
	isInSession := func(f Function) bool {
		return hasReturns && !f.Throws && !f.Exits && !f.isExit()
	}
	inSession := file.only(isInSession)
	others := file.only(func(f Function) bool { return !isInSession(f) })

	links, err := attachUprobes(Session, inSession, programs, bpf.ProgHeapSession, pid, uprobe.Both)
	if err != nil {
		return nil, err
	}
	entries, err := attachEntries(Multi, others, programs, bpf.ProgHeapOnEntry, pid)
	return append(links, entries...), err
}
