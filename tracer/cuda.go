package tracer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// cudaProbe is source cuda of one process: the functions of CUDA's driver, and the one to which torch's allocator tells its blocks, from
// the attach on, or since their library was loaded. Its methods may be called from several goroutines.
type cudaProbe struct {
	kernel  *kernel
	process *process.Process

	attaching sync.Mutex // held while files are read and probes attached or detached
	looked    map[process.FileID]bool
	drivers   int // libraries whose functions are probed
	links     []link.Link
	hooks     []probe.Target // where blocks are told
	blocks    []link.Link    // on these, while blocks are followed
	refusing  bool           // to attach to them: it was tried

	mu      sync.Mutex
	reasons []string // why something is not attached
	errs    []error
	details []string
	driver  bool // the driver's functions are probed
	tells   bool // there is a hook
	follow  bool // blocks are to be followed, where there is a GPU
	hooked  bool // they are
	whole   bool // and have been ever since they could be
	gpu     bool // the process has a library of those that use one
	off     bool
}

// Bounds: a process may map any number of files, and copies of the libraries.
const (
	mostCUDAFiles = 4096
	mostDrivers   = 4
	mostHooks     = 4
)

// newCUDAProbe prepares to attach as soon as the functions are found.
func newCUDAProbe(k *kernel, p *process.Process) *cudaProbe {
	return &cudaProbe{kernel: k, process: p, looked: make(map[process.FileID]bool), whole: true}
}

// turnOff makes it watch nothing. Nobody else knows it yet.
func (c *cudaProbe) turnOff() { c.off = true }

// update finds the functions in all files that are mapped, each of which is looked at once, and attaches to them.
func (c *cudaProbe) update(maps []process.Mapping) {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	for _, m := range maps {
		if c.isOff() || len(c.looked) >= mostCUDAFiles {
			break
		}
		if !m.Execute || !m.IsFile() || c.looked[m.File()] {
			continue
		}
		c.looked[m.File()] = true
		c.find(m)
	}
	c.attachBlocks()
}

// find looks at one file.
func (c *cudaProbe) find(m process.Mapping) {
	if probe.UsesGPU(m.Path) {
		c.mu.Lock()
		c.gpu = true
		c.mu.Unlock()
	}
	switch {
	case probe.IsCUDA(m.Path) && c.drivers < mostDrivers:
		c.findDriver(m)
	case len(c.hooks) < mostHooks:
		c.findHook(m)
	}
}

// findDriver attaches to the functions of CUDA's driver in a mapped file.
func (c *cudaProbe) findDriver(m process.Mapping) {
	target, err := probe.ResolveCUDA(c.process, m)
	if err == nil {
		var links []link.Link
		links, err = probe.AttachCUDA(c.kernel.mode, target, c.kernel.Programs[bpf.KernelProgCudaOnEntry], c.kernel.Programs[bpf.KernelProgCudaOnReturn], c.process.PID)
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
func (c *cudaProbe) findHook(m process.Mapping) {
	target, err := probe.ResolveBlocks(c.process, m)
	if err != nil {
		if probe.IsTensorLibrary(m.Path) {
			c.refused(err)
		}
		return
	}
	c.hooks = append(c.hooks, target)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tells = true
	c.describe(target)
}

// attachBlocks attaches to all hooks, or to none, where that is wanted. Where it is refused it is not tried again.
func (c *cudaProbe) attachBlocks() {
	if !c.wantsBlocks() || c.refusing {
		return
	}
	for _, hook := range c.hooks[len(c.blocks):] {
		l, err := probe.AttachEntry(c.kernel.mode, hook, c.kernel.Programs[bpf.KernelProgOnBlock], c.process.PID)
		if err != nil {
			c.refusing = true
			c.refused(errors.Join(err, c.detachBlocks()))
			return
		}
		c.blocks = append(c.blocks, l)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooked = len(c.blocks) > 0
}

func (c *cudaProbe) detachBlocks() error {
	err := probe.Close(c.blocks)
	c.blocks = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooked = false
	return err
}

// followBlocks attaches to what has been found and is found from now on, or detaches for good.
func (c *cudaProbe) followBlocks(follow bool) error {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	if c.isOff() {
		return nil
	}
	c.mu.Lock()
	c.follow, c.whole = follow, c.whole && follow
	c.mu.Unlock()
	if !follow {
		return c.detachBlocks()
	}
	c.attachBlocks()
	return nil
}

// describe adds what is probed to what source tells.
func (c *cudaProbe) describe(target probe.Target) {
	for _, s := range target.Sites {
		c.details = append(c.details, fmt.Sprintf("%s in %s at file offset %#x: %s", s.Function.Name, target.File.Path, s.Offset, s.Reason))
	}
	for _, unprobed := range target.Unprobed {
		c.details = append(c.details, fmt.Sprintf("not probed in %s: %s", target.File.Path, unprobed))
	}
}

// refused notes why something is not attached.
func (c *cudaProbe) refused(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reasons = append(c.reasons, err.Error())
	c.errs = append(c.errs, err)
}

// shutdown detaches for ever. It may be called more than once, and before the kernel side is closed.
func (c *cudaProbe) shutdown() error {
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
func (c *cudaProbe) usesGPU() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gpu
}

// wantsBlocks tells whether blocks are to be followed, and there may be some.
func (c *cudaProbe) wantsBlocks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.follow && c.gpu && !c.off
}

func (c *cudaProbe) isOff() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off
}
