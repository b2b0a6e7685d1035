package conclude

import (
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
)

// decideGPU decides about the GPU memory of a process by the checks so far, and by the keeper of
// its tensors.
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

	keepers := t.KeepersOf(p.History)
	g.addTo(f, tensorSearch(keepers, isExplained), tensorSearch(keepers, isGarbage))
}

// tensorSearch is the first search for tensors of which a condition holds; nil: there is none.
func tensorSearch(keepers []keeper.Search, holds func(*keeper.Search) bool) *keeper.Search {
	for i := range keepers {
		if s := &keepers[i]; s.Stack == 0 && census.IsTensor(s.Type) && holds(s) {
			return s
		}
	}

	return nil
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
