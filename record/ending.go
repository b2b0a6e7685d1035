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

// An Ending is a trace that has ended.
type Ending struct {
	recorder *Recorder
	reason   string             // why it has ended, as the summary has it
	all      []conclude.Process // judged before the last search

	// The rest is set by Finish.
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

	e.trace = r.Recorded()
	e.trace.Surroundings = r.session.Surroundings()
	for i := range e.all {
		e.trace.JudgeGPU(&e.all[i])
	}
	r.checks.addLast(e.all)
	e.trace.HasEnded = r.options.EndsTarget ||
		e.reason == summary.EndedExit || e.reason == summary.EndedOutOfMemory
	e.result = e.trace.Conclude(e.all)

	e.writeProfiles()
	snapshots := e.writeGPUSnapshots()
	s, err := e.summarize()
	if err != nil {
		return nil, err
	}
	maps.Copy(s.Files, snapshots)
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
