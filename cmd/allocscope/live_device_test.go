package main

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// deviceDisplay is a display of a process whose samples are made by a function.
func deviceDisplay(samples int, of func(i int, s *growth.Sample)) (*liveDisplay, *growth.Track) {
	r := &recorder{flags: traceFlags{pace: 1}}
	d := &liveDisplay{r: r, looks: newProvisional(r)}
	for i := range samples {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = time.Duration(i)*time.Second, 1<<30
		of(i, &s)
		member := growth.Member{Process: growth.Process{PID: 1, Command: "x"}, Traced: true}
		r.history.Add(growth.Moment{Elapsed: s.Elapsed, Members: []growth.Member{member}, Processes: []growth.ProcessSample{{PID: 1, Sample: s}}})
	}
	return d, r.history.Main()
}

func TestAProcessWithoutDeviceMemoryHasNoneOnTheScreen(t *testing.T) {
	for name, of := range map[string]func(int, *growth.Sample){
		"no GPU": func(int, *growth.Sample) {},
		"unused": func(_ int, s *growth.Sample) { s.DeviceUsed, s.CudaDriver = 0, 0 },
	} {
		d, track := deviceDisplay(5, of)
		if got := d.device(track); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTheScreenFollowsWhatTheDriverCountsAsSoonAsItTells(t *testing.T) {
	d, track := deviceDisplay(20, func(i int, s *growth.Sample) {
		s.CudaReserved, s.CudaAllocated, s.CudaDriver = int64(100+i), int64(50+i), int64(110+i)
		if i >= 15 {
			s.DeviceUsed = int64(500 + i)
		}
	})
	whole := track.Timeline
	track.Timeline = whole[:15]
	got := d.device(track)
	if got.Used != growth.Unknown || got.Reserved != 114 || got.Allocated != 64 || got.Called != 124 || len(got.Trail.Points) != 15 || got.Trail.Max != 114 {
		t.Errorf("before: %+v", got)
	}
	track.Timeline = whole[:16]
	if got = d.device(track); got.Used != 515 || len(got.Trail.Points) != 1 || got.Trail.Max != 515 {
		t.Errorf("when it begins to tell: %+v", got)
	}
	for n := 17; n <= 20; n++ {
		track.Timeline = whole[:n]
		got = d.device(track)
	}
	if got.Used != 519 || len(got.Trail.Points) != 5 || got.Trail.Min != 515 {
		t.Errorf("after: %+v", got)
	}
}

// One reading that fails changes nothing; a driver that has vanished does.
func TestADriverThatVanishesIsNotTakenForOneThatFailsOnce(t *testing.T) {
	d, track := deviceDisplay(60, func(i int, s *growth.Sample) {
		s.CudaReserved = 100
		if i < 40 && i != 30 {
			s.DeviceUsed = 500
		}
	})
	whole := track.Timeline
	for n := 1; n <= 60; n++ {
		track.Timeline = whole[:n]
		got := d.device(track)
		want := int64(500)
		if n >= 40+lately {
			want = growth.Unknown
		}
		if got.Used != want || (got.Trail.Max == 500) != (want == 500) {
			t.Errorf("after %d samples: used %d, want %d, the course goes up to %d", n, got.Used, want, got.Trail.Max)
		}
	}
}

func TestStacksOnDevicesAreThoseOfTheProcessThatStandForThemselves(t *testing.T) {
	frames := func(function string) []growth.Frame {
		return []growth.Frame{{Function: function, File: "/srv/train.py", Line: 7, Python: true}}
	}
	block := &growth.Stack{ID: 1, PID: 1, Frames: frames("remember")}
	segment := &growth.Stack{ID: 2, PID: 1, Frames: frames("malloc")}
	other := &growth.Stack{ID: 3, PID: 2, Frames: frames("other")}
	at := func(seconds int, bytes int64) *growth.Snapshot {
		return &growth.Snapshot{
			Elapsed:  time.Duration(seconds) * time.Second,
			Holdings: []growth.Holding{{Stack: segment, Kind: growth.KindHeap, InuseBytes: 1 << 40}},
			DeviceHoldings: []growth.Holding{
				{Stack: block, GPU: "0", Kind: growth.KindCudaBlock, InuseBytes: bytes, DeviceBytes: bytes, InuseObjects: 3},
				{Stack: block, GPU: "1", Kind: growth.KindCudaBlock, InuseBytes: 1 << 20, DeviceBytes: 1 << 20},
				{Stack: segment, Kind: growth.KindCudaSegment, InuseBytes: 1 << 30},
				{Stack: other, Kind: growth.KindCudaBlock, InuseBytes: 1 << 30, DeviceBytes: 1 << 30},
				{Stack: growth.NamedStack(1, "[cuda: cached by torch]"), Kind: growth.KindCudaCached, DeviceBytes: 1 << 30},
			},
		}
	}
	stacks := stacksOf(span{onDevices(at(0, 1<<20), 1), onDevices(at(60, 61<<20), 1)}, nil)
	if len(stacks) != 1 || stacks[0].Bytes != 62<<20 || *stacks[0].BytesPerMin != 60<<20 || stacks[0].Objects != 3 || stacks[0].Where[0] != "[cuda_block] remember (train.py:7)" {
		t.Errorf("%+v", stacks)
	}
}

func TestTheSizeOfTheGPUIsToldWhereTheProcessUsesOne(t *testing.T) {
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

func TestTheVerdictOnDeviceMemoryIsShownWithWhoIsToBlame(t *testing.T) {
	d, track := deviceDisplay(3, func(_ int, s *growth.Sample) { s.CudaReserved = 100 })
	if got := d.device(track); got.Verdict != nil || got.Blame != "" {
		t.Errorf("before the first look: %+v", got)
	}
	leak := growth.Frame{Function: "remember", File: "/srv/train.py", Line: 7, Python: true}
	d.looks.device.take(growth.Verdict{Class: growth.ClassLeak}, "tensors are kept", []growth.Culprit{{Owner: "train.py", Frame: leak, Inclusive: 1}})
	if got := d.device(track); got.Verdict.Class != growth.ClassLeak || got.Diagnosis != "tensors are kept" || got.Blame != "train.py: remember (train.py:7)" {
		t.Errorf("%+v", got)
	}
}
