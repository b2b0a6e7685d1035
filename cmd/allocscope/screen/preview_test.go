package screen

import (
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/record"
)

func TestGPUPreview(t *testing.T) {
	t.Run("no GPU memory", testNoGPUMemory)
	t.Run("NVML starts to report", testNVMLStarts)
	t.Run("NVML stops to report", testNVMLStops)
	t.Run("stacks of the process", testGPUStacks)
	t.Run("total", testGPUTotal)
	t.Run("verdict", testGPUVerdict)
}

// gpuDisplay is a display of a process whose samples are made by a function.
func gpuDisplay(samples int, of func(i int, s *growth.Sample)) (*display, *growth.ProcessHistory) {
	var history growth.History
	for i := range samples {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = time.Duration(i)*time.Second, 1<<30
		of(i, &s)
		history.Add(oneProcess(s))
	}

	r := record.Replay(nil, record.Options{Speed: 1}, history)
	return &display{recorder: r, preview: newPreview(r)}, r.History().Main()
}

// oneProcess is a sample of a tree of one traced process.
func oneProcess(s growth.Sample) growth.TreeSample {
	member := growth.Member{Process: growth.Process{PID: 1, Command: "x"}, Traced: true}
	return growth.TreeSample{
		Elapsed: s.Elapsed, Members: []growth.Member{member},
		Processes: []growth.ProcessSample{{PID: 1, Sample: s}},
	}
}

func testNoGPUMemory(t *testing.T) {
	for name, of := range map[string]func(int, *growth.Sample){
		"no GPU": func(int, *growth.Sample) {},
		"unused": func(_ int, s *growth.Sample) { s.GPUUsed, s.CudaDriver = 0, 0 },
	} {
		d, track := gpuDisplay(5, of)
		if got := d.gpu(track); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func testNVMLStarts(t *testing.T) {
	d, track := gpuDisplay(20, func(i int, s *growth.Sample) {
		s.CudaReserved, s.CudaAllocated, s.CudaDriver = int64(100+i), int64(50+i), int64(110+i)
		if i >= 15 {
			s.GPUUsed = int64(500 + i)
		}
	})

	whole := track.Timeline
	track.Timeline = whole[:15]
	got := d.gpu(track)
	if got.Used != growth.Unknown || got.Reserved != 114 || got.Allocated != 64 ||
		got.DriverAPI != 124 || len(got.Curve.Points) != 15 || got.Curve.Max != 114 {
		t.Errorf("before: %+v", got)
	}

	track.Timeline = whole[:16]
	if got = d.gpu(track); got.Used != 515 || len(got.Curve.Points) != 1 || got.Curve.Max != 515 {
		t.Errorf("when NVML starts to report: %+v", got)
	}

	for n := 17; n <= 20; n++ {
		track.Timeline = whole[:n]
		got = d.gpu(track)
	}

	if got.Used != 519 || len(got.Curve.Points) != 5 || got.Curve.Min != 515 {
		t.Errorf("after: %+v", got)
	}
}

// One reading that fails changes nothing; a driver that has vanished does.
func testNVMLStops(t *testing.T) {
	d, track := gpuDisplay(60, func(i int, s *growth.Sample) {
		s.CudaReserved = 100
		if i < 40 && i != 30 {
			s.GPUUsed = 500
		}
	})

	whole := track.Timeline
	for n := 1; n <= 60; n++ {
		track.Timeline = whole[:n]
		got := d.gpu(track)
		want := int64(500)
		if n >= 40+maxFailedSamples {
			want = growth.Unknown
		}

		if got.Used != want || (got.Curve.Max == 500) != (want == 500) {
			t.Errorf("after %d samples: used %d, want %d, the curve goes up to %d", n, got.Used,
				want, got.Curve.Max)
		}
	}
}

func testGPUStacks(t *testing.T) {
	stack := func(pid int, function string) *growth.Stack {
		frame := growth.Frame{Function: function, File: "/srv/train.py", Line: 7, Python: true}
		return &growth.Stack{PID: pid, Frames: []growth.Frame{frame}}
	}
	block, other := stack(1, "remember"), stack(2, "other")
	cached := growth.NamedStack(1, "[cuda: cached by torch]")

	held := func(stack *growth.Stack, gpu string, kind growth.Kind, bytes int64) growth.Holding {
		return growth.Holding{
			Stack: stack, GPU: gpu, Kind: kind, InuseBytes: bytes, GPUBytes: bytes, InuseObjects: 2,
		}
	}
	at := func(seconds int, bytes int64) *growth.Snapshot {
		s := &growth.Snapshot{
			Elapsed:  time.Duration(seconds) * time.Second,
			Holdings: []growth.Holding{held(block, "", growth.KindHeap, 1<<40)},
			GPUHoldings: []growth.Holding{
				held(block, "0", growth.KindCudaBlock, bytes),
				held(block, "1", growth.KindCudaBlock, 1<<20),
				held(other, "0", growth.KindCudaBlock, 1<<30),
				{Stack: stack(1, "malloc"), Kind: growth.KindCudaSegment, InuseBytes: 1 << 30},
				{Stack: cached, Kind: growth.KindCudaCached, GPUBytes: 1 << 30},
			},
		}
		return gpuHoldings(s, 1)
	}

	stacks := stacksOf(conclude.Pair{Start: at(0, 1<<20), End: at(60, 61<<20)}, nil)
	if len(stacks) != 1 || stacks[0].Bytes != 62<<20 || *stacks[0].BytesPerMin != 60<<20 ||
		stacks[0].Objects != 4 || stacks[0].Where[0] != "["+string(growth.KindCudaBlock)+
		"] remember (train.py:7)" {
		t.Errorf("%+v", stacks)
	}
}

func testGPUTotal(t *testing.T) {
	gpu := func(total int64, users ...int) growth.GPUSample {
		return growth.GPUSample{Total: total, Instance: -1, Users: users}
	}
	for name, c := range map[string]struct {
		gpus  []growth.GPUSample
		total int64
	}{
		"none":                       {nil, growth.Unknown},
		"one that lists nobody":      {[]growth.GPUSample{gpu(80)}, 80},
		"its own among others":       {[]growth.GPUSample{gpu(80, 1), gpu(40, 7, 8), gpu(80)}, 40},
		"two of its own":             {[]growth.GPUSample{gpu(80, 7), gpu(40, 7)}, growth.Unknown},
		"several that list it never": {[]growth.GPUSample{gpu(80, 1), gpu(40)}, growth.Unknown},
	} {
		if total := gpuTotal(c.gpus, 7); total != c.total {
			t.Errorf("%s: total %d, want %d", name, total, c.total)
		}
	}
}

func testGPUVerdict(t *testing.T) {
	d, track := gpuDisplay(3, func(_ int, s *growth.Sample) { s.CudaReserved = 100 })
	if got := d.gpu(track); got.Verdict != nil || got.Suspect != "" {
		t.Errorf("before the first ui: %+v", got)
	}

	leak := growth.Frame{Function: "remember", File: "/srv/train.py", Line: 7, Python: true}
	d.preview.gpu.set(&gpu.Judgement{
		Verdict: verdict.Verdict{Class: verdict.ClassLeak}, Diagnosis: gpu.DiagnosisTensors,
		Suspects: []trend.Suspect{{Component: "train.py", Frame: leak, Inclusive: 1}},
	})
	if got := d.gpu(track); got.Verdict.Class != verdict.ClassLeak ||
		!strings.Contains(got.Diagnosis, "tensors are kept") || got.Suspect != "most by train.py: remember (train.py:7)" {
		t.Errorf("%+v", got)
	}
}
