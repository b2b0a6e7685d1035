package report

import (
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

const gib = 1 << 30

// deviceTrace is leakingTrace on a GPU, where tensors are retained: NVML tells what the driver counts.
func deviceTrace(t testing.TB) *Trace {
	t.Helper()
	trace := leakingTrace(t)
	trace.Summary.GPUMemory = []summary.GPUMemory{deviceSummary()}
	for i := range trace.Rows {
		s := &trace.Rows[i].Sample
		s.Pinned = 256 * mib
		s.DeviceUsed = 500 * mib // the context
		if i < 20 {
			continue
		}
		s.CudaAllocated = int64(1000+2*i) * mib
		s.CudaReserved, s.CudaDriver = s.CudaAllocated+150*mib, s.CudaAllocated+170*mib
		s.DeviceUsed = s.CudaDriver + 500*mib
	}
	onDevice(trace.Growth)
	return trace
}

// deviceSummary is what becomes of 2 MiB of tensors a second, from a GiB on.
func deviceSummary() summary.GPUMemory {
	v := growth.Verdict{
		Class: growth.ClassLeak, Why: "steady growth after warm-up", Rate: 2 * mib, RateLow: 1.9 * mib, RateHigh: 2.1 * mib, Level: 1500 * mib, LevelAt: 170,
		From: 40, Length: 260, ToLimit: 3600, ToLimitLow: 3400, ToLimitHigh: 3800,
		Phases: []growth.Phase{{Kind: growth.PhaseWarmup, To: 40, Rate: 20 * mib}, {Kind: growth.PhaseGrowth, From: 40, To: 300, Rate: 2 * mib}},
	}
	curve := func(name string, start, end int64, class growth.Class) summary.GPUCurve {
		return summary.GPUCurve{Name: name, StartBytes: pointer(start * mib), EndBytes: pointer(end * mib), Class: class, BytesPerMin: pointer[int64](120 * mib)}
	}
	row := func(kind growth.Kind, function string, start, end int64) summary.GPUBreakdownRow {
		r := summary.GPUBreakdownRow{Kind: kind, GPU: "0", Function: function, StartBytes: start * mib, EndBytes: end * mib}
		if function != "" {
			r.Component = "train.py"
		}
		return r
	}
	return summary.GPUMemory{
		Process: 42, Command: "python3", Verdict: summary.VerdictOf(v, summary.AxisSeconds), Judged: summary.GPUAllocated, Diagnosis: "retained-tensors",
		Advice: "allocated and reserved grow together: tensors are retained by the code below",
		Curves: []summary.GPUCurve{
			curve(summary.GPUUsed, 1790, 2270, growth.ClassLeak), curve(summary.GPUReserved, 1270, 1750, growth.ClassLeak),
			curve(summary.GPUAllocated, 1120, 1600, growth.ClassLeak),
			{Name: summary.GPUDriver, Class: growth.ClassSuspected},
		},
		HeadroomBytes: pointer[int64](78 * gib),
		Breakdown: []summary.GPUBreakdownRow{
			row(growth.KindCudaBlock, "forward (/src/model.py:31)", 900, 900), row(growth.KindCudaBlock, "remember (/src/train.py:19)", 120, 600),
			row(growth.KindCudaBefore, "", 100, 100), row(growth.KindCudaCached, "", 150, 150), row(growth.KindNotAttributed, "", 520, 520),
		},
		Suspects: []summary.Suspect{{Component: "train.py", Function: "remember (/src/train.py:19)", Bytes: 480 * mib, BytesPerMin: 120 * mib, Share: pointer(0.99), Explains: 1, Stacks: 1, Callers: []string{"main (/src/train.py:40)"}}},
		Accumulating: []summary.Accumulation{{
			Rank: 1, Function: "remember", Kind: growth.KindCudaBlock, Objects: 240, Bytes: 480 * mib, BytesPerMin: pointer[int64](120 * mib), Share: 1, Trend: growth.TrendAccumulating, Component: "train.py",
			RateLow: pointer[int64](120 * mib), RateHigh: pointer[int64](120 * mib), AgeS: pointer(120.0), HistoryBytes: []int64{0, 120 * mib, 360 * mib, 600 * mib},
			Stack: []string{"remember (/src/train.py:19)", "main (/src/train.py:40)"},
		}},
	}
}

// onDevice gives a profile the sample types of device memory, and a stack that has gained there and nowhere else.
func onDevice(p *pprof.Profile) {
	p.SampleType = append(p.SampleType, &pprof.ValueType{Type: "device_space", Unit: "bytes"}, &pprof.ValueType{Type: "device_objects", Unit: "count"},
		&pprof.ValueType{Type: "device_reserved_space", Unit: "bytes"})
	for _, s := range p.Sample {
		s.Value = append(s.Value, 0, 0, 0)
	}
	like := p.Sample[0]
	held := func(owner string, values ...int64) {
		p.Sample = append(p.Sample, &pprof.Sample{
			Location: like.Location, Value: append(make([]int64, 5), values...), Label: map[string][]string{"component": {owner}, "pid": {"42"}, "process": {"python3"}},
		})
	}
	held("train.py", 480*mib, 240, 0)
	held("torch", 0, 0, 500*mib)
}

// withoutNVML is deviceTrace where NVML does not tell.
func withoutNVML(t testing.TB) *Trace {
	t.Helper()
	trace := deviceTrace(t)
	for i := range trace.Rows {
		trace.Rows[i].DeviceUsed = growth.Unknown
	}
	d := &trace.Summary.GPUMemory[0]
	d.Reason, d.HeadroomBytes, d.Curves, d.Breakdown = "there is no libnvidia-ml.so.1", nil, d.Curves[1:], d.Breakdown[:4]
	return trace
}

// deviceRows are samples of a process with device memory.
func deviceRows(seconds int, of func(i int, s *growth.Sample)) []growth.Row {
	var list []growth.Row
	for i := range seconds + 1 {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = time.Duration(i)*time.Second, 100*mib
		of(i, &s)
		list = append(list, growth.Row{Sample: s, Tree: growth.Tree{Processes: 1, RSS: s.RSS}})
	}
	return list
}
