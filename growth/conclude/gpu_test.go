package conclude

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// TestKeptTensorsOnGPU decides about GPU memory by the container that keeps its tensors, where each
// premise holds, and nowhere else.
func TestKeptTensorsOnGPU(t *testing.T) {
	t.Parallel()
	list := keeper.Link{Type: "list", PerMinute: 600, GrowthS: 150, AppendOnly: true, Entries: 900}
	writeOnly := list
	writeOnly.WriteOnly = true
	bounded := keeper.Link{
		Type: "collections.deque", PerMinute: 600, GrowthS: 30, Entries: 4000, Limit: 4600,
	}
	garbage := keeper.Search{Type: "torch.Tensor", Samples: 16, Garbage: 12}
	garbage.Waits.For = keeper.WaitUnfreeze
	keptBy := func(l keeper.Link) keeper.Search {
		return keeper.Search{
			Type: "torch.Tensor", Samples: 16,
			Paths: []keeper.Path{{Samples: 16, Links: []keeper.Link{l}}},
		}
	}

	for name, c := range map[string]struct {
		search    keeper.Search
		device    string
		diagnosis gpu.Diagnosis
		class     verdict.Class
		reason    verdict.Reason
	}{
		"a list": {
			keptBy(list), "cuda:0", gpu.DiagnosisTensors, verdict.ClassSuspected, verdict.ReasonAppendOnly,
		},
		"a list that nothing reads": {
			keptBy(writeOnly), "cuda:0", gpu.DiagnosisTensors, verdict.ClassLeak, verdict.ReasonWriteOnly,
		},
		"a deque with a limit": {
			keptBy(bounded), "cuda:1", gpu.DiagnosisTensors, verdict.ClassFillsUp, verdict.ReasonBounded,
		},
		"garbage": {garbage, "cuda:0", gpu.DiagnosisTensors, verdict.ClassGrowing, verdict.ReasonGarbage},
		"tensors of the CPU": {
			keptBy(list), "cpu", gpu.DiagnosisTensors, verdict.ClassGrowing, verdict.ReasonStillGrowing,
		},
		"not the tensors grow": {
			keptBy(list), "cuda:0", gpu.DiagnosisDriver, verdict.ClassGrowing, verdict.ReasonStillGrowing,
		},
	} {
		c.search.PID, c.search.Elapsed = 1, time.Minute
		at := func(elapsed time.Duration, tensors int) *census.Result {
			r := &census.Result{PID: 1, Elapsed: elapsed}
			r.Tensors.Groups = []census.TensorGroup{
				{Device: "cpu", Tensors: 50}, {Device: c.device, Tensors: 100 + tensors},
			}
			return r
		}
		sample := growth.UnknownSample()
		sample.CudaAllocated = 50 << 20
		history := &growth.ProcessHistory{Member: growth.Member{Process: growth.Process{PID: 1}}}
		history.Timeline = growth.Timeline{sample}
		trace := &Trace{
			History: &growth.History{}, Keepers: []keeper.Search{c.search},
			Censuses: []*census.Result{at(10*time.Second, 0), at(time.Minute, 600)},
		}
		judged := verdict.Verdict{
			Class: verdict.ClassGrowing, Reason: verdict.ReasonStillGrowing, Rate: 1000, RateLow: 900,
			RateHigh: 1100, ToLimit: 1e6, Shape: verdict.Shape{Halves: 1},
		}
		p := Process{History: history, GPU: &gpu.Judgement{
			Verdict: judged, Diagnosis: c.diagnosis, Curves: gpu.CurvesOf(history.Timeline),
			Suspects: []trend.Suspect{{Share: 0.9, Rate: 1000}},
		}}
		trace.AddChecks(&p)
		if p.GPU.Class != c.class || p.GPU.Reason != c.reason {
			t.Errorf("%s: %s (%s), want %s (%s)", name, p.GPU.Class, p.GPU.Reason, c.class, c.reason)
		}
	}
}
