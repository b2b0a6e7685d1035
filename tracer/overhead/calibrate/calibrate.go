// Package calibrate measures what probes cost on this machine. It measures a child process of our
// own, and never a traced process.
package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate/child"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/reexec"
)

// Costs of the probes, in ns of CPU time of the probed thread, without stack walks and samples.
type Costs struct {
	// Entry of a probed function that takes no sample, and whose return is not probed.
	Entry float64
	// Stepped is Entry at an instruction that the kernel single-steps instead of emulating it.
	Stepped float64
	// Return of a probed function, beside its entry.
	Return float64
	// Fault is a page fault, averaged over sampled and other ones.
	Fault float64
	// ShimPair is the work of the preloaded library in a malloc and its free. 0: OfProducer is not
	// set.
	ShimPair float64
}

// DefaultCosts replace costs that cannot be measured. A busy virtual machine has shown them; a
// quiet one takes half as long.
var DefaultCosts = Costs{Entry: 1100, Stepped: 14_000, Return: 700, Fault: 100}

// Measured costs are limited to these bounds, in ns.
const (
	MinTrapCost, MaxTrapCost   = 100, 100_000
	minFaultCost, maxFaultCost = 10, 10_000
	minPairCost, maxPairCost   = 0.1, 100
)

// DefaultTimeout is the timeout of Tracing. A measurement takes some 40 ms, unless the machine is
// busy.
const DefaultTimeout = 250 * time.Millisecond

// A Tracing is the setting that Measure measures.
type Tracing struct {
	Mode     probe.Mode
	Programs probe.Programs
	// OfProducer measures the probes of a producer, as our preloaded library is one, instead of the
	// probes of an allocator's functions.
	OfProducer bool
	// SetTraced sets whether the programs count events of a process. They must take no sample of 0
	// bytes.
	SetTraced func(pid int, traced bool) error
	// Detach closes the links. That may take as long as all the rest, and Detach need not wait for
	// it: the child is gone.
	Detach func([]link.Link)
	// FaultPeriod is the number of page faults of which one is sampled; 0: Fault is not measured.
	FaultPeriod uint64
	// Timeout of the child; 0: DefaultTimeout.
	Timeout time.Duration
}

// Measure starts a child, measures the costs, and ends the child. Costs that it could not measure
// have their defaults, and the error is the reason. Afterwards the programs' counters include the
// child's events, while their other maps have nothing of it. If ctx ends first, the error wraps its
// error.
func Measure(ctx context.Context, t Tracing) (Costs, error) {
	runtime.LockOSThread() // the child does not outlive the thread
	defer runtime.UnlockOSThread()

	costs := DefaultCosts
	if err := t.measure(ctx, &costs); err != nil {
		return costs, fmt.Errorf("measure costs of probes: %w", err)
	}
	return costs, nil
}

func (t Tracing) measure(ctx context.Context, costs *Costs) error {
	if t.FaultPeriod != 0 {
		_, _ = t.Programs(bpf.ProgOnFault) // before the child's time runs; measureFaults has the error
	}
	c, err := startChild(cmp.Or(t.Timeout, DefaultTimeout))
	if err != nil {
		return err
	}

	stop := context.AfterFunc(ctx, c.stopAnswers)
	links, err := t.measureTraps(c, costs)
	err = errors.Join(err, t.measureFaults(c, costs), ctx.Err())
	stop()
	c.end()
	t.Detach(links)
	return err
}

// measureTraps returns the attached links, also with an error.
func (t Tracing) measureTraps(c *childProcess, costs *Costs) ([]link.Link, error) {
	var native, probed child.Calls
	if err := c.ask(child.OrderCalls, &native); err != nil {
		return nil, err
	}
	if t.OfProducer {
		costs.ShimPair = clamp(native.ShimPair, minPairCost, maxPairCost)
	}
	links, err := t.attach(c)
	if err != nil {
		return nil, err
	}

	err = t.SetTraced(c.pid(), true)
	if err == nil {
		err = c.ask(child.OrderCalls, &probed)
	}
	if err := errors.Join(err, t.SetTraced(c.pid(), false)); err != nil {
		return links, err
	}
	costs.setTraps(native, probed)
	return links, nil
}

// setTraps sets the costs to the differences. Entry is the mean of malloc's and free's.
func (p *Costs) setTraps(native, probed child.Calls) {
	malloc, free := probed.Malloc-native.Malloc, probed.Free-native.Free
	p.Entry = clamp((malloc+free)/2, MinTrapCost, MaxTrapCost)
	p.Stepped = clamp(probed.Stepped-native.Stepped, MinTrapCost, MaxTrapCost)
	p.Return = clamp(probed.Calloc-native.Calloc-malloc, MinTrapCost, MaxTrapCost)
}

func clamp(cost, least, most float64) float64 { return min(max(cost, least), most) }

// attach probes the child's functions, all at once. Only calloc has a return probe.
func (t Tracing) attach(c *childProcess) ([]link.Link, error) {
	malloc := probe.Function{Name: "malloc", Form: bpf.CallMalloc, Throws: true}
	free := probe.Function{Name: "free", Form: bpf.CallFree}
	calloc := probe.Function{Name: "calloc", Form: bpf.CallCalloc}
	file, err := c.sites(
		probe.Site{Function: malloc, Offset: c.functions.Malloc, Emulated: true},
		probe.Site{Function: free, Offset: c.functions.Free, Emulated: true},
		probe.Site{Function: calloc, Offset: c.functions.Calloc, Emulated: true},
		probe.Site{Function: malloc, Offset: c.functions.Stepped},
	)
	if err != nil {
		return nil, err
	}
	if t.OfProducer {
		return probe.AttachLikeProducer(t.Mode, file, t.Programs, c.pid())
	}
	return probe.Attach(t.Mode, file, t.Programs, c.pid())
}

// sites returns sites of the child, whose offsets are addresses still, as sites of its file.
func (c *childProcess) sites(sites ...probe.Site) (probe.FileSites, error) {
	maps, err := c.maps()
	for i := range sites {
		if err == nil {
			sites[i].Offset, err = fileOffset(maps, sites[i].Offset)
		}
	}
	mapping := process.Mapping{Path: reexec.Executable}
	return probe.FileSites{Mapping: mapping, Path: hostile.Self(), Sites: sites}, err
}

// fileOffset returns the offset in the executable's file of an address of the child.
func fileOffset(maps []process.Mapping, address uint64) (uint64, error) {
	for _, m := range maps {
		if m.Execute && m.IsFile() && address >= m.Start && address < m.End {
			return address - m.Start + m.Offset, nil
		}
	}
	return 0, fmt.Errorf("find the child's function at %#x: %w", address, os.ErrNotExist)
}

// measureFaults has the child, which is not traced, touch pages without the event, with it, and
// without it again: the clock of the processor may have changed meanwhile. A disabled event would
// not do for the first and the last, as it costs time, too.
func (t Tracing) measureFaults(c *childProcess, costs *Costs) error {
	if t.FaultPeriod == 0 {
		return nil
	}

	var before, with, after float64
	if err := c.ask(child.OrderPages, &before); err != nil {
		return err
	}
	if err := t.withFaultEvent(c, func() error { return c.ask(child.OrderPages, &with) }); err != nil {
		return err
	}
	if err := c.ask(child.OrderPages, &after); err != nil {
		return err
	}
	costs.Fault = clamp(with-min(before, after), minFaultCost, maxFaultCost)
	return nil
}

// withFaultEvent calls do while the child's page faults are sampled.
func (t Tracing) withFaultEvent(c *childProcess, do func() error) error {
	event, err := t.openFaultEvent(c.pid())
	if err != nil {
		return fmt.Errorf("count page faults of child: %w", err)
	}
	defer unix.Close(event)

	program, err := t.Programs(bpf.ProgOnFault)
	if err != nil {
		return err
	}
	options := link.RawLinkOptions{Target: event, Program: program, Attach: ebpf.AttachPerfEvent}
	l, err := link.AttachRawLink(options)
	if err != nil {
		return fmt.Errorf("attach to page faults of child: %w", err)
	}
	return errors.Join(do(), l.Close())
}

// openFaultEvent opens the perf event of one page fault in FaultPeriod of a process,
// perf_event_open(2).
func (t Tracing) openFaultEvent(pid int) (event int, err error) {
	attribute := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_PAGE_FAULTS,
		Sample:      t.FaultPeriod,
		Sample_type: unix.PERF_SAMPLE_ADDR,
	}
	attribute.Size = uint32(unsafe.Sizeof(attribute))
	const anyCPU, noGroup = -1, -1
	return unix.PerfEventOpen(&attribute, pid, anyCPU, noGroup, unix.PERF_FLAG_FD_CLOEXEC)
}
