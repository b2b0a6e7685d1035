package words

import (
	"fmt"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
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
