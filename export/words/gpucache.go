package words

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/gpu"
)

// gpuCacheAdvice is the meaning of a cache that grows, and a remedy.
func gpuCacheAdvice(g *summary.GPUMemory) string {
	const conf = "PYTORCH_CUDA_ALLOC_CONF="
	switch gpu.Diagnosis(g.Diagnosis) {
	case gpu.DiagnosisFragmentation:
		return "free memory lies between blocks in use, which keep its segments" + pinnersText(g) +
			". Free these blocks, or allocate them before the temporary ones; try " + conf +
			"expandable_segments:True, or max_split_size_mb:200; pad inputs to few shapes"
	case gpu.DiagnosisPools:
		return "free memory in private pools grows. Each CUDA graph that is captured without a pool has " +
			"one of its own, and keeps it until the graph is deleted: capture fewer shapes, or give " +
			"torch.cuda.graph() a shared pool=torch.cuda.graph_pool_handle()"
	case gpu.DiagnosisCache:
		return "whole segments are free. torch.cuda.empty_cache() returns them to the driver, for " +
			"others to use; PyTorch itself takes from them before it asks for more. " + conf +
			"garbage_collection_threshold:0.8 returns old ones when memory gets short"
	}

	return "its cache is fragmented by varying shapes, or CUDA graphs have pools of their own. See " +
		"torch.cuda.memory_summary(); try " + conf + "expandable_segments:True, inputs padded to few " +
		"shapes, torch.cuda.empty_cache() between phases"
}

// pinnersText names the blocks that keep most memory; empty: none is known.
func pinnersText(g *summary.GPUMemory) string {
	if g.Cache == nil || len(g.Cache.Pinners) == 0 {
		return ""
	}

	return ": " + PinnerText(&g.Cache.Pinners[0])
}

// PinnerText says how much memory blocks of one kind keep, in segments that are free otherwise: "40
// tensors float32 [512] (80 KiB) keep 40 segments (800 MiB)".
func PinnerText(p *summary.GPUPinner) string {
	kind := "blocks"
	if p.DType != "" {
		kind = "tensors " + p.DType + shapeText(p.Shape)
	}

	return fmt.Sprintf("%s %s (%s) keep %s (%s)",
		units.Count(float64(p.Blocks)), kind, units.Bytes(float64(p.Bytes)), pinnedUnits(p),
		units.Bytes(float64(p.GainBytes)))
}

// pinnerSite says which call allocated them; empty: it is not known.
func pinnerSite(p *summary.GPUPinner) string {
	switch {
	case p.Function == "":
		return ""
	case p.Sampled < p.Blocks:
		return fmt.Sprintf("allocated by %s, as far as sampled (%d of %s)", Frame(p.Function), p.Sampled,
			units.Count(float64(p.Blocks)))
	}

	return "allocated by " + Frame(p.Function)
}

func pinnedUnits(p *summary.GPUPinner) string {
	if p.Segments == 1 {
		return "a segment"
	}

	return units.Count(float64(p.Segments)) + " segments"
}

func shapeText(shape []int64) string {
	var sizes []string
	for _, n := range shape {
		sizes = append(sizes, fmt.Sprint(n))
	}

	return " [" + strings.Join(sizes, ", ") + "]"
}

// pinnerLines are WHERE of a fragmented cache: the blocks that keep most of it; nil: none is known.
func pinnerLines(g *summary.GPUMemory) []string {
	if gpu.Diagnosis(g.Diagnosis) != gpu.DiagnosisFragmentation || g.Cache == nil ||
		len(g.Cache.Pinners) == 0 {
		return nil
	}

	p := &g.Cache.Pinners[0]
	lines := []string{PinnerText(p)}
	if site := pinnerSite(p); site != "" {
		lines = append(lines, site)
	}

	return lines
}

// gpuStep is what to do about a diagnosis of GPU memory.
func gpuStep(s *summary.Summary, d gpu.Diagnosis) string {
	g := s.GPUInCharge()
	if d == gpu.DiagnosisFragmentation && g != nil && g.Cache != nil && len(g.Cache.Pinners) > 0 {
		p := &g.Cache.Pinners[0]
		return fmt.Sprintf("free these blocks: empty_cache() then returns %s; or "+
			"expandable_segments:True", units.Bytes(float64(p.GainBytes)))
	}

	return gpuSteps[d]
}

// gpuCacheLines say how much of PyTorch's cache is free, and which blocks keep most of that; nil:
// nothing of note is.
func gpuCacheLines(g *summary.GPUMemory) []string {
	if g.Cache == nil {
		return nil
	}

	const worthShare, worthBytes = 0.1, 64 << 20
	common, private := g.Cache.Default(), g.Cache.Private()
	reserved := common.ReservedBytes + private.ReservedBytes
	isWorth := func(bytes int64) bool {
		return bytes >= worthBytes && float64(bytes) >= worthShare*float64(reserved)
	}

	var parts []string
	add := func(bytes int64, where string) {
		if isWorth(bytes) {
			parts = append(parts, units.Bytes(float64(bytes))+" "+where)
		}
	}

	add(common.ReturnableBytes, "that empty_cache() returns")
	add(common.PinnedBytes, "beside blocks in use")
	add(private.ReservedBytes-private.AllocatedBytes, "in private pools")
	if len(parts) == 0 {
		return nil
	}

	lines := []string{fmt.Sprintf("PyTorch's cache on the GPU: %s, of it free %s",
		units.Bytes(float64(reserved)), strings.Join(parts, ", "))}
	if isWorth(common.PinnedBytes) && len(g.Cache.Pinners) > 0 {
		lines = append(lines, "its "+PinnerText(&g.Cache.Pinners[0]))
	}

	return lines
}

var gpuPoolTexts = map[growth.GPUPoolKind]string{
	growth.GPUPoolDefault: "default pool",
	growth.GPUPoolGraph:   "pools of CUDA graphs",
	growth.GPUPoolUser:    "MemPool, or shared by CUDA graphs",
}

// GPUPool names a pool of PyTorch's cache, and its GPU.
func GPUPool(p *summary.GPUCachePool) string {
	return fmt.Sprintf("%s, GPU %s", cmp.Or(gpuPoolTexts[p.Kind], string(p.Kind)), p.GPU)
}

// GPUCacheFacts are what PyTorch's cache has beside its pools: which blocks keep free memory, and
// counts since the process started.
func GPUCacheFacts(c *summary.GPUCache) (facts []string) {
	if c == nil {
		return nil
	}

	for i := range c.Pinners {
		p := &c.Pinners[i]
		text := PinnerText(p)
		if site := pinnerSite(p); site != "" {
			text += ", " + site
		}

		facts = append(facts, text)
	}

	for _, n := range c.Counts {
		facts = append(facts, fmt.Sprintf("GPU %s since the start: at most %s allocated, %s reserved; "+
			"%s retries after the cache was emptied, %s out of memory", n.GPU,
			units.Bytes(float64(n.PeakAllocatedBytes)), units.Bytes(float64(n.PeakReservedBytes)),
			units.Count(float64(n.Retries)), units.Count(float64(n.OOMs))))
	}

	if c.ChangedSegments > 0 {
		facts = append(facts, units.Count(float64(c.ChangedSegments))+
			" segments changed while they were read, and are left out")
	}

	return facts
}
