package record

import (
	"context"
	"maps"
	"slices"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/conclude"
)

// A Result is the conclusion of a trace, and its summary.
type Result struct {
	conclude.Result
	Summary *summary.Summary // without Text
}

// An Ending is a trace that has ended, or that is judged while it runs.
type Ending struct {
	recorder *Recorder
	reason   string             // why it has ended, as the summary has it
	all      []conclude.Process // judged before the last search

	// The rest is set by judge and conclude.
	trace  *conclude.Trace
	result conclude.Result
}

// Search judges the trace, and searches who keeps the growing memory for the last time, until the
// context ends.
func (e *Ending) Search(ctx context.Context) {
	t := e.recorder.Recorded()
	e.all = t.Judge()
	e.recorder.objects.finish(ctx, t, conclude.MainOf(e.all), e.reason)
}

// Finish ends the rows, writes the profiles, and returns the result. Search comes first.
func (e *Ending) Finish() (*Result, error) {
	r := e.recorder
	if err := r.rows.close(); err != nil {
		r.files.note(err)
	}

	e.judge()
	r.checks.addLast(e.all)
	result, err := e.conclude()
	if err != nil {
		return nil, err
	}
	r.oom.close()
	maps.Copy(result.Summary.Files, e.writeGPUSnapshots())
	return result, nil
}

// judge judges GPU memory, and adds the surroundings of the tree.
func (e *Ending) judge() {
	e.trace = e.recorder.Recorded()
	e.trace.Surroundings = e.recorder.session.Surroundings()
	for i := range e.all {
		e.trace.JudgeGPU(&e.all[i])
	}
}

// conclude writes the profiles, and returns the result by all that was judged.
func (e *Ending) conclude() (*Result, error) {
	r := e.recorder
	e.trace.HasEnded = r.options.EndsTarget ||
		e.reason == summary.EndedExit || e.reason == summary.EndedOutOfMemory
	e.result = e.trace.Conclude(e.all)

	e.writeProfiles()
	s, err := e.summarize()
	if err != nil {
		return nil, err
	}
	return &Result{Result: e.result, Summary: s}, nil
}

// writeProfiles writes the memory that was alive at the baseline and at the end, and its growth.
func (e *Ending) writeProfiles() {
	p, began := &e.recorder.profiles, e.recorder.began
	start, end := e.result.Pair.Start, e.result.Pair.End
	headline := words.Headline(summary.VerdictOf(e.result.Main.Verdict, summary.AxisSeconds))
	p.verdicts = append([]string{"verdict " + headline}, gpuComments(e.result.All)...)

	p.write(folder.WarmupFile, start.AllHoldings(), began, start)
	p.write(folder.PlateauFile, end.AllHoldings(), began, end)
	grown := slices.Concat(e.result.Grown, e.result.GrownOnGPUs)
	p.write(folder.GrowthFile, grown, start.Elapsed, end)
}
