package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestGPUSection(t *testing.T) {
	page := show(t, gpuTrace(t))
	page.mustSay(t, "gpu",
		"GPU memory LEAK +120 MiB/min", "most by train.py: remember",
		"Headroom78.0 GiB on the GPU with the least",
		"At the baseline1.09 GiB allocated by torch, after 60.0 s",
		"At the end1.56 GiB allocated by torch",
		"99% of the growth train.py remember (train.py:19) < main (train.py:40)",
		"as NVML counts1.75 GiB2.22 GiB+480 MiB+120 MiB/minleak",
		"allocated by torch judged by this", "CUDA driver API----leak suspected",
		"What GPU memory is made of: +480 MiB",
		"train.py torch's blocks: remember (train.py:19)120 MiB600 MiB+480 MiB",
		"not attributed: CUDA context, modules, unseen allocations520 MiB520 MiB0 B",
		"At the end: used, as NVML counts",
		"cuda-block remember (train.py:19) < main (train.py:40)", "480 MiB", "240")
	page.mustSay(t, "verdict", "GPU memory: LEAK +120 MiB/min")
	page.mustSay(t, "timeline", "LEAK: +60 MiB/min",
		"GPU memory (as NVML counts) over 5 min: 500 MiB at first, 2.22 GiB at last",
		"LEAK: +120 MiB/min", "40.0 s300.0 sGPU: growth+120 MiB/min")
	page.mustSay(t, "reproduce", "go tool pprof -top -sample_index=device_space growth.pb.gz")
	const links = "verdict timeline breakdown accumulating spikes objects gpu flame processes losses reproduce"
	if got := page.links(); got != links {
		t.Errorf("links %q, want %q", got, links)
	}

	t.Run("unknown driver count", func(t *testing.T) {
		page := show(t, withoutNVML(t))
		page.mustSay(t, "gpu",
			"NVML's count is unknown: NVML does not list the process",
			"At the end: all that is known")
		if shown := text(page.byID(t, "gpu")); strings.Contains(shown, "as NVML counts") ||
			strings.Contains(shown, "Headroom") {
			t.Errorf("shows what is unknown: %s", shown)
		}
		page.mustSay(t, "timeline", "GPU memory (reserved by torch) over 5 min")
	})

	t.Run("several processes", func(t *testing.T) {
		trace := gpuTrace(t)
		other := gpuSummary()
		other.Process, other.Command, other.Class = 50, "worker", verdict.ClassPlateau
		other.Accumulating, other.Breakdown, other.Curves = nil, nil, nil
		trace.Summary.GPUMemory = append(trace.Summary.GPUMemory, other)
		page := show(t, trace)
		page.mustSay(t, "gpu", "GPU memory of python3 (PID 42)")
		page.mustSay(t, "gpu-2", "GPU memory of worker (PID 50) STABLE",
			"Nothing that was traced on GPUs accumulated")
		page.mustSay(t, "verdict", "GPU memory of python3 (PID 42): LEAK",
			"GPU memory of worker (PID 50): STABLE")
	})

	// However much a forged summary has, the page of it is bounded.
	t.Run("bounds", func(t *testing.T) {
		s := leakingSummary()
		d := gpuSummary()
		d.Breakdown, d.Curves = slices.Repeat(d.Breakdown, 5000), slices.Repeat(d.Curves, 5000)
		d.Breakdown[0].EndBytes, d.Breakdown[1].StartBytes = 1<<63-1, -1<<63
		s.GPUMemory = slices.Repeat([]summary.GPUMemory{d}, 200)
		v, _ := pageOf(&Trace{Summary: s})
		var out bytes.Buffer
		tracertest.NoError(t, body.ExecuteTemplate(&out, "body", v))
		text := out.String()
		if len(text) > 500_000 || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("it has %d bytes", len(text))
		}
		if !strings.Contains(text, "Of the 200 entries of gpu_memory only the first 16 are shown.") {
			t.Error("does not say what is left out")
		}
	})
}

func TestGPUCurves(t *testing.T) {
	all := func(i int, s *growth.Sample) {
		s.GPUUsed, s.CudaReserved, s.CudaAllocated, s.CudaDriver, s.Pinned = 40*mib, 30*mib,
			20*mib, 35*mib, 5*mib
	}
	for name, test := range map[string]struct {
		of          func(i int, s *growth.Sample)
		shown, keys string
	}{
		"all": {all, "rss gpu_used", "rss gpu_used gpu_reserved gpu_driver gpu_allocated pinned"},
		"no NVML": {
			func(i int, s *growth.Sample) { all(i, s); s.GPUUsed = growth.Unknown },
			"rss gpu_reserved", "rss gpu_reserved gpu_driver gpu_allocated pinned",
		},
		"calls alone": {
			func(_ int, s *growth.Sample) { s.CudaDriver, s.Pinned = 7*mib, 0 },
			"rss gpu_driver", "rss gpu_driver",
		},
		"a driver vanishes": {
			func(i int, s *growth.Sample) {
				all(i, s)
				s.GPUUsed = []int64{40 * mib, -1, -1, -1, -1}[i%5]
			},
			"rss gpu_reserved", "rss gpu_used gpu_reserved gpu_driver gpu_allocated pinned",
		},
		"nothing there": {
			func(_ int, s *growth.Sample) { s.GPUUsed, s.CudaDriver, s.Pinned = 0, 0, 0 },
			"rss", "rss",
		},
		"no GPU": {func(int, *growth.Sample) {}, "rss", "rss"},
	} {
		var shown, keys []string
		s := leakingSummary()
		for _, c := range timelineOf(&s, gpuRows(99, test.of)).Series {
			if keys = append(keys, c.Key); c.Shown {
				shown = append(shown, c.Key)
			}
		}
		if got := strings.Join(shown, " "); got != test.shown ||
			strings.Join(keys, " ") != test.keys {
			t.Errorf("%s: shown are %q of %q", name, got, keys)
		}
	}

	t.Run("phases", func(t *testing.T) {
		trace := gpuTrace(t)
		want := []phaseBand{
			{span{0, 40}, "warm-up", "GPU: warm-up"}, {span{40, 300}, "growth", "GPU: growth"},
		}
		if got := show(t, trace).data.Timeline.GPUPhases; !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
		trace = gpuTrace(t)
		trace.Summary.GPUMemory[0].Process = 50
		if got := show(t, trace).data.Timeline.GPUPhases; got != nil {
			t.Errorf("of another process: %+v", got)
		}
	})
}

// The bars begin where the one before ends, and the last one is the sum of all rows.
func TestGPUBreakdown(t *testing.T) {
	d := gpuSummary()
	breakdown := gpuBreakdownOf(&d, nil)
	var bars []bar
	for _, line := range breakdown.Lines {
		bars = append(bars, line.Bar)
	}
	mustFall(t, "GPU", bars)
	last := breakdown.Lines[len(breakdown.Lines)-1]
	if breakdown.Lines[0].Start != "1.75 GiB" || last.End != "2.22 GiB" {
		t.Errorf("from %s to %s", breakdown.Lines[0].Start, last.End)
	}
	if before := breakdown.Lines[len(breakdown.Lines)-2]; before.Class != "unexplained" ||
		!strings.HasPrefix(before.Label, "not attributed") {
		t.Errorf("last but one is %+v", before)
	}

	t.Run("many rows", func(t *testing.T) {
		d := gpuSummary()
		for i := range 5000 {
			block := summary.GPUBreakdownRow{
				Kind: growth.KindCudaBlock, GPU: fmt.Sprint(i % 8), Function: fmt.Sprintf("f%d", i),
				StartBytes: 1 << 10, EndBytes: 3 << 10,
			}
			cached := block
			cached.Kind, cached.GPU, cached.Function = growth.KindCudaCached, fmt.Sprint(i), ""
			d.Breakdown = append(d.Breakdown, block, cached)
		}
		breakdown := gpuBreakdownOf(&d, nil)
		first, last := breakdown.Lines[0], breakdown.Lines[len(breakdown.Lines)-1]
		if len(breakdown.Lines) > maxStackRows+maxOtherRows+3 || first.Start != "1.76 GiB" ||
			last.End != "2.25 GiB" || last.Growth != "+500 MiB" {
			t.Errorf("%d lines, %+v, %+v", len(breakdown.Lines), first, last)
		}
		if !slices.ContainsFunc(breakdown.Lines,
			func(l breakdownLine) bool { return l.Label == "9969 others" && l.Growth == "+19.5 MiB" }) {
			t.Errorf("%+v", breakdown.Lines)
		}
		if !strings.Contains(breakdown.Lines[1].Label, ", GPU 0") {
			t.Errorf("of several GPUs %q does not say which", breakdown.Lines[1].Label)
		}
	})
}

func TestGPUFlames(t *testing.T) {
	page := show(t, gpuTrace(t))
	host := show(t, leakingTrace(t)).data.Flame
	if got := page.data.Flame; got.Root.Resident != host.Root.Resident ||
		got.Root.Objects != host.Root.Objects || !slices.Equal(got.Names, host.Names) {
		t.Errorf("that of the host is another one: %+v", got)
	}
	flames := page.data.GPUFlames
	if len(flames) != 2 || flames[0].Label != "GPU, in use" || flames[1].Label != "GPU, reserved" {
		t.Fatalf("%+v", flames)
	}
	for i, want := range []struct {
		bytes, objects int64
		component      string
	}{{480 * mib, 240, "train.py"}, {500 * mib, 0, "torch"}} {
		if root := flames[i].Root; root.Resident != want.bytes || root.Objects != want.objects ||
			flames[i].Components[root.Component] != want.component {
			t.Errorf("%s: %+v of %q", flames[i].Label, root, flames[i].Components)
		}
		if names := strings.Join(flames[i].Names, " > "); !strings.Contains(names,
			"python3 (PID 42) > main (train.py:7) > step (train.py:40) > leak (libx.so)") {
			t.Errorf("%s", names)
		}
	}
}
