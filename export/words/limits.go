package words

import (
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// minConclusiveSeconds is the length of a trace that separates a leak from most other growth.
const minConclusiveSeconds = 30 * 60

// Limits lists the gaps in the numbers of a trace, a sentence each.
func Limits(s *summary.Summary) []string {
	var limits []string
	say := func(applies bool, format string, values ...any) {
		if applies {
			limits = append(limits, fmt.Sprintf(format, values...))
		}
	}

	say(s.IntervalBytes > 1 && HeapKnown(s),
		"Sizes by stack are estimates from %s: a number from twenty samples or fewer is only an "+
			"order of magnitude.", Sampling(s.IntervalBytes))

	from, o := FromBursts(s.Overhead), s.Overhead
	say(from != "", "Allocation sites of the heap are known from %s. A larger --overhead, or off, "+
		"probes more of it.", from)
	say(o != nil && o.Mode == growth.HeapOff && len(o.Changes) > 0 && HeapKnown(s),
		"In the end the heap was not probed, as that would have cost more than the limit: its "+
			"growth since then has no stacks.")

	if o != nil {
		say(o.LeftOutChanges > 0, "What is probed changed %s more: the first thousand are listed.",
			units.Plural(o.LeftOutChanges, "time", "times"))
	}

	before, swapped := endOf(s, growth.KindBeforeTracing), endOf(s, growth.KindSwapped)
	say(before > 0, "%s of PID %d were allocated before tracing started and are still resident: "+
		"their allocation sites are unknown.", units.Bytes(before), s.Process.PID)
	say(swapped > 0, "%s of PID %d are swapped out, and so not in RSS.", units.Bytes(swapped),
		s.Process.PID)
	say(endOf(s, growth.KindDeviceFile) > 0 && len(s.GPUMemory) == 0,
		"Device files count as far as they are mapped. GPU memory is not traced.")

	n, whose := untraced(s), "their"
	if n == 1 {
		whose = "its"
	}
	say(n > 0, "%s not traced: the timeline and the tables include %s memory, without stacks.",
		units.Plural(n, "process of the tree is", "processes of the tree are"), whose)

	scanned := Scanned(s.MainResident())
	say(scanned != "", "%s of the pages were scanned; the rest is extrapolated.", scanned)
	say(s.Mappings.UnmeasuredBytes > 0,
		"%s of mappings were not scanned: their resident memory is unexplained.",
		units.Bytes(float64(s.Mappings.UnmeasuredBytes)))
	say(s.Mappings.UnknownBytes > 0,
		"%s of mappings appeared without a traced system call: their allocation sites are unknown.",
		units.Bytes(float64(s.Mappings.UnknownBytes)))

	say(s.DurationS < minConclusiveSeconds &&
		(s.Class == verdict.ClassSuspected || s.Class == verdict.ClassGrowing),
		"A trace of this length cannot tell whether this growth lasts: a leak takes 10 to 30 "+
			"minutes.")

	return append(limits, sourceLimits(s)...)
}

// withoutSource has the data that are unknown without a source.
var withoutSource = map[string]string{
	"heap":    "the allocation sites of the heap are unknown",
	"mapping": "mappings have the stacks that touched them, not those that made them",
	"fault": "memory mapped before tracing started, and copy-on-write copies, have " +
		"no stacks",
	"python":    "stacks have no Python frames",
	"tensor":    "tensors are not counted",
	"step":      "training steps are not counted",
	"breakdown": "RSS has no breakdown",
	"cuda":      "GPU memory has no stacks",
}

// sourceLimits lists the data that are unknown for want of a source.
func sourceLimits(s *summary.Summary) []string {
	var limits []string
	for _, source := range s.Sources {
		unknown := withoutSource[source.Name]
		isNeeded := source.Name != "cuda" || len(s.GPUMemory) > 0
		if source.State == summary.SourceAttached || unknown == "" || !isNeeded {
			continue
		}

		process := ""
		if source.PID != 0 {
			process = fmt.Sprintf(" in PID %d", source.PID)
		}
		limits = append(limits, "Without source "+source.Name+process+" "+unknown+".")
	}

	return limits
}

// endOf is the memory of a kind that the main process holds at the end, in bytes.
func endOf(s *summary.Summary, kind growth.Kind) (bytes float64) {
	for _, row := range s.Breakdown {
		if row.Process == s.Process.PID && row.Kind == kind {
			bytes += float64(row.EndBytes)
		}
	}
	return bytes
}

// untraced is the number of processes that are only in the timeline.
func untraced(s *summary.Summary) (n int) {
	for _, p := range s.Processes {
		if !p.Traced {
			n++
		}
	}

	for _, g := range s.Groups {
		n += max(g.Processes, 0)
	}

	return n
}

// HeapNotAttached has the data that are unknown of a process without source heap.
func HeapNotAttached(pid int) string {
	return fmt.Sprintf("Allocation sites of heap memory are unknown: source heap was not attached "+
		"to PID %d. A trace with it names the code.", pid)
}

// Shares from which on something incomplete is worth a note.
const (
	minLostStacks   = 0.1 // of the stacks
	minLostSamples  = 0.01
	minSamples      = 10       // of the growth, for its call sites
	fineInterval    = 16 << 20 // bytes between samples, whatever the growth
	minUndecidedNow = 0.25     // of the growth of all stacks
	minTreeGrowth   = 64 << 20 // bytes
	minSwapped      = 16 << 20
)

// noteLines are the gaps in the numbers, how much is missing, and the fix; the most serious first.
func noteLines(s *summary.Summary, place Place) []string {
	var notes []string
	say := func(applies bool, format string, values ...any) {
		if applies {
			notes = append(notes, fmt.Sprintf(format, values...))
		}
	}

	say(s.Ended == summary.EndedRunning, "%s", RunningText(s))
	notes = append(notes, oomNotes(s)...)                 // first: where NOTE has one line, it names the limit
	if gains, ok := s.Evidence.Gains(); ok && !grows(s) { // else WHERE has it
		notes = append(notes, gainsNote(summary.KeeperThatGains(s, gains.PerMinute))...)
	}
	unknown := freeUnknownLine(s)
	say(unknown != "" && s.MainCause() != nil, "%s", unknown) // else HOW SURE has it
	notes = append(notes, heapNote(s, place)...)
	say(s.Ended == summary.EndedExit || s.Ended == summary.EndedOutOfMemory,
		"%s after %s: this is what was seen until then", Ended(s), clockText(s.DurationS))
	notes = append(notes, conditionNotes(s.Condition)...)
	say(s.SnapshotsInSpikes && grows(s), "nearly all snapshots lie in spikes of RSS: "+
		"what WHERE names may be free again in a moment; trace longer")
	for _, note := range s.Notes {
		isHidden := note.Code == summary.NoteLimitHidden && s.Class.Grows()
		isUnnamed := note.Code == summary.NoteAllocator && s.Overhead.InBursts() && grows(s) &&
			s.MainCause() == nil
		say(isHidden, "%s", Note(note))
		say(isUnnamed, "%s", allocatorNote(note.Allocator))
	}
	notes = append(notes, containerNotes(s)...)
	say(s.RSS.PeakBytes != nil, "%s", PeakText(s.RSS))
	notes = append(notes, groupNotes(s)...)
	notes = append(notes, relatedNotes(s, place)...)
	notes = append(notes, budgetNote(s)...)
	notes = append(notes, lossNotes(s)...)
	notes = append(notes, treeNote(s, place)...)
	notes = append(notes, swappedNote(s)...)
	notes = append(notes, undecidedNote(s)...)
	for i := range s.GPUMemory {
		g := &s.GPUMemory[i]
		say(s.GPUInCharge() == nil, "GPU memory: %s", Headline(g.Verdict))
		if s.GPUInCharge() != g {
			notes = append(notes, gpuCacheLines(g)...)
		}
	}

	return notes
}

// gainsNote says which container only gains entries, while memory does not grow.
func gainsNote(k *summary.Keeper) []string {
	if k == nil {
		return nil
	}

	const text = " loses none: is it meant to grow?"
	return []string{KeeperHead(k.Paths[0], ResultWidth-labelWidth-len(text)) + text}
}

// conditionNotes say that the process did not run all the time, and that its main thread has ended.
func conditionNotes(c *summary.Condition) (notes []string) {
	if c == nil {
		return nil
	}

	for _, h := range []struct {
		halt    growth.Halt
		seconds float64
		text    string
	}{
		{growth.HaltFrozen, c.FrozenS, "frozen by its cgroup (docker pause?)"},
		{growth.HaltStopped, c.StoppedS, "stopped by a signal or a debugger"},
	} {
		if h.seconds == 0 && c.Halt != h.halt {
			continue
		}
		note := "the process was " + h.text
		if h.seconds > 0 {
			note += " for " + clockText(h.seconds)
		}
		if note += " of the trace, and cannot grow meanwhile"; c.Halt == h.halt {
			note += "; it still is"
		}
		notes = append(notes, note)
	}
	if n := c.RemainingThreads; n > 0 {
		live := units.Plural(int(n), "thread lives", "threads live")
		notes = append(notes, "its main thread has ended; "+live)
	}
	return notes
}

// swappedNote says how much of the growth is not in RAM.
func swappedNote(s *summary.Summary) []string {
	var grown float64
	for _, r := range s.Breakdown {
		if r.Process == s.Process.PID && r.Kind == growth.KindSwapped {
			grown += float64(r.DeltaBytes)
		}
	}
	if grown < minSwapped {
		return nil
	}
	return []string{units.Bytes(grown) + " were swapped out meanwhile: the verdict counts them, RSS does not"}
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

// heapSource is source heap of the main process; false: it was not asked for.
func heapSource(s *summary.Summary) (source summary.Source, ok bool) {
	i := slices.IndexFunc(s.Sources, func(of summary.Source) bool {
		return of.Name == "heap" && (of.PID == 0 || of.PID == s.Process.PID)
	})
	if i < 0 {
		return summary.Source{}, false
	}
	return s.Sources[i], true
}

// heapNote is why source heap is not attached to the main process, or misses an allocator of it.
func heapNote(s *summary.Summary, place Place) []string {
	source, ok := heapSource(s)
	if !ok {
		return nil
	}

	main := s.MainCause()
	isSeen := main != nil && main.Cause == diagnosis.HeapLeak // by the allocators that are probed
	switch {
	case isSeen && source.Gap == growth.GapAllocator && source.Detail == growth.AllocatorGo:
	case source.State == summary.SourceAttached && source.Gap == growth.GapAllocator,
		source.Reason == growth.SourceGo:
		return []string{SourceReason(source)}
	case source.State == summary.SourceFailed:
		return []string{fmt.Sprintf("malloc was not traced (%s). Fix: %sdoctor %d",
			SourceReason(source), place.sudo(), s.AskedPID())}
	}
	return nil
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
	case isCoarse && isOwnAbove(o):
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
