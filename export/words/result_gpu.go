package words

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/gpu"
)

// gpuSteps are what to do about each diagnosis of GPU memory.
var gpuSteps = map[gpu.Diagnosis]string{
	gpu.DiagnosisTensors: "keep loss.item() or tensor.detach().cpu(), not tensors with their graph",
	gpu.DiagnosisFragmentation: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad inputs to few " +
		"shapes",
	gpu.DiagnosisDriver:  "reuse process groups and their communicators; look at extensions",
	gpu.DiagnosisContext: "look for kernels that are loaded or compiled repeatedly",
}

var gpuWho = map[gpu.Diagnosis]string{
	gpu.DiagnosisTensors:       "tensors that are kept: what PyTorch has allocated grows between steps",
	gpu.DiagnosisFragmentation: "PyTorch's cache: it reserves more, and allocates no more",
	gpu.DiagnosisDriver:        "memory from the CUDA driver that is not PyTorch's, as of NCCL and extensions",
	gpu.DiagnosisContext:       "memory that only NVML counts: the CUDA context, modules of kernels",
}

// gpuInCharge is the GPU memory that the result is about: the worst that grows, where its verdict is
// worse than that on RSS, or as bad and at its limit earlier; nil: the result is about RSS.
func gpuInCharge(s *summary.Summary) (inCharge *summary.GPUMemory) {
	worst := &s.Verdict
	for i := range s.GPUMemory {
		g := &s.GPUMemory[i]
		order := cmp.Or(cmp.Compare(g.Class.Severity(), worst.Class.Severity()),
			cmp.Compare(secondsToLimit(worst), secondsToLimit(&g.Verdict)))
		if g.Class.Grows() && order > 0 {
			worst, inCharge = &g.Verdict, g
		}
	}
	return inCharge
}

// secondsToLimit is infinite where no limit is near.
func secondsToLimit(v *summary.Verdict) float64 {
	if v.SecondsToLimit == nil {
		return math.Inf(1)
	}
	return *v.SecondsToLimit
}

// tensorKeeper is who keeps the tensors of a process that retains them on GPUs; nil: it is not
// known.
func tensorKeeper(s *summary.Summary, g *summary.GPUMemory) *summary.Keeper {
	i := slices.IndexFunc(s.Keepers, func(k summary.Keeper) bool {
		return k.PID == g.Process && k.Type == "torch.Tensor" && isAnswer(&k)
	})
	if i < 0 || gpu.Diagnosis(g.Diagnosis) != gpu.DiagnosisTensors {
		return nil
	}
	return &s.Keepers[i]
}

// gpuResultOf returns the result where GPU memory grows.
func gpuResultOf(s *summary.Summary, g *summary.GPUMemory, place Place) Result {
	r := Result{
		Name: "GPU " + Name(g.Verdict), Class: g.Class,
		Subject: subjectOf(s, strconv.Itoa(g.Process)),
	}

	r.add(LabelWho, []string{gpuWho[gpu.Diagnosis(g.Diagnosis)]})
	kept, step := tensorKeeper(s, g), gpuSteps[gpu.Diagnosis(g.Diagnosis)]
	var site []string
	if len(g.Suspects) > 0 {
		site = siteLines(g.Suspects[0])
	}
	r.add(LabelWhere, withKeeper(site, KeptBy(kept, ResultWidth-labelWidth)))
	if kept != nil {
		step = keeperStep(s, kept)
	}

	pace := Pace(g.Verdict) + " (" + CurveText(g.Judged) + ")"
	limit := LimitLine(VerdictAtEnd(s, g.Verdict), AtGPULimit)
	r.add(LabelHowFast, []string{pace, limit})
	r.add(LabelHowSure, Certainty(g.Verdict)[:1])
	r.add(LabelDoNext, []string{step, place.longer(s, g.Verdict), place.view()})

	var notes []string
	if unknown := GPUCountUnknown(*g); unknown != "" {
		notes = append(notes, unknown)
	}
	notes = append(notes, noteLines(s, place)...)
	r.add(LabelNote, append(notes, "RSS: "+Headline(s.Verdict)))
	return r
}
