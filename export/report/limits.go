package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// limitsOf lists what the numbers of this trace do not cover, a sentence each.
func limitsOf(s *summary.Summary) []string {
	var limits []string
	say := func(applies bool, format string, values ...any) {
		if applies {
			limits = append(limits, fmt.Sprintf(format, values...))
		}
	}

	say(s.IntervalBytes > 1 && words.HeapKnown(s),
		"Sizes by stack are estimates from one sample every %s: a number from twenty samples or "+
			"fewer is only an order of magnitude.",
		units.Bytes(float64(s.IntervalBytes)))
	limits = append(limits, burstLimits(s)...)
	before := endOf(s, growth.KindBeforeTracing)
	say(before > 0,
		"%s of %s were allocated before tracing started and are still resident: their allocation "+
			"sites are unknown.",
		units.Bytes(before), pidText(s.Process.PID))
	swapped := endOf(s, growth.KindSwapped)
	say(swapped > 0, "%s of %s are swapped out, and so not in RSS.", units.Bytes(swapped),
		pidText(s.Process.PID))
	say(endOf(s, growth.KindDeviceFile) > 0 && len(s.GPUMemory) == 0,
		"Device files count as far as they are mapped. GPU memory is not traced.")
	n := untraced(s)
	say(n > 0, "%s not traced: the timeline and the tables include %s memory, without stacks.",
		units.Plural(n, "process of the tree is", "processes of the tree are"), itsOrTheir(n))
	scanned := words.Scanned(words.ResidentOf(s))
	say(scanned != "", "%s of the pages were scanned; the rest is extrapolated.", scanned)
	say(s.Mappings.UnmeasuredBytes > 0,
		"%s of mappings were not scanned: their resident memory is unexplained.",
		units.Bytes(float64(s.Mappings.UnmeasuredBytes)))
	say(s.Mappings.UnknownBytes > 0,
		"%s of mappings appeared without a traced system call: their allocation sites are unknown.",
		units.Bytes(float64(s.Mappings.UnknownBytes)))
	unsure := s.DurationS < minConclusiveSeconds &&
		(s.Class == verdict.ClassSuspected || s.Class == verdict.ClassGrowing)
	say(unsure,
		"A trace of this length cannot tell whether this growth lasts: a leak takes 10 to 30 "+
			"minutes.")

	for _, source := range s.Sources {
		if source.Name == "cuda" && len(s.GPUMemory) == 0 {
			continue // there is no GPU memory to miss
		}
		say(source.State != summary.SourceAttached && sourceLimits[source.Name] != "",
			"Without source %s%s %s.", source.Name, pidNote(source.PID), sourceLimits[source.Name])
	}

	return limits
}

// minConclusiveSeconds is the length of a trace that separates a leak from most other growth.
const minConclusiveSeconds = 30 * 60

// sourceLimits is what is unknown without a source.
var sourceLimits = map[string]string{
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

func pidNote(pid int) string {
	if pid == 0 {
		return ""
	}
	return " in " + pidText(pid)
}

func itsOrTheir(n int) string {
	if n == 1 {
		return "its"
	}
	return "their"
}

// endOf is what the process holds of a kind at the end, in bytes.
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

func sourcesOf(s *summary.Summary) []sourceView {
	var sources []sourceView
	for _, source := range s.Sources {
		pid := "all"
		if source.PID != 0 {
			pid = fmt.Sprint(source.PID)
		}
		sources = append(sources, sourceView{source.Name, pid, source.State, source.Reason})
	}

	return sources
}

// setupOf is what it takes to repeat the trace.
func setupOf(s *summary.Summary) []fact {
	interval := units.Bytes(float64(s.IntervalBytes))
	if s.IntervalBytes <= 1 {
		interval = "every allocation"
	}

	var attached []string
	for _, source := range s.Sources {
		if source.State == summary.SourceAttached && !slices.Contains(attached, source.Name) {
			attached = append(attached, source.Name)
		}
	}

	return []fact{
		{"allocscope", s.Version, ""},
		{"Kernel", s.Kernel, s.Architecture},
		{"Sampling interval", interval, ""},
		{"Overhead", words.OverheadLimit(s.Overhead), ""},
		{"Sources", strings.Join(attached, ", "), ""},
		{
			"Started", s.Started.Format("2006-01-02 15:04:05 MST"),
			"for " + units.Seconds(s.DurationS),
		},
		{"Program", s.Process.Executable, ""},
	}
}

// pprofCommandsOf are commands for the folder of the report.
func pprofCommandsOf(data pageData) []string {
	if len(data.GPUFlames) == 0 {
		return pprofCommands
	}
	return append(slices.Clone(pprofCommands),
		"go tool pprof -top -sample_index=device_space "+folder.GrowthFile)
}

var pprofCommands = []string{
	"go tool pprof -http=: " + folder.GrowthFile,
	"go tool pprof -top -tagfocus=trend=accumulating " + folder.GrowthFile,
	"go tool pprof -top -tagroot=component " + folder.GrowthFile,
	"go tool pprof -top -diff_base=" + folder.WarmupFile + " " + folder.PlateauFile,
}

// probingOf returns the times when the heap was sampled in bursts, or not at all: between the
// changes, wherever the mode is not full.
func probingOf(s *summary.Summary) []phaseBand {
	bands := []phaseBand{}
	if s.Overhead == nil || !words.HeapKnown(s) {
		return bands
	}

	mode, from := s.Overhead.Mode, 0.0
	if len(s.Overhead.Changes) > 0 {
		mode = summary.HeapFull
	}

	until := func(at float64) {
		if at > from && (mode == summary.HeapBursts || mode == summary.HeapOff) {
			bands = append(bands, phaseBand{span{from, at}, mode, words.HeapMode(mode)})
		}
	}

	for _, c := range s.Overhead.Changes {
		if c.Mode != mode {
			until(c.AtS)
			mode, from = c.Mode, c.AtS
		}
	}

	until(s.DurationS)
	return bands
}

// changesOf are the changes of what is probed, by the mode where that changed.
func changesOf(s *summary.Summary) []markLine {
	lines, mode := []markLine{}, summary.HeapFull
	for _, c := range changesIn(s) {
		text := c.Text
		if c.Mode != mode {
			text = words.HeapMode(c.Mode)
		}
		mode = c.Mode
		lines = append(lines, markLine{c.AtS, text})
	}

	return lines
}

// changesIn are the changes of the summary.
func changesIn(s *summary.Summary) []summary.OverheadChange {
	if s.Overhead == nil {
		return nil
	}
	return s.Overhead.Changes
}

// overheadFacts is the overhead, if it was measured.
func overheadFacts(s *summary.Summary) []fact {
	o := s.Overhead
	if o == nil || o.Share == nil {
		return nil
	}

	notes := []string{"of the traced CPU time, " + words.OverheadLimit(o)}
	if heap := words.HeapProbed(s); heap != "" {
		notes = append(notes, "heap probed "+heap)
	}

	if step := words.StepLine(o); step != "" {
		notes = append(notes, step)
	}

	return []fact{{"Overhead", units.Percent(*o.Share), strings.Join(notes, "; ")}}
}

// burstLimits is what is unknown where the heap was not probed all the time.
func burstLimits(s *summary.Summary) []string {
	var limits []string
	o := s.Overhead
	if from := words.FromBursts(o); from != "" {
		limits = append(limits,
			fmt.Sprintf("Allocation sites of the heap are known from %s. A larger --overhead, or "+
				"off, probes more of it.",
				from))
	}

	if o != nil && o.Mode == summary.HeapOff && len(o.Changes) > 0 && words.HeapKnown(s) {
		limits = append(limits,
			"In the end the heap was not probed, as that would have cost more than the limit: "+
				"its growth since then has no stacks.")
	}

	return limits
}
