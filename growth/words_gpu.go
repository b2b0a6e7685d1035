package growth

import (
	"fmt"
	"math"
)

// Advice returns in a sentence what the diagnosis means and what to try, with the numbers that show
// it. It is never empty.
func (j *DeviceJudgement) Advice() string {
	switch j.Diagnosis {
	case DiagnosisTensors:
		return fmt.Sprintf("torch's blocks between steps grow%s: tensors are kept%s. Look for losses, "+
			"outputs or states that are collected with their graph: keep .item() or "+
			".detach().cpu() of them", j.by(CurveAllocated), j.mostBy())
	case DiagnosisFragmentation:
		return fmt.Sprintf("torch's segments grow%s, and its blocks %s: its cache is fragmented by "+
			"varying shapes, or CUDA graphs have pools of their own. See "+
			"torch.cuda.memory_summary(); try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, "+
			"inputs padded to few shapes, torch.cuda.empty_cache() between phases",
			j.by(CurveReserved), j.blocksBy())
	case DiagnosisDriver:
		return fmt.Sprintf("memory from the driver grows%s, faster than torch's segments: something "+
			"else allocates%s, as NCCL and extensions do", j.by(CurveDriver), j.mostBy())
	case DiagnosisContext:
		return j.contextAdvice()
	case DiagnosisWarmup:
		return "the growth slows down: caches, workspaces and optimizer state are still being allocated"
	case DiagnosisNone:
		return "nothing on the GPU grows"
	}
	return "too early to tell whether anything on the GPU grows: watch longer"
}

// contextAdvice is about memory that NVML counts beyond all traced allocations.
func (j *DeviceJudgement) contextAdvice() string {
	if curveOf(j.Curves, CurveDriver) == nil {
		return fmt.Sprintf("NVML's count grows%s, faster than torch's segments. Calls of the CUDA "+
			"driver API were not traced, so it may be NCCL, an extension, the context or "+
			"modules: trace with source cuda", j.by(CurveUsed))
	}
	return fmt.Sprintf("NVML's count grows%s, faster than the driver's traced allocations: its "+
		"context, modules of kernels that are loaded or compiled again and again, memory for "+
		"printf and local variables, or memory that another process allocates in its name",
		j.by(CurveUsed))
}

// by is how fast a curve grows.
func (j *DeviceJudgement) by(name CurveName) string {
	curve := curveOf(j.Curves, name)
	if curve == nil || math.IsNaN(curve.Rate) {
		return ""
	}
	return fmt.Sprintf(" by %.1f MiB/min", curve.Rate*60/(1<<20))
}

func (j *DeviceJudgement) blocksBy() string {
	switch curve := curveOf(j.Curves, CurveAllocated); {
	case curve == nil || curve.Class == ClassTooShort:
		return "are not seen to"
	case curve.Class.Grows() || curve.Class == ClassSaturating:
		return "less," + j.by(CurveAllocated)
	}
	return "do not"
}

// mostBy is the suspect with most of the growth, if there is one.
func (j *DeviceJudgement) mostBy() string {
	if len(j.Culprits) == 0 {
		return ""
	}
	s := &j.Culprits[0]
	place := s.Frame.Function
	if s.Frame.File != "" && s.Frame.Line > 0 {
		place += fmt.Sprintf(" (%s:%d)", s.Frame.File, s.Frame.Line)
	}
	return fmt.Sprintf(", most by %s: %s", s.Owner, place)
}
