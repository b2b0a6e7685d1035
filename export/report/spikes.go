package report

import (
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// A spikesView is the memory that is alive in spikes of RSS only.
type spikesView struct {
	Sentences []string
	Suspects  []suspectView // one, or none where it is unknown
	Rows      []rowView
}

// spikeMemoryOf is the part about the memory of spikes; nil: there were none.
func spikeMemoryOf(s *summary.Summary) *spikesView {
	m := s.SpikeMemory
	if m == nil {
		return nil
	}

	v := &spikesView{Sentences: []string{words.Spikes(m), words.SpikeSnapshots(m)}}
	if m.Captured == nil {
		return v
	}

	v.Rows = rowsOf(m.Captured.Stacks, nil)
	if suspect := m.Captured.Suspect; suspect != nil {
		v.Suspects = []suspectView{{
			units.Bytes(float64(suspect.Bytes)), suspect.Component, words.Suspect(*suspect), nil,
		}}
	}
	return v
}
