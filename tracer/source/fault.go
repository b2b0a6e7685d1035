package source

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
)

// AttachFaults attaches source fault: the page faults of all traced processes, one in as many as there are pages in
// interval bytes. What is attached vanishes with the links' file descriptors, also when allocscope is killed.
func AttachFaults(k *kernel.Kernel, interval uint64) (Status, []link.Link) {
	source := Status{Name: "fault"}
	period := FaultPeriod(interval)
	links, err := openFaultEvents(k.OnFault, period)
	if err != nil {
		source.Reason = errors.Join(err, probe.Close(links)).Error()
		return source, nil
	}
	source.Attached = true
	source.Details = []string{fmt.Sprintf("one page fault in %d, on %d CPUs", period, len(links))}
	return source, links
}

// FaultPeriod is the number of page faults of which one is sampled: the pages in interval bytes, or the next prime. Faults
// come in patterns, often of a power of two, of which such a period would always meet the same places.
func FaultPeriod(interval uint64) uint64 {
	period := max(1, interval/uint64(os.Getpagesize()))
	for period > 1 && !new(big.Int).SetUint64(period).ProbablyPrime(0) {
		period++
	}
	return period
}

// openFaultEvents gives one event for each CPU. One that is offline is left out, and the faults of one that comes online
// later are not seen. On failure it gives the events that are open.
func openFaultEvents(program *ebpf.Program, period uint64) (links []link.Link, err error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	for cpu := range cpus {
		l, err := openFaultEvent(program, period, cpu)
		if errors.Is(err, unix.ENODEV) { // offline
			continue
		}
		if err != nil {
			return links, fmt.Errorf("count page faults of CPU %d: %w%s", cpu, err, WithRemedy(EventRemedy(err)))
		}
		links = append(links, l)
	}
	return links, nil
}

// openFaultEvent runs the program at one page fault in period of all processes on a CPU. The link holds the event.
func openFaultEvent(program *ebpf.Program, period uint64, cpu int) (link.Link, error) {
	event, err := OpenFaultCounter(period, cpu)
	if err != nil {
		return nil, fmt.Errorf("open perf event: %w", err)
	}
	defer unix.Close(event)
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: event, Program: program, Attach: ebpf.AttachPerfEvent})
	if err != nil {
		return nil, fmt.Errorf("attach to perf event: %w", err)
	}
	return l, nil
}

// OpenFaultCounter opens the event of one page fault in period of all processes on a CPU.
func OpenFaultCounter(period uint64, cpu int) (event int, err error) {
	attribute := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_PAGE_FAULTS,
		Sample:      period,
		Sample_type: unix.PERF_SAMPLE_ADDR,
	}
	attribute.Size = uint32(unsafe.Sizeof(attribute))
	const allProcesses, noGroup = -1, -1
	return unix.PerfEventOpen(&attribute, allProcesses, cpu, noGroup, unix.PERF_FLAG_FD_CLOEXEC)
}

// EventRemedy is what to do about a refusal of perf events; empty: that is not known.
func EventRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "run as root or grant CAP_PERFMON; in a container, allow perf_event_open in its seccomp profile"
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOENT):
		return "use a kernel built with CONFIG_PERF_EVENTS, as distributions' are"
	case errors.Is(err, unix.EMFILE):
		return "raise the limit of open files: it takes one for each CPU"
	}
	return ""
}

// fault is the newest sampled page fault of a page.
type Fault struct {
	Page   uint64  // address
	Stack  uint64  // stack ID
	Time   uint64  // ns, CLOCK_MONOTONIC
	Weight float64 // page faults, each of one page, or of a huge one
	Copied bool    // the page was there: a write to what was shared or read as zeros
}

// ReadFaults gives the sampled page faults by process, in the order of pages.
func ReadFaults(k *kernel.Kernel) (map[uint32][]Fault, error) {
	faults := make(map[uint32][]Fault)
	err := kernel.ReadMap(k.Faults, func(key *bpf.Address, f *bpf.Fault) {
		faults[key.Tgid] = append(faults[key.Tgid], Fault{
			Page: key.Address, Stack: f.Stack, Time: f.Time, Weight: float64(f.Period), Copied: f.Copied != 0,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read page faults: %w", err)
	}
	for _, of := range faults {
		slices.SortFunc(of, func(a, b Fault) int { return cmp.Compare(a.Page, b.Page) })
	}
	return faults, nil
}

// ForgetFaults makes room in the kernel: pages of a process that have gone, or whose faults nobody needs. What has faulted
// since it was read is forgotten with it.
func ForgetFaults(k *kernel.Kernel, tgid uint32, pages []uint64) {
	keys := make([]bpf.Address, len(pages))
	for i, page := range pages {
		keys[i] = bpf.Address{Address: page, Tgid: tgid}
	}
	kernel.DeleteKeys(k.Faults, keys)
}
