package source

import (
	"cmp"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
)

// attachMapping attaches source mapping: the system calls that change the address space.
func attachMapping(k *kernel.Kernel, _ SystemOptions) (Status, []link.Link) {
	status := Status{Name: "mapping"}
	tracefs, err := kernel.OpenTracefs()
	if err != nil {
		status.Reason, status.Err = err.Error()+WithRemedy(kernel.TracefsRemedy(err)), err
		return status, nil
	}
	defer tracefs.Close()

	links, err := attachCalls(k, tracefs)
	if err != nil {
		err = errors.Join(err, probe.Close(links))
		status.Err = err
		status.Reason = err.Error() +
			WithRemedy(cmp.Or(kernel.TracefsRemedy(err), EventRemedy(err)))
		return status, nil
	}
	status.Attached = true
	status.Details = append(status.Details, "system calls: mmap, munmap, mremap, madvise, brk")
	return status, links
}

// attachCalls attaches to system calls. With an error it returns the links that are attached.
func attachCalls(k *kernel.Kernel, tracefs *kernel.Tracefs) (links []link.Link, err error) {
	for _, at := range []struct{ tracepoint, program string }{
		// First: a mapping must not be seen without its end.
		{"sys_enter_munmap", bpf.ProgEnterMunmap},
		{"sys_exit_mmap", bpf.ProgExitMapping},
		{"sys_exit_mremap", bpf.ProgExitMapping},
		{"sys_exit_madvise", bpf.ProgExitMapping},
		{"sys_exit_brk", bpf.ProgExitMapping},
	} {
		l, err := attachTracepoint(k, tracefs, "syscalls", at.tracepoint, at.program)
		if err != nil {
			return links, fmt.Errorf("attach to tracepoint %s: %w", at.tracepoint, err)
		}
		links = append(links, l)
	}
	return links, nil
}

// TakeRecentMappings calls each for the mappings that have waited in the kernel. A reading that
// fails leaves the rest for the next one.
func TakeRecentMappings(k *kernel.Kernel, each func(bpf.Event)) {
	_ = kernel.TakeAll(k.RecentMappings, func(_ *bpf.Address, m *bpf.RecentMapping) { each(m.Event) })
}

// TakeReleases calls each for the ranges that madvise has released since the last reading.
func TakeReleases(k *kernel.Kernel, each func(bpf.Event)) {
	_ = kernel.TakeAll(k.ReleasedRanges, func(at *bpf.Range, r *bpf.Release) {
		each(bpf.Event{
			Kind: bpf.EventMadvise, Tgid: at.Tgid, Time: r.Time,
			Start: at.Start, Length: at.Length, Flags: uint32(at.Flags), Calls: r.Calls,
		})
	})
}

// ReadMappingPairs returns the mappings of a process since tracing started that came and went
// before they were read, in a fixed order. Those that could not be read are missing from totals.
func ReadMappingPairs(k *kernel.Kernel, pid int) (pairs []addrspace.Pair) {
	_ = kernel.ReadMap(k.MappingPairs, func(key *bpf.MappingPair, sum *bpf.Tally) {
		if key.Tgid == uint32(pid) {
			pairs = append(pairs, addrspace.Pair{MappingPair: *key, Tally: *sum})
		}
	})
	return pairs
}

// attachOOM attaches to the kernel's choice of a process that it kills for want of memory.
func attachOOM(k *kernel.Kernel) (link.Link, error) {
	tracefs, err := kernel.OpenTracefs()
	if err != nil {
		return nil, err
	}
	defer tracefs.Close()
	return attachTracepoint(k, tracefs, "oom", "mark_victim", bpf.ProgOnOomVictim)
}

// attachTracepoint attaches a program to a tracepoint, for all processes. The link keeps the perf
// event open.
func attachTracepoint(
	k *kernel.Kernel, tracefs *kernel.Tracefs, group, name, programName string,
) (link.Link, error) {
	program, err := k.Program(programName)
	if err != nil {
		return nil, err
	}

	id, err := tracefs.EventID(group, name)
	if err != nil {
		return nil, err
	}

	// The program runs on all CPUs, whichever the event is of.
	attribute := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Sample: 1}
	attribute.Size = uint32(unsafe.Sizeof(attribute))
	const allProcesses, firstCPU, noGroup = -1, 0, -1
	event, err := unix.PerfEventOpen(&attribute, allProcesses, firstCPU, noGroup,
		unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open perf event: %w", err)
	}
	return attachToEvent(program, event)
}

// attachExec attaches to the tracepoint that reports execve(2) of all processes.
func attachExec(k *kernel.Kernel) (link.Link, error) {
	return attachRaw(k, "sched_process_exec", bpf.ProgOnExec)
}

// attachRaw attaches a program to a tracepoint without a perf event, which costs least.
func attachRaw(k *kernel.Kernel, name, programName string) (link.Link, error) {
	program, err := k.Program(programName)
	if err != nil {
		return nil, err
	}
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: program})
	if err != nil {
		return nil, fmt.Errorf("attach to tracepoint %s: %w", name, err)
	}
	return l, nil
}
