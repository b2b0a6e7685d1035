package conclude

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A Process is a traced process with its judgements.
type Process struct {
	History *growth.ProcessHistory // nil: nothing was traced
	judge.Judgement
	// IsReplaced: it is a worker of a server that replaces its workers, and these grow until then.
	IsReplaced bool
	// GPU memory; nil: it has none, or was not judged.
	GPU *gpu.Judgement
}

// Judge judges the RSS of all traced processes on the samples so far, the main one first.
func (t *Trace) Judge() []Process {
	var all []Process
	main := t.History.Main()
	for _, process := range t.History.Traced() {
		all = append(all, t.JudgeProcess(process))
		if process == main {
			last := len(all) - 1
			all[0], all[last] = all[last], all[0]
		}
	}
	return all
}

// JudgeProcess judges the RSS of a process.
func (t *Trace) JudgeProcess(process *growth.ProcessHistory) Process {
	return Process{
		History: process, Judgement: judge.Process(t.caseOf(process)),
		IsReplaced: t.History.IsReplaced(process),
	}
}

// JudgeGPU judges the GPU memory of a process, if it has any.
func (t *Trace) JudgeGPU(p *Process) {
	if j, known := gpu.Judge(t.caseOf(p.History)); known {
		p.GPU = &j
	}
}

// AddChecks adds the findings of the checks so far to the judgements of a process: a leak is
// suspected until enough checks agree, or until its objects are proven to be lost. A process that
// has ended meets no limit.
func (t *Trace) AddChecks(p *Process) {
	elapsed := t.lastElapsed().Seconds()

	t.Checks.AddTo(&p.Findings, elapsed)
	p.Findings.HasEnded, p.Findings.Halted = t.HasEnded, p.haltedShare()
	t.addKept(p)
	p.Findings.Lost = t.lostOf(p)
	p.Decide()

	if p.GPU != nil {
		decideGPU(t, p)
	}
}

// haltedShare is the share of the time, since the process was seen first, in which it was stopped
// or frozen.
func (p Process) haltedShare() float64 {
	h := p.History
	if h == nil || h.Last <= h.First {
		return 0
	}
	return float64(h.Stopped+h.Frozen) / float64(h.Last-h.First)
}

// fasterFactor is how many times as fast as the main process another one must grow to be worse with
// the same class.
const fasterFactor = 2

// MainOf returns the process that a trace is about: the main one, unless another process of the
// tree grows, or fills up, and its verdict is worse. A worker that is to be replaced is not the
// one: its end gives its memory back.
func MainOf(all []Process) Process {
	if len(all) == 0 {
		unknown := verdict.Unjudged(verdict.Series{}, verdict.InSeconds())
		return Process{Judgement: judge.Judgement{Verdict: unknown, Judged: unknown}}
	}

	worst := all[0]
	for _, p := range all[1:] {
		if !p.isGoneWorkerOf(all[0]) && !p.IsReplaced && p.isWorseThan(worst) {
			worst = p
		}
	}
	return worst
}

// isGoneWorkerOf reports whether a process is a worker that has ended before the main process: it
// takes its memory with it, as long as the one that it served lives.
func (p Process) isGoneWorkerOf(main Process) bool {
	if p.History == nil || main.History == nil {
		return false
	}
	return p.History.Role.IsWorker() && p.History.Last < main.History.Last
}

func (p Process) isWorseThan(other Process) bool {
	switch {
	case p.Class.Rises() && !p.Class.Grows():
		return other.Class.IsFlat()
	case !p.Class.Grows():
		return false
	case p.Class == other.Class:
		return p.Rate > fasterFactor*other.Rate
	}
	return p.Class.Severity() > other.Class.Severity()
}

// WorstGPU returns the process with the worst verdict on GPU memory; nil: none has any.
func WorstGPU(all []Process) *Process {
	var worst *Process
	for i := range all {
		p := &all[i]
		if p.GPU != nil && (worst == nil || p.GPU.Class.Severity() > worst.GPU.Class.Severity()) {
			worst = p
		}
	}
	return worst
}

// Sizes are the data on a process that is not traced: its sizes alone are known.
type Sizes struct {
	RSS verdict.Series
	// Private is RSS without mapped files; without samples: it is unknown.
	Private  verdict.Series
	Setting  verdict.Setting
	Criteria verdict.Criteria
}

// Judge judges RSS, and finds whether the memory besides mapped files grows where RSS does.
// verdict.Decide returns the verdict on both.
func (s Sizes) Judge() (judged verdict.Verdict, found verdict.Findings) {
	judged = verdict.Judge(s.RSS, s.Setting, s.Criteria)
	if len(s.Private.X) > 0 && judged.Class.Grows() {
		withoutFiles := verdict.Judge(s.Private, s.Setting, s.Criteria)
		found.WithoutFiles = &withoutFiles
	}

	return judged, found
}
