package source

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// AttachFaults attaches source fault, which samples the page faults of all traced processes. The
// kernel detaches it when the links' file descriptors are closed, also if allocscope is killed.
func AttachFaults(k *kernel.Kernel, interval uint64) (Status, []link.Link) {
	status := Status{Name: "fault"}
	period := FaultPeriod(interval)
	var links []link.Link
	program, err := k.Program(bpf.ProgOnFault)
	if err == nil {
		links, err = openFaultEvents(program, period)
	}
	if err != nil {
		status.Err = errors.Join(err, probe.Close(links))
		status.Reason = status.Err.Error()
		return status, nil
	}

	status.Attached = true
	status.Details = []string{fmt.Sprintf("one page fault in %d, on %d CPUs", period, len(links))}
	return status, links
}

func attachFaults(k *kernel.Kernel, o SystemOptions) (Status, []link.Link) {
	return AttachFaults(k, o.FaultInterval)
}

// FaultPeriod returns the number of page faults of which one is sampled. It is the number of pages
// in interval bytes, or the next prime: programs often fault in patterns of a power of two, and a
// period with a common factor would sample the same place of the pattern each time.
func FaultPeriod(interval uint64) uint64 {
	period := max(1, interval/process.PageSize)
	for period > 1 && !new(big.Int).SetUint64(period).ProbablyPrime(0) {
		period++
	}
	return period
}

// openFaultEvents opens an event for each CPU that is online. The faults of a CPU that comes online
// later are missed. With an error it returns the events that are open.
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
			remedy := WithRemedy(EventRemedy(err))
			return links, fmt.Errorf("count page faults of CPU %d: %w%s", cpu, err, remedy)
		}
		links = append(links, l)
	}
	return links, nil
}

// openFaultEvent attaches the program to a counter of page faults.
func openFaultEvent(program *ebpf.Program, period uint64, cpu int) (link.Link, error) {
	event, err := OpenFaultCounter(period, cpu)
	if err != nil {
		return nil, fmt.Errorf("open perf event: %w", err)
	}
	return attachToEvent(program, event)
}

// attachToEvent attaches a program to a perf event. The link keeps the event open.
func attachToEvent(program *ebpf.Program, event int) (link.Link, error) {
	defer unix.Close(event)
	l, err := link.AttachRawLink(link.RawLinkOptions{
		Target: event, Program: program, Attach: ebpf.AttachPerfEvent,
	})
	if err != nil {
		return nil, fmt.Errorf("attach to perf event: %w", err)
	}
	return l, nil
}

// OpenFaultCounter opens a perf event that samples one page fault in period, of all processes on a
// CPU (perf_event_open(2)). It returns ENODEV if the CPU is offline.
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

// EventRemedy returns what to do about an error of OpenFaultCounter, or "" if that is not known.
func EventRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "run as root or grant CAP_PERFMON; " +
			"in a container, allow perf_event_open in its seccomp profile"
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOENT):
		return "use a kernel built with CONFIG_PERF_EVENTS, as distributions' are"
	case errors.Is(err, unix.EMFILE):
		return "raise the limit of open files: it takes one for each CPU"
	}
	return ""
}

// A Fault is the newest sampled page fault of a page.
type Fault struct {
	Page   uint64  // address
	Stack  uint64  // stack ID
	Time   uint64  // ns, CLOCK_MONOTONIC
	Weight float64 // page faults that the sample represents, each of a page or a huge page
	Copied bool    // a copy-on-write fault: the page was mapped, shared or as the zero page
}

// ReadFaults returns the sampled page faults by process, sorted by page.
func ReadFaults(k *kernel.Kernel) (map[uint32][]Fault, error) {
	faults := make(map[uint32][]Fault)
	err := kernel.ReadMap(k.Faults, func(key *bpf.Address, f *bpf.Fault) {
		faults[key.Tgid] = append(faults[key.Tgid], Fault{
			Page:   key.Address,
			Stack:  f.Stack,
			Time:   f.Time,
			Weight: float64(f.Period),
			Copied: f.Copied != 0,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read page faults: %w", err)
	}

	for _, sampled := range faults {
		slices.SortFunc(sampled, func(a, b Fault) int { return cmp.Compare(a.Page, b.Page) })
	}
	return faults, nil
}

// ForgetFaults deletes the faults of pages from the kernel's map, so that there is room for others.
// A fault since ReadFaults is lost with them.
func ForgetFaults(k *kernel.Kernel, tgid uint32, pages []uint64) {
	keys := make([]bpf.Address, len(pages))
	for i, page := range pages {
		keys[i] = bpf.Address{Address: page, Tgid: tgid}
	}
	kernel.DeleteKeys(k.Faults, keys)
}
