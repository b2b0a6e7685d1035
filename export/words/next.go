package words

import (
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// binary begins each command that a Result recommends.
const binary = "allocscope "

// componentSteps are what to do first where a heap leak is of a component with a known cause.
var componentSteps = map[string]string{
	"dynamo":           recompileStep,
	"inductor-compile": recompileStep,
	"inductor-run":     recompileStep,
	"autograd":         "keep loss.item() or tensor.detach(), not tensors with their graph",
}

// oneArenaStep is what to do about fragmentation where a limit on the arenas would not help.
const oneArenaStep = "restart with LD_PRELOAD=libjemalloc.so.2, or call malloc_trim(0) now and then"

const recompileStep = "TORCH_LOGS=recompiles shows why; mark changing shapes as dynamic"

// nextLines are what to do next, at most three steps.
func nextLines(s *summary.Summary, place Place) []string {
	if s.Process.PID == 0 {
		return nil
	}

	switch s.Class {
	case verdict.ClassWrongProcess:
		if s.Other == nil {
			return nil
		}
		return []string{place.trace(s.Other.PID, "--duration 5m")}
	case verdict.ClassTooShort:
		return []string{place.longer(s, s.Verdict)}
	case verdict.ClassPlateau, verdict.ClassSpikyPlateau:
		return stableSteps(s, place)
	case verdict.ClassSaturating:
		return []string{"nothing now; after the warm-up: " + place.longer(s, s.Verdict), place.view()}
	}

	step := causeStep(s)
	switch {
	case s.WhyCode == verdict.ReasonFragmentation, s.Class == verdict.ClassLeak:
		return []string{step, place.diff(), place.view()}
	case s.Class == verdict.ClassSuspected:
		return []string{step, place.longer(s, s.Verdict), place.view()}
	case step != "":
		return []string{place.longer(s, s.Verdict), "If it lasts: " + step, place.view()}
	}
	return []string{place.longer(s, s.Verdict), fmt.Sprintf(
		"%smark --pid %d epoch   # during the trace, when a pass over the data ends", binary,
		s.Process.PID,
	), place.view()}
}

// causeStep is what to do about the main cause; empty: it is not known.
func causeStep(s *summary.Summary) string {
	main := mainCause(s)
	isRecompiled := len(s.Suspects) > 0 && s.Suspects[0].NewCodePerMin > 0
	if main == nil || main.Cause == diagnosis.HeapLeak || main.Cause == diagnosis.PythonObjects {
		if k := mainKeeper(s); k != nil && !isRecompiled {
			return keeperStep(s, k)
		}
	}
	if main == nil {
		if s.Class == verdict.ClassGrowing || len(s.Suspects) == 0 {
			return ""
		}
		return causes[diagnosis.HeapLeak].step
	}

	objects := main.Cause == diagnosis.HeapLeak || main.Cause == diagnosis.PythonObjects
	switch {
	case main.Cause == diagnosis.Fragmentation && ResidentOf(s).Arenas < 2:
		return oneArenaStep
	case objects && isRecompiled:
		return recompileStep
	case main.Cause == diagnosis.HeapLeak && extensionOf(s) != "":
		return "find what keeps what that line allocates, or the free that " + extensionOf(s) + " lacks"
	case objects && len(s.Suspects) > 0 && componentSteps[s.Suspects[0].Component] != "":
		return componentSteps[s.Suspects[0].Component]
	}
	if main.Cause == diagnosis.HeapLeak && len(suspectsOfNote(s.Suspects)) > 1 {
		return strings.ReplaceAll(causes[main.Cause].step, "that line allocates", "these lines allocate")
	}
	return causes[main.Cause].step
}

// extensionOf is the native library that the user's code calls directly; empty: it calls none.
func extensionOf(s *summary.Summary) string {
	if len(s.Suspects) == 0 {
		return ""
	}
	chain, at := userFrame(s.Suspects[0])
	if at < 0 {
		return ""
	}
	_, file, _ := strings.Cut(strings.TrimSuffix(calleeOf(chain[:at]), ")"), " (")
	if !strings.HasSuffix(file, ".so") || strings.HasPrefix(file, "libc.") {
		return ""
	}
	return file
}

// stableSteps say what excludes a slower leak, and what to do about spikes.
func stableSteps(s *summary.Summary, place Place) []string {
	steps := []string{"nothing to fix"}
	if s.Class == verdict.ClassSpikyPlateau {
		steps[0] = "no leak to fix; to lower the peaks, see what runs in them: validation, checkpoints"
	}
	if spikeSuspect(s) != nil {
		steps[0] = "no leak to fix; to lower the peaks, hold less at once at that line"
	}
	if s.WhyCode == verdict.ReasonPageCache {
		steps[0] = causes[diagnosis.PageCache].step
	}
	if s.WatchLongerS != nil && *s.WatchLongerS > 0 {
		steps = append(steps, "optional: "+place.longer(s, s.Verdict))
	}
	return steps
}

// sudo begins a command that needs root's rights.
func (p Place) sudo() string {
	if p.Sudo {
		return "sudo " + binary
	}
	return binary
}

func (p Place) trace(pid int, flags string) string {
	return fmt.Sprintf("%strace %d %s", p.sudo(), pid, flags)
}

// longer is the command that traces for as long as the verdict needs: a trace that goes on from
// this one, or one of the next run where the process has ended.
func (p Place) longer(s *summary.Summary, v summary.Verdict) string {
	const shortest = 5 * 60
	seconds := float64(shortest)
	if v.WatchLongerS != nil {
		seconds = max(60, min(*v.WatchLongerS, maxLongerSeconds))
	}

	length := units.Duration(secondsOf(inMinutes(seconds)))
	pid := askedPID(s)
	switch {
	case hasEnded(s) && s.Launched:
		return "run it again: " + binary + "run --duration " + length + " -- COMMAND"
	case hasEnded(s):
		return "trace its next run: " + p.sudo() + "trace PID --duration " + length
	case p.Dir == "":
		return p.trace(pid, "--duration "+length)
	}
	return p.trace(pid, "--continue "+ShellQuote(p.Dir)+" --duration "+length)
}

// askedPID is the PID that the user has named.
func askedPID(s *summary.Summary) int {
	if s.Asked != 0 {
		return s.Asked
	}
	return s.Process.PID
}

// hasEnded reports whether the process has ended.
func hasEnded(s *summary.Summary) bool {
	return s.TargetEnded || s.Ended == summary.EndedExit || s.Ended == summary.EndedOutOfMemory
}

// VerdictAtEnd returns a verdict as it is at the end of a trace: without the time to its limit if the
// process has ended.
func VerdictAtEnd(s *summary.Summary, v summary.Verdict) summary.Verdict {
	if hasEnded(s) {
		v.SecondsToLimit, v.SecondsToLimitLow, v.SecondsToLimitHigh = nil, nil, nil
		v.StepsToLimit, v.StepsToLimitLow, v.StepsToLimitHigh = nil, nil, nil
	}
	return v
}

func (p Place) view() string {
	if p.Dir == "" {
		return ""
	}
	return binary + "view " + ShellQuote(p.Dir) + "   # timeline, stacks, flame graph"
}

// diff is the command that shows whether a fix has helped.
func (p Place) diff() string {
	if p.Dir == "" {
		return ""
	}
	return binary + "diff " + ShellQuote(p.Dir) + " AFTER   # AFTER: the folder of a trace of the fix"
}

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
	say(unknown != "" && mainCause(s) != nil, "%s", unknown) // else HOW SURE has it
	say(s.Ended == summary.EndedExit || s.Ended == summary.EndedOutOfMemory, "%s after %s: this is what was seen until then", Ended(s), clockText(s.DurationS))
	heap := heapFailed(s)
	say(heap != "", "malloc was not traced (%s). Fix: %sdoctor %d", heap, place.sudo(), askedPID(s))
	for _, note := range s.Notes {
		isHidden := note.Code == summary.NoteLimitHidden && s.Class.Grows()
		isUnnamed := note.Code == summary.NoteAllocator && s.Overhead.InBursts() && grows(s) &&
			mainCause(s) == nil
		say(isHidden || isUnnamed, "%s", note.Text)
	}
	notes = append(notes, budgetNote(s)...)
	notes = append(notes, lossNotes(s)...)
	notes = append(notes, treeNote(s)...)
	for _, g := range s.Groups {
		say(g.Verdict.Grows() && g.RateBytesPerMin != nil, "%s", Group(g))
	}
	for _, o := range s.Related {
		say(true, "PID %d (%s) of the same job grew by %s: %strace %d", o.PID,
			o.Command, units.Bytes(float64(o.GrowthBytes)), place.sudo(), o.PID)
	}
	notes = append(notes, undecidedNote(s)...)
	for _, g := range s.GPUMemory {
		say(gpuInCharge(s) == nil, "GPU memory: %s", Headline(g.Verdict))
	}

	return notes
}

// treeNote is the growth of the other processes of the tree, where they grow more than the judged
// process.
func treeNote(s *summary.Summary) []string {
	own, tree := BreakdownOf(s.Breakdown, s.Process.PID), BreakdownOf(s.Breakdown, 0)
	others, grown := OtherProcesses(s), tree.Sum().Delta-own.Sum().Delta
	if others == 0 || grown < minTreeGrowth || grown < own.Sum().Delta {
		return nil
	}
	return []string{fmt.Sprintf("%s of the tree grew by %s: %sshow --details",
		units.Plural(others, "other process", "other processes"), units.Bytes(grown), binary)}
}

// heapFailed is why source heap is not attached to the main process; empty: it is, or was not asked
// for.
func heapFailed(s *summary.Summary) string {
	for _, source := range s.Sources {
		isOwn := source.PID == 0 || source.PID == s.Process.PID
		if source.Name == "heap" && isOwn && source.State == summary.SourceFailed {
			return source.Reason
		}
	}
	return ""
}

// budgetNote reports where the overhead has exceeded its limit.
func budgetNote(s *summary.Summary) []string {
	o := s.Overhead
	if o == nil || o.Limit <= 0 {
		return nil
	}

	slowdown := o.Slowdown != nil && *o.Slowdown > maxExcess*o.Limit
	traced := s.DurationS - s.BeganS()
	own := isOwnAbove(s) && traced > 0
	switch {
	case slowdown:
		return []string{fmt.Sprintf("over budget: the job ran %s slower (%s); %s",
			units.Percent(*o.Slowdown), OverheadLimit(o), holdsText(s))}
	case own:
		return []string{fmt.Sprintf("over budget: allocscope used %.3f of a core (limit %.3f); %s",
			o.OwnS/traced, o.OwnLimitS/traced, holdsText(s))}
	}
	return nil
}

// holdsText is the part of the result that holds although a trace took too much. Calls of one
// process make the sampling coarser for all: then growth of another one may have few samples, or
// none.
func holdsText(s *summary.Summary) string {
	own := BreakdownOf(s.Breakdown, s.Process.PID)
	grown := own.Sum().Delta
	interval := float64(s.Overhead.IntervalBytes)
	if grows(s) && interval > max(fineInterval, grown/minSamples) {
		return fmt.Sprintf("samples are few: one in %s", units.Bytes(interval))
	}
	return "the result holds"
}

// lossNotes are the losses that change the result, the largest first.
func lossNotes(s *summary.Summary) []string {
	var notes []string
	said, isSaid := freeUnknown(s)
	for _, l := range s.Losses {
		switch {
		case isSaid && l.Code == said.Kind:
		case l.Code == growth.LossTruncatedStacks &&
			float64(l.Count) > minLostStacks*float64(s.Events.Stacks):
			notes = append(notes, fmt.Sprintf("%s of the stacks are truncated, their sizes are right",
				units.WholePercent(min(1, float64(l.Count)/float64(max(1, s.Events.Stacks))))))
		case l.Code == growth.LossUnknownStacks &&
			float64(l.Count) > minLostStacks*float64(s.Events.Stacks):
			notes = append(notes, fmt.Sprintf("incomplete: %d %s", l.Count, l.Reason))
		case claim.Takes(l.Code, claim.LiveObjects) &&
			float64(l.Count) > minLostSamples*float64(s.Events.Samples):
			notes = append(notes, fmt.Sprintf("incomplete: %d %s", l.Count, l.Reason))
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
