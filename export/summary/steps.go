package summary

import (
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A Step is a step that a result recommends to its reader.
type Step struct {
	Code StepCode `json:"code"`
	// When is the condition of the step; absent: there is none.
	When StepCondition `json:"when,omitempty"`
	// Cause of StepCause, and Diagnosis of StepGPU, one of gpu.Diagnosis….
	Cause     diagnosis.Cause `json:"cause,omitempty"`
	Diagnosis string          `json:"diagnosis,omitempty"`
	// Library of StepExtension.
	Library string `json:"library,omitempty"`
	// PID of the process that StepTrace, StepTraceNext and StepMark are about, and DurationS how
	// long to trace it. NoChildren: it alone is to be traced.
	PID        int     `json:"pid,omitempty"`
	DurationS  float64 `json:"duration_s,omitempty"`
	NoChildren bool    `json:"no_children,omitempty"`
}

// A StepCode is the code of a step. Package words has the sentences.
type StepCode string

// The steps.
const (
	StepNothing   StepCode = "nothing"    // nothing is to be fixed
	StepSave      StepCode = "save"       // write a checkpoint, or raise the limit: memory ends soon
	StepLongLived StepCode = "long-lived" // let workers live longer, and trace one
	StepWorker    StepCode = "worker"     // find the keeper of the memory of each worker
	StepUnlink    StepCode = "unlink"     // unlink the files in RAM
	StepKernel    StepCode = "kernel"     // find what the kernel keeps for the job
	StepPeaks     StepCode = "peaks"      // see what runs in the spikes, to lower them
	StepPeakSite  StepCode = "peak-site"  // hold less at the call site of a spike
	StepTrace     StepCode = "trace"      // trace PID, which was not traced
	StepTraceNext StepCode = "trace-next" // trace on, or the next run where this one has ended
	StepMark      StepCode = "mark"       // mark the epochs of the process during a trace
	StepRun       StepCode = "run"        // start it by allocscope run, which sees all of its heap
	StepDiff      StepCode = "diff"       // compare with a trace of the fix
	StepView      StepCode = "view"       // look at the timeline and the stacks

	StepCause     StepCode = "cause"     // remedy of Cause
	StepOneArena  StepCode = "one-arena" // of fragmentation, where a limit of arenas would not help
	StepExtension StepCode = "extension" // find what keeps it, or the free that Library lacks
	StepRecompile StepCode = "recompile" // find out why code is compiled repeatedly
	StepGraph     StepCode = "graph"     // keep no tensors with their autograd graph
	StepGPU       StepCode = "gpu"       // remedy of Diagnosis

	// Steps about the variable that keeps the memory.
	StepKeeperLimit      StepCode = "keeper-limit"      // limit the container
	StepKeeperClear      StepCode = "keeper-clear"      // clear the variable
	StepKeeperGraph      StepCode = "keeper-graph"      // keep no graphs in it
	StepKeeperTracebacks StepCode = "keeper-tracebacks" // keep no tracebacks in it
	StepKeeperCache      StepCode = "keeper-cache"      // give the lru_cache a maximum
	StepKeeperStatic     StepCode = "keeper-static"     // native code or a library has it
	StepKeeperThread     StepCode = "keeper-thread"     // a native thread uses it
	StepKeeperBounded    StepCode = "keeper-bounded"    // lower the limit that the container has
	StepKeeperWarnings   StepCode = "keeper-warnings"   // it remembers the texts of warnings
	StepKeeperCall       StepCode = "keeper-call"       // a call that is under way keeps it
	StepKeeperThreads    StepCode = "keeper-threads"    // threads that do not end keep it
	StepKeeperChain      StepCode = "keeper-chain"      // each object of a chain keeps the next one
	StepKeeperDebug      StepCode = "keeper-debug"      // gc.garbage keeps it, by a flag for debugging
	StepKeeperCycle      StepCode = "keeper-cycle"      // a cycle of C++ objects keeps itself
	StepGarbage          StepCode = "garbage"           // break cycles, or collect garbage

	StepLost StepCode = "lost" // find the free, or the release of a reference, that is missing
)

// A StepCondition is when a step is to be taken.
type StepCondition string

// The conditions.
const (
	StepIfLasting   StepCondition = "if-lasting"    // if the growth lasts
	StepIfResumed   StepCondition = "if-resumed"    // if growth that has ended begins again
	StepLook        StepCondition = "look"          // see whether the growth is meant to be
	StepAfterWarmup StepCondition = "after-warm-up" // nothing is to be done until then
	StepOptional    StepCondition = "optional"
)

// otherProcessSeconds is how long to trace a process that grows in place of the traced one.
const otherProcessSeconds = 5 * 60

// Bounds on the trace that is advised, in seconds.
const (
	usualTraceSeconds = 5 * 60
	minTraceSeconds   = 60
	maxTraceSeconds   = 60 * 60
)

// maxSteps bounds the steps, and soonSeconds is the time to the end of memory below which a
// checkpoint comes first.
const (
	maxSteps    = 3
	soonSeconds = 30 * 60
)

// WhatNext returns what to do next by the other fields, three steps at most.
func (s *Summary) WhatNext() []Step {
	steps := s.steps()
	if s.EndsSoon() && len(steps) > 0 {
		steps = slices.DeleteFunc(steps, func(next Step) bool { // no trace decides in time
			return next.Code == StepTraceNext && next.DurationS >= s.EndsIn()
		})
		steps = append([]Step{{Code: StepSave}}, steps...)
	}
	return steps[:min(len(steps), maxSteps)]
}

// EndsSoon reports whether memory runs out so soon that a checkpoint comes first.
func (s *Summary) EndsSoon() bool {
	if s.HasEnded() || s.GPUInCharge() != nil {
		return false
	}
	return s.EndsIn() < soonSeconds
}

// EndsIn is how many seconds after the trace memory runs out, by all that grows in it; infinite where
// no limit is met.
func (s *Summary) EndsIn() float64 {
	left := math.Inf(1)
	if s.ToLimit != nil && !s.InSteps() {
		left = *s.ToLimit
	}
	if s.Together != nil {
		left = min(left, s.Together.ToLimitS)
	}
	return left
}

// steps are what to do next, whenever memory ends.
func (s *Summary) steps() []Step {
	if s.Process.PID == 0 {
		return nil
	}
	if g := s.GPUInCharge(); g != nil {
		return s.gpuSteps(g)
	}

	longer, view := s.traceNext(&s.Verdict), Step{Code: StepView}
	switch s.WhyCode {
	case verdict.ReasonWorkers:
		if g := s.GrowingGroup(); g != nil {
			d := CopiesOf(s)
			return withFirst(d != nil, Step{Code: StepCause, Cause: diagnosis.CopyOnWrite}, Step{
				Code: StepTrace, PID: g.LargestPID, DurationS: otherProcessSeconds, NoChildren: true,
			})
		}
	case verdict.ReasonReplaced:
		g := s.ReplacedGroup()
		return withFirst(g != nil && len(g.ReplacedSuspects) > 0, Step{Code: StepWorker},
			Step{Code: StepLongLived}, longer)
	case verdict.ReasonOutside:
		return s.outsideSteps(longer)
	}

	switch s.Class {
	case verdict.ClassWrongProcess:
		if s.Other == nil {
			return nil
		}
		return []Step{{Code: StepTrace, PID: s.Other.PID, DurationS: otherProcessSeconds}}
	case verdict.ClassTooShort:
		remedy, isKnown := s.remedy()
		if s.WhyCode != verdict.ReasonGrowthEnded || !isKnown {
			return []Step{longer}
		}
		remedy.When = StepIfResumed
		return []Step{longer, remedy, view}
	case verdict.ClassPlateau, verdict.ClassSpikyPlateau:
		return s.stableSteps(longer)
	case verdict.ClassFillsUp:
		return s.fillSteps(longer, view)
	case verdict.ClassSaturating:
		longer.When = StepAfterWarmup
		return []Step{longer, view}
	}

	remedy, isKnown := s.remedy()
	switch {
	case isPinned(s) && (s.WhyCode == verdict.ReasonFragmentation || s.Class == verdict.ClassLeak):
		return []Step{remedy, freeStep(s), {Code: StepDiff}}
	case isPinned(s):
		free := freeStep(s)
		free.When = StepIfLasting
		if s.Class == verdict.ClassGrowing {
			remedy.When = StepLook
		}
		return []Step{remedy, longer, free}
	case s.WhyCode == verdict.ReasonFragmentation, s.WhyCode == verdict.ReasonGarbage,
		s.WhyCode == verdict.ReasonBounded, s.Class == verdict.ClassLeak:
		return withFirst(isKnown, remedy, Step{Code: StepDiff}, view)
	case s.Class == verdict.ClassSuspected:
		return withFirst(isKnown, remedy, longer, view)
	case isKnown && remedy.isLook():
		remedy.When = StepLook
		return []Step{remedy, longer, view}
	case isKnown:
		remedy.When = StepIfLasting
		return []Step{longer, remedy, view}
	case s.isPartlySeen() && !s.Launched:
		return []Step{longer, {Code: StepRun, DurationS: usualTraceSeconds}, view}
	case s.Steps != nil:
		return []Step{longer, {Code: StepMark, PID: s.Process.PID}, view}
	}
	return []Step{longer, view}
}

// isLook reports whether a step is to read a variable or a line, for which nothing is restarted.
func (s *Step) isLook() bool {
	switch s.Code {
	case StepCause:
		switch s.Cause {
		case diagnosis.HeapLeak, diagnosis.PythonObjects, diagnosis.Tensors, diagnosis.MmapGrowth:
			return true
		}
		return false
	case StepRecompile, StepOneArena:
		return false
	}
	return true
}

// isPartlySeen reports whether calls of malloc were missed that allocscope run would see.
func (s *Summary) isPartlySeen() bool {
	return s.Evidence != nil && slices.ContainsFunc(s.Evidence.Limits, func(l Limitation) bool {
		return l.Code == LimitedBursts || l.Code == LimitedNoHeap
	})
}

// withFirst returns steps, the first one only if it is known.
func withFirst(isKnown bool, first Step, rest ...Step) []Step {
	if isKnown {
		return append([]Step{first}, rest...)
	}
	return rest
}

// outsideSteps are the steps about memory that no process of the tree holds.
func (s *Summary) outsideSteps(longer Step) []Step {
	step := Step{Code: StepKernel}
	switch o := s.Outside; {
	case o == nil:
	case o.Kind == conclude.OutsideFiles:
		step.Code = StepUnlink
	case o.Process != nil && s.HasEnded(): // as it may have, too
		return []Step{longer}
	case o.Process != nil:
		step = Step{Code: StepTrace, PID: o.Process.PID, DurationS: otherProcessSeconds}
	}
	return []Step{step, longer}
}

// traceNext is the trace that a verdict needs.
func (s *Summary) traceNext(v *Verdict) Step {
	step := Step{Code: StepTraceNext, PID: s.AskedPID(), DurationS: usualTraceSeconds}
	longer := v.WatchLonger
	if v.Evidence != nil && v.Evidence.UntilLeak != nil {
		longer = v.Evidence.UntilLeak
	}
	if longer != nil {
		step.DurationS = *longer
	}
	if v.ToLimit != nil {
		step.DurationS = min(step.DurationS, *v.ToLimit)
	}
	step.DurationS = max(minTraceSeconds, min(step.DurationS, s.EndsIn(), maxTraceSeconds))
	return step
}

// AskedPID is the PID that the user has named.
func (s *Summary) AskedPID() int {
	if s.Asked != 0 {
		return s.Asked
	}
	return s.Process.PID
}

// HasEnded reports whether the process has ended.
func (s *Summary) HasEnded() bool {
	return s.TargetEnded || s.Ended == EndedExit || s.Ended == EndedOutOfMemory
}

// stableSteps are the steps where nothing grows: about spikes, and to exclude a slower leak.
func (s *Summary) stableSteps(longer Step) []Step {
	step := Step{Code: StepNothing}
	switch {
	case s.WhyCode == verdict.ReasonPageCache:
		step = Step{Code: StepCause, Cause: diagnosis.PageCache}
	case s.SpikeSuspect() != nil:
		step.Code = StepPeakSite
	case s.Class == verdict.ClassSpikyPlateau && s.HasHighSpikes():
		step.Code = StepPeaks
	}

	if s.WatchLonger != nil && *s.WatchLonger > 0 && *s.WatchLonger <= maxTraceSeconds {
		longer.When = StepOptional
		return []Step{step, longer}
	}
	return []Step{step}
}

// untilFlat is how long a trace goes on behind the moment when memory of a known size is full, to see
// that it is flat then.
const untilFlat = 3 * 60

// fillSteps are the steps where the growth ends by itself: none, and a trace that sees the end.
func (s *Summary) fillSteps(longer, view Step) []Step {
	steps := []Step{{Code: StepNothing}}
	if k := s.MainKeeper(); s.Fill != nil && s.Fill.Of == verdict.BoundContainer && k != nil {
		steps[0].Code = s.keeperStep(k)
	}
	if f := s.Fill; f != nil && f.In != nil && *f.In+untilFlat <= maxTraceSeconds {
		longer.When, longer.DurationS = StepOptional, max(minTraceSeconds, *f.In+untilFlat)
		steps = append(steps, longer)
	}
	return append(steps, view)
}

// minSpikeShare is the height of spikes, as a share of the level, that is worth a word.
const minSpikeShare = 0.1

// HasHighSpikes reports whether spikes are high enough to be worth a word.
func (v *Verdict) HasHighSpikes() bool {
	return v.Spikes != nil && v.LevelBytes != nil &&
		v.Spikes.HeightBytes >= minSpikeShare**v.LevelBytes
}

// SpikeSuspect is the code behind the spikes of a process that does not grow; nil: it is not known.
func (s *Summary) SpikeSuspect() *Suspect {
	if s.Class != verdict.ClassSpikyPlateau || !s.SpikeMemory.IsCaptured() {
		return nil
	}
	return s.SpikeMemory.Captured.Suspect
}

// mayBeWarmup reports whether the growth may be a warm-up, in which many lines allocate.
func (v *Verdict) mayBeWarmup() bool {
	return v.Class == verdict.ClassGrowing || v.WhyCode == verdict.ReasonGrowthEnded
}

// componentSteps are what to do first where a heap leak is of a component with a known cause.
var componentSteps = map[string]StepCode{
	"dynamo":           StepRecompile,
	"inductor-compile": StepRecompile,
	"inductor-run":     StepRecompile,
	"autograd":         StepGraph,
}

// remedy is what to do about the main cause, if that is known.
func (s *Summary) remedy() (step Step, isKnown bool) {
	switch {
	case s.MainKeeper().IsCycle():
		return Step{Code: StepKeeperCycle}, true
	case s.Lost != nil:
		return Step{Code: StepLost}, true
	}

	main := s.MainCause()
	isRecompiled := len(s.Suspects) > 0 && s.Suspects[0].NewCodePerMin > 0
	isOfObjects := main != nil && main.Cause.IsOfObjects()
	if main == nil || isOfObjects {
		k := KeeperOfStep(s)
		if k != nil && !isRecompiled && !k.isUnnamed() {
			return Step{Code: s.keeperStep(k)}, true
		}
		if _, pileUp := s.Evidence.Threads(); pileUp && k == nil && len(s.Suspects) > 0 {
			return Step{Code: StepKeeperThreads}, true
		}
	}
	if main == nil {
		isKnown := len(s.Suspects) > 0 &&
			(!s.mayBeWarmup() || s.Suspects[0].isMost() || s.Suspects[0].isOfRuntime())
		return Step{Code: StepCause, Cause: diagnosis.HeapLeak}, isKnown
	}

	switch {
	case main.Cause == diagnosis.Fragmentation && isPinned(s):
		return Step{Code: s.keeperStep(s.MainKeeper())}, true
	case main.Cause == diagnosis.Fragmentation:
		return freeStep(s), true
	case isOfObjects && isRecompiled:
		return Step{Code: StepRecompile}, true
	case len(s.Suspects) == 0 || main.Cause == diagnosis.Tensors:
		return Step{Code: StepCause, Cause: main.Cause}, true
	}

	first := &s.Suspects[0]
	library, code := first.extension(), componentSteps[first.Component]
	switch {
	case main.Cause == diagnosis.HeapLeak && library != "":
		return Step{Code: StepExtension, Library: library}, true
	case isOfObjects && code != "":
		return Step{Code: code}, true
	}
	return Step{Code: StepCause, Cause: main.Cause}, true
}

// isPinned reports whether most of the growth is freed memory, and it is known who keeps the objects
// that can pin it.
func isPinned(s *Summary) bool {
	_, ok := s.Evidence.Pins()
	k := s.MainKeeper()
	return ok && k != nil && !k.isUnnamed()
}

// freeStep is what to do about freed memory that malloc keeps. A limit on the arenas would not help
// where there is one.
func freeStep(s *Summary) Step {
	if s.MainResident().Arenas < 2 {
		return Step{Code: StepOneArena}
	}
	return Step{Code: StepCause, Cause: diagnosis.Fragmentation}
}

// isOfRuntime reports whether a runtime allocates the memory: its tools show the objects.
func (c *Suspect) isOfRuntime() bool {
	runtime, _ := c.Runtime()
	return runtime != ""
}

// isUnnamed reports whether a static variable without a symbol keeps the memory: there is nothing to
// look up.
func (k *Keeper) isUnnamed() bool {
	return len(k.Paths) > 0 && k.Paths[0].Root.Kind == keeper.RootStatic && k.Paths[0].Root.Name == ""
}

// keeperStep is what to do about the memory that a keeper holds.
func (s *Summary) keeperStep(k *Keeper) StepCode {
	if len(k.Paths) == 0 || k.Paths[0].Share < MinKeeperShare {
		return StepGarbage
	}

	path := &k.Paths[0]
	_, pileUp := s.Evidence.Threads()
	switch {
	case pileUp && path.Root.Kind == keeper.RootLocal &&
		!slices.ContainsFunc(path.Links, isGrowingContainer):
		return StepKeeperThreads // each has a variable of that name
	case slices.ContainsFunc(path.Links, func(l keeper.Link) bool { return l.Limit > 0 }):
		return StepKeeperBounded
	case path.Root.Kind == keeper.RootCache:
		return StepKeeperCache
	case path.Root.Kind == keeper.RootStatic:
		return StepKeeperStatic
	case path.Root.Kind == keeper.RootThread:
		return StepKeeperThread
	case path.Root.Module == "gc" && path.Root.Name == "garbage":
		return StepKeeperDebug
	case path.Root.Name == "__warningregistry__":
		return StepKeeperWarnings
	case path.Root.IsCall() && path.Root.File != "" &&
		!growth.IsUserCode(path.Root.Owner, path.Root.File, path.Root.Line) &&
		!slices.ContainsFunc(path.Links, isGrowingContainer):
		return StepKeeperCall
	case hasType(path, "traceback"):
		return StepKeeperTracebacks
	case s.keepsGraphs(path):
		return StepKeeperGraph
	case isOfLibrary(path):
		return StepKeeperStatic // the user can change the code that adds to it, alone
	case slices.ContainsFunc(path.Links, isGrowingContainer):
		return StepKeeperLimit
	case slices.ContainsFunc(path.Links, func(l keeper.Link) bool { return l.Repeated }):
		return StepKeeperChain
	case slices.ContainsFunc(path.Links, func(l keeper.Link) bool { return l.Entries >= 0 }):
		return StepKeeperLimit
	}
	return StepKeeperClear
}

// isOfLibrary reports whether a library's own variable is the container that grows, as
// weakref.finalize._registry.
func isOfLibrary(p *keeper.Path) bool {
	return p.Root.File != "" && !p.Root.IsCall() && !growth.IsUserCode("", p.Root.File, 1) &&
		len(p.Links) > 0 && isGrowingContainer(p.Links[0])
}

// isGrowingContainer is true of a container that grows, as a queue that is filled faster than the
// call empties it: the code can limit it.
func isGrowingContainer(l keeper.Link) bool { return l.IsContainer() && l.PerMinute > 0 }

// keepsGraphs reports whether a path leads to tensors that keep the graph that computed them.
func (s *Summary) keepsGraphs(p *keeper.Path) bool {
	if len(s.Suspects) > 0 && s.Suspects[0].Component == "autograd" {
		return true
	}
	return hasType(p, "torch.Tensor") && s.Objects != nil &&
		slices.ContainsFunc(s.Objects.Tensors, func(g TensorGroup) bool {
			// A single one may be of the step that is under way.
			return g.GrowthTensors != nil && *g.GrowthTensors > 1 && 2*g.WithGradFn > *g.GrowthTensors
		})
}

func hasType(p *keeper.Path, name string) bool {
	return slices.ContainsFunc(p.Links, func(l keeper.Link) bool { return l.Type == name })
}

// gpuSteps are what to do about GPU memory that grows.
func (s *Summary) gpuSteps(g *GPUMemory) []Step {
	remedy := Step{Code: StepGPU, Diagnosis: g.Diagnosis}
	isKnown := gpu.Diagnosis(g.Diagnosis).IsOfGrowth()
	if k := s.TensorKeeper(g); k != nil {
		remedy, isKnown = Step{Code: s.keeperStep(k)}, true
	}
	return withFirst(isKnown, remedy, s.traceNext(&g.Verdict), Step{Code: StepView})
}
