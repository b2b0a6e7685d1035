package estimate

import (
	"math"

	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// work is what the traced program did in some time.
type Progress struct {
	seconds float64
	steps   float64
	native  float64 // CPU time for itself, in seconds
	probes  float64 // that of the probes
}

func (w *Progress) Add(p controller.Costs, a, b controller.Reading) {
	native, probes := p.Native(a, b)
	w.seconds += max(0, (b.At - a.At).Seconds())
	w.steps += max(0, float64(b.Steps-a.Steps))
	w.native += native.Seconds()
	w.probes += probes.Seconds()
}

const (
	// minStepsForSlowdown within windows tell how much slower the program is there.
	minStepsForSlowdown = 30
	// relCostError is how far what probes are said to take may be off, as a part of it.
	relCostError = 0.15
	// slowest is the most by which probes are taken to slow a program down.
	maxSlowdown = 50
)

// slower is by how many times the program does less in a second of a window than in one of the rest, and the error of that as a
// part of it: by its steps where there are enough of them, else by the CPU time that it has for itself. 1: no slower, or not known.
func (w *Schedule) slowdown() (times, err float64) {
	in, out := &w.Inside, &w.Outside
	if !(in.seconds > 0 && out.seconds > 0) {
		return 1, 0
	}
	with, without := in.native/in.seconds, out.native/out.seconds
	if in.probes > 0 {
		err = relCostError * in.probes / max(in.native, in.probes/maxSlowdown)
	}
	if in.steps >= minStepsForSlowdown && out.steps >= minStepsForSlowdown {
		with, without = in.steps/in.seconds, out.steps/out.seconds
		err = math.Sqrt(1/in.steps + 1/out.steps)
	}
	if !(without > with) {
		return 1, min(err, 1)
	}
	return min(maxSlowdown, without/max(with, without/maxSlowdown)), min(err, 1)
}
