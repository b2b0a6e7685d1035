package conclude

import (
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
)

// decideGPU decides about the GPU memory of a process by the checks so far, and by the keeper of its
// tensors.
func decideGPU(t *Trace, p *Process) {
	found := verdict.Findings{HasEnded: t.HasEnded}
	t.GPUChecks.AddTo(&found, t.lastElapsed().Seconds())

	if p.GPU.Diagnosis == gpu.DiagnosisTensors && areTensorsOnGPU(t, p) {
		addKeptTensors(t, &found, p)
	}

	decided := *p.GPU
	decided.Verdict = verdict.Decide(p.GPU.Verdict, found)
	p.GPU = &decided
}

// addKeptTensors adds the findings on the containers that keep the tensors of a process.
func addKeptTensors(t *Trace, f *verdict.Findings, p *Process) {
	g := keptGrowth{halves: p.GPU.Shape.Halves, suspects: p.GPU.Suspects, now: growth.Unknown}
	if c := p.GPU.Curve(gpu.CurveAllocated); c != nil {
		g.now = float64(c.At(t.lastElapsed().Seconds()))
	}

	var found, waiting *keeper.Search
	keepers := t.KeepersOf(p.History)
	for i := range keepers {
		s := &keepers[i]
		if s.Stack != 0 || !census.IsTensor(s.Type) {
			continue
		}

		if 2*s.Garbage > s.Samples && waiting == nil {
			waiting = s
		}

		if len(s.Paths) > 0 && 2*s.Paths[0].Samples >= s.Samples && found == nil {
			found = s
		}
	}

	g.addTo(f, found, waiting)
}

// areTensorsOnGPU reports whether most tensors that a process has gained are on GPUs, by its
// censuses: a search for tensors finds the ones of the CPU, too.
func areTensorsOnGPU(t *Trace, p *Process) bool {
	before, after := census.Around(t.CensusesOf(p.History), p.GPU.Window.From)
	if before == nil || after == nil {
		return false
	}

	all, onGPU := 0, 0
	for sign, c := range map[int]*census.Result{-1: before, 1: after} {
		for i := range c.Tensors.Groups {
			g := &c.Tensors.Groups[i]
			all += sign * g.Tensors

			if strings.HasPrefix(g.Device, "cuda") {
				onGPU += sign * g.Tensors
			}
		}
	}

	return onGPU > 0 && 2*onGPU >= all
}
