package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// limitsOf is what the numbers of this trace do not cover, a sentence each.
func limitsOf(s *export.Summary) []string {
	var limits []string
	say := func(applies bool, format string, values ...any) {
		if applies {
			limits = append(limits, fmt.Sprintf(format, values...))
		}
	}
	say(s.IntervalBytes > 1 && words.HeapKnown(s), "Sizes by stack are estimates from one sample every %s: where some twenty samples or fewer are behind a number, it is an order of magnitude.",
		words.Bytes(float64(s.IntervalBytes)))
	limits = append(limits, windowLimits(s)...)
	before := endOf(s, growth.KindBefore)
	say(before > 0, "%s of %s were resident before the attach and still are: that memory has no holder.", words.Bytes(before), pidText(s.Process.PID))
	swapped := endOf(s, growth.KindSwapped)
	say(swapped > 0, "%s of %s are swapped out: they are no part of RSS.", words.Bytes(swapped), pidText(s.Process.PID))
	say(endOf(s, growth.KindDevice) > 0 && len(s.Devices) == 0, "Memory of devices counts as far as it is mapped: that of a GPU is not traced.")
	n := untraced(s)
	say(n > 0, "%s not traced: the timeline and the tables have %s memory, without stacks.",
		words.Plural(n, "process of the tree is", "processes of the tree are"), itsTheir(n))
	looked := words.Looked(words.ResidentOf(s))
	say(looked != "", "%s of the pages were looked at; the rest is extrapolated.", looked)
	say(s.Mappings.UnmeasuredBytes > 0, "%s of mappings were not looked at: what they hold in memory is unexplained.", words.Bytes(float64(s.Mappings.UnmeasuredBytes)))
	say(s.Mappings.UnknownBytes > 0, "%s of mappings appeared without a system call being seen: who made them is not known.", words.Bytes(float64(s.Mappings.UnknownBytes)))
	unsure := s.DurationS < longEnough && (s.Class == growth.ClassSuspected || s.Class == growth.ClassGrowing)
	say(unsure, "Whether this growth lasts, a trace of this length cannot tell: a leak takes 10 to 30 minutes.")
	for _, source := range s.Sources {
		if source.Name == "cuda" && len(s.Devices) == 0 {
			continue // nobody is missed
		}
		say(source.State != export.SourceAttached && sourceLimits[source.Name] != "", "Without source %s%s %s.", source.Name, pidNote(source.PID), sourceLimits[source.Name])
	}
	return limits
}

// longEnough is the duration in seconds of a trace that tells a leak from most other growth.
const longEnough = 30 * 60

// sourceLimits say what is not known without a source.
var sourceLimits = map[string]string{
	"heap":    "the holders of heap memory are not known",
	"mapping": "it is not known who made mappings, only who touched them",
	"fault":   "nobody is named for what was mapped before the attach, nor for copies",
	"python":  "stacks have no Python frames",
	"tensor":  "tensors are not counted",
	"step":    "training steps are not counted",
	"ledger":  "it is not known where the resident memory is",
	"cuda":    "nobody is named for device memory",
}

func pidNote(pid int) string {
	if pid == 0 {
		return ""
	}
	return " in " + pidText(pid)
}

func itsTheir(n int) string {
	if n == 1 {
		return "its"
	}
	return "their"
}

// endOf is what the process holds of a kind at the end, in bytes.
func endOf(s *export.Summary, kind growth.Kind) (bytes float64) {
	for _, row := range s.Ledger {
		if row.Process == s.Process.PID && row.Kind == kind {
			bytes += float64(row.EndBytes)
		}
	}
	return bytes
}

// untraced is how many processes were on the timeline alone.
func untraced(s *export.Summary) (n int) {
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

func sourcesOf(s *export.Summary) []sourceView {
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

// setupOf is what another trace needs to be the same.
func setupOf(s *export.Summary) []fact {
	interval := words.Bytes(float64(s.IntervalBytes))
	if s.IntervalBytes <= 1 {
		interval = "every allocation"
	}
	var attached []string
	for _, source := range s.Sources {
		if source.State == export.SourceAttached && !slices.Contains(attached, source.Name) {
			attached = append(attached, source.Name)
		}
	}
	return []fact{
		{"allocscope", s.Version, ""},
		{"Kernel", s.Kernel, s.Architecture},
		{"Sampling interval", interval, ""},
		{"Overhead", words.OverheadLimit(s.Overhead), ""},
		{"Sources", strings.Join(attached, ", "), ""},
		{"Started", s.Started.Format("2006-01-02 15:04:05 MST"), "for " + words.Seconds(s.DurationS)},
		{"Program", s.Process.Executable, ""},
	}
}

// pprofCommandsOf are for the folder of the report.
func pprofCommandsOf(data pageData) []string {
	if len(data.DeviceFlames) == 0 {
		return pprofCommands
	}
	return append(slices.Clone(pprofCommands), "go tool pprof -top -sample_index=device_space "+export.GrowthFile)
}

var pprofCommands = []string{
	"go tool pprof -http=: " + export.GrowthFile,
	"go tool pprof -top -tagfocus=trend=accumulating " + export.GrowthFile,
	"go tool pprof -top -tagroot=owner " + export.GrowthFile,
	"go tool pprof -top -diff_base=" + export.WarmupFile + " " + export.PlateauFile,
}
