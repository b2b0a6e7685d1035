package words

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/gpu"
)

// gpuCacheAdvice is the meaning of a cache that grows, and a remedy.
func gpuCacheAdvice(g *summary.GPUMemory) string {
	const conf = "PYTORCH_CUDA_ALLOC_CONF="
	expandable := ""
	if mayExpand(g.Cache) {
		expandable = "; try " + conf + "expandable_segments:True"
	}

	switch gpu.Diagnosis(g.Diagnosis) {
	case gpu.DiagnosisFragmentation:
		return "free memory lies between blocks in use, which keep its segments. Free these blocks, or " +
			"allocate them before temporary ones; pad inputs to few shapes" + expandable
	case gpu.DiagnosisPools:
		return "each CUDA graph that is captured without a pool has one of its own until it is deleted. " +
			"Capture fewer shapes, or give torch.cuda.graph() a shared " +
			"pool=torch.cuda.graph_pool_handle()"
	case gpu.DiagnosisCache:
		return "whole segments are free. torch.cuda.empty_cache() returns them to the driver; " + conf +
			"garbage_collection_threshold:0.8 returns old ones when memory gets short"
	}

	return "its cache is fragmented by varying shapes, or CUDA graphs have pools of their own: see " +
		"torch.cuda.memory_summary(). Pad inputs to few shapes" + expandable
}

// expandablePage is how much memory an expandable segment maps at a time for large blocks, in bytes:
// kLargeBuffer of
// https://github.com/pytorch/pytorch/blob/v2.6.0/c10/cuda/CUDACachingAllocator.cpp.
const expandablePage = 20 << 20

// mayExpand reports whether expandable segments may help: PyTorch has none yet, and its segments are
// larger than their pages, in which a block keeps all of a page, too.
func mayExpand(c *summary.GPUCache) bool {
	switch {
	case c == nil:
		return true
	case c.IsExpandable():
		return false
	case len(c.Pinners) == 0:
		return true
	}

	p := &c.Pinners[0]
	return p.GainBytes > expandablePage*int64(p.Segments)
}

// PinnerText says how much memory blocks of one kind keep, in segments that are free otherwise: "40
// tensors float32 [512] (80 KiB) keep 40 segments (800 MiB)".
func PinnerText(p *summary.GPUPinner) string {
	noun, verb := "block", "keeps"
	if p.DType != "" {
		noun = "tensor"
	}

	if p.Blocks != 1 {
		noun, verb = noun+"s", "keep"
	}

	if p.DType != "" {
		noun += " " + p.DType + shapeText(p.Shape)
	}

	return fmt.Sprintf("%s %s (%s) %s %s (%s)", units.Count(float64(p.Blocks)), noun,
		units.Bytes(float64(p.Bytes)), verb, pinnedUnits(p), units.Bytes(float64(p.GainBytes)))
}

// pinnerSite says which line allocated most of them, and its caller: "at least 49 of 57 allocated at
// keep.py:9 add() < train.py:30 step()". The caller is left out where it has no room. Empty: it is not
// known.
func pinnerSite(p *summary.GPUPinner, room int) string {
	if p.Function == "" {
		return ""
	}

	text := "allocated at "
	if p.Sampled < p.Blocks {
		text = fmt.Sprintf("at least %s of %s allocated at ", units.Count(float64(p.Sampled)),
			units.Count(float64(p.Blocks)))
	}

	var places []string
	for frame := range strings.SplitSeq(p.Function, " < ") {
		places = append(places, frameText(frame))
	}

	if whole := text + strings.Join(places, " < "); utf8.RuneCountInString(whole) <= room {
		return whole
	}
	return text + places[0]
}

// frameText is a frame with its place first: "keep.py:9 add()".
func frameText(frame string) string {
	if m := profile.FrameWithLine.FindStringSubmatch(frame); m != nil {
		return placeOf(frame) + " " + functionText(m[1])
	}
	return libraryFrame(frame)
}

// pinnedUnits counts the segments that the blocks keep, or pages of expandable ones.
func pinnedUnits(p *summary.GPUPinner) string {
	noun := "segment"
	if p.Expandable {
		noun = "page"
	}

	if p.Segments == 1 {
		return "a " + noun
	}
	return units.Count(float64(p.Segments)) + " " + noun + "s"
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
	if site := pinnerSite(p, ResultWidth-labelWidth); site != "" {
		lines = append(lines, site)
	}

	return lines
}

// gpuStep is what to do about a diagnosis of GPU memory.
func gpuStep(s *summary.Summary, d gpu.Diagnosis) string {
	g := s.GPUInCharge()
	if d == gpu.DiagnosisFragmentation && g != nil && g.Cache != nil && len(g.Cache.Pinners) > 0 {
		p := &g.Cache.Pinners[0]
		text := "free these blocks: empty_cache() then returns " + units.Bytes(float64(p.GainBytes))
		if mayExpand(g.Cache) {
			text += "; or expandable_segments:True"
		}
		return text
	}

	isFragmented := d == gpu.DiagnosisFragmentation || d == gpu.DiagnosisCacheGrows
	if isFragmented && g != nil && !mayExpand(g.Cache) {
		return "pad inputs to few shapes; allocate what stays before temporary tensors"
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

	least := ""
	if g.Cache.ChangedSegments > 0 { // these are left out
		least = "at least "
	}

	lines := []string{fmt.Sprintf("PyTorch has reserved %s%s on the GPU; free: %s", least,
		units.Bytes(float64(reserved)), strings.Join(parts, ", "))}
	if isWorth(common.PinnedBytes) && len(g.Cache.Pinners) > 0 {
		lines = append(lines, PinnerText(&g.Cache.Pinners[0]))
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
		if site := pinnerSite(p, ResultWidth); site != "" {
			text += ", " + site
		}

		facts = append(facts, text)
	}

	for _, n := range c.Counts {
		facts = append(facts, fmt.Sprintf("GPU %s since the start: at most %s allocated, %s reserved; "+
			"%s retries after the cache was emptied, %s out-of-memory errors", n.GPU,
			units.Bytes(float64(n.PeakAllocatedBytes)), units.Bytes(float64(n.PeakReservedBytes)),
			units.Count(float64(n.Retries)), units.Count(float64(n.OOMs))))
	}

	if c.ChangedSegments > 0 {
		facts = append(facts, units.Count(float64(c.ChangedSegments))+
			" segments changed while they were read, and are left out")
	}

	return facts
}
