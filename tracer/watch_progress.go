package tracer

import (
	"github.com/allocscope/allocscope/tracer/estimate"
)

// countWork adds what was done since the last time.
func (w *probing) recordProgress(to *estimate.Progress) {
	if w.progress == nil { // nobody bounds what the probes take
		return
	}
	now, err := w.progress()
	if err != nil {
		return
	}
	to.Add(w.costs, w.worked, now)
	w.worked = now
}
