package growth

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// curvesOf is a process of two hours that was watched for half an hour, with curves in bytes of the second; nil: not known.
func curvesOf(used, reserved, allocated, driver func(float64) float64) Case {
	c := watched(2*time.Hour, 1800, still)
	c.DeviceRoom = Unknown
	for i := range c.Track.Timeline {
		s := &c.Track.Timeline[i]
		at := func(of func(float64) float64) int64 {
			if of == nil {
				return Unknown
			}
			return int64(of(s.Elapsed.Seconds()))
		}
		s.DeviceUsed, s.CudaReserved, s.CudaAllocated, s.CudaDriver = at(used), at(reserved), at(allocated), at(driver)
	}
	for _, s := range c.Snapshots {
		s.Holdings = nil
	}
	return c
}

// from is a curve that begins at so many GiB and grows by so many MiB a second.
func from(gib, rate float64) func(float64) float64 {
	return func(second float64) float64 { return gib*1024*mib + rate*mebibytes(second) }
}

// slowing grows to its level within some minutes.
func slowing(second float64) float64 {
	return 8*1024*mib + 2*1024*mib*(1-math.Exp(-second/600))
}

func TestTheDiagnosisIsWhereTheLargestPartOfTheGrowthIs(t *testing.T) {
	flat := from(8, 0)
	for name, c := range map[string]struct {
		Case
		want   Diagnosis
		judged CurveName
		class  Class
	}{
		"tensors, and segments for them":        {curvesOf(from(12, 1), from(10, 1), from(8, 1), from(2, 1)), DiagnosisTensors, CurveUsed, ClassLeak},
		"tensors in what was cached":            {curvesOf(from(12, 0), from(10, 0), from(8, 1), from(2, 0)), DiagnosisTensors, CurveAllocated, ClassLeak},
		"tensors, known by torch alone":         {curvesOf(nil, from(10, 1), from(8, 1), nil), DiagnosisTensors, CurveReserved, ClassLeak},
		"segments alone":                        {curvesOf(from(12, 1), from(10, 1), flat, from(2, 1)), DiagnosisFragmentation, CurveUsed, ClassLeak},
		"segments more than blocks":             {curvesOf(from(12, 3), from(10, 3), from(8, 1), nil), DiagnosisFragmentation, CurveUsed, ClassLeak},
		"blocks more than the rest of segments": {curvesOf(from(12, 3), from(10, 3), from(8, 2), nil), DiagnosisTensors, CurveUsed, ClassLeak},
		"driver alone":                          {curvesOf(from(12, 1), flat, flat, from(2, 1)), DiagnosisDriver, CurveUsed, ClassLeak},
		"driver more than segments":             {curvesOf(from(12, 5), from(10, 1), from(8, 1), from(2, 5)), DiagnosisDriver, CurveUsed, ClassLeak},
		"used alone":                            {curvesOf(from(12, 1), flat, flat, from(2, 0)), DiagnosisContext, CurveUsed, ClassLeak},
		"used, and nothing else is known":       {curvesOf(from(12, 1), nil, nil, nil), DiagnosisContext, CurveUsed, ClassLeak},
		"nothing":                               {curvesOf(flat, flat, flat, flat), DiagnosisNone, CurveUsed, ClassPlateau},
		"what slows down":                       {curvesOf(slowing, slowing, flat, nil), DiagnosisWarmup, CurveUsed, ClassSaturating},
	} {
		j, known := JudgeDevice(c.Case)
		if !known || j.Diagnosis != c.want || j.Class != c.class || j.Judged != c.judged {
			t.Errorf("%s: %s, %s of %s, known %t", name, j.Diagnosis, j.Class, j.Judged, known)
		}
		if j.Advice() == "" || strings.Contains(j.Advice(), "%!") {
			t.Errorf("%s: %q", name, j.Advice())
		}
	}
	if j, known := JudgeDevice(curvesOf(nil, nil, nil, nil)); known || j.Class != ClassTooShort {
		t.Errorf("nothing known: %v", j)
	}
	none := from(0, 0)
	if _, known := JudgeDevice(curvesOf(none, none, none, none)); known {
		t.Error("a process that never had anything on a GPU is judged")
	}
}

func TestTooFewSamplesOfAGPUAreTooEarlyToTell(t *testing.T) {
	c := curvesOf(from(8, 1), nil, nil, nil)
	c.Track.Timeline = c.Track.Timeline[:3]
	if j, known := JudgeDevice(c); !known || j.Diagnosis != DiagnosisUnknown || j.Class != ClassTooShort {
		t.Errorf("%s, %s", j.Diagnosis, j.Class)
	}
}

// holding lets a stack hold on GPU 0 what a curve tells, in each snapshot.
func (c Case) holding(function string, kind Kind, bytes func(float64) float64) Case {
	for _, s := range c.Snapshots {
		s.DeviceHoldings = append(s.DeviceHoldings, Holding{
			Stack: NamedStack(judgedPID, "", "cudaMalloc", function), Kind: kind, GPU: "0", InuseBytes: int64(bytes(s.Elapsed.Seconds())), InuseObjects: 1,
		})
	}
	return c
}

func TestBlocksAreBlamedForTensorsAndSegmentsForTheRest(t *testing.T) {
	c := curvesOf(from(12, 1), from(10, 1), from(8, 1), from(2, 1)).holding("keep", KindCudaBlock, from(1, 1)).holding(torchsCache, KindCudaSegment, from(2, 1))
	j, _ := JudgeDevice(c)
	if len(j.Culprits) != 1 || j.Culprits[0].Frame.Function != "keep" || math.Abs(j.Culprits[0].Share-1) > 0.01 {
		t.Errorf("tensors: %+v", j.Culprits)
	}
	if !strings.Contains(j.Advice(), "keep") {
		t.Error(j.Advice())
	}
	c = curvesOf(from(12, 1), from(10, 0), from(8, 0), from(2, 1)).holding("steady", KindCudaBlock, from(1, 0)).holding("ncclInit", KindCudaSegment, from(2, 1))
	j, _ = JudgeDevice(c)
	if len(j.Culprits) != 1 || j.Culprits[0].Frame.Function != "ncclInit" || math.Abs(j.Culprits[0].Share-1) > 0.01 {
		t.Errorf("driver: %+v", j.Culprits)
	}
}

func TestALeakOnAGPUIsSuspectedWhereStacksExplainHalfOfIt(t *testing.T) {
	for share, want := range map[float64]Class{0.6: ClassSuspected, 0.4: ClassGrowing} {
		c := curvesOf(nil, from(10, 0), from(8, 1), nil).holding("keep", KindCudaBlock, from(1, share))
		c.Track.Timeline, c.Track.Last = c.Track.Timeline[:301], 300*time.Second
		c.Snapshots = slices.DeleteFunc(c.Snapshots, func(s *Snapshot) bool { return s.Elapsed > 300*time.Second })
		if j, _ := JudgeDevice(c); j.Class != want || j.Judged != CurveAllocated {
			t.Errorf("stacks explain %g: %s of %s", share, j.Class, j.Judged)
		}
	}
}

// 1 MiB/s with 10 GiB free is 10240 s; blocks have the cache of 2 GiB on top.
func TestTheLimitIsWhatTheFullestGPUHasLeft(t *testing.T) {
	c := curvesOf(from(12, 1), from(10, 0), from(8, 1), nil)
	c.DeviceRoom = 10 << 30
	j, _ := JudgeDevice(c)
	for name, want := range map[CurveName]float64{CurveUsed: 10240, CurveAllocated: 10240 + 2048 - 1800} {
		if got := curveOf(j.Curves, name).ToLimit; math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: %g s, want %g", name, got, want)
		}
	}
	c.DeviceRoom = Unknown
	if j, _ := JudgeDevice(c); !math.IsNaN(j.ToLimit) {
		t.Errorf("no limit is known: %g s", j.ToLimit)
	}
}

func TestWhatIsKnownOfGPUsIsSummedOverTheProcessesThatUseThem(t *testing.T) {
	worker := UnknownSample()
	worker.RSS = 100
	trainer := Sample{RSS: 1000, DeviceUsed: 70, CudaAllocated: Unknown, CudaReserved: 50, CudaDriver: 0, Pinned: 3}
	second := Sample{RSS: 1000, DeviceUsed: 7, CudaAllocated: Unknown, CudaReserved: Unknown, CudaDriver: 4, Pinned: 3}
	for _, samples := range [][]Sample{{worker, trainer, second}, {second, worker, trainer}, {trainer, second, worker}} {
		sum := sumSamples(samples)
		if sum.RSS != 2100 || sum.DeviceUsed != 77 || sum.CudaAllocated != Unknown || sum.CudaReserved != 50 || sum.CudaDriver != 4 || sum.Pinned != 6 {
			t.Errorf("%+v", sum)
		}
		if sum.PSS != Unknown {
			t.Errorf("what is unknown of one on the host is unknown of all: %d", sum.PSS)
		}
	}
}

func TestGPUsAreRememberedAsTheyWereSeenLast(t *testing.T) {
	var h History
	h.Add(Moment{GPUs: []GPUSample{{Index: 0, Instance: -1, Used: 5}, {Index: 1, Instance: 2, Used: 6}}})
	h.Add(Moment{Elapsed: time.Second, GPUs: []GPUSample{{Index: 1, Instance: 2, Used: 9}, {Index: 1, Instance: 3, Used: 1}}})
	if len(h.GPUs) != 3 || h.GPUs[0].Used != 5 || h.GPUs[1].Used != 9 || h.GPUs[2].Instance != 3 {
		t.Errorf("%+v", h.GPUs)
	}
	for i := range 1000 {
		h.Add(Moment{Elapsed: time.Minute, GPUs: []GPUSample{{Index: i}}})
	}
	if len(h.GPUs) != maxGPUs {
		t.Errorf("%d are remembered", len(h.GPUs))
	}
}
