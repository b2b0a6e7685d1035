package trace

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// ProcessVerdict is a traced process with its judgement.
type ProcessVerdict struct {
	Process *growth.ProcessHistory // nil: nothing was traced
	judge.Judgement
}

// criteria of the judgement: stricter where a trace is judged periodically.
func (r *Recorder) criteria() verdict.Criteria {
	c := verdict.InSeconds().Faster(r.options.Speed)
	if r.options.isRechecked() {
		return c.Repeated()
	}
	return c
}

// judge judges all traced processes on the samples so far, the main one first.
func (r *Recorder) judge() []ProcessVerdict {
	var all []ProcessVerdict
	main := r.history.Main()
	for _, process := range r.history.Traced() {
		v := ProcessVerdict{process, judge.Process(r.CaseOf(process))}
		all = append(all, v)
		if process == main {
			last := len(all) - 1
			all[0], all[last] = all[last], all[0]
		}
	}
	return all
}

// CaseOf returns what a judgement of a process takes into account.
func (r *Recorder) CaseOf(process *growth.ProcessHistory) judge.Case {
	c := judge.Case{
		Process: process, Headroom: growth.Unknown,
		GPUHeadroom: growth.GPUHeadroom(r.history.GPUs, process.PID), Marks: r.history.Marks,
		Warmup: time.Duration(r.options.Warmup), Tolerable: r.options.tolerableRate(),
		Criteria: r.criteria(), Components: r.options.Components.Rules,
	}

	if first := r.Headroom(process); first.Of != "" {
		c.Headroom = first.Left
	}

	for _, s := range r.snapshots {
		c.Snapshots = append(c.Snapshots, s.Snapshot)
	}
	return c
}

// Headroom is what is left, at the last sample, until a process meets its first limit; nil: no
// process was traced.
func (r *Recorder) Headroom(process *growth.ProcessHistory) (first growth.Headroom) {
	if n := len(r.history.Rows); n > 0 {
		last := r.history.Rows[n-1]
		given := growth.GivenHeadroom(int64(r.options.Limit.Bytes), last.Tree)
		first = last.System.Headroom().Nearest(given)
	}
	if process != nil {
		first = first.Nearest(process.Headroom)
	}
	return first
}

// mainVerdict is the one that a trace is about: that of the main process, unless another process
// grows and its verdict is worse.
func mainVerdict(all []ProcessVerdict) ProcessVerdict {
	if len(all) == 0 {
		unknown := verdict.Judge(verdict.Series{}, verdict.Setting{}, verdict.InSeconds())
		return ProcessVerdict{Judgement: judge.Judgement{Verdict: unknown}}
	}

	worst := all[0]
	for _, v := range all[1:] {
		if v.Class.Grows() && v.Class.Severity() > worst.Class.Severity() {
			worst = v
		}
	}
	return worst
}

// recheck judges a trace without a fixed end where that is due.
func (r *Recorder) recheck() {
	if r.rechecks == nil || !r.rechecks.Due((r.session.Elapsed() - r.began).Seconds()) {
		return
	}
	all := r.judge()
	r.raiseAlarm(mainVerdict(all))
	r.searchAgain(mainVerdict(all))
	gpus := r.judgeGPUs(all)
	r.recheckGPUs(gpus)
	if r.options.UntilSettled != 0 {
		r.settle(mainVerdict(all), gpus)
	}
}

// AddChecks adds what the checks have found so far to a judgement of RSS: a leak is suspected until
// enough of them agree.
func (r *Recorder) AddChecks(j *judge.Judgement) {
	r.rechecks.AddTo(&j.Findings, r.lastElapsed().Seconds())
	j.Decide()
}

// AddGPUChecks does for a judgement of GPU memory what AddChecks does for one of RSS.
func (r *Recorder) AddGPUChecks(j *gpu.Judgement) {
	var found verdict.Findings
	r.gpuRechecks.AddTo(&found, r.lastElapsed().Seconds())
	j.Verdict = verdict.Decide(j.Verdict, found)
}

// maxTimeToLimitWarning is how near the memory limit must be for a warning before a leak is
// certain.
const maxTimeToLimitWarning = time.Hour

// raiseAlarm logs what a check has found: a leak when enough checks agree, and at once what fills
// the memory soon.
func (r *Recorder) raiseAlarm(v ProcessVerdict) {
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

// addLastCheck counts the last judgements as checks, and decides by all of them.
func (r *Recorder) addLastCheck(all []ProcessVerdict, gpus []gpuVerdict) {
	if r.rechecks == nil {
		return
	}

	r.rechecks.Add(mainVerdict(all).Verdict)
	for i := range all {
		r.AddChecks(&all[i].Judgement)
	}

	if worst := worstGPU(gpus); worst != nil {
		r.gpuRechecks.Add(worst.Verdict)
	}
	for i := range gpus {
		r.AddGPUChecks(&gpus[i].Judgement)
	}
}

// lastElapsed is the time of the last sample.
func (r *Recorder) lastElapsed() time.Duration {
	if len(r.history.Rows) == 0 {
		return 0
	}
	return r.history.Rows[len(r.history.Rows)-1].Elapsed
}

// gpuVerdict is a traced process with the judgement of its GPU memory.
type gpuVerdict struct {
	process *growth.ProcessHistory
	gpu.Judgement
}

// judgeGPUs judges the GPU memory of all traced processes that have any, in the order of all.
func (r *Recorder) judgeGPUs(all []ProcessVerdict) []gpuVerdict {
	var gpus []gpuVerdict
	for _, v := range all {
		if j, known := gpu.Judge(r.CaseOf(v.Process)); known {
			gpus = append(gpus, gpuVerdict{v.Process, j})
		}
	}
	return gpus
}

// worstGPU returns the worst verdict; nil: there is none.
func worstGPU(all []gpuVerdict) *gpuVerdict {
	var worst *gpuVerdict
	for i := range all {
		if worst == nil || all[i].Class.Severity() > worst.Class.Severity() {
			worst = &all[i]
		}
	}
	return worst
}

// recheckGPUs raises the alarm when enough checks have found a leak of GPU memory.
func (r *Recorder) recheckGPUs(all []gpuVerdict) {
	worst := worstGPU(all)
	if worst == nil || !r.gpuRechecks.Add(worst.Verdict) {
		return
	}
	slog.Warn(withSuspect(worst.headline(), worst.Suspects))
}

// headline is the verdict in a sentence.
func (v *gpuVerdict) headline() string {
	return words.GPUMemoryOf(v.process.PID) + ": " +
		words.Headline(summary.VerdictOf(v.Verdict, summary.AxisSeconds))
}

// gpuSummaries are the verdicts on GPU memory in the form of the summary.
func (r *Recorder) gpuSummaries(all []gpuVerdict) []summary.GPUMemory {
	var summaries []summary.GPUMemory
	for _, v := range all {
		summaries = append(summaries, summary.GPUMemoryOf(r.gpuCase(v)))
	}
	return summaries
}

func (r *Recorder) gpuCase(v gpuVerdict) summary.GPUInput {
	judged := ProcessVerdict{v.process, judge.Judgement{Window: v.Window}}
	pair := r.gpuPair(v.process, r.PairOf(judged))

	c := summary.GPUInput{
		Track: v.process, Judgement: v.Judgement,
		Start: pair.Start.Of(v.process.PID), End: pair.End.Of(v.process.PID),
		Headroom:   growth.GPUHeadroom(r.history.GPUs, v.process.PID),
		Components: r.options.Components.Rules,
		Rows:       MaxRowsPerKind, Suspects: maxTableRows, Stacks: maxSummaryStacks,
	}

	for _, s := range r.snapshots {
		c.Snapshots = append(c.Snapshots, s.Of(v.process.PID))
	}
	return c
}

// gpuPair moves the ends of a pair to snapshots in which the process lived: from before its first
// snapshot to that one, and from after its death to the last one in which it had memory on a GPU.
func (r *Recorder) gpuPair(process *growth.ProcessHistory, p SnapshotPair) SnapshotPair {
	hasMemory := func(s *growth.Snapshot) bool {
		return slices.ContainsFunc(s.GPUMemory,
			func(d growth.ProcessGPUMemory) bool { return d.PID == process.PID })
	}

	own := r.snapshotsOf(process)
	if len(own) > 0 && !slices.Contains(own, p.Start) {
		p.Start = own[0]
	}

	for i := len(own) - 1; i >= 0 && !hasMemory(p.End); i-- {
		if hasMemory(own[i]) {
			p.End = own[i]
		}
	}

	return p
}

// grownOnGPUs is what accumulated on GPUs between two snapshots, with the trends of the verdicts.
func grownOnGPUs(p SnapshotPair, all []gpuVerdict) []growth.Holding {
	grown := growth.Between(p.Start.OnGPUs(), p.End.OnGPUs())

	var trends []trend.StackTrend
	for _, v := range all {
		trends = append(trends, v.Trends...)
	}
	trend.Label(grown, trends)
	return grown
}

// gpuComments are the comments of a profile on GPU memory.
func gpuComments(all []gpuVerdict) []string {
	var comments []string
	for i := range all {
		comments = append(comments, fmt.Sprintf("%s; %s", all[i].headline(), all[i].Diagnosis))
	}
	return comments
}

// outcomesOf returns the verdicts of a trace, on RSS and on GPU memory.
func outcomesOf(rss verdict.Class, gpus []gpuVerdict) []flagvalue.Outcome {
	all := []flagvalue.Outcome{{What: "the verdict", Class: rss}}
	for _, v := range gpus {
		all = append(all, flagvalue.Outcome{
			What: "the verdict on the " + words.GPUMemoryOf(v.process.PID), Class: v.Class,
		})
	}
	return all
}
