package trace

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// criteria of the judgement: stricter where a trace is judged periodically.
func (r *Recorder) criteria() verdict.Criteria {
	c := verdict.InSeconds().Faster(r.options.Speed)
	if r.options.isRechecked() {
		return c.Repeated()
	}
	return c
}

// Recorded returns what has been recorded so far, to conclude from.
func (r *Recorder) Recorded() *conclude.Trace {
	t := &conclude.Trace{
		Options: conclude.Options{
			Criteria: r.criteria(), Limit: int64(r.options.Limit.Bytes),
			Warmup: time.Duration(r.options.Warmup), Tolerable: r.options.tolerableRate(),
			Components: r.options.Components.Rules,
		},
		PID: r.asked.PID, Began: r.began, History: &r.history, Exit: r.snapshots.exit,
		Checks: r.rechecks, GPUChecks: r.gpuRechecks, Keepers: r.objects.latest,
	}

	for _, s := range r.snapshots.all {
		t.Snapshots = append(t.Snapshots, s.Snapshot)
	}

	for _, c := range r.objects.counted {
		t.Censuses = append(t.Censuses, &c.Result)
	}
	return t
}

// recheck judges a trace without a fixed end where that is due.
func (r *Recorder) recheck() {
	if r.rechecks == nil || !r.rechecks.Due((r.session.Elapsed() - r.began).Seconds()) {
		return
	}

	t := r.Recorded()
	all := t.Judge()
	r.raiseAlarm(conclude.MainOf(all))
	r.searchAgain(t, conclude.MainOf(all))
	for i := range all {
		t.JudgeGPU(&all[i])
	}
	r.recheckGPUs(all)
	if r.options.UntilSettled != 0 {
		r.settle(t, all)
	}
}

// maxTimeToLimitWarning is how near the memory limit must be for a warning before a leak is
// certain.
const maxTimeToLimitWarning = time.Hour

// raiseAlarm logs what a check has found: a leak when enough checks agree, and at once what fills
// the memory soon.
func (r *Recorder) raiseAlarm(v conclude.Process) {
	raised := r.rechecks.Add(v.Verdict)
	found := summary.VerdictOf(v.Verdict, summary.AxisSeconds)
	line := words.Headline(found)

	nearLimit := verdict.Class("")
	if v.ToLimit < maxTimeToLimitWarning.Seconds() {
		nearLimit = v.Class
	}

	switch {
	case raised:
		slog.Warn(withSuspect(line, v.Suspects))
	case nearLimit != "" && nearLimit != r.warnedClass:
		slog.Warn(line + "; " + words.LimitLine(found, words.AtLimit))
	}

	r.warnedClass = nearLimit
}

// withSuspect adds the code that accumulates most to a line, if it is known.
func withSuspect(line string, suspects []trend.Suspect) string {
	if most := words.MostBy(suspects); most != "" {
		return line + "; " + most
	}
	return line
}

// countLastCheck counts the judgements at the end of a trace as checks.
func (r *Recorder) countLastCheck(all []conclude.Process) {
	if r.rechecks == nil {
		return
	}
	r.rechecks.Add(conclude.MainOf(all).Verdict)
	if worst := conclude.WorstGPU(all); worst != nil {
		r.gpuRechecks.Add(worst.GPU.Verdict)
	}
}

// recheckGPUs raises the alarm when enough checks have found a leak of GPU memory.
func (r *Recorder) recheckGPUs(all []conclude.Process) {
	worst := conclude.WorstGPU(all)
	if worst == nil || !r.gpuRechecks.Add(worst.GPU.Verdict) {
		return
	}
	slog.Warn(withSuspect(gpuHeadline(worst), worst.GPU.Suspects))
}

// gpuHeadline is the verdict on GPU memory in a sentence.
func gpuHeadline(p *conclude.Process) string {
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
		Rows:       MaxRowsPerKind, Suspects: maxTableRows, Stacks: maxSummaryStacks,
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
			comments = append(comments, fmt.Sprintf("%s; %s", gpuHeadline(p), p.GPU.Diagnosis))
		}
	}
	return comments
}

// outcomesOf returns the verdicts of a trace, on RSS and on GPU memory.
func outcomesOf(r *conclude.Result) []flagvalue.Outcome {
	all := []flagvalue.Outcome{{What: "the verdict", Class: r.Main.Class}}
	for _, p := range r.All {
		if p.GPU != nil {
			all = append(all, flagvalue.Outcome{
				What: "the verdict on the " + words.GPUMemoryOf(p.History.PID), Class: p.GPU.Class,
			})
		}
	}
	return all
}
