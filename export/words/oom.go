package words

import (
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

// maxNoteKills bounds the kills of other processes in the notes.
const maxNoteKills = 2

// OOMKill is the choice of the kernel's OOM killer in a sentence: whom it killed, and at which limit.
func OOMKill(k *summary.OOMKill) string {
	return "the kernel killed " + OOMProcess(k.Command, k.PID) + " " + OOMState(k)
}

// OOMState says how much memory a killed process had, and which limit was met.
func OOMState(k *summary.OOMKill) string {
	return fmt.Sprintf("with %s in RAM, %s", units.Bytes(float64(k.RSSBytes())), OOMReason(k))
}

// OOMReason is which limit was met.
func OOMReason(k *summary.OOMKill) string {
	switch {
	case k.OfMachine:
		return "as the machine was out of memory"
	case k.Cgroup == "":
		return "at the limit of a cgroup"
	case k.LimitBytes == nil:
		return "at the limit of cgroup " + k.Cgroup
	}
	return fmt.Sprintf("at the limit of cgroup %s, %s", k.Cgroup,
		units.Bytes(float64(*k.LimitBytes)))
}

// OOMProcess names a process as the kernel knows it.
func OOMProcess(command string, pid int) string { return fmt.Sprintf("%s (PID %d)", command, pid) }

// oomLargest are the processes that held most, where the killed one was not the only one; else empty.
func oomLargest(k *summary.OOMKill) string {
	if k.Processes < 2 {
		return ""
	}
	var held []string
	for _, t := range k.Largest {
		held = append(held, OOMProcess(t.Command, t.PID)+" "+units.Bytes(float64(t.RSSBytes)))
	}
	return fmt.Sprintf("of %s there, most RSS had ",
		units.Plural(k.Processes, "process", "processes")) + strings.Join(held, ", ")
}

// oomNotes say which processes of the tree the kernel has killed, the judged one first.
func oomNotes(s *summary.Summary) (notes []string) {
	var others []string
	for i := range s.OOMKills {
		k := &s.OOMKills[i]
		if k.PID != s.Process.PID {
			others = append(others, OOMKill(k))
			continue
		}
		killed, largest := "killed "+OOMState(k), oomLargest(k)
		switch {
		case largest == "":
			notes = append(notes, killed)
		case k.Largest[0].PID != k.PID: // another process has filled the memory
			notes = append(notes, largest, killed)
		default:
			notes = append(notes, killed, largest)
		}
	}
	return append(notes, others[:min(len(others), maxNoteKills)]...)
}

// OOMLines are all that the kernel's OOM killer has said about a process, a line each.
func OOMLines(k *summary.OOMKill) []string {
	size := func(bytes int64) string { return units.Bytes(float64(bytes)) }
	limit := "limit    " + strings.TrimPrefix(strings.TrimPrefix(OOMReason(k), "at the limit of "), "as ")
	if k.UsedBytes != nil {
		limit += "; used " + size(*k.UsedBytes)
	}
	killed := fmt.Sprintf("killed   %s: RSS %s: anonymous %s, files %s, shared %s",
		OOMProcess(k.Command, k.PID), size(k.RSSBytes()), size(k.AnonymousBytes), size(k.FileBytes),
		size(k.SharedBytes))
	if k.Own != "" && k.Own != k.Cgroup {
		killed += "; in cgroup " + k.Own
	}

	lines := []string{limit, killed}
	label := "largest"
	for _, t := range k.Largest {
		lines = append(lines, fmt.Sprintf("%-8s RSS %s  %s", label, size(t.RSSBytes),
			OOMProcess(t.Command, t.PID)))
		label = ""
	}
	if left := k.Processes - len(k.Largest); left > 0 {
		lines = append(lines, fmt.Sprintf("%-8s and %s", "",
			units.Plural(left, "smaller process", "smaller processes")))
	}
	return lines
}
