package source

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
)

// AttachMapping attaches source mapping: the system calls that change the address space.
func AttachMapping(k *kernel.Kernel) (Status, []link.Link) {
	status := Status{Name: "mapping"}
	mounted, err := kernel.EnsureTracefs()
	if err != nil {
		status.Reason = err.Error()
		return status, nil
	}
	if mounted {
		status.Details = append(status.Details, "mounted tracefs at "+kernel.TracefsPath)
	}

	calls := []string{"munmap", "mmap", "mremap", "brk", "madvise"}
	links, err := attachCalls(k, calls)
	if err != nil {
		status.Reason = errors.Join(err, probe.Close(links)).Error()
		return status, nil
	}
	status.Attached = true
	status.Details = append(status.Details, "system calls: "+strings.Join(calls, ", "))
	return status, links
}

// attachCalls attaches to the entry and the exit of system calls. With an error it returns the
// links that are attached.
func attachCalls(k *kernel.Kernel, calls []string) (links []link.Link, err error) {
	// Exits first: an entry seen without its exit would leave a call pending.
	for _, side := range []struct {
		prefix  string
		program *ebpf.Program
	}{
		{"sys_exit_", k.ExitMapping},
		{"sys_enter_", k.EnterMapping},
	} {
		for _, call := range calls {
			l, err := link.Tracepoint("syscalls", side.prefix+call, side.program, nil)
			if err != nil {
				return links, fmt.Errorf("attach to tracepoint %s: %w", side.prefix+call, err)
			}
			links = append(links, l)
		}
	}
	return links, nil
}

// AttachExec attaches to the tracepoint that reports execve(2) of all processes.
func AttachExec(k *kernel.Kernel) (link.Link, error) {
	const name = "sched_process_exec"
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: k.OnExec})
	if err != nil {
		return nil, fmt.Errorf("attach to tracepoint %s: %w", name, err)
	}
	return l, nil
}
