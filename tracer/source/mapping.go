package source

import (
	"errors"
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// AttachMapping attaches source mapping: the system calls that change the address space.
func AttachMapping(k *kernel.Kernel) (Status, []link.Link) {
	source := Status{Name: "mapping"}
	mounted, err := kernel.EnsureTracefs()
	if err != nil {
		source.Reason = err.Error()
		return source, nil
	}
	if mounted {
		source.Details = append(source.Details, "mounted tracefs at "+kernel.TracefsPath)
	}
	var links []link.Link
	// Exits first: an entry seen without its exit would leave a call pending.
	calls := []string{"munmap", "mmap", "mremap", "brk", "madvise"}
	programs := map[string]*ebpf.Program{"enter": k.EnterMapping, "exit": k.ExitMapping}
	for _, side := range []string{"exit", "enter"} {
		for _, call := range calls {
			l, err := link.Tracepoint("syscalls", "sys_"+side+"_"+call, programs[side], nil)
			if err != nil {
				err = fmt.Errorf("attach to tracepoint sys_%s_%s: %w", side, call, err)
				source.Reason = errors.Join(err, probe.Close(links)).Error()
				return source, nil
			}
			links = append(links, l)
		}
	}
	source.Attached = true
	source.Details = append(source.Details, "system calls: "+strings.Join(calls, ", "))
	return source, links
}

// AttachExec watches for the process executing another program.
func AttachExec(k *kernel.Kernel) (link.Link, error) {
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exec", Program: k.OnExec})
	if err != nil {
		return nil, fmt.Errorf("attach to tracepoint sched_process_exec: %w", err)
	}
	return l, nil
}
