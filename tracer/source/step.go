package source

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// Steps counts the steps of training of one process: the calls of a function since the attach, or since its library
// was loaded. Its methods may be called from several goroutines.
type Steps struct {
	kernel   *kernel.Kernel
	process  *process.Process
	function probe.StepFunction

	attaching sync.Mutex // held while files are read, which may take seconds
	Examined  map[process.FileID]bool

	mu      sync.Mutex
	link    link.Link // nil: not attached
	status  Status
	settled bool // it has looked at mappings once
	closed  bool
}

// mostStepLibraries is how many files of the right name are looked at: a process may map any number.
const mostStepLibraries = 16

// NewSteps prepares to count the calls of LIB:SYMBOL, or with "" the backward passes of PyTorch. A symbol that
// probe.ParseStepFunction refuses is never found, and source tells.
func NewSteps(k *kernel.Kernel, p *process.Process, symbol string) *Steps {
	c := &Steps{kernel: k, process: p, Examined: make(map[process.FileID]bool)}
	function, err := probe.ParseStepFunction(symbol)
	c.function = function
	c.status = Status{Name: "step", Reason: "no library " + process.Printable(function.Library) + " is mapped"}
	if err != nil {
		c.status.Reason, c.status.Err = err.Error(), err
		c.closed = true
	}
	return c
}

// turnOff makes it count nothing. Nobody else knows it yet.
func (c *Steps) TurnOff() {
	c.closed = true
	c.status = Status{Name: "step", Off: true}
}

// update attaches once the library is among the mappings. A file is looked at once.
func (c *Steps) Update(maps []process.Mapping) {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	defer c.settle()
	for _, m := range maps {
		if c.isDone() {
			return
		}
		if !m.Execute || !m.IsFile() || !c.function.IsIn(m.Path) || c.Examined[m.File()] {
			continue
		}
		c.Examined[m.File()] = true
		c.attach(m)
	}
}

func (c *Steps) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = true
}

// isSettled reports whether source tells more than that nobody has looked yet.
func (c *Steps) Settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled
}

// isDone reports whether there is nothing more to look for.
func (c *Steps) isDone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link != nil || c.closed || len(c.Examined) >= mostStepLibraries
}

// attach attaches to the function in a mapped file, or says why not.
func (c *Steps) attach(m process.Mapping) {
	l, site, err := c.tryAttach(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.status.Reason, c.status.Err = err.Error(), err
		return
	}
	c.link = l
	c.status = Status{Name: "step", Attached: true, Details: []string{
		fmt.Sprintf("%s in %s at file offset %#x: %s", site.Function.Name, m.Path, site.Offset, site.Reason),
	}}
}

func (c *Steps) tryAttach(m process.Mapping) (link.Link, probe.Site, error) {
	target, err := c.function.Resolve(c.process, m)
	if err != nil {
		return nil, probe.Site{}, err
	}
	if err := c.kernel.Steps.Put(uint32(c.process.PID), bpf.StepCount{}); err != nil {
		return nil, probe.Site{}, fmt.Errorf("count steps of pid %d: %w", c.process.PID, err)
	}
	l, err := probe.AttachStep(target, c.kernel.OnStep, c.process.PID)
	return l, target.Sites[0], err
}

// count gives the calls since the attach; growth.Unknown before it and after close.
func (c *Steps) Count() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var steps bpf.StepCount
	if c.link == nil || c.kernel.Steps.Lookup(uint32(c.process.PID), &steps) != nil {
		return growth.Unknown
	}
	return int64(steps.Calls)
}

// source tells what is probed, or why nothing is.
func (c *Steps) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// close detaches. It may be called more than once, and before the kernel side is closed.
func (c *Steps) Close() error {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	_ = c.kernel.Steps.Delete(uint32(c.process.PID)) // it may not be there
	if c.link == nil {
		return nil
	}
	err := c.link.Close()
	c.link = nil
	return err
}
