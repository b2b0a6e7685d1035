// Package gpu judges the GPU memory of a process, and attributes it to stacks.
package gpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A Diagnosis is where the growth of GPU memory is, by the curves alone.
type Diagnosis string

// The diagnoses, as files have them.
const (
	DiagnosisTensors       Diagnosis = "retained-tensors"   // PyTorch's blocks grow
	DiagnosisCacheGrows    Diagnosis = "cache-grows"        // segments grow more than blocks
	DiagnosisFragmentation Diagnosis = "fragmentation"      // free memory that blocks pin grows
	DiagnosisPools         Diagnosis = "private-pools"      // free memory of graphs' pools grows
	DiagnosisCache         Diagnosis = "unused-cache"       // whole free segments grow
	DiagnosisDriver        Diagnosis = "other-allocations"  // driver memory grows more than segments
	DiagnosisContext       Diagnosis = "context-or-modules" // NVML's count grows more than both
	DiagnosisWarmup        Diagnosis = "warm-up"            // the growth slows down
	DiagnosisNone          Diagnosis = "no-growth"
	DiagnosisUnknown       Diagnosis = "too-early" // no growth is proven, and none excluded
)

// IsOfGrowth reports whether the diagnosis names memory that grows for long.
func (d Diagnosis) IsOfGrowth() bool {
	switch d {
	case DiagnosisTensors, DiagnosisDriver, DiagnosisContext:
		return true
	}
	return d.IsOfCache()
}

// IsOfTorch reports whether objects of Python keep the memory: tensors, or graphs with their pools.
func (d Diagnosis) IsOfTorch() bool { return d == DiagnosisTensors || d.IsOfCache() }

// IsOfCache reports whether the diagnosis is that PyTorch reserves more than it allocates.
func (d Diagnosis) IsOfCache() bool {
	switch d {
	case DiagnosisCacheGrows, DiagnosisFragmentation, DiagnosisPools, DiagnosisCache:
		return true
	}
	return false
}

// A Judgement is the result of judging a process's GPU memory. X of its verdicts is seconds since
// the start of the trace.
type Judgement struct {
	// Verdict is the most severe of the curves'. Of equal ones, it is the first in the order of the
	// constants Curve…, unless another grows clearly faster.
	verdict.Verdict
	// Judged is the curve of the verdict; empty where nothing is known of the process's GPU memory.
	Judged CurveName
	// Curves that are known, in the order of the constants Curve….
	Curves    []Curve
	Diagnosis Diagnosis
	// Window, Trends and Suspects are as in judge.Judgement, over holdings of Kind: blocks, or
	// memory from the driver. Shares are of the growth of the curve that Kind explains.
	Window   trend.Window
	Kind     growth.Kind
	Trends   []trend.StackTrend
	Suspects []trend.Suspect
	// Cache is the newest list of PyTorch's caching allocator; nil: none was read. Pinners keep
	// segments of it that are free but for their blocks.
	Cache   *growth.GPUCache
	Pinners []Pinner
}

// Judge judges the GPU memory of a process: its curves, and the stacks that hold the growth.
// Case.GPUHeadroom is its limit. False where the process has no GPU memory, or nothing is known of
// it.
func Judge(c judge.Case) (Judgement, bool) {
	j := Judgement{
		Verdict: verdict.Unjudged(verdict.Series{}, c.Criteria),
		Curves:  CurvesOf(c.Process.Timeline),
	}
	isUsed := func(c Curve) bool { return slices.Max(c.series.Y) > 0 }
	if !slices.ContainsFunc(j.Curves, isUsed) {
		return j, false
	}

	for i := range j.Curves {
		curve := &j.Curves[i]
		curve.Verdict = verdict.Judge(curve.judged, gpuSetting(c, curve, j.Curves), c.Criteria)
	}
	j.chooseVerdict()
	j.Diagnosis = diagnose(j.Curves)
	snapshots, _ := c.OwnSnapshots()
	j.judgeStacks(c, snapshots)
	j.reconsiderTensors(c)
	j.diagnoseCache(snapshots, c.Process.PID)
	for _, s := range snapshots {
		j.Cache = cmp.Or(cacheOf(s, c.Process.PID), j.Cache)
	}
	j.Pinners = PinnersOf(j.Cache)

	explained := j.Curve(j.explainedCurve())
	if explained != nil && c.IsSuspected(explained.Verdict, j.Trends, explained.At) {
		explained.Verdict = verdict.Decide(explained.Verdict, verdict.Findings{StacksAccumulate: true})
		j.chooseVerdict()
	}

	return j, true
}

// gpuSetting is the setting of a curve. Blocks can still take the memory that the allocator has
// cached, and meet the limit at their peak.
func gpuSetting(c judge.Case, curve *Curve, curves []Curve) verdict.Setting {
	s := c.Setting()
	s.Limit, s.Age = 0, max(0, curve.judged.X[0]-c.Process.Born.Seconds())
	if c.GPUHeadroom == growth.Unknown {
		return s
	}

	level, peak := curve.atEnd()
	headroom := float64(c.GPUHeadroom)
	reserved := curveOf(curves, CurveReserved)
	if curve.Name == CurveAllocated && reserved != nil {
		now, _ := reserved.atEnd()
		headroom += max(0, now-peak)
	}
	s.Limit = level + headroom

	return s
}

// minRateRatio of two curves that differ: one curve contains another, and grows by as much.
const minRateRatio = 1.05

// chooseVerdict takes the verdict of the most severe curve.
func (j *Judgement) chooseVerdict() {
	worst := &j.Curves[0]
	for i := range j.Curves[1:] {
		curve := &j.Curves[1+i]
		isFaster := curve.Class.Grows() && curve.Rate > minRateRatio*worst.Rate
		worse := curve.Class.Severity() - worst.Class.Severity()
		if worse > 0 || worse == 0 && isFaster {
			worst = curve
		}
	}
	j.Verdict, j.Judged = worst.Verdict, worst.Name
}

// judgeStacks judges the stacks that the diagnosis is about.
func (j *Judgement) judgeStacks(c judge.Case, snapshots []*growth.Snapshot) {
	j.Kind = j.Diagnosis.kind()
	pid := c.Process.PID
	if lastWith(snapshots, pid, j.Kind) < 0 {
		if j.Kind == growth.KindCudaBlock {
			j.Kind = growth.KindCudaSegment
		} else {
			j.Kind = growth.KindCudaBlock
		}
	}
	if j.Kind == growth.KindCudaBlock { // they are not known any more where they took too much
		snapshots = snapshots[:lastWith(snapshots, pid, j.Kind)+1]
	}

	onGPUs := make([]*growth.Snapshot, len(snapshots))
	for i, s := range snapshots {
		onGPUs[i] = s.OnGPUs(j.Kind)
	}
	rate, v := math.NaN(), j.Verdict
	if curve := j.Curve(j.explainedCurve()); curve != nil {
		rate, v = curve.Rate, curve.Verdict
	}

	j.Window = c.StackWindow(v, onGPUs)
	j.Trends = trend.JudgeStacks(onGPUs, j.Window, rate)
	j.Suspects = c.Suspects(j.Trends, onGPUs, j.Window)
}

// minTensorShare of the growth of PyTorch's segments must lie in stacks of blocks that grow, so
// that tensors are retained though the curve of all blocks is undecided: it swings within each
// step.
const minTensorShare = 0.5

// reconsiderTensors looks at the stacks of blocks where segments grow, and blocks are undecided.
func (j *Judgement) reconsiderTensors(c judge.Case) {
	allocated, reserved := j.Curve(CurveAllocated), j.Curve(CurveReserved)
	if !j.Diagnosis.IsOfCache() || allocated == nil || reserved == nil ||
		allocated.Class != verdict.ClassTooShort {
		return
	}

	tensors := *j
	tensors.Diagnosis = DiagnosisTensors
	snapshots, _ := c.OwnSnapshots()
	tensors.judgeStacks(c, snapshots)
	grown := 0.0
	for i := range tensors.Trends {
		if t := &tensors.Trends[i]; t.Grows() {
			grown += t.Rate
		}
	}
	if tensors.Kind == growth.KindCudaBlock && grown >= minTensorShare*reserved.Rate {
		*j = tensors
	}
}

// explainedCurve is the curve whose growth the stacks of Kind explain.
func (j *Judgement) explainedCurve() CurveName {
	switch {
	case j.Kind == growth.KindCudaBlock:
		return CurveAllocated
	case j.Diagnosis.IsOfCache() && j.Curve(CurveDriver) == nil:
		return CurveReserved
	}
	return CurveDriver
}

// lastWith returns the index of the last snapshot with stacks of a kind; -1: there is none. Blocks
// count while all of them are traced.
func lastWith(snapshots []*growth.Snapshot, pid int, kind growth.Kind) int {
	isOfStack := func(h growth.Holding) bool { return h.Kind == kind && !isAttributed(&h) }
	for i, s := range slices.Backward(snapshots) {
		isLost := kind == growth.KindCudaBlock && !s.TracesBlocks(pid)
		if !isLost && slices.ContainsFunc(s.GPUHoldings, isOfStack) {
			return i
		}
	}
	return -1
}

// diagnose goes outwards from PyTorch's blocks: each curve contains the one before, whose growth
// explains part of its own. The largest unexplained part is the diagnosis. Where a curve grows, and
// one that slows down explains all of that, it is the latter's.
func diagnose(curves []Curve) Diagnosis {
	var largest, inner float64
	found, explaining, isGrowing := DiagnosisNone, DiagnosisNone, false
	for _, layer := range []struct {
		name      CurveName
		diagnosis Diagnosis
	}{
		{CurveAllocated, DiagnosisTensors},
		{CurveReserved, DiagnosisCacheGrows},
		{CurveDriver, DiagnosisDriver},
		{CurveUsed, DiagnosisContext},
	} {
		curve := curveOf(curves, layer.name)
		if curve == nil || !curve.Class.Rises() {
			continue
		}
		if curve.Class.Grows() {
			isGrowing = true
			if curve.Rate-inner > largest {
				largest, found = curve.Rate-inner, layer.diagnosis
			}
		}
		if curve.Rate > inner {
			inner, explaining = curve.Rate, layer.diagnosis
		}
	}

	switch {
	case found != DiagnosisNone:
		return found
	case isGrowing:
		return explaining
	}

	return diagnoseWithoutGrowth(curves)
}

// diagnoseWithoutGrowth is for curves of which none is proven to grow.
func diagnoseWithoutGrowth(curves []Curve) Diagnosis {
	found := DiagnosisNone
	for i := range curves {
		switch curves[i].Class {
		case verdict.ClassSaturating:
			return DiagnosisWarmup
		case verdict.ClassTooShort:
			found = DiagnosisUnknown
		}
	}
	return found
}

// kind of the holdings that explain the growth.
func (d Diagnosis) kind() growth.Kind {
	if d.IsOfCache() || d == DiagnosisDriver || d == DiagnosisContext {
		return growth.KindCudaSegment
	}
	return growth.KindCudaBlock
}
