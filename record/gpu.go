package record

import (
	"fmt"
	"io"
	"slices"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/gpusnapshot"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
)

// GPUHeadline is the verdict on GPU memory in a sentence.
func GPUHeadline(p *conclude.Process) string {
	return words.GPUMemoryOf(p.History.PID) + ": " +
		words.Headline(summary.VerdictOf(p.GPU.Verdict, summary.AxisSeconds))
}

// gpuSummaries are the verdicts on GPU memory in the form of the summary.
func gpuSummaries(t *conclude.Trace, all []conclude.Process) []summary.GPUMemory {
	var summaries []summary.GPUMemory
	for i := range all {
		if all[i].GPU != nil {
			summaries = append(summaries, summary.GPUMemoryOf(gpuInput(t, &all[i])))
		}
	}
	return summaries
}

func gpuInput(t *conclude.Trace, p *conclude.Process) summary.GPUInput {
	pair := t.GPUPair(p.History, p.GPU.Window)
	c := summary.GPUInput{
		Track: p.History, Judgement: *p.GPU,
		Start: pair.Start.Of(p.History.PID), End: pair.End.Of(p.History.PID),
		Headroom:   growth.GPUHeadroom(t.History.GPUs, p.History.PID),
		Components: t.Components,
		Rows:       MaxRowsPerKind, Suspects: maxSuspects, Stacks: maxSummaryStacks,
	}

	for _, s := range t.Snapshots {
		c.Snapshots = append(c.Snapshots, s.Of(p.History.PID))
	}
	return c
}

// gpuComments are the comments of a profile on GPU memory.
func gpuComments(all []conclude.Process) []string {
	var comments []string
	for i := range all {
		if p := &all[i]; p.GPU != nil {
			comments = append(comments, fmt.Sprintf("%s; %s", GPUHeadline(p), p.GPU.Diagnosis))
		}
	}
	return comments
}

// maxGPUSnapshots bounds the files with the memory of PyTorch's caching allocator.
const maxGPUSnapshots = 64

// writeGPUSnapshots writes the memory of PyTorch's caching allocator at the end of the trace: a file
// for each process in which it has segments. It returns the files by their names in the summary.
func (e *Ending) writeGPUSnapshots() map[string]string {
	var with []*growth.ProcessGPUMemory
	for _, p := range newestGPUMemory(e.trace.Snapshots) {
		if p.Cache != nil && len(p.Cache.Segments) > 0 && len(with) < maxGPUSnapshots {
			with = append(with, p)
		}
	}

	names := make(map[string]string)
	for _, p := range with {
		name, file := summary.GPUSnapshot, folder.GPUSnapshotFile(0)
		if len(with) > 1 {
			name, file = fmt.Sprintf("%s_%d", name, p.PID), folder.GPUSnapshotFile(p.PID)
		}
		names[name] = file
		e.recorder.files.Write(file, func(w io.Writer) error {
			return gpusnapshot.Write(w, p.Cache, e.recorder.profiles.started)
		})
	}
	return names
}

// newestGPUMemory returns the memory of each process at the last of the snapshots that has it, the
// latest first.
func newestGPUMemory(snapshots []*growth.Snapshot) (all []*growth.ProcessGPUMemory) {
	seen := make(map[int]bool)
	for _, s := range slices.Backward(snapshots) {
		for i := range s.GPUMemory {
			if p := &s.GPUMemory[i]; !seen[p.PID] {
				seen[p.PID] = true
				all = append(all, p)
			}
		}
	}
	return all
}
