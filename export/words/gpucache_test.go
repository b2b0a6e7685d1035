package words

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
)

// kept has blocks of 2 MiB in a number of segments of a size in MiB.
func kept(segments int, size int64) summary.GPUPinner {
	return summary.GPUPinner{
		GPU: "0", DType: "float32", Shape: []int64{512, 1024}, Blocks: segments,
		Bytes: 2 * mib * int64(segments), Segments: segments,
		GainBytes: size * mib * int64(segments),
	}
}

func TestPinnerText(t *testing.T) {
	t.Parallel()
	pages, one, unknown := kept(57, 20), kept(1, 20), kept(3, 20)
	pages.Expandable = true
	unknown.DType, unknown.Shape = "", nil
	onePage := one
	onePage.Expandable, onePage.DType = true, ""
	for want, p := range map[string]summary.GPUPinner{
		"40 tensors float32 [512, 1024] (80.0 MiB) keep 40 segments (800 MiB)": kept(40, 20),
		"57 tensors float32 [512, 1024] (114 MiB) keep 57 pages (1.11 GiB)":    pages,
		"1 tensor float32 [512, 1024] (2.00 MiB) keeps a segment (20.0 MiB)":   one,
		"3 blocks (6.00 MiB) keep 3 segments (60.0 MiB)":                       unknown,
		"1 block (2.00 MiB) keeps a page (20.0 MiB)":                           onePage,
	} {
		mustBe(t, PinnerText(&p), want)
	}
}

func TestPinnerSite(t *testing.T) {
	t.Parallel()
	const both = "tensor (case.py:40) < Embeddings.add (pinned.py:26)"
	for name, c := range map[string]struct {
		function      string
		sampled, room int
		want          string
	}{
		"unknown": {"", 0, 90, ""},
		"all":     {both, 5, 90, "allocated at case.py:40 tensor() < pinned.py:26 Embeddings.add()"},
		"some": {
			both, 3, 90,
			"at least 3 of 5 allocated at case.py:40 tensor() < pinned.py:26 Embeddings.add()",
		},
		"no room for its caller": {both, 3, 60, "at least 3 of 5 allocated at case.py:40 tensor()"},
		"native": {
			"at::empty_cuda (libtorch_cuda.so)", 5, 90, "allocated at at::empty_cuda (libtorch_cuda.so)",
		},
	} {
		p := summary.GPUPinner{Blocks: 5, Function: c.function, Sampled: c.sampled}
		mustBe(t, pinnerSite(&p, c.room), c.want, name)
	}
}

// Expandable segments are advised where they may help: PyTorch has none yet, and its segments are
// larger than a page of an expandable one.
func TestExpandableAdvice(t *testing.T) {
	t.Parallel()
	cache := func(expandable int, pinners ...summary.GPUPinner) *summary.GPUCache {
		return &summary.GPUCache{
			Pools:   []summary.GPUCachePool{{GPU: "0", Segments: 2, ExpandableSegments: expandable}},
			Pinners: pinners,
		}
	}
	graphs := cache(2)
	graphs.Pools = append(graphs.Pools, summary.GPUCachePool{
		GPU: "0", Kind: growth.GPUPoolGraph, Segments: 1,
	})
	for name, c := range map[string]struct {
		cache *summary.GPUCache
		want  bool
	}{
		"not read":                   {nil, true},
		"usual segments":             {cache(0), true},
		"large pinned segments":      {cache(0, kept(2, 90)), true},
		"pinned segments of 20 MiB":  {cache(0, kept(2, 20)), false},
		"expandable, pinned":         {cache(2, kept(2, 20)), false},
		"expandable":                 {cache(2), false},
		"some expandable":            {cache(1), true},
		"expandable, beside a graph": {graphs, false},
	} {
		for _, d := range []gpu.Diagnosis{gpu.DiagnosisFragmentation, gpu.DiagnosisCacheGrows} {
			s := &summary.Summary{GPUMemory: []summary.GPUMemory{{
				Verdict: summary.Verdict{Class: verdict.ClassLeak}, Diagnosis: string(d), Cache: c.cache,
			}}}
			for _, text := range []string{gpuStep(s, d), GPUAdvice(&s.GPUMemory[0])} {
				if strings.Contains(text, "expandable_segments") != c.want {
					t.Errorf("%s, %s: %q", name, d, text)
				}
			}
		}
	}
}

// A name is cut after some bytes. The advice has room below that.
func TestGPUCacheAdvice(t *testing.T) {
	t.Parallel()
	rate := int64(123 * mib)
	growing := func(name string) summary.GPUCurve {
		return summary.GPUCurve{Name: name, Class: verdict.ClassLeak, BytesPerMin: &rate}
	}
	for _, d := range []gpu.Diagnosis{
		gpu.DiagnosisFragmentation, gpu.DiagnosisPools, gpu.DiagnosisCache, gpu.DiagnosisCacheGrows,
	} {
		g := &summary.GPUMemory{
			Curves:    []summary.GPUCurve{growing(summary.GPUReserved), growing(summary.GPUAllocated)},
			Diagnosis: string(d),
		}
		mustBe(t, GPUAdvice(g), gpuAdvice(g), d)
	}
}

func TestGPUCacheLines(t *testing.T) {
	t.Parallel()
	g := &summary.GPUMemory{Cache: &summary.GPUCache{
		Pools: []summary.GPUCachePool{
			{
				GPU: "0", Segments: 45, ReservedBytes: 900 * mib, AllocatedBytes: 80 * mib,
				PinnedBytes: 720 * mib, ReturnableBytes: 100 * mib,
			},
			{
				GPU: "0", Kind: growth.GPUPoolUser, Segments: 5, ReservedBytes: 100 * mib,
				AllocatedBytes: 36 * mib,
			},
		},
		Pinners: []summary.GPUPinner{kept(40, 20)},
	}}
	want := []string{
		"PyTorch has reserved 0.98 GiB on the GPU; free: 100 MiB that empty_cache() returns, " +
			"720 MiB beside blocks in use",
		"40 tensors float32 [512, 1024] (80.0 MiB) keep 40 segments (800 MiB)",
	}
	mustBe(t, gpuCacheLines(g), want)

	g.Cache.ChangedSegments = 2
	want[0] = strings.Replace(want[0], "reserved", "reserved at least", 1)
	mustBe(t, gpuCacheLines(g), want, "without some segments")

	g.Cache.Pools[0].PinnedBytes = 63 * mib // too little to be worth a line
	g.Cache.Pools[0].ReturnableBytes = 0
	g.Cache.Pools[1].AllocatedBytes = 40 * mib
	mustBe(t, gpuCacheLines(g), nil, "of little")
}
