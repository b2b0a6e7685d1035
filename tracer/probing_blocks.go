package tracer

import (
	"fmt"
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/source"
)

// blockProbing opens and closes the probes on PyTorch's CUDA caching allocator: all the time, in
// bursts, or not at all.
type blockProbing struct {
	kernel  *kernel.Kernel
	targets *targetSet
	tallies *tallies

	mu            *sync.Mutex // probing's
	blockInterval uint64      // bytes between sampled blocks; 0: none are
	isPaused      bool        // blocks will be sampled again
	bursts        gpu.Bursts
}

// FollowBlocks samples the blocks of PyTorch's CUDA caching allocator in all targets from now on,
// or for good has only their totals read.
func (p *blockProbing) FollowBlocks(follow bool, interval uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !follow {
		return p.closeBlocks()
	}
	if p.blockInterval == interval {
		return nil
	}

	if p.blockInterval == 0 {
		for _, t := range p.targets.list() {
			_ = t.sources.GPU.FollowBlocks(true) // its status has the error, here and below
		}
		if err := p.openBlockBurst(); err != nil {
			return err
		}
	}
	return p.setBlockInterval(interval)
}

// followIn attaches the probes in a new target that are open in the others.
func (p *blockProbing) followIn(g *source.GPU) {
	if p.isPaused {
		_ = g.PauseBlocks() // its status has the error
		return
	}
	_ = g.FollowBlocks(p.blockInterval != 0)
}

// openBlockBurst begins a burst, once all probes are attached. The allocations of the last one
// represent the ones since, too.
func (p *blockProbing) openBlockBurst() error {
	wasPaused := p.isPaused
	p.bursts.Open(kernel.Monotonic())
	p.isPaused = false
	if !wasPaused {
		return nil
	}
	return p.tallies.foldBlocks(p.bursts.LastFactor())
}

// setBlockInterval sets the bytes between sampled blocks; 0: none are.
func (p *blockProbing) setBlockInterval(interval uint64) error {
	if err := p.kernel.BlockInterval.Set(uint32(interval)); err != nil {
		return fmt.Errorf("set the sampling interval of blocks: %w", err)
	}
	p.blockInterval = interval
	return nil
}

// PauseBlocks ends a burst: blocks are not sampled until the next call of FollowBlocks. Bursts
// last for so long, at least.
func (p *blockProbing) PauseBlocks(length time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.blockInterval == 0 {
		return nil
	}
	if err := p.kernel.BlockBursts.Set(uint32(1)); err != nil {
		return fmt.Errorf("trace blocks in bursts: %w", err)
	}
	if err := p.setBlockInterval(0); err != nil {
		return err
	}
	p.bursts.Close(kernel.Monotonic(), length)
	p.isPaused = true
	p.inAllGPUs((*source.GPU).PauseBlocks)
	return nil
}

// closeBlocks gives blocks up for good: they would count as live for ever.
func (p *blockProbing) closeBlocks() error {
	if p.blockInterval == 0 && !p.isPaused {
		return nil
	}
	if err := p.setBlockInterval(0); err != nil {
		return err
	}
	p.isPaused = false
	p.inAllGPUs(func(g *source.GPU) error { return g.FollowBlocks(false) })
	return kernel.DeleteWhere(p.kernel.GpuLive, func(_ *bpf.GpuAddress, m *bpf.GpuMemory) bool {
		return m.Kind == bpf.KindBlock
	})
}

func (p *blockProbing) inAllGPUs(call func(*source.GPU) error) {
	var calls []func() error
	for _, t := range p.targets.list() {
		calls = append(calls, func() error { return call(t.sources.GPU) })
	}
	_ = source.InParallel(calls) // the rest is detached when allocscope exits
}

// ListsBlocks reports whether the list of PyTorch's caching allocator can be read in all targets
// that have blocks, and in one at least.
func (p *blockProbing) ListsBlocks() bool {
	found := false
	for pid, totals := range gpu.ReadTorchTotals(p.kernel) {
		t := p.targets.traced(int(pid))
		if allocated, _ := gpu.SumTotals(totals); t == nil || allocated <= 0 {
			continue
		}
		if t.listBlocks() == nil {
			return false
		}
		found = true
	}
	return found
}

// readGPUs reads the memory on GPUs. lists are the blocks in use before, by PID. Sampled blocks
// that have come back between two bursts are removed from the kernel's map.
func (p *blockProbing) readGPUs(bins estimate.BirthBins, lists gpu.Lists) (*gpu.Totals, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	evidence := gpu.Evidence{
		Bursts: &p.bursts, Now: kernel.Monotonic(), Since: tracedSince(p.targets.list()),
		Lists: lists,
	}
	totals, err := gpu.ReadLive(p.kernel, bins, evidence)
	if err == nil && p.isPaused {
		totals.DeleteRefuted(p.kernel)
	}
	return totals, err
}

// hasBlockBursts reports whether blocks of a target were sampled in bursts.
func (p *blockProbing) hasBlockBursts(t *target) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bursts.HaveGapSince(t.tracedSince)
}
