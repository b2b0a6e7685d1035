package gpu

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/verdict"
)

const mib = 1 << 20

// A traced is a case to which stacks can be added.
type traced struct{ judge.Case }

// tracedFor is a process of an age in seconds, traced for so many seconds, with a sample each
// second and a snapshot every five.
func tracedFor(age, seconds int) traced {
	process := &growth.ProcessHistory{
		Member: growth.Member{Process: growth.Process{PID: gpuPID}, Traced: true},
		Last:   time.Duration(seconds) * time.Second,
	}
	process.Born = -time.Duration(age) * time.Second
	c := traced{judge.Case{
		Process: process, Headroom: growth.Unknown, GPUHeadroom: growth.Unknown,
		Criteria: verdict.InSeconds(),
	}}
	for s := range seconds + 1 {
		at := time.Duration(s) * time.Second
		sample := growth.UnknownSample()
		sample.Elapsed = at
		process.Timeline = append(process.Timeline, sample)
		if s%5 == 0 {
			c.Snapshots = append(c.Snapshots, &growth.Snapshot{Elapsed: at, Alive: []int{gpuPID}})
		}
	}

	return c
}

// curvesOf is a process of two hours that was traced for half an hour, with curves in bytes of the
// second; nil: unknown.
func curvesOf(used, reserved, allocated, driver func(float64) float64) traced {
	c := tracedFor(7200, 1800)
	for i := range c.Process.Timeline {
		s := &c.Process.Timeline[i]
		at := func(curve func(float64) float64) int64 {
			if curve == nil {
				return growth.Unknown
			}
			return int64(curve(s.Elapsed.Seconds()))
		}
		s.GPUUsed, s.CudaReserved = at(used), at(reserved)
		s.CudaAllocated, s.CudaDriver = at(allocated), at(driver)
	}

	return c
}

// holding adds a stack that holds on GPU 0 the bytes of a curve, in each snapshot.
func (c traced) holding(function string, kind growth.Kind, bytes func(float64) float64) traced {
	for _, s := range c.Snapshots {
		s.GPUHoldings = append(s.GPUHoldings, growth.Holding{
			Stack: growth.NamedStack(gpuPID, "", "cudaMalloc", function), Kind: kind, GPU: "0",
			InuseBytes: int64(bytes(s.Elapsed.Seconds())), InuseObjects: 1,
		})
	}
	return c
}

// from is a curve that begins at so many GiB and grows by so many MiB a second.
func from(gib, rate float64) func(float64) float64 {
	return func(second float64) float64 { return gib*1024*mib + rate*second*mib }
}

// slowing grows to its level within some minutes.
func slowing(second float64) float64 {
	return 8*1024*mib + 2*1024*mib*(1-math.Exp(-second/600))
}

func TestDiagnosis(t *testing.T) {
	flat := from(8, 0)
	for name, c := range map[string]struct {
		traced
		want   Diagnosis
		judged CurveName
		class  verdict.Class
	}{
		"tensors in what was cached":      {curvesOf(from(12, 0), from(10, 0), from(8, 1), from(2, 0)), DiagnosisTensors, CurveAllocated, verdict.ClassLeak},
		"tensors, known by torch alone":   {curvesOf(nil, from(10, 1), from(8, 1), nil), DiagnosisTensors, CurveReserved, verdict.ClassLeak},
		"segments more than blocks":       {curvesOf(from(12, 3), from(10, 3), from(8, 1), nil), DiagnosisCacheGrows, CurveUsed, verdict.ClassLeak},
		"driver more than segments":       {curvesOf(from(12, 5), from(10, 1), from(8, 1), from(2, 5)), DiagnosisDriver, CurveUsed, verdict.ClassLeak},
		"used alone":                      {curvesOf(from(12, 1), flat, flat, from(2, 0)), DiagnosisContext, CurveUsed, verdict.ClassLeak},
		"used, and nothing else is known": {curvesOf(from(12, 1), nil, nil, nil), DiagnosisContext, CurveUsed, verdict.ClassLeak},
		"nothing":                         {curvesOf(flat, flat, flat, flat), DiagnosisNone, CurveUsed, verdict.ClassPlateau},
		"growth within what slows down":   {curvesOf(from(12, 0.1), nil, slowing, nil), DiagnosisTensors, CurveUsed, verdict.ClassLeak},
		"what slows down":                 {curvesOf(slowing, slowing, flat, nil), DiagnosisWarmup, CurveUsed, verdict.ClassSaturating},
	} {
		j, known := Judge(c.Case)
		if !known || j.Diagnosis != c.want || j.Class != c.class || j.Judged != c.judged {
			t.Errorf("%s: %s, %s of %s, known %t", name, j.Diagnosis, j.Class, j.Judged, known)
		}
	}

	none := from(0, 0)
	for _, c := range []traced{curvesOf(nil, nil, nil, nil), curvesOf(none, none, none, none)} {
		if j, known := Judge(c.Case); known || j.Class != verdict.ClassTooShort {
			t.Errorf("nothing on a GPU: %s, known %t", j.Class, known)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Run("too few samples", func(t *testing.T) {
		c := curvesOf(from(8, 1), nil, nil, nil)
		c.Process.Timeline = c.Process.Timeline[:3]
		if j, known := Judge(c.Case); !known || j.Diagnosis != DiagnosisUnknown ||
			j.Class != verdict.ClassTooShort {
			t.Errorf("%s, %s", j.Diagnosis, j.Class)
		}
	})

	t.Run("suspects hold blocks or segments", func(t *testing.T) {
		for name, c := range map[string]traced{
			"keep": curvesOf(from(12, 1), from(10, 1), from(8, 1), from(2, 1)).
				holding("keep", growth.KindCudaBlock, from(1, 1)).
				holding(torchsCache, growth.KindCudaSegment, from(2, 1)),
			"ncclInit": curvesOf(from(12, 1), from(10, 0), from(8, 0), from(2, 1)).
				holding("steady", growth.KindCudaBlock, from(1, 0)).
				holding("ncclInit", growth.KindCudaSegment, from(2, 1)),
		} {
			j, _ := Judge(c.Case)
			if len(j.Suspects) != 1 || j.Suspects[0].Frame.Function != name ||
				math.Abs(j.Suspects[0].Share-1) > 0.01 {
				t.Errorf("%s: %+v", name, j.Suspects)
			}
		}
	})

	t.Run("blocks that are not traced to the end", func(t *testing.T) {
		c := curvesOf(from(12, 1), from(10, 1), from(8, 1), from(2, 1)).
			holding("keep", growth.KindCudaBlock, from(1, 1)).
			holding(torchsCache, growth.KindCudaSegment, from(2, 1))
		for _, s := range c.Snapshots {
			isTraced := s.Elapsed <= 600*time.Second
			s.GPUMemory = []growth.ProcessGPUMemory{{PID: gpuPID, BlocksProbed: isTraced}}
			if !isTraced {
				s.GPUHoldings[0].InuseBytes = 1
			}
		}
		j, _ := Judge(c.Case)
		if len(j.Suspects) != 1 || j.Suspects[0].Frame.Function != "keep" ||
			j.Window.To != 600*time.Second || math.Abs(j.Suspects[0].Share-1) > 0.01 {
			t.Errorf("to %s: %+v", j.Window.To, j.Suspects)
		}
	})

	t.Run("blocks that swing within each step", func(t *testing.T) {
		for rate, want := range map[float64]Diagnosis{20: DiagnosisTensors, 1: DiagnosisCacheGrows} {
			swinging := func(second float64) float64 {
				return from(2, rate)(second) + 4096*mib*math.Mod(second*second*math.Phi, 1)
			}
			c := curvesOf(from(12, 20), from(10, 20), swinging, nil).
				holding("keep", growth.KindCudaBlock, from(1, rate))
			c.Process.Timeline, c.Process.Last = c.Process.Timeline[:61], 60*time.Second
			c.Snapshots = c.Snapshots[:13]
			if j, _ := Judge(c.Case); j.Diagnosis != want ||
				j.Curve(CurveAllocated).Class != verdict.ClassTooShort {
				t.Errorf("by %g: %s, blocks %s", rate, j.Diagnosis, j.Curve(CurveAllocated).Class)
			}
		}
	})

	t.Run("suspected where stacks explain half", func(t *testing.T) {
		for share, want := range map[float64]verdict.Class{0.6: verdict.ClassSuspected, 0.4: verdict.ClassGrowing} {
			c := curvesOf(nil, from(10, 0), from(8, 1), nil).
				holding("keep", growth.KindCudaBlock, from(1, share))
			c.Process.Timeline, c.Process.Last = c.Process.Timeline[:301], 300*time.Second
			c.Snapshots = slices.DeleteFunc(c.Snapshots,
				func(s *growth.Snapshot) bool { return s.Elapsed > 300*time.Second })
			if j, _ := Judge(c.Case); j.Class != want || j.Judged != CurveAllocated {
				t.Errorf("stacks explain %g: %s of %s", share, j.Class, j.Judged)
			}
		}
	})

	// 1 MiB/s with 10 GiB free is 10240 s; blocks have the cache of 2 GiB on top.
	t.Run("the limit", func(t *testing.T) {
		c := curvesOf(from(12, 1), from(10, 0), from(8, 1), nil)
		c.GPUHeadroom = 10 << 30
		j, _ := Judge(c.Case)
		for name, want := range map[CurveName]float64{CurveUsed: 10240, CurveAllocated: 10240 + 2048 - 1800} {
			if got := curveOf(j.Curves, name).ToLimit; math.Abs(got/want-1) > 0.02 {
				t.Errorf("%s: %g s, want %g", name, got, want)
			}
		}
		c.GPUHeadroom = growth.Unknown
		if j, _ := Judge(c.Case); !math.IsNaN(j.ToLimit) {
			t.Errorf("no limit is known: %g s", j.ToLimit)
		}
	})
}
