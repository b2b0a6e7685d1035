package words

import (
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

// SpikeSuspect names the code behind most of the memory that is in RAM in spikes only: "most by
// eval.py: collect (eval.py:31) < validate (eval.py:44)". It is empty where the code is unknown.
func SpikeSuspect(m *summary.SpikeMemory) string {
	if !m.IsCaptured() || m.Captured.Suspect == nil {
		return ""
	}
	suspect := *m.Captured.Suspect
	return fmt.Sprintf("most by %s: %s", suspect.Component, Suspect(suspect))
}

// SpikeLines describe the spikes, and the code behind them; none without spikes.
func SpikeLines(m *summary.SpikeMemory) []string {
	if m == nil {
		return nil
	}
	lines := []string{strings.TrimSuffix(Spikes(m), ".")}
	if suspect := SpikeSuspect(m); suspect != "" {
		lines[0] += ": " + suspect
	}
	return lines
}

// Spikes is a sentence about the number, the height and the period of spikes.
func Spikes(m *summary.SpikeMemory) string {
	text := fmt.Sprintf("%d spikes of RSS", m.Count)
	if m.Count == 1 {
		text = "1 spike of RSS"
	}
	text += ", at most " + units.Bytes(float64(m.PeakBytes)) + " above the level before"
	if m.PeriodS != nil {
		text += ", one each " + units.Seconds(*m.PeriodS)
	}
	return text + "."
}

// SpikeSnapshots is a sentence about the snapshots that show what is alive in a spike only; without
// one, about why nothing is known.
func SpikeSnapshots(m *summary.SpikeMemory) string {
	c := m.Captured
	if c == nil {
		return "No snapshot lies in a spike: it was too short or too early, or the budget had no room for one."
	}

	around := "not at " + units.Seconds(c.BeforeS)
	if c.AfterS != nil {
		around = "neither at " + units.Seconds(c.BeforeS) + " nor at " + units.Seconds(*c.AfterS)
	}
	return fmt.Sprintf("RSS was %s above the level at %s. In RAM then, and %s:",
		units.Bytes(float64(c.Bytes)), units.Seconds(c.AtS), around)
}
