package trace

import (
	"bytes"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestGPUMemory(t *testing.T) {
	t.Run("result", testGPUResult)
	t.Run("no GPU", testNoGPUResult)
	t.Run("fail on", testGPUFailOn)
}

// gpuSummary is a trainer that keeps tensors, traced without NVML.
func gpuSummary() *summary.Summary {
	perMin := int64(5 << 20)
	share := 0.98
	block := summary.Accumulation{
		Function: "keep", Kind: growth.KindCudaBlock, Objects: 40,
		Bytes: 50 << 20, BytesPerMin: &perMin, Share: 1, Trend: growth.TrendAccumulating,
		Stack: []string{"keep (/job/train.py:9)"},
	}

	return &summary.Summary{
		Process: summary.Process{PID: 42, Command: "python3"},
		GPUMemory: []summary.GPUMemory{{
			Process: 42, Verdict: summary.Verdict{Class: verdict.ClassLeak, WhyCode: "steady growth"},
			Judged: summary.GPUAllocated, BaselineS: 60,
			Diagnosis:  "retained-tensors",
			GPUUnknown: growth.GPUUnknown{Reason: growth.GPUNotListed},
			Breakdown: []summary.GPUBreakdownRow{
				{Kind: growth.KindCudaBlock, GPU: "0", StartBytes: 100 << 20, EndBytes: 150 << 20},
				{Kind: growth.KindCudaCached, StartBytes: 80 << 20, EndBytes: 30 << 20},
			},
			Suspects: []summary.Suspect{{
				Component: "train.py", Function: "keep (/job/train.py:9)",
				BytesPerMin: perMin, Share: &share, Explains: 1, Stacks: 1,
			}},
			Accumulating: []summary.Accumulation{block},
		}},
	}
}

func testGPUResult(t *testing.T) {
	var out bytes.Buffer
	tracertest.NoError(t, PrintDetails(&out, gpuSummary(), "folder"))

	text := strings.Join(singleSpaced(out.String()), "\n")
	mustSay(t, "the result", text,
		"GPU memory (PID 42):\n\n"+
			strings.Join(strings.Fields(words.GPULines(gpuSummary().GPUMemory[0])[0]), " ")+"\n",
		"tensors are kept, most by train.py: keep",
		"What GPU memory is made of, since 60.0 s:\n\nat the baseline at the end growth what\n100 MiB 150 MiB +50.0 MiB ", "\n80.0 MiB 30.0 MiB -50.0 MiB ", "\n180 MiB 180 MiB 0 B ",
		"MiB/min of the growth stacks component: call site\n5.00 98% 1 train.py: keep (train.py:9)\n",
		"Stacks that grew on the GPU since the baseline:\n\nMiB/min share bytes objects trend where\n5.00 100% 50.0 MiB 40 accumulating "+words.Where(gpuSummary().GPUMemory[0].Accumulating[0])+"\n",
	)

	if n := strings.Count(text, "NVML does not list the process"); n != 1 {
		t.Errorf("the reason is given %d times:\n%s", n, text)
	}
}

func testNoGPUResult(t *testing.T) {
	var out bytes.Buffer
	if err := PrintDetails(&out, &summary.Summary{Process: summary.Process{PID: 42}},
		"folder"); err != nil || strings.Contains(strings.ToLower(out.String()), "gpu memory") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func testGPUFailOn(t *testing.T) {
	onGPU := func(class verdict.Class) conclude.Process {
		return conclude.Process{
			History: &growth.ProcessHistory{Member: growth.Member{Process: growth.Process{PID: 7}}},
			GPU:     &gpu.Judgement{Verdict: verdict.Verdict{Class: class}},
		}
	}
	outcomes := func(rss verdict.Class, all ...conclude.Process) []flagvalue.Outcome {
		result := conclude.Result{All: all}
		result.Main.Class = rss
		return outcomesOf(&result)
	}
	leak, suspected := onGPU(verdict.ClassLeak), onGPU(verdict.ClassSuspected)

	on := flagvalue.FailOn("leak")
	err := on.Check(outcomes(verdict.ClassPlateau, suspected, leak)...)
	if exit.StatusOf(err) != exit.Found {
		t.Fatal(err)
	}

	mustSay(t, "the error", err.Error(),
		"the verdict on the GPU memory of PID 7 is leak (--fail-on leak)")
	if err := on.Check(outcomes(verdict.ClassLeak, leak)...); err == nil ||
		!strings.HasPrefix(err.Error(), "the verdict is leak") {
		t.Errorf("of two as bad, that on RSS: %v", err)
	}

	err = on.Check(outcomes(verdict.ClassPlateau, suspected)...)
	if exit.StatusOf(err) != exit.Inconclusive {
		t.Errorf("a leak that is only suspected: %v", err)
	}
	err = on.Check(outcomes(verdict.ClassGrowing)...)
	if exit.StatusOf(err) != exit.Inconclusive {
		t.Errorf("growth that may be warm-up: %v", err)
	}
}
