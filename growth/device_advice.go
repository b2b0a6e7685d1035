package growth

import (
	"fmt"
	"math"
)

// Advice says in a sentence what the diagnosis means and what to try, with the numbers that speak for it. It is never empty.
func (j *DeviceJudgement) Advice() string {
	switch j.Diagnosis {
	case DiagnosisTensors:
		return fmt.Sprintf("what torch's blocks hold between steps grows%s: tensors are kept%s. Look for losses, outputs or states that are collected with their "+
			"graph: keep .item() or .detach().cpu() of them", j.by(CurveAllocated), j.mostBy())
	case DiagnosisFragmentation:
		return fmt.Sprintf("torch's segments grow%s, and its blocks %s: its cache is fragmented, by shapes that vary, or CUDA graphs have pools of their own. See "+
			"torch.cuda.memory_summary(); try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, inputs padded to few shapes, torch.cuda.empty_cache() "+
			"between phases", j.by(CurveReserved), j.blocksBy())
	case DiagnosisDriver:
		return fmt.Sprintf("what the driver hands out grows%s, and more than torch's segments: something allocates past torch's allocator%s, as NCCL and "+
			"extensions do", j.by(CurveDriver), j.mostBy())
	case DiagnosisContext:
		return j.contextAdvice()
	case DiagnosisWarmup:
		return "what grows slows down: caches, workspaces and the optimizer's state are still being allocated"
	case DiagnosisNone:
		return "nothing on the GPU grows"
	}
	return "it is too early to tell whether anything on the GPU grows: watch longer"
}

// contextAdvice says what can be in what the driver counts and nobody was seen to ask for.
func (j *DeviceJudgement) contextAdvice() string {
	if curveOf(j.Curves, CurveDriver) == nil {
		return fmt.Sprintf("what the driver counts grows%s, and more than torch's allocator has: calls of the driver were not watched, so that it may be NCCL, an "+
			"extension, the context or modules. A trace with source cuda tells", j.by(CurveUsed))
	}
	return fmt.Sprintf("what the driver counts grows%s, and more than it was seen to hand out: its context, modules of kernels that are loaded or compiled "+
		"again and again, memory for printf and local variables, or what another process allocates in its name", j.by(CurveUsed))
}

// by is how fast a curve grows, in words.
func (j *DeviceJudgement) by(name CurveName) string {
	curve := curveOf(j.Curves, name)
	if curve == nil || math.IsNaN(curve.Rate) {
		return ""
	}
	return fmt.Sprintf(" by %.1f MiB/min", perMinute(curve.Rate))
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

// mostBy is who holds most of what has grown, if anybody is known to.
func (j *DeviceJudgement) mostBy() string {
	if len(j.Culprits) == 0 {
		return ""
	}
	c := &j.Culprits[0]
	where := c.Frame.Function
	if c.Frame.File != "" && c.Frame.Line > 0 {
		where += fmt.Sprintf(" (%s:%d)", c.Frame.File, c.Frame.Line)
	}
	return fmt.Sprintf(", most by %s: %s", c.Owner, where)
}
