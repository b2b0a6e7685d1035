package words

import (
	"fmt"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
)

// Shares from which on something incomplete is worth a note.
const (
	minLostStacks   = 0.1 // of the stacks
	minLostSamples  = 0.01
	minSamples      = 10       // of the growth, for its call sites
	fineInterval    = 16 << 20 // bytes between samples, whatever the growth
	minUndecidedNow = 0.25     // of the growth of all stacks
	minTreeGrowth   = 64 << 20 // bytes
)

// noteLines are the gaps in the numbers, how much is missing, and the fix; the most serious first.
func noteLines(s *summary.Summary, place Place) []string {
	var notes []string
	say := func(applies bool, format string, values ...any) {
		if applies {
			notes = append(notes, fmt.Sprintf(format, values...))
		}
	}

	unknown := freeUnknownLine(s)
	say(unknown != "" && s.MainCause() != nil, "%s", unknown) // else HOW SURE has it
	heap := heapFailed(s)
	say(heap != "", "malloc was not traced (%s). Fix: %sdoctor %d", heap, place.sudo(), s.AskedPID())
	say(s.Ended == summary.EndedExit || s.Ended == summary.EndedOutOfMemory, "%s after %s: this is what was seen until then", Ended(s), clockText(s.DurationS))
	say(s.SnapshotsInSpikes && grows(s), "nearly all snapshots lie in spikes of RSS: what WHERE names may be free again in a moment; trace longer")
	for _, note := range s.Notes {
		isHidden := note.Code == summary.NoteLimitHidden && s.Class.Grows()
		isUnnamed := note.Code == summary.NoteAllocator && s.Overhead.InBursts() && grows(s) &&
			s.MainCause() == nil
		say(isHidden || isUnnamed, "%s", Note(note))
	}
	say(s.RSS.PeakBytes != nil, "%s", PeakText(s.RSS))
	notes = append(notes, groupNotes(s)...)
	notes = append(notes, relatedNotes(s, place)...)
	notes = append(notes, budgetNote(s)...)
	notes = append(notes, lossNotes(s)...)
	notes = append(notes, treeNote(s, place)...)
	notes = append(notes, undecidedNote(s)...)
	for _, g := range s.GPUMemory {
		say(s.GPUInCharge() == nil, "GPU memory: %s", Headline(g.Verdict))
	}

	return notes
}

// treeNote is the growth of the other processes of the tree, where they grow more than the judged
// process.
func treeNote(s *summary.Summary, place Place) []string {
	own, tree := BreakdownOf(s.Breakdown, s.Process.PID), BreakdownOf(s.Breakdown, 0)
	others, grown := OtherProcesses(s), tree.Sum().Delta-own.Sum().Delta
	if others == 0 || grown < minTreeGrowth || grown < own.Sum().Delta {
		return nil
	}
	return []string{fmt.Sprintf("%s of the tree grew by %s: %sshow --details%s",
		units.Plural(others, "other process", "other processes"), units.Bytes(grown), binary, place.dir())}
}

// heapFailed is why source heap is not attached to the main process; empty: it is, or was not asked
// for.
func heapFailed(s *summary.Summary) string {
	for _, source := range s.Sources {
		isOwn := source.PID == 0 || source.PID == s.Process.PID
		if source.Name == "heap" && isOwn && source.State == summary.SourceFailed {
			return SourceReason(source)
		}
	}
	return ""
}

// budgetNote reports where the trace has slowed the job by more than its limit, or has too few
// samples for its call sites. The details have the CPU time of allocscope itself.
func budgetNote(s *summary.Summary) []string {
	o := s.Overhead
	if o == nil || o.Limit <= 0 {
		return nil
	}

	own := BreakdownOf(s.Breakdown, s.Process.PID)
	grown := own.Sum().Delta
	isCoarse := grows(s) && float64(o.IntervalBytes) > max(fineInterval, grown/minSamples)
	switch {
	case o.Slowdown != nil && *o.Slowdown > maxExcess*o.Limit:
		text := fmt.Sprintf("the trace slowed the job by %s (%s); ", units.Percent(*o.Slowdown),
			OverheadLimit(o))
		if isCoarse {
			return []string{text + "samples are few: one in " + units.Bytes(float64(o.IntervalBytes))}
		}
		return []string{text + "the result holds"}
	case isCoarse && isOwnAbove(s):
		return []string{"samples are few, to spare the job: one in " +
			units.Bytes(float64(o.IntervalBytes))}
	}
	return nil
}

// lossNotes are the losses that change the result, the largest first.
func lossNotes(s *summary.Summary) []string {
	var notes []string
	said, isSaid := freeUnknown(s)
	for _, l := range s.Losses {
		switch {
		case isSaid && l.Kind == said.Kind:
		case l.Kind == growth.LossUnknownStacks &&
			float64(l.Count) > minLostStacks*float64(s.Events.Stacks):
			notes = append(notes, "incomplete: "+lossLine(l))
		case claim.Takes(l.Kind, claim.LiveObjects) &&
			float64(l.Count) > minLostSamples*float64(s.Events.Samples):
			notes = append(notes, "incomplete: "+lossLine(l))
		}
	}
	return notes
}

// undecidedNote names the largest stack that may be a cache as well as a leak.
func undecidedNote(s *summary.Summary) []string {
	if !grows(s) {
		return nil
	}
	for _, a := range s.Accumulating {
		if a.Trend == growth.TrendUndecided && a.Share >= minUndecidedNow {
			return []string{fmt.Sprintf("cache or leak, undecided: %s %s. Fix: %s", WhereBrief(a),
				units.Signed(float64(a.Bytes)), undecidedRemedy(a))}
		}
	}
	return nil
}
