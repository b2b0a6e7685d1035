package source

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/cilium/ebpf/link"
)

// GPU is source cuda of one process: the functions of CUDA's driver, and the one to which torch's allocator tells its blocks, from
// the attach on, or since their library was loaded. Its methods may be called from several goroutines.
type GPU struct {
	kernel  *kernel.Kernel
	process *process.Process

	attaching sync.Mutex // held while files are read and probes attached or detached
	examined  map[process.FileID]bool
	drivers   int // libraries whose functions are probed
	links     []link.Link
	reporters []probe.Target // where blocks are told
	blocks    []link.Link    // on these, while blocks are followed
	refusing  bool           // to attach to them: it was tried

	mu          sync.Mutex
	reasons     []string // why something is not attached
	errs        []error
	details     []string
	driver      bool // the driver's functions are probed
	hasReporter bool // there is a hook
	follow      bool // blocks are to be followed, where there is a GPU
	attached    bool // they are
	complete    bool // and have been ever since they could be
	gpu         bool // the process has a library of those that use one
	off         bool
}

// Bounds: a process may map any number of files, and copies of the libraries.
const (
	mostCUDAFiles = 4096
	mostDrivers   = 4
	mostHooks     = 4
)

// NewGPU prepares to attach as soon as the functions are found.
func NewGPU(k *kernel.Kernel, p *process.Process) *GPU {
	return &GPU{kernel: k, process: p, examined: make(map[process.FileID]bool), complete: true}
}

// turnOff makes it watch nothing. Nobody else knows it yet.
func (c *GPU) TurnOff() { c.off = true }

// update finds the functions in all files that are mapped, each of which is looked at once, and attaches to them.
func (c *GPU) Update(maps []process.Mapping) {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	for _, m := range maps {
		if c.isOff() || len(c.examined) >= mostCUDAFiles {
			break
		}
		if !m.Execute || !m.IsFile() || c.examined[m.File()] {
			continue
		}
		c.examined[m.File()] = true
		c.find(m)
	}
	c.attachBlocks()
}

// find looks at one file.
func (c *GPU) find(m process.Mapping) {
	if probe.UsesGPU(m.Path) {
		c.mu.Lock()
		c.gpu = true
		c.mu.Unlock()
	}
	switch {
	case probe.IsCUDADriver(m.Path) && c.drivers < mostDrivers:
		c.findDriver(m)
	case len(c.reporters) < mostHooks:
		c.findHook(m)
	}
}

// findDriver attaches to the functions of CUDA's driver in a mapped file.
func (c *GPU) findDriver(m process.Mapping) {
	target, err := probe.ResolveCUDADriver(c.process, m)
	if err == nil {
		var links []link.Link
		links, err = probe.AttachCUDADriver(c.kernel.Mode, target, c.kernel.CudaOnEntry, c.kernel.CudaOnReturn, c.process.PID)
		c.links = append(c.links, links...)
	}
	if err != nil {
		c.refused(err)
		return
	}
	c.drivers++
	c.mu.Lock()
	defer c.mu.Unlock()
	c.driver = true
	c.describe(target)
}

// findHook notes where torch's allocator tells its blocks. That others than torch's own library have no such function goes
// without saying.
func (c *GPU) findHook(m process.Mapping) {
	target, err := probe.ResolveBlocks(c.process, m)
	if err != nil {
		if probe.IsTensorLibrary(m.Path) {
			c.refused(err)
		}
		return
	}
	c.reporters = append(c.reporters, target)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasReporter = true
	c.describe(target)
}

// attachBlocks attaches to all hooks, or to none, where that is wanted. Where it is refused it is not tried again.
func (c *GPU) attachBlocks() {
	if !c.wantsBlocks() || c.refusing {
		return
	}
	for _, hook := range c.reporters[len(c.blocks):] {
		l, err := probe.AttachEntry(c.kernel.Mode, hook, c.kernel.OnBlock, c.process.PID)
		if err != nil {
			c.refusing = true
			c.refused(errors.Join(err, c.detachBlocks()))
			return
		}
		c.blocks = append(c.blocks, l)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = len(c.blocks) > 0
}

func (c *GPU) detachBlocks() error {
	err := probe.Close(c.blocks)
	c.blocks = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = false
	return err
}

// followBlocks attaches to what has been found and is found from now on, or detaches for good.
func (c *GPU) FollowBlocks(follow bool) error {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	if c.isOff() {
		return nil
	}
	c.mu.Lock()
	c.follow, c.complete = follow, c.complete && follow
	c.mu.Unlock()
	if !follow {
		return c.detachBlocks()
	}
	c.attachBlocks()
	return nil
}

// describe adds what is probed to what source tells.
func (c *GPU) describe(target probe.Target) {
	for _, s := range target.Sites {
		c.details = append(c.details, fmt.Sprintf("%s in %s at file offset %#x: %s", s.Function.Name, target.File.Path, s.Offset, s.Reason))
	}
	for _, unprobed := range target.Unprobed {
		c.details = append(c.details, fmt.Sprintf("not probed in %s: %s", target.File.Path, unprobed))
	}
}

// refused notes why something is not attached.
func (c *GPU) refused(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reasons = append(c.reasons, err.Error())
	c.errs = append(c.errs, err)
}

// shutdown detaches for ever. It may be called more than once, and before the kernel side is closed.
func (c *GPU) Shutdown() error {
	c.mu.Lock()
	c.off = true // first: nothing is attached after this
	c.mu.Unlock()
	c.attaching.Lock()
	defer c.attaching.Unlock()
	err := errors.Join(c.detachBlocks(), probe.Close(c.links))
	c.links = nil
	return err
}

// usesGPU tells whether the process has a library of those that use one.
func (c *GPU) UsesGPU() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gpu
}

// wantsBlocks tells whether blocks are to be followed, and there may be some.
func (c *GPU) wantsBlocks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.follow && c.gpu && !c.off
}

func (c *GPU) isOff() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off
}

// source tells what is probed, or why nothing is.
func (c *GPU) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off && len(c.details) == 0 {
		return Status{Name: "cuda", Off: true}
	}
	told := Status{Name: "cuda", Attached: c.driver || c.attached, Reason: strings.Join(c.reasons, "; "), Err: errors.Join(c.errs...), Details: slices.Clone(c.details)}
	switch {
	case told.Reason != "":
	case !c.gpu:
		told.Reason = "CUDA's driver (libcuda.so.1) is not mapped"
	case c.hasReporter && !c.follow:
		told.Reason = "blocks of torch's allocator are not followed: that takes too much; their totals are read now and then"
	}
	return told
}

// isToBeTold tells whether a source that is not attached is worth a word: not where a process has nothing to do with GPUs.
func (c *GPU) ShouldReport(alone bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off || c.gpu || alone
}

// waits reports whether it looks for libraries that have not been found yet.
func (c *GPU) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.off && (!c.driver || !c.hasReporter)
}

// watches tells what is followed: the driver's calls, and blocks all the time since they could be.
func (c *GPU) Active() (driver, blocks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.driver, c.attached && c.complete
}

// glimpse is how long the totals of torch's allocator are waited for where its blocks are not followed: a trainer tells them hundreds of
// times a second.
const totalsSampleTime = 20 * time.Millisecond

// glimpse attaches to the hooks for a moment, unless that is going on.
func (c *GPU) SampleTotals(stop <-chan struct{}) {
	if _, blocks := c.Active(); blocks || !c.UsesGPU() || c.isOff() || !c.attaching.TryLock() {
		return
	}
	defer c.attaching.Unlock()
	if c.wantsBlocks() || c.isOff() || len(c.reporters) == 0 {
		return
	}
	l, err := probe.AttachEntry(c.kernel.Mode, c.reporters[0], c.kernel.OnBlock, c.process.PID)
	if err != nil {
		return
	}
	select {
	case <-stop:
	case <-time.After(totalsSampleTime):
	}
	_ = l.Close() // what cannot be detached goes with our end
}
