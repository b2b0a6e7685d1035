package source

import (
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// GPU is source cuda of one process: the CUDA driver API, and the function to which PyTorch's CUDA
// caching allocator reports its blocks. Its methods may be called by several goroutines.
type GPU struct {
	library                 // status.Attached means that the driver is probed
	drivers     int         // libraries whose functions are probed
	driverLinks []link.Link // on these
	blockLinks  []link.Link // on the first of blockFiles

	// mu guards reads. attaching is held too for writes, so its holders may read without mu.
	blockFiles []probe.FileSites // functions to which blocks are reported
	blocks     state             // of the probes on these, beside the state of the library
	// inBursts is set once the probes on blocks have been detached for a while.
	inBursts bool

	// usesGPU is set once the process has mapped a library of those that use a GPU, in all states:
	// the library may be one without functions to probe.
	usesGPU bool
}

const (
	maxGPUFiles   = 4096
	maxDrivers    = 4 // a process may map copies of the libraries
	maxBlockFiles = 4
)

// NewGPU returns a source that attaches to the driver as soon as Update finds it. It does not
// follow blocks before FollowBlocks is called.
func NewGPU(k *kernel.Kernel, p *process.Process) *GPU {
	return &GPU{
		library: newLibrary(k, p, "cuda", "", maxGPUFiles),
		blocks:  paused,
	}
}

// Update finds the functions in the files that are mapped, and attaches to them.
func (g *GPU) Update(maps []process.Mapping) {
	g.attaching.Lock()
	defer g.attaching.Unlock()

	g.check(maps, func(m process.Mapping) bool {
		g.find(m)
		return true
	})
	g.attachBlocks()
}

// find finds the functions in a mapped file, if it is a library that has some.
func (g *GPU) find(m process.Mapping) {
	if probe.UsesGPU(m.Path) {
		g.mu.Lock()
		g.usesGPU = true
		g.mu.Unlock()
	}

	switch {
	case probe.IsCUDADriver(m.Path) && g.drivers < maxDrivers:
		g.findDriver(m)
	case len(g.blockFiles) < maxBlockFiles:
		g.findBlocks(m)
	}
}

// findDriver attaches to the CUDA driver API in a mapped file.
func (g *GPU) findDriver(m process.Mapping) {
	file, err := probe.ResolveCUDADriver(g.process, m)
	var found followedFiles
	if err == nil {
		found, err = follow(g.kernel, g.process, []probe.FileSites{file})
	}
	if err == nil {
		file = found.files[0]
		var links []link.Link
		links, err = attachIn(g.kernel, g.process, func(w kernel.Way) ([]link.Link, error) {
			return probe.AttachCUDADriver(w.Mode, file, w.Programs, w.TID)
		})
		g.driverLinks = append(g.driverLinks, links...)
	}
	if err != nil {
		g.reportError(err)
		return
	}

	g.drivers++
	g.enter(attached)

	g.mu.Lock()
	defer g.mu.Unlock()

	g.status.Attached = true
	g.status.Details = append(g.status.Details, details(file)...)
}

// findBlocks looks for the function to which blocks are reported. A file that lacks it is reported
// only if it has the name of PyTorch's library.
func (g *GPU) findBlocks(m process.Mapping) {
	file, err := probe.ResolveBlocks(g.process, m)
	if err != nil {
		if probe.IsTensorLibrary(m.Path) {
			g.reportError(err)
		}
		return
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	g.blockFiles = append(g.blockFiles, file)
	g.status.Details = append(g.status.Details, details(file)...)
}

// attachTo attaches to the function of a file to which blocks are reported.
func (g *GPU) attachTo(file probe.FileSites) (link.Link, error) {
	return attachIn(g.kernel, g.process, func(w kernel.Way) (link.Link, error) {
		return probe.AttachBlocks(w.Mode, file, w.Programs, w.TID)
	})
}

// attachBlocks attaches to all functions to which blocks are reported, or to none. It waits for a
// library that uses a GPU: without one, the functions report the memory of the CPU.
func (g *GPU) attachBlocks() {
	isWanted := g.blocks == waiting || g.blocks == attached
	if !isWanted || !g.usesGPU || g.is(off, closed) {
		return
	}

	for _, file := range g.blockFiles[len(g.blockLinks):] {
		l, err := g.attachTo(file)
		if err != nil {
			g.reportError(errors.Join(err, g.detachBlocks(refused)))
			return
		}
		g.blockLinks = append(g.blockLinks, l)
	}

	if len(g.blockLinks) > 0 {
		g.enterBlocks(attached)
	}
}

func (g *GPU) enterBlocks(next state) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.blocks = next
}

// detachBlocks detaches from the functions to which blocks are reported.
func (g *GPU) detachBlocks(next state) error {
	g.enterBlocks(next) // first: to close links may take long, and blocks are missed meanwhile
	err := probe.Close(g.blockLinks)
	g.blockLinks = nil
	return err
}

// PauseBlocks detaches from the functions to which blocks are reported until the next call of
// FollowBlocks.
func (g *GPU) PauseBlocks() error {
	g.attaching.Lock()
	defer g.attaching.Unlock()

	if g.is(off, closed) || g.blocks == closed || g.blocks == refused {
		return nil
	}

	g.mu.Lock()
	g.inBursts = true
	g.mu.Unlock()
	return g.detachBlocks(paused)
}

// reattachBlocks attaches again where blocks are followed.
func (g *GPU) reattachBlocks() {
	g.attaching.Lock()
	defer g.attaching.Unlock()

	if g.blocks == attached {
		_ = g.detachBlocks(waiting) // else they are detached when allocscope exits
		g.attachBlocks()            // its status has the error
	}
}

// FollowBlocks attaches to the functions to which blocks are reported, which were found or will
// be. Without follow it detaches for good: some blocks would not be known.
func (g *GPU) FollowBlocks(follow bool) error {
	g.attaching.Lock()
	defer g.attaching.Unlock()

	if g.is(off, closed) {
		return nil
	}

	if !follow {
		return g.detachBlocks(closed)
	}

	if g.blocks == paused {
		g.enterBlocks(waiting)
	}
	g.attachBlocks()
	return nil
}

// reportError adds a reason why something is not attached.
func (g *GPU) reportError(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.status.Reason != "" {
		g.status.Reason += "; "
	}

	g.status.Reason += err.Error()
	g.status.Err = errors.Join(g.status.Err, err)
}

// Sweep does nothing: a program cannot use CUDA after a fork.
func (g *GPU) Sweep() error { return nil }

// Close is as in Library.
func (g *GPU) Close() error {
	g.enter(closed) // before it waits for attaching: Update stops at the next file
	g.attaching.Lock()
	defer g.attaching.Unlock()

	err := errors.Join(g.detachBlocks(closed), probe.Close(g.driverLinks))
	g.driverLinks = nil
	return err
}

// UsesGPU reports whether the process has mapped a library of those that use a GPU.
func (g *GPU) UsesGPU() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.usesGPU
}

// Status is as in Library.
func (g *GPU) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()

	s := g.status

	if g.hasEnded() && len(s.Details) == 0 {
		return Status{Name: "cuda", Off: true}
	}

	s.Attached = s.Attached || g.blocks == attached || g.inBursts && g.blocks == paused
	s.Details = slices.Clone(s.Details)
	switch {
	case s.Reason != "":
	case !g.usesGPU:
		s.Code, s.File = growth.SourceNotMapped, "libcuda.so.1"
		s.Reason = "CUDA's driver (libcuda.so.1) is not mapped"
	case len(g.blockFiles) > 0 && g.needsTotals():
		s.Gap = growth.GapBlocks
	}
	if s.Reason == "" && g.inBursts && g.blocks != closed && len(g.blockFiles) > 0 {
		s.Gap = growth.GapBlockBursts
	}
	return s
}

// ShouldReport reports a program that uses no GPU only if there is no source heap.
func (g *GPU) ShouldReport(heapOff bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.hasEnded() || g.usesGPU || heapOff
}

// Pending reports whether Update still has to find the driver or the function of blocks.
func (g *GPU) Pending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return !g.hasEnded() && (!g.status.Attached || len(g.blockFiles) == 0)
}

// Active reports whether the driver is probed, and whether all blocks were seen since they could
// be, or since bursts began all in these.
func (g *GPU) Active() (driver, blocks bool) {
	g.mu.Lock()
	defer g.mu.Unlock()

	isPaused := g.blocks == paused && g.inBursts && len(g.blockFiles) > 0
	return g.status.Attached, g.blocks == attached || isPaused
}

// wantsTotals reports whether the process may have blocks that are not followed.
func (g *GPU) wantsTotals() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.needsTotals()
}

// needsTotals is wantsTotals for callers that hold mu.
func (g *GPU) needsTotals() bool {
	return g.usesGPU && !g.hasEnded() && (g.blocks == paused || g.blocks == closed)
}

// totalsSampleTime is how long SampleTotals is attached. A training program reports the totals of
// PyTorch's allocator hundreds of times a second.
const totalsSampleTime = 20 * time.Millisecond

// SampleTotals attaches to a function to which blocks are reported for a short time, while blocks
// are not followed: each report has the totals of PyTorch's allocator. It does nothing if another
// call is under way, and ends early when stop is closed.
func (g *GPU) SampleTotals(stop <-chan struct{}) {
	if !g.wantsTotals() || !g.attaching.TryLock() {
		return
	}
	defer g.attaching.Unlock()

	if !g.wantsTotals() || len(g.blockFiles) == 0 {
		return
	}

	l, err := g.attachTo(g.blockFiles[0])
	if err != nil {
		return
	}

	select {
	case <-stop:
	case <-time.After(totalsSampleTime):
	}
	_ = probe.Close([]link.Link{l}) // else it is detached when allocscope exits
}
