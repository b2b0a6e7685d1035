package tracer

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/probe"
)

// source tells what is probed, or why nothing is.
func (c *cudaProbe) source() Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off && len(c.details) == 0 {
		return Source{Name: "cuda", Off: true}
	}
	told := Source{Name: "cuda", Attached: c.driver || c.hooked, Reason: strings.Join(c.reasons, "; "), err: errors.Join(c.errs...), Details: slices.Clone(c.details)}
	switch {
	case told.Reason != "":
	case !c.gpu:
		told.Reason = "CUDA's driver (libcuda.so.1) is not mapped"
	case c.tells && !c.follow:
		told.Reason = "blocks of torch's allocator are not followed: that takes too much; their totals are read now and then"
	}
	return told
}

// isToBeTold tells whether a source that is not attached is worth a word: not where a process has nothing to do with GPUs.
func (c *cudaProbe) isToBeTold(alone bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off || c.gpu || alone
}

// waits reports whether it looks for libraries that have not been found yet.
func (c *cudaProbe) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.off && (!c.driver || !c.tells)
}

// watches tells what is followed: the driver's calls, and blocks all the time since they could be.
func (c *cudaProbe) watches() (driver, blocks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.driver, c.hooked && c.whole
}

// glimpse is how long the totals of torch's allocator are waited for where its blocks are not followed: a trainer tells them hundreds of
// times a second.
const glimpse = 20 * time.Millisecond

// glimpse attaches to the hooks for a moment, unless that is going on.
func (c *cudaProbe) glimpse(stop <-chan struct{}) {
	if _, blocks := c.watches(); blocks || !c.usesGPU() || c.isOff() || !c.attaching.TryLock() {
		return
	}
	defer c.attaching.Unlock()
	if c.wantsBlocks() || c.isOff() || len(c.hooks) == 0 {
		return
	}
	l, err := probe.AttachEntry(c.kernel.mode, c.hooks[0], c.kernel.Programs[bpf.KernelProgOnBlock], c.process.PID)
	if err != nil {
		return
	}
	select {
	case <-stop:
	case <-time.After(glimpse):
	}
	_ = l.Close() // what cannot be detached goes with our end
}
