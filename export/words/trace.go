package words

import (
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/trend"
)

// ExactInBursts is the effect of a limit of the overhead on a trace of every allocation.
func ExactInBursts(limit float64) string {
	return "every allocation is recorded while heap is probed; heap is probed in bursts where it " +
		"would slow the job by more than " + units.ExactPercent(limit) + ": --overhead off " +
		"probes every call"
}

// Sizes are lines about the RSS of a trace, its training steps, and the rest of its tree.
func Sizes(s *summary.Summary) []string {
	var lines []string
	rss := s.RSS
	if rss.EndBytes != nil && rss.StartBytes != nil && rss.BaselineBytes != nil {
		line := fmt.Sprintf("RSS %s at the start, %s at the baseline (%s), %s at the end",
			units.Bytes(float64(*rss.StartBytes)), units.Bytes(float64(*rss.BaselineBytes)),
			units.Seconds(*s.BaselineS), units.Bytes(float64(*rss.EndBytes)))
		if growth := rssGrowth(s); growth != "" {
			line += ": " + growth
		}
		lines = append(lines, line)
	}

	if s.Steps != nil {
		line := fmt.Sprintf("%s training steps since the baseline, %s/min",
			units.Count(float64(s.Steps.Count)), units.Count(s.Steps.PerMin))
		if s.Steps.GrowthBytesPerStep != nil {
			line += ": " + units.Signed(float64(*s.Steps.GrowthBytesPerStep)) + " a step"
		}
		lines = append(lines, line)
	}

	for _, p := range s.Processes {
		if p.PID != s.Process.PID && p.EndBytes != nil {
			lines = append(lines, Process(p))
		}
	}

	for _, g := range s.Groups {
		lines = append(lines, Group(g))
	}

	for _, o := range s.Related {
		lines = append(lines, RelatedText(s, o))
	}

	return lines
}

// rssGrowth is how fast RSS grew: "+462 MiB/min since the baseline". It is empty where that is
// unknown.
func rssGrowth(s *summary.Summary) string {
	if s.RSS.GrowthBytesPerMin == nil {
		return ""
	}
	return units.Signed(float64(*s.RSS.GrowthBytesPerMin)) + "/min since the baseline"
}

// Warnings limit the meaning of the numbers of a trace, a line each.
func Warnings(s *summary.Summary) []string {
	var lines []string
	for _, source := range s.Sources {
		if reason := SourceReason(source); reason != "" {
			lines = append(lines, fmt.Sprintf("source %s: %s", source.Name, reason))
		}
	}

	for _, l := range s.Losses {
		lines = append(lines, lossLine(l))
	}

	if s.MarksDropped > 0 {
		lines = append(lines, units.Plural(s.MarksDropped, "mark was", "marks were")+
			" dropped: there were too many")
	}

	if s.Ended == summary.EndedExit || s.Ended == summary.EndedOutOfMemory {
		lines = append(lines, Ended(s)+" after "+units.Seconds(s.DurationS)+
			": the files hold what was alive until then")
	}

	for i := range s.OOMKills {
		lines = append(lines, OOMKill(&s.OOMKills[i]))
		if largest := oomLargest(&s.OOMKills[i]); largest != "" {
			lines = append(lines, largest)
		}
	}

	if s.Stopped {
		lines = append(lines, "the target is stopped")
	}

	return lines
}

// HeapComments are the comments of a profile on how heap memory was sampled. untrackable is why
// objects cannot be tracked; empty: they can.
func HeapComments(o *summary.Overhead, untrackable string) []string {
	comments := []string{HeapMode(o.Mode)}
	if bursts := FromBursts(o); bursts != "" {
		comments = append(comments, "allocation sites of heap memory are from "+bursts)
	}
	if untrackable != "" {
		comments = append(comments, "objects of the heap cannot be tracked: "+untrackable)
	}
	return comments
}

// GPUMemoryOf names the GPU memory of a process.
func GPUMemoryOf(pid int) string { return fmt.Sprintf("GPU memory of PID %d", pid) }

// MostBy names the code with most of the growth: "most by pil: resize (Image.py:2192)". It is empty
// where that is unknown.
func MostBy(suspects []trend.Suspect) string {
	if len(suspects) == 0 {
		return ""
	}
	s := summary.SuspectOf(suspects[0])
	return "most by " + s.Component + ": " + Suspect(s)
}

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
