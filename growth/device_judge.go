package growth

import (
	"math"
	"slices"
)

// A DeviceJudgement is what is said of the device memory of a process. X of its verdicts is seconds since the start of the trace.
type DeviceJudgement struct {
	// Verdict is the worst of those on the curves; of several as bad, the first in the order of the constants
	// Curve… unless another grows clearly more.
	Verdict
	// Judged is the curve that it is on; empty: nothing is known of the process's device memory.
	Judged CurveName
	// Curves that are known, in the order of the constants Curve….
	Curves    []DeviceCurve
	Diagnosis Diagnosis
	// Window over which the stacks were judged, Trends and Culprits as those of a Judgement, over blocks or over what the driver
	// handed out, as Kind says. Shares are of the growth of the curve that Kind explains.
	Window   Window
	Kind     Kind
	Trends   []StackTrend
	Culprits []Culprit
}

// JudgeDevice judges the device memory of a process: each curve of it, and the stacks that hold what it gained. What is known of
// GPUs is in Case.DeviceRoom. False: it has no device memory, or nothing is known of it.
func JudgeDevice(c Case) (DeviceJudgement, bool) {
	j := DeviceJudgement{Verdict: unknown(Series{}, c.Criteria), Curves: c.Track.Timeline.Curves()}
	if !slices.ContainsFunc(j.Curves, func(c DeviceCurve) bool { return slices.Max(c.series.Y) > 0 }) {
		return j, false
	}
	for i := range j.Curves {
		curve := &j.Curves[i]
		curve.Verdict = Judge(curve.judged, c.deviceSetting(curve, j.Curves), c.Criteria)
	}
	snapshots := c.snapshots()
	j.choose()
	j.Diagnosis = diagnose(j.Curves)
	j.judgeStacks(c, snapshots)
	suspected := false
	for i := range j.Curves {
		if curve := &j.Curves[i]; curve.Name == j.explained() && c.isSuspect(curve.Verdict, j.Trends, curve.At) {
			curve.Class, curve.Why, suspected = ClassSuspected, "steady growth, and what accumulates explains it", true
		}
	}
	if suspected {
		j.choose()
	}
	return j, true
}

// clearlyMore is the ratio of two rates that is no accident: one curve contains another, and grows by as much.
const clearlyMore = 1.05

// choose takes the verdict of the curve that is worst; the first of those that are as bad, unless another grows clearly more.
func (j *DeviceJudgement) choose() {
	worst := &j.Curves[0]
	for i := range j.Curves[1:] {
		curve := &j.Curves[1+i]
		worse := curve.Class.Severity() - worst.Class.Severity()
		if worse > 0 || worse == 0 && curve.Class.Grows() && curve.Rate > clearlyMore*worst.Rate {
			worst = curve
		}
	}
	j.Verdict, j.Judged = worst.Verdict, worst.Name
}

// judgeStacks finds who holds what the diagnosis is about.
func (j *DeviceJudgement) judgeStacks(c Case, snapshots []*Snapshot) {
	j.Kind = j.Diagnosis.kind()
	if other := KindCudaBlock; !holdsAny(snapshots, j.Kind) {
		if j.Kind == KindCudaBlock {
			other = KindCudaSegment
		}
		j.Kind = other
	}
	devices := make([]*Snapshot, len(snapshots))
	for i, s := range snapshots {
		devices[i] = s.OnDevices(j.Kind)
	}
	rate := math.NaN()
	j.Window = c.window(j.Verdict, devices)
	if curve := curveOf(j.Curves, j.explained()); curve != nil {
		rate, j.Window = curve.Rate, c.window(curve.Verdict, devices)
	}
	j.Trends = JudgeStacks(devices, j.Window, rate)
	j.Culprits = Culprits(j.Trends, c.Owners)
}

// explained is the curve whose growth the stacks of the kind explain.
func (j *DeviceJudgement) explained() CurveName {
	switch {
	case j.Kind == KindCudaBlock:
		return CurveAllocated
	case j.Diagnosis == DiagnosisFragmentation && curveOf(j.Curves, CurveDriver) == nil:
		return CurveReserved
	}
	return CurveDriver
}

func holdsAny(snapshots []*Snapshot, kind Kind) bool {
	for _, s := range snapshots {
		if slices.ContainsFunc(s.DeviceHoldings, func(h Holding) bool { return h.Kind == kind && !isOfDeviceLedgerAlone(&h) }) {
			return true
		}
	}
	return false
}

// curveOf is nil where it is not known.
func curveOf(curves []DeviceCurve, name CurveName) *DeviceCurve {
	if i := slices.IndexFunc(curves, func(c DeviceCurve) bool { return c.Name == name }); i >= 0 {
		return &curves[i]
	}
	return nil
}

// deviceSetting is what is known besides a curve. Blocks may still take what the allocator has in its cache, and strike the limit at
// their highest.
func (c Case) deviceSetting(curve *DeviceCurve, curves []DeviceCurve) Setting {
	s := c.setting()
	s.Limit, s.Age = 0, max(0, curve.judged.X[0]-c.Track.Born.Seconds())
	if c.DeviceRoom == Unknown {
		return s
	}
	level, peak := curve.atEnd()
	room := float64(c.DeviceRoom)
	if reserved := curveOf(curves, CurveReserved); curve.Name == CurveAllocated && reserved != nil {
		now, _ := reserved.atEnd()
		room += max(0, now-peak)
	}
	s.Limit = level + room
	return s
}
