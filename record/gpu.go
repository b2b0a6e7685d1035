package record

import (
	"fmt"

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
