package words

import (
	"strconv"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/gpu"
)

var gpuWho = map[gpu.Diagnosis]string{
	gpu.DiagnosisTensors:       "tensors that are kept: what PyTorch has allocated grows between steps",
	gpu.DiagnosisFragmentation: "PyTorch's cache: it reserves more, and allocates no more",
	gpu.DiagnosisDriver:        "memory from the CUDA driver that is not PyTorch's, as of NCCL and extensions",
	gpu.DiagnosisContext:       "memory that only NVML counts: the CUDA context, modules of kernels",
}

// gpuResultOf returns the result where GPU memory grows.
func gpuResultOf(s *summary.Summary, g *summary.GPUMemory, place Place) Result {
	r := Result{
		Name: "GPU " + Name(g.Verdict), Class: g.Class,
		Subject: subjectOf(s, strconv.Itoa(g.Process)),
	}

	r.add(LabelWho, []string{gpuWho[gpu.Diagnosis(g.Diagnosis)]})
	kept := s.TensorKeeper(g)
	var site []string
	if len(g.Suspects) > 0 {
		site = siteLines(g.Suspects[0], missingPython(s))
	}
	r.add(LabelWhere, withKeeper(site, KeptBy(kept, ResultWidth-labelWidth)))
	pace := Pace(g.Verdict) + " (" + CurveText(g.Judged) + ")"
	limit := LimitLine(g.Verdict, AtGPULimit)
	r.add(LabelHowFast, []string{pace, limit})
	r.add(LabelHowSure, Certainty(g.Verdict)[:1])
	r.add(LabelDoNext, nextLines(s, place))

	var notes []string
	if unknown := GPUCountUnknown(*g); unknown != "" {
		notes = append(notes, unknown)
	}
	notes = append(notes, noteLines(s, place)...)
	r.add(LabelNote, append(notes, "RSS: "+Headline(s.Verdict)))
	return r
}
