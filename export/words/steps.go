package words

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
)

// binary begins each command that a Result recommends.
const binary = "allocscope "

// stepTexts are the steps that are no command, and depend on nothing but their code.
var stepTexts = map[summary.StepCode]string{
	summary.StepNothing:   "nothing to fix",
	summary.StepLongLived: "let workers live longer (max_requests, maxtasksperchild), and trace one",
	summary.StepKernel:    "see what the kernel keeps for it: slabtop, open files, sockets",
	summary.StepPeaks:     "no leak to fix; to lower the peaks, see what runs in them: validation, checkpoints",
	summary.StepPeakSite:  "no leak to fix; to lower the peaks, hold less at once at that line",
	// Of fragmentation, where a limit on the arenas would not help.
	summary.StepOneArena:  "call malloc_trim(0) at times; in Python: ctypes.CDLL(None).malloc_trim(0)",
	summary.StepRecompile: "restart with TORCH_LOGS=recompiles; mark shapes that it names as dynamic",
	summary.StepDiff:      "after the fix: trace it as long again, and compare both folders by allocscope diff",
	summary.StepKeeperCycle: "set .grad to None when done, or call torch.autograd.grad(): " +
		"its graph is a cycle",
	summary.StepGraph: "keep loss.item() or tensor.detach(), not tensors with their graph",
}

// gpuSteps are what to do about each diagnosis of GPU memory.
var gpuSteps = map[gpu.Diagnosis]string{
	gpu.DiagnosisTensors: "keep loss.item() or tensor.detach().cpu(), not tensors with their graph",
	gpu.DiagnosisCacheGrows: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad inputs to few " +
		"shapes",
	gpu.DiagnosisFragmentation: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or pad inputs to few " +
		"shapes",
	gpu.DiagnosisPools:   "capture fewer shapes: pad inputs, share a pool (graph_pool_handle()), del old graphs",
	gpu.DiagnosisCache:   "torch.cuda.empty_cache() after the phase that needs most; lower its peak",
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
	summary.StepKeeperBounded: {
		"lower the limit of %s, if it takes too much when full", "lower the limit of %s",
	},
	summary.StepKeeperWarnings: {
		"warn with a text that stays the same: %s keeps each new one", "warn with a text that stays the same",
	},
	summary.StepKeeperCall: {
		"%s keeps what it has read until it ends: clear each item when done",
		"clear each item of %s when done",
	},
	summary.StepKeeperThreads: {
		"find why the threads that run %s do not end", "find why the threads of %s do not end",
	},
	summary.StepKeeperChain: {
		"cut the chain that %s begins: each object there keeps the next", "cut the chain of %s",
	},
	summary.StepKeeperDebug: {
		"call gc.set_debug(0), and clear %s: gc.DEBUG_SAVEALL keeps garbage there",
	},
	summary.StepKeeperStatic: {"find what adds to %s and removes nothing", "free what %s holds"},
	summary.StepKeeperThread: {"find what the %s still uses", "see the %s"},
	summary.StepKeeperCache: {
		"give the lru_cache of %s a maxsize, or call its cache_clear()",
	},
}

// lookSteps are keeperSteps for growth that may be meant to be.
var lookSteps = map[summary.StepCode][]string{
	summary.StepKeeperLimit: {
		"does %s have to grow? If not, give it a limit, or remove entries",
		"does %s have to grow? If not, give it a limit",
		"does %s have to grow? If not, limit it", "does %s have to grow?",
	},
}

// lookText asks about a variable. Where it is an expression, its length shows whether it grows.
func lookText(texts []string, variable string) string {
	if !strings.Contains(variable, " ") {
		variable = "len(" + variable + ")"
	}
	return fitted(texts, variable, ResultWidth-labelWidth-len("1. "))
}

// nextLines are what to do next, at most three steps.
func nextLines(s *summary.Summary, place Place) []string {
	var lines []string
	for _, step := range s.WhatNext() {
		text := stepText(s, step, place)
		switch step.When {
		case summary.StepIfLasting:
			text = "If it lasts: " + text
		case summary.StepIfResumed:
			text = "If it grows again: " + text
		case summary.StepAfterWarmup:
			text = "to see whether it ends: " + text
		case summary.StepOptional:
			text = optionalText(s) + text
		}
		lines = append(lines, text)
	}
	return lines
}

// optionalText is the purpose of a trace that is not needed.
func optionalText(s *summary.Summary) string {
	if s.Class == verdict.ClassFillsUp {
		return "to see it end: "
	}
	return "for slower leaks: "
}

// stepText is a step without its condition; empty: it needs a folder, and there is none.
func stepText(s *summary.Summary, step summary.Step, place Place) string {
	switch step.Code {
	case summary.StepNothing:
		if s.Together != nil && !s.Class.Grows() { // others fill the memory
			return "nothing to fix in this process"
		}
	case summary.StepTrace:
		flags := "--duration " + units.Duration(secondsOf(step.DurationS))
		if step.NoChildren {
			flags = "--no-children " + flags
		}
		return place.trace(step.PID, flags)
	case summary.StepSave:
		return saveStep(s)
	case summary.StepWorker:
		return workerStep(s.ReplacedGroup())
	case summary.StepUnlink:
		return unlinkStep(s)
	case summary.StepTraceNext:
		return place.longer(s, step)
	case summary.StepMark:
		return fmt.Sprintf("%smark --pid %d epoch   # during the trace, when a pass over the data ends",
			binary, step.PID)
	case summary.StepRun:
		return runText(s, step, "to see all of its heap: ")
	case summary.StepView:
		return place.view()
	case summary.StepCause:
		return causeStep(s, step.Cause)
	case summary.StepExtension:
		return extensionStep(s, step.Library)
	case summary.StepGarbage:
		return garbageStep(s.MainKeeper())
	case summary.StepLost:
		return lostStep(s.Lost)
	case summary.StepGPU:
		return gpuStep(s, gpu.Diagnosis(step.Diagnosis))
	}
	if texts := lookSteps[step.Code]; texts != nil && step.When == summary.StepLook {
		return lookText(texts, keptIn(s, step.Code))
	}
	isStack := step.Code == summary.StepKeeperThread // of which the variable has no name
	if isStack && len(s.Suspects) > 0 && s.Suspects[0].Replaced != nil {
		return causeStep(s, diagnosis.HeapLeak)
	}
	k := summary.KeeperOfStep(s)
	if step.Code == summary.StepKeeperClear && k != nil && len(k.Paths) > 0 &&
		k.Paths[0].Root.IsCall() {
		texts := []string{"%s: let that call end, or set it to None when done", "clear %s when done"}
		return fitted(texts, keptIn(s, step.Code), stepRoom)
	}
	if texts := keeperSteps[step.Code]; texts != nil {
		return fitted(texts, keptIn(s, step.Code), stepRoom)
	}
	return stepTexts[step.Code]
}

// causeStep is the remedy of a cause.
func causeStep(s *summary.Summary, cause diagnosis.Cause) string {
	text := causes[cause].step

	if k := s.UnansweredKeeper(); cause.IsOfObjects() && k != nil && k.Lost > 0 {
		missing := "free"
		if s.Objects != nil {
			missing = "Py_DECREF or free in C code"
		}
		return "look for a missing " + missing + ": no reference to them was found"
	}
	if runtime, _ := touchingRuntime(s, cause); cause == diagnosis.OlderMemory && runtime != "" {
		return languageStep(runtime, s.Process.PID)
	}
	if cause == diagnosis.HeapLeak && len(s.Suspects) > 0 && s.Suspects[0].Replaced != nil {
		place := cmp.Or(userPlace(s.Suspects[0]), "that line")
		return place + " makes one object larger and larger: give it a limit, or begin a new one"
	}
	if cause == diagnosis.HeapLeak || cause == diagnosis.MmapGrowth {
		if native := nativeStep(s, cause); native != "" {
			return native
		}
	}
	isSpread := len(s.Suspects) > 0 && s.Suspects[0].Sites > 0
	if cause == diagnosis.HeapLeak && !isSpread && len(suspectsOfNote(s.Suspects)) == 1 {
		if place := userPlace(s.Suspects[0]); place != "" {
			return strings.ReplaceAll(text, "that line", place)
		}
	}
	if s.MainCause() != nil && cause == diagnosis.HeapLeak &&
		(isSpread || len(suspectsOfNote(s.Suspects)) > 1) {
		return strings.ReplaceAll(text, "that line allocates", "these lines allocate")
	}
	return text
}

// extensionStep is the remedy where code in C allocates for a line of Python.
func extensionStep(s *summary.Summary, library string) string {
	if len(s.Suspects) > 0 {
		chain, at := s.Suspects[0].UserFrame()
		if inC := summary.OwnNative(chain[:max(0, at)]); inC != "" {
			return "look at " + libraryFrame(inC) + ": it keeps what it allocates, or lacks a free"
		}
	}
	name, _, _ := strings.Cut(library, ".cpython-")
	if slices.Contains(foreignCalls, name) && len(s.Suspects) > 0 {
		place := cmp.Or(userPlace(s.Suspects[0]), "that line")
		return "find the free that " + place + " lacks for memory of C, or what keeps it"
	}
	return "find what keeps what that line allocates, or the free that " + name + " lacks"
}

// foreignCalls are extensions by which lines of Python call functions of C: a missing free is missing
// in these lines.
var foreignCalls = []string{"_ctypes", "_cffi_backend"}

// isGoRuntime reports whether a frame is of Go's runtime, which calls mmap by cgo in some programs.
func isGoRuntime(frame string) bool {
	return strings.HasPrefix(frame, "runtime.") || strings.HasPrefix(frame, "x_cgo_")
}

// isGo reports whether the runtime of Go allocates the memory of a suspect.
func isGo(c *summary.Suspect) bool {
	return slices.ContainsFunc(c.Path, isGoRuntime)
}

// nativeStep is the remedy of a cause in a process without Python, which has no lists or dicts. It
// is empty where Python runs, or the code is not known.
func nativeStep(s *summary.Summary, cause diagnosis.Cause) string {
	hasLines := func(c summary.Suspect) bool {
		isPython := profile.FrameWithLine.MatchString
		return isPython(c.Function) || slices.ContainsFunc(c.Path, isPython) ||
			slices.ContainsFunc(c.Callers, isPython)
	}
	if s.Objects != nil || len(s.Suspects) == 0 || slices.ContainsFunc(s.Suspects, hasLines) ||
		missingPython(s) != "" {
		return ""
	}

	first := s.Suspects[0]
	if runtime, _ := first.Runtime(); runtime != "" {
		return languageStep(runtime, s.Process.PID)
	}

	file := fileOf(first.Function)
	chain, at := first.UserFrame()
	isOne := first.Sites == 0 && len(suspectsOfNote(s.Suspects)) == 1
	switch {
	case isGo(&first) && isOne && at >= 0:
		return "find what keeps what " + functionOf(chain[at]) + " allocates: Go's own heap profile helps"
	case isGo(&first):
		return "Go's own heap profile (net/http/pprof) shows what allocates it, and keeps it"
	case growth.IsInterpreter(file):
		return "find the table or cache of its script that grows: " + file + " code is not read"
	case cause == diagnosis.MmapGrowth:
		return ""
	case isOne && at >= 0 && summary.HasName(chain[at]):
		return "find what should free what " + functionOf(chain[at]) + " allocates, or what keeps it"
	case isOne:
		return "find what should free what that code allocates, or what keeps it"
	}
	return "find what should free what these call sites allocate, or what keeps it"
}

// userPlace is the file and line of the user's frame of a suspect; empty: it has none.
func userPlace(c summary.Suspect) string {
	if chain, at := c.UserFrame(); at >= 0 {
		return placeOf(chain[at])
	}
	return ""
}

// keptIn is the variable of a step about a keeper.
func keptIn(s *summary.Summary, code summary.StepCode) string {
	k := summary.KeeperOfStep(s)
	if g := s.GPUInCharge(); g != nil {
		k = s.TensorKeeper(g)
	}
	switch {
	case code == summary.StepKeeperThreads && (k == nil || len(k.Paths) == 0):
		return byFunction(s.Suspects[0].Function)
	case k == nil || len(k.Paths) == 0:
		return "the variable"
	case code == summary.StepKeeperCache:
		return k.Paths[0].Root.Owner + "()"
	case code == summary.StepKeeperCall, code == summary.StepKeeperThreads: // the function that was called, not one within it
		owner, _, _ := strings.Cut(k.Paths[0].Root.Owner, ".<locals>")
		return owner + "()"
	}
	return KeeperVariable(k.Paths[0])
}

// stepRoom is for a step with its number and a condition before it.
const stepRoom = ResultWidth - labelWidth - len("2. If it lasts: ")

// fitted is the first step that has room for a variable. Where none has, the variable is cut. A step
// without %s does without it.
func fitted(steps []string, variable string, room int) string {
	text := func(step, variable string) string { return strings.Replace(step, "%s", variable, 1) }
	for _, step := range steps {
		if text := text(step, variable); utf8.RuneCountInString(text) <= room {
			return text
		}
	}

	last := steps[len(steps)-1]
	return text(last, middleCut(variable, room-len(last)+len("%s")))
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
	case s.HasEnded():
		return runText(s, step, "trace its next run: ")
	case p.Dir == "":
		return p.trace(step.PID, "--duration "+length)
	}
	return p.trace(step.PID, "--continue "+ShellQuote(p.Dir)+" --duration "+length)
}

// maxRunChars bounds the command line of a process that is repeated for its next run.
const maxRunChars = 120

// runText is the command that starts the process by allocscope run, which asks for root's rights
// itself. Where its command line is not known, or the user has typed another one, there is no
// command.
func runText(s *summary.Summary, step summary.Step, what string) string {
	length := units.Duration(secondsOf(inMinutes(step.DurationS)))

	command := CommandLine(s.Process.Arguments)
	isTyped := s.AskedPID() == s.Process.PID && !strings.ContainsFunc(command, unicode.IsControl)
	if command == "" || !isTyped || utf8.RuneCountInString(command) > maxRunChars {
		return what + "start it by allocscope run, for " + length + " or longer"
	}
	return what + binary + "run --duration " + length + " -- " + command
}

// dir is the folder as the last argument of a command; empty: the latest one.
func (p Place) dir() string {
	if p.Dir == "" {
		return ""
	}
	return " " + ShellQuote(p.Dir)
}

func (p Place) view() string {
	if p.Dir == "" {
		return ""
	}
	return binary + "view " + ShellQuote(p.Dir) + "   # timeline, stacks, flame graph"
}
