package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// judged is a traced process with its judgement.
type judged struct {
	track *growth.Track // nil: nothing was traced
	growth.Judgement
}

// criteria of the judgement: sterner where a trace is judged again and again.
func (r *recorder) criteria() growth.Criteria {
	c := growth.InSeconds().Faster(r.flags.pace)
	if r.flags.duration == 0 {
		return c.Repeated()
	}
	return c
}

// judge judges all traced processes as far as they are known, the main one first.
func (r *recorder) judge() []judged {
	var all []judged
	main := r.history.Main()
	for _, track := range r.history.Traced() {
		f := judged{track, growth.JudgeProcess(r.caseOf(track))}
		all = append(all, f)
		if track == main {
			last := len(all) - 1
			all[0], all[last] = all[last], all[0]
		}
	}
	return all
}

func (r *recorder) caseOf(track *growth.Track) growth.Case {
	c := growth.Case{
		Track: track, Room: growth.Unknown, DeviceRoom: growth.RoomOnGPUs(r.history.GPUs, track.PID), Marks: r.history.Marks, Warmup: time.Duration(r.flags.warmup),
		Tolerable: r.flags.tolerated(), Criteria: r.criteria(), Owners: r.flags.owners.rules,
	}
	if n := len(r.history.Rows); n > 0 {
		c.Room, _ = r.history.Rows[n-1].Around.Room()
	}
	for _, s := range r.snapshots {
		c.Snapshots = append(c.Snapshots, s.Snapshot)
	}
	return c
}

// worst is the one that a trace is about: the main process, unless another one leaks or grows and the main one does less.
func worst(all []judged) judged {
	if len(all) == 0 {
		return judged{Judgement: growth.Judgement{Verdict: growth.Judge(growth.Series{}, growth.Setting{}, growth.InSeconds())}}
	}
	most := all[0]
	for _, f := range all[1:] {
		if f.Class.Grows() && f.Class.Severity() > most.Class.Severity() {
			most = f
		}
	}
	return most
}

// alarm says what a look at a trace without a known end has found: a leak when enough looks agree, what fills the memory at
// once.
func (r *recorder) alarm(f judged) {
	raised := r.looks.Add(f.Verdict)
	v := summary.VerdictOf(f.Verdict, summary.AxisSeconds)
	line := words.Headline(v)
	hazard := growth.Class("")
	if f.ToLimit < hazardWithin.Seconds() {
		hazard = f.Class
	}
	switch {
	case raised:
		slog.Warn(line + blame(f.Culprits))
	case hazard != "" && hazard != r.hazard:
		slog.Warn(line + "; " + words.LimitLine(v, words.AtLimit))
	}
	r.hazard = hazard
}

// blame names the code that holds most, if any is known.
func blame(culprits []growth.Culprit) string {
	if len(culprits) == 0 {
		return ""
	}
	c := summary.SuspectOf(culprits[0])
	return fmt.Sprintf("; most of it by %s: %s", c.Component, words.Suspect(c))
}

// hazardWithin is how near the limit must be to be said before a leak is certain.
const hazardWithin = time.Hour

// settle makes of the last look what repeated looks allow: a leak needs several that agree.
func (r *recorder) settle(all []judged) {
	if r.looks == nil {
		return
	}
	r.looks.Add(worst(all).Verdict)
	agree, of := r.looks.Agreeing()
	for i := range all {
		if f := &all[i]; f.Class == growth.ClassLeak && agree < of {
			f.Class, f.Why = growth.ClassSuspected, fewLooksAgree(agree, of)
		}
	}
}

func fewLooksAgree(agree, of int) string {
	return fmt.Sprintf("steady growth after warm-up in %d of %d looks in a row", agree, of)
}
