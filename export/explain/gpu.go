package explain

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
)

// GPU returns in a sentence the meaning of the diagnosis of GPU memory and a remedy, with the
// numbers that show it. It is never empty.
func GPU(j *gpu.Judgement) string {
	switch j.Diagnosis {
	case gpu.DiagnosisTensors:
		return fmt.Sprintf(
			"torch's blocks between steps grow%s: tensors are kept%s. Look for losses, "+
				"outputs or states that are collected with their graph: keep .item() or "+
				".detach().cpu() of them",
			rateText(j, gpu.CurveAllocated),
			suspectText(j),
		)
	case gpu.DiagnosisFragmentation:
		return fmt.Sprintf(
			"torch's segments grow%s, and its blocks %s: its cache is fragmented by "+
				"varying shapes, or CUDA graphs have pools of their own. See "+
				"torch.cuda.memory_summary(); try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, "+
				"inputs padded to few shapes, torch.cuda.empty_cache() between phases",
			rateText(j, gpu.CurveReserved),
			blocksText(j),
		)
	case gpu.DiagnosisDriver:
		return fmt.Sprintf(
			"memory from the driver grows%s, faster than torch's segments: something "+
				"else allocates%s, as NCCL and extensions do",
			rateText(j, gpu.CurveDriver),
			suspectText(j),
		)
	case gpu.DiagnosisContext:
		return contextText(j)
	case gpu.DiagnosisWarmup:
		return "the growth slows down: caches, workspaces and optimizer state are still being allocated"
	case gpu.DiagnosisNone:
		return "nothing on the GPU grows"
	}
	return "too early to tell whether anything on the GPU grows: watch longer"
}

// contextText is about memory that NVML counts beyond all traced allocations.
func contextText(j *gpu.Judgement) string {
	if j.Curve(gpu.CurveDriver) == nil {
		return fmt.Sprintf("NVML's count grows%s, faster than torch's segments. Calls of the CUDA "+
			"driver API were not traced, so it may be NCCL, an extension, the context or "+
			"modules: trace with source cuda", rateText(j, gpu.CurveUsed))
	}
	return fmt.Sprintf("NVML's count grows%s, faster than the driver's traced allocations: its "+
		"context, modules of kernels that are loaded or compiled repeatedly, memory for "+
		"printf and local variables, or memory that another process allocates in its name",
		rateText(j, gpu.CurveUsed))
}

// rateText is how fast a curve grows.
func rateText(j *gpu.Judgement, name gpu.CurveName) string {
	curve := j.Curve(name)
	if curve == nil || math.IsNaN(curve.Rate) {
		return ""
	}
	return " by " + units.Bytes(60*curve.Rate) + "/min"
}

func blocksText(j *gpu.Judgement) string {
	switch curve := j.Curve(gpu.CurveAllocated); {
	case curve == nil || curve.Class == verdict.ClassTooShort:
		return "are not seen to"
	case curve.Class.Grows() || curve.Class == verdict.ClassSaturating:
		return "less," + rateText(j, gpu.CurveAllocated)
	}
	return "do not"
}

// suspectText is the suspect with most of the growth, if there is one.
func suspectText(j *gpu.Judgement) string {
	if len(j.Suspects) == 0 {
		return ""
	}
	s := &j.Suspects[0]
	place := s.Frame.Function
	if s.Frame.File != "" && s.Frame.Line > 0 {
		place += fmt.Sprintf(" (%s:%d)", s.Frame.File, s.Frame.Line)
	}
	return fmt.Sprintf(", most by %s: %s", s.Component, place)
}
