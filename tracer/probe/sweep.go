package probe

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// Sweep removes the breakpoints at the sites of a file from the processes that have inherited them
// by fork(2) and that no probe wants. What is probed stays so, without a gap.
//
// The kernel removes such breakpoints at the first hit only where it asks the probes' filters, which
// it does for Single (uprobe_perf_func, kernel/trace/trace_uprobe.c), but not for the other modes
// (uprobe_multi_link_handler, kernel/trace/bpf_trace.c). It also asks them whenever any probe of the
// site goes, in all processes (register_for_each_vma, kernel/events/uprobes.c). So Sweep attaches
// program in our own process, and detaches it.
func Sweep(mode Mode, file FileSites, program *ebpf.Program) error {
	if mode == Single {
		return nil
	}

	links, err := attachEntries(Multi, file, program, os.Getpid())
	if err == nil {
		err = Close(links)
	}
	if err != nil {
		return fmt.Errorf("remove breakpoints of forked processes in %s: %w", file.Mapping.Path, err)
	}
	return nil
}
