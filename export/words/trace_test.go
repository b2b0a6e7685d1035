package words

import (
	"testing"

	"github.com/allocscope/allocscope/export/summary"
)

func TestSpikes(t *testing.T) {
	captured := summary.CapturedSpike{
		AtS: 25, BeforeS: 15, Bytes: 400 << 20,
		Suspect: &summary.Suspect{
			Component: "train.py", Function: "validate (/job/train.py:28)", Explains: 0.9,
			Path: []string{"validate (/job/train.py:28)"}, Callers: []string{"main (/job/train.py:42)"},
		},
	}
	settled := captured
	settled.AfterS, settled.Suspect = new(30.0), nil

	for _, c := range []struct {
		of                           *summary.SpikeMemory
		suspect, sentence, snapshots string
	}{
		{
			&summary.SpikeMemory{Count: 1, PeakBytes: 410 << 20, Captured: &captured},
			"most by train.py: validate (train.py:28) < main (train.py:42) (90% of it)",
			"1 spike of RSS, at most 410 MiB above the level before.",
			"RSS was 400 MiB above the level at 25.0 s. In RAM then, and not at 15.0 s:",
		},
		{
			&summary.SpikeMemory{
				Count: 5, PeakBytes: 410 << 20, PeriodS: new(60.0), Captured: &settled,
			},
			"", "5 spikes of RSS, at most 410 MiB above the level before, one each 60.0 s.",
			"RSS was 400 MiB above the level at 25.0 s. In RAM then, and neither at 15.0 s nor at " +
				"30.0 s:",
		},
		{
			&summary.SpikeMemory{Count: 2, PeakBytes: 50 << 20}, "",
			"2 spikes of RSS, at most 50.0 MiB above the level before.",
			"No snapshot lies in a spike: it was too short or too early, or the budget had no room for one.",
		},
	} {
		for _, text := range [][2]string{
			{SpikeSuspect(c.of), c.suspect},
			{Spikes(c.of), c.sentence},
			{SpikeSnapshots(c.of), c.snapshots},
		} {
			if text[0] != text[1] {
				t.Errorf("%q, want %q", text[0], text[1])
			}
		}
	}
	mustBe(t, SpikeSuspect(nil), "")
}
