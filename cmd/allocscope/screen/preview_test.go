package screen

import (
	"fmt"
	"testing"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer"
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

	r := trace.Replay(nil, trace.Options{Speed: 1}, history)
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
	frames := func(function string) []growth.Frame {
		return []growth.Frame{{Function: function, File: "/srv/train.py", Line: 7, Python: true}}
	}

	block := &growth.Stack{ID: 1, PID: 1, Frames: frames("remember")}
	segment := &growth.Stack{ID: 2, PID: 1, Frames: frames("malloc")}
	other := &growth.Stack{ID: 3, PID: 2, Frames: frames("other")}

	at := func(seconds int, bytes int64) *growth.Snapshot {
		return &growth.Snapshot{
			Elapsed: time.Duration(seconds) * time.Second,
			Holdings: []growth.Holding{{
				Stack: segment, Kind: growth.KindHeap,
				InuseBytes: 1 << 40,
			}},
			GPUHoldings: []growth.Holding{
				{
					Stack: block, GPU: "0", Kind: growth.KindCudaBlock, InuseBytes: bytes,
					GPUBytes: bytes, InuseObjects: 3,
				},
				{
					Stack: block, GPU: "1", Kind: growth.KindCudaBlock, InuseBytes: 1 << 20,
					GPUBytes: 1 << 20,
				},
				{Stack: segment, Kind: growth.KindCudaSegment, InuseBytes: 1 << 30},
				{
					Stack: other, Kind: growth.KindCudaBlock, InuseBytes: 1 << 30,
					GPUBytes: 1 << 30,
				},
				{
					Stack: growth.NamedStack(1, "[cuda: cached by torch]"),
					Kind:  growth.KindCudaCached, GPUBytes: 1 << 30,
				},
			},
		}
	}

	stacks := stacksOf(trace.SnapshotPair{
		Start: gpuHoldings(at(0, 1<<20), 1),
		End:   gpuHoldings(at(60, 61<<20), 1),
	}, nil)

	if len(stacks) != 1 || stacks[0].Bytes != 62<<20 || *stacks[0].BytesPerMin != 60<<20 ||
		stacks[0].Objects != 3 || stacks[0].Where[0] != "["+string(growth.KindCudaBlock)+
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
	d.preview.gpu.set(verdict.Verdict{Class: verdict.ClassLeak}, "tensors are kept",
		[]trend.Suspect{{Component: "train.py", Frame: leak, Inclusive: 1}})
	if got := d.gpu(track); got.Verdict.Class != verdict.ClassLeak ||
		got.Diagnosis != "tensors are kept" || got.Suspect != "train.py: remember (train.py:7)" {
		t.Errorf("%+v", got)
	}
}

// longTrace is a recorder with so many samples of a leaking process, and snapshots with so many
// stacks.
func longTrace(samples, snapshots, stacks int) *trace.Recorder {
	var history growth.History
	for i := range samples {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = time.Duration(i)*time.Second, int64(1<<30+i<<20)
		history.Add(oneProcess(s))
	}

	all := make([]*growth.Stack, stacks)
	for i := range all {
		all[i] = &growth.Stack{ID: uint64(i + 1), PID: 1}
		for depth := range 40 {
			all[i].Frames = append(all[i].Frames, growth.Frame{
				Function: fmt.Sprintf("f%d_%d", i, depth), File: "/srv/train.py", Line: depth,
				Python: depth > 5,
			})
		}
	}

	every := time.Duration(samples) * time.Second / time.Duration(snapshots)
	var taken []*growth.Snapshot
	for n := range snapshots {
		s := &growth.Snapshot{
			Elapsed: time.Duration(n) * every, Alive: []int{1}, Interval: 1 << 19,
			Residents: []growth.Resident{{PID: 1, RSS: 1 << 30, HeapTraced: true, Traced: true}},
		}

		for i := range n {
			s.Bins = append(s.Bins, time.Duration(i+1)*every)
		}

		for i, stack := range all {
			bytes := int64((n + 1) * (i + 1) << 12)
			variance := float64(bytes) * (1 << 19)
			h := growth.Holding{
				Stack: stack, Kind: growth.KindHeap, InuseObjects: float64(n), InuseBytes: bytes,
				ResidentBytes: bytes, Samples: int64(n), Variance: variance,
			}

			if n == snapshots-1 {
				for bin := range s.Bins {
					h.AddBirth(growth.Birth{
						Bin: bin, InuseBytes: float64(bytes) / float64(n),
						Variance: variance / float64(n),
					})
				}
			}

			s.Holdings = append(s.Holdings, h)
		}

		taken = append(taken, s)
	}

	session := &tracer.Session{Options: tracer.Options{Interval: 1 << 19}}
	options := trace.Options{Speed: 1, Duration: flagvalue.Duration(4 * time.Hour)}
	return trace.Replay(session, options, history, taken...)
}

// BenchmarkPreview measures a judgement and a comparison of a trace of four hours with 2,000
// stacks.
func BenchmarkPreview(b *testing.B) {
	r := longTrace(4*3600, 60, 2000)
	for b.Loop() {
		p := newPreview(r)
		main := r.History().Main()
		start := time.Now()

		p.judged = trace.ProcessVerdict{
			Process:   main,
			Judgement: judge.Process(r.CaseOf(main)),
		}

		judge := time.Since(start)

		start = time.Now()
		p.compare()
		compare := time.Since(start)
		b.ReportMetric(judge.Seconds()*1000, "judge-ms")
		b.ReportMetric(compare.Seconds()*1000, "compare-ms")
		b.ReportMetric(compare.Seconds()/judge.Seconds(), "compare/judge")
	}
}
