// Package calibrate measures what probes cost on this machine, on a child of our own: never on what is traced.
package calibrate

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/calibrate/child"
	"github.com/allocscope/allocscope/tracer/probe"
)

// Prices of what the probes do, in ns of CPU time of the probed thread. What walking stacks and keeping samples take is not
// in them.
type Prices struct {
	// Entry of a probed function of which nothing is sampled, and whose return is not probed.
	Entry float64
	// Stepped is the same at an instruction that the kernel does not emulate but single-steps.
	Stepped float64
	// Return of a probed function, which comes on top of its entry.
	Return float64
	// Fault is a page fault, sampled or not, while one in so many of all is.
	Fault float64
}

// Defaults stand for what cannot be measured: what a busy virtual machine has shown. A quiet one takes half as long.
var Defaults = Prices{Entry: 1100, Stepped: 14_000, Return: 700, Fault: 100}

// Bounds of what is believed, in ns.
const (
	LeastTrap, MostTrap   = 100, 100_000
	leastFault, mostFault = 10, 10_000
)

// Patience is the default of Tracing. All takes some 40 ms, unless the machine is busy.
const Patience = 250 * time.Millisecond

// Tracing is what is measured.
type Tracing struct {
	Mode     probe.Mode
	Programs probe.Programs
	// SetTraced tells the programs whether a process is one of those that count. They must take no sample of 0 bytes.
	SetTraced func(pid int, traced bool) error
	// Detach closes the links, which may take as long as all the rest, and need not be waited for: the child is gone.
	Detach func([]link.Link)
	// OnFault runs at one page fault in FaultPeriod; nil: Fault is not measured.
	OnFault     *ebpf.Program
	FaultPeriod uint64
	// Patience with the child; 0: the default.
	Patience time.Duration
}

// Measure starts a child, measures and ends it. What could not be measured has its default, and the error says why. The
// programs' counters have then seen the child; their other maps have nothing of it.
func Measure(t Tracing) (Prices, error) {
	runtime.LockOSThread() // the child does not outlive the thread
	defer runtime.UnlockOSThread()
	prices := Defaults
	if err := t.measure(&prices); err != nil {
		return prices, fmt.Errorf("measure prices of probes: %w", err)
	}
	return prices, nil
}

func (t Tracing) measure(prices *Prices) error {
	c, err := startChild(cmp.Or(t.Patience, Patience))
	if err != nil {
		return err
	}
	links, err := t.measureTraps(c, prices)
	err = errors.Join(err, t.measureFaults(c, prices))
	c.end()
	t.Detach(links)
	return err
}

// measureTraps gives what has been attached, also where it fails.
func (t Tracing) measureTraps(c *childProcess, prices *Prices) ([]link.Link, error) {
	var native, probed child.Calls
	if err := c.ask(child.OrderCalls, &native); err != nil {
		return nil, err
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
	prices.setTraps(native, probed)
	return links, nil
}

// setTraps takes the differences. The entry is half malloc's, half free's.
func (p *Prices) setTraps(native, probed child.Calls) {
	malloc, free := probed.Malloc-native.Malloc, probed.Free-native.Free
	p.Entry = within(LeastTrap, (malloc+free)/2, MostTrap)
	p.Stepped = within(LeastTrap, probed.Stepped-native.Stepped, MostTrap)
	p.Return = within(LeastTrap, probed.Calloc-native.Calloc-malloc, MostTrap)
}

func within(least, price, most float64) float64 { return min(max(price, least), most) }
