package words

import (
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

// gpuInCharge is the GPU memory that the result is about: the worst that grows, where RSS does not.
func gpuInCharge(s *summary.Summary) *summary.GPUMemory {
	var worst *summary.GPUMemory
	for i := range s.GPUMemory {
		g := &s.GPUMemory[i]
		if g.Class.Grows() && g.Class.Severity() > s.Class.Severity() &&
			(worst == nil || g.Class.Severity() > worst.Class.Severity()) {
			worst = g
		}
	}
	return worst
}

// gpuResultOf returns the result where GPU memory grows.
func gpuResultOf(s *summary.Summary, g *summary.GPUMemory, place Place) Result {
	r := Result{
		Name: "GPU " + Name(g.Verdict) + " (experimental)", Class: g.Class,
		Subject: subjectOf(s, strconv.Itoa(g.Process)),
	}

	r.add(LabelWho, []string{gpuWho[gpu.Diagnosis(g.Diagnosis)]})
	if len(g.Suspects) > 0 {
		r.add(LabelWhere, siteLines(g.Suspects[0]))
	}

	pace := Pace(g.Verdict) + " (" + CurveText(g.Judged) + ")"
	limit := LimitLine(g.Verdict, AtGPULimit)
	if hasEnded(s) {
		limit = ""
	}
	r.add(LabelHowFast, []string{pace, limit})
	r.add(LabelHowSure, []string{
		Certainty(g.Verdict)[0],
		"experimental: compared with PyTorch on stubs, not yet on a GPU",
	})
	r.add(LabelDoNext, []string{gpuSteps[gpu.Diagnosis(g.Diagnosis)], place.longer(s, g.Verdict), place.view()})

	var notes []string
	if unknown := GPUCountUnknown(*g); unknown != "" {
		notes = append(notes, unknown)
	}
	notes = append(notes, noteLines(s, place)...)
	r.add(LabelNote, append(notes, "RSS is a matter of its own: "+Headline(s.Verdict)))
	return r
}
