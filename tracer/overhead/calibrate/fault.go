package calibrate

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/calibrate/child"
)

// measureFaults has the child, which is not traced, touch pages without the event, with it, and without it again: the
// machine may change its pace meanwhile. An event that is there but disabled would cost, too.
func (t Tracing) measureFaults(c *childProcess, prices *Prices) error {
	if t.OnFault == nil {
		return nil
	}
	var before, with, after float64
	if err := c.ask(child.OrderPages, &before); err != nil {
		return err
	}
	if err := t.withFaults(c, func() error { return c.ask(child.OrderPages, &with) }); err != nil {
		return err
	}
	if err := c.ask(child.OrderPages, &after); err != nil {
		return err
	}
	prices.Fault = within(leastFault, with-min(before, after), mostFault)
	return nil
}

// withFaults does something while the child's page faults are counted.
func (t Tracing) withFaults(c *childProcess, do func() error) error {
	event, err := t.openFaults(c.pid())
	if err != nil {
		return fmt.Errorf("count page faults of child: %w", err)
	}
	defer unix.Close(event)
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: event, Program: t.OnFault, Attach: ebpf.AttachPerfEvent})
	if err != nil {
		return fmt.Errorf("attach to page faults of child: %w", err)
	}
	return errors.Join(do(), l.Close())
}

// openFaults opens the event of one page fault in FaultPeriod of a process.
func (t Tracing) openFaults(pid int) (event int, err error) {
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
