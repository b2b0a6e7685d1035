package probe

import (
	"fmt"
	"os"

	"github.com/allocscope/allocscope/bpf"
)

// Sweep removes the breakpoints at the sites of a file from the processes that have inherited them
// by fork(2), where no probe wants them. Probed processes stay so, without a gap.
//
// At the first hit, the kernel removes such a breakpoint only where the handlers of all probes ask
// for it: handlers of Single do (uprobe_perf_func, kernel/trace/trace_uprobe.c), handlers of the
// other modes do not (uprobe_multi_link_handler, kernel/trace/bpf_trace.c). But whenever a probe of
// the site goes, the kernel asks the filters of the others, in all processes
// (register_for_each_vma, kernel/events/uprobes.c). So Sweep attaches program in our own process,
// and detaches it.
func Sweep(mode Mode, file FileSites, programs Programs) error {
	if mode == Single {
		return nil
	}

	links, err := attachEntries(Multi, file, programs, bpf.ProgHeapOnEntry, os.Getpid())
	if err == nil {
		err = Close(links)
	}
	if err != nil {
		return fmt.Errorf("remove breakpoints of forked processes in %s: %w", file.Mapping.Path, err)
	}
	return nil
}
