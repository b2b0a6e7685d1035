package words

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/gpu"
)

// binary begins each command that a Result recommends.
const binary = "allocscope "

// stepTexts are the steps that are no command, and depend on nothing but their code.
var stepTexts = map[summary.StepCode]string{
	summary.StepNothing:  "nothing to fix",
	summary.StepPeaks:    "no leak to fix; to lower the peaks, see what runs in them: validation, checkpoints",
	summary.StepPeakSite: "no leak to fix; to lower the peaks, hold less at once at that line",
	// Of fragmentation, where a limit on the arenas would not help.
	summary.StepOneArena:  "restart with LD_PRELOAD=libjemalloc.so.2, or call malloc_trim(0) now and then",
	summary.StepRecompile: "TORCH_LOGS=recompiles shows why; mark changing shapes as dynamic",
	summary.StepGraph:     "keep loss.item() or tensor.detach(), not tensors with their graph",
	summary.StepGarbage:   "break the cycles of references, or call gc.collect() now and then",
}

// gpuSteps are what to do about each diagnosis of GPU memory.
var gpuSteps = map[gpu.Diagnosis]string{
	gpu.DiagnosisTensors: "keep loss.item() or tensor.detach().cpu(), not tensors with their graph",
	gpu.DiagnosisFragmentation: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad inputs to few " +
		"shapes",
	gpu.DiagnosisDriver:  "reuse process groups and their communicators; look at extensions",
	gpu.DiagnosisContext: "look for kernels that are loaded or compiled repeatedly",
}

// keeperSteps are what to do where the keeper is known. %s is the variable. The first that has room
// is taken.
var keeperSteps = map[summary.StepCode][]string{
	summary.StepKeeperLimit: {
		"give %s a limit, or remove entries when done", "give %s a limit", "limit %s",
	},
	summary.StepKeeperGraph: {
		"keep loss.item() or tensor.detach() in %s, not tensors with their graph",
		"keep loss.item() or tensor.detach() in %s",
	},
	summary.StepKeeperTracebacks: {
		"keep the texts of exceptions in %s, not their tracebacks", "keep no tracebacks in %s",
	},
	summary.StepKeeperClear: {
		"set %s to None when done, or keep less in it", "clear %s when done",
	},
	summary.StepKeeperStatic: {"find what adds to %s and removes nothing", "free what %s holds"},
	summary.StepKeeperThread: {"find what the %s still uses", "see the %s"},
	summary.StepKeeperCache: {
		"give the lru_cache of %s a maxsize, or call its cache_clear()",
	},
}

// nextLines are what to do next, at most three steps.
func nextLines(s *summary.Summary, place Place) []string {
	var lines []string
	for _, step := range s.WhatNext() {
		text := stepText(s, step, place)
		switch step.When {
		case summary.StepIfLasting:
			text = "If it lasts: " + text
		case summary.StepAfterWarmup:
			text = "nothing now; after the warm-up: " + text
		case summary.StepOptional:
			text = "optional: " + text
		}
		lines = append(lines, text)
	}
	return lines
}

// stepText is a step without its condition; empty: it needs a folder, and there is none.
func stepText(s *summary.Summary, step summary.Step, place Place) string {
	switch step.Code {
	case summary.StepTrace:
		return place.trace(step.PID, "--duration "+units.Duration(secondsOf(step.DurationS)))
	case summary.StepTraceNext:
		return place.longer(s, step)
	case summary.StepMark:
		return fmt.Sprintf("%smark --pid %d epoch   # during the trace, when a pass over the data ends",
			binary, step.PID)
	case summary.StepDiff:
		return place.diff()
	case summary.StepView:
		return place.view()
	case summary.StepCause:
		return causeStep(s, step.Cause)
	case summary.StepExtension:
		return "find what keeps what that line allocates, or the free that " + step.Library + " lacks"
	case summary.StepLost:
		return lostStep(s.Lost)
	case summary.StepGPU:
		return gpuSteps[gpu.Diagnosis(step.Diagnosis)]
	}
	if texts := keeperSteps[step.Code]; texts != nil {
		return fitted(texts, keptIn(s, step.Code))
	}
	return stepTexts[step.Code]
}

// causeStep is the remedy of a cause.
func causeStep(s *summary.Summary, cause diagnosis.Cause) string {
	text := causes[cause].step
	if s.MainCause() != nil && cause == diagnosis.HeapLeak && len(suspectsOfNote(s.Suspects)) > 1 {
		return strings.ReplaceAll(text, "that line allocates", "these lines allocate")
	}
	return text
}

// keptIn is the variable of a step about a keeper.
func keptIn(s *summary.Summary, code summary.StepCode) string {
	k := s.MainKeeper()
	if g := s.GPUInCharge(); g != nil {
		k = s.TensorKeeper(g)
	}
	switch {
	case k == nil || len(k.Paths) == 0:
		return "the variable"
	case code == summary.StepKeeperCache:
		return k.Paths[0].Root.Owner + "()"
	}
	return KeeperVariable(k.Paths[0])
}

// stepRoom is for a step with its number and a condition before it.
const stepRoom = ResultWidth - labelWidth - len("2. If it lasts: ")

// fitted is the first step that has room for a variable. Where none has, the variable is cut.
func fitted(steps []string, variable string) string {
	for _, step := range steps {
		text := fmt.Sprintf(step, variable)
		if utf8.RuneCountInString(text) <= stepRoom {
			return text
		}
	}
	last := steps[len(steps)-1]
	room := stepRoom - len(last) + len("%s") - len("...")
	return fmt.Sprintf(last, string([]rune(variable)[:room])+"...")
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

// longer is the command of a trace that goes on from this one, or of one of the next run where the
// process has ended.
func (p Place) longer(s *summary.Summary, step summary.Step) string {
	length := units.Duration(secondsOf(inMinutes(step.DurationS)))
	switch {
	case s.HasEnded() && s.Launched:
		return "run it again: " + binary + "run --duration " + length + " -- COMMAND"
	case s.HasEnded():
		return "trace its next run: " + p.sudo() + "trace PID --duration " + length
	case p.Dir == "":
		return p.trace(step.PID, "--duration "+length)
	}
	return p.trace(step.PID, "--continue "+ShellQuote(p.Dir)+" --duration "+length)
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
