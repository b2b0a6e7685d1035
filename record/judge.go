package record

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Recorded returns the record so far, to conclude from.
func (r *Recorder) Recorded() *conclude.Trace {
	t := &conclude.Trace{
		Options: conclude.Options{
			Criteria: r.options.criteria(), Limit: r.options.Limit,
			Warmup: r.options.Warmup, Tolerable: r.options.Tolerable,
			Components: r.options.Components,
		},
		PID: r.asked.PID, Began: r.began, History: &r.history, Exit: r.snapshots.exit,
		Checks: r.checks.rss, GPUChecks: r.checks.gpu, Keepers: r.objects.latest,
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
	if r.checks.rss == nil || !r.checks.rss.Due((r.session.Elapsed() - r.began).Seconds()) {
		return
	}

	t := r.Recorded()
	all := t.Judge()
	r.checks.addRSS(conclude.MainOf(all))
	r.objects.searchAgain(t, conclude.MainOf(all))
	for i := range all {
		t.JudgeGPU(&all[i])
	}
	r.checks.addGPU(all)
	if r.options.UntilSettled != 0 {
		r.checks.settle(t, all, r.End())
	}
}

// checks are the periodic judgements of a trace, with their results.
type checks struct {
	rss     *verdict.Rechecks // nil: judged once, at the end
	gpu     *verdict.Rechecks // of GPU memory, at the same times
	warned  verdict.Class     // of the last check; empty: the limit was far
	settled bool              // with --until-settled: nothing more is to be learned
}

func newChecks(o *Options) checks {
	if !o.isRechecked() {
		return checks{}
	}
	return checks{
		rss: verdict.NewRechecks(o.firstCheck()), gpu: verdict.NewRechecks(o.firstCheck()),
	}
}

// maxTimeToLimitWarning is how near the memory limit must be for a warning before a leak is
// certain.
const maxTimeToLimitWarning = time.Hour

// addRSS counts a check, and logs its result: a leak when enough checks agree, and at once growth
// that fills the memory soon.
func (c *checks) addRSS(p conclude.Process) {
	raised := c.rss.Add(p.Verdict)
	found := summary.VerdictOf(p.Verdict, summary.AxisSeconds)
	line := words.Headline(found)

	nearLimit := verdict.Class("")
	if p.ToLimit < maxTimeToLimitWarning.Seconds() {
		nearLimit = p.Class
	}

	switch {
	case raised:
		slog.Warn(withSuspect(line, p.Suspects))
	case nearLimit != "" && nearLimit != c.warned:
		slog.Warn(line + "; " + words.LimitLine(found, words.AtLimit))
	}

	c.warned = nearLimit
}

// withSuspect adds the code that accumulates most to a line, if it is known.
func withSuspect(line string, suspects []trend.Suspect) string {
	if most := words.MostBy(suspects); most != "" {
		return line + "; " + most
	}
	return line
}

// addGPU counts a check of GPU memory, and raises the alarm when enough of them have found a leak.
func (c *checks) addGPU(all []conclude.Process) {
	worst := conclude.WorstGPU(all)
	if worst == nil || !c.gpu.Add(worst.GPU.Verdict) {
		return
	}
	slog.Warn(withSuspect(gpuHeadline(worst), worst.GPU.Suspects))
}

// addLast counts the judgements at the end of a trace as checks.
func (c *checks) addLast(all []conclude.Process) {
	if c.rss == nil {
		return
	}
	c.rss.Add(conclude.MainOf(all).Verdict)
	if worst := conclude.WorstGPU(all); worst != nil {
		c.gpu.Add(worst.GPU.Verdict)
	}
}

// settle ends a trace whose verdicts on RSS and on GPU memory are settled: a longer one would not
// change them. Otherwise it logs until when the trace goes on.
func (c *checks) settle(t *conclude.Trace, all []conclude.Process, end time.Duration) {
	c.settled = true
	for i := range all {
		t.AddChecks(&all[i])
		c.settled = c.settled && (all[i].GPU == nil || all[i].GPU.Longer == 0)
	}
	main := conclude.MainOf(all)
	c.settled = c.settled && main.Longer == 0

	headline := words.Headline(summary.VerdictOf(main.Verdict, summary.AxisSeconds))
	if c.settled {
		slog.Info(words.Settled(headline))
		return
	}
	next := t.Began + time.Duration(c.rss.Next()*float64(time.Second))
	slog.Info(words.GoesOn(headline, next, end))
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
			comments = append(comments, fmt.Sprintf("%s; %s", gpuHeadline(p), p.GPU.Diagnosis))
		}
	}
	return comments
}
