package record

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestExtend(t *testing.T) {
	for name, c := range map[string]struct {
		options    Options
		began      time.Duration
		end, later time.Duration
	}{
		"without an end": {Options{}, 0, 0, 0},
		"five minutes at least": {
			Options{Duration: time.Duration(4 * time.Minute)}, 0, 4 * time.Minute, 14 * time.Minute,
		},
		"half of a long one": {
			Options{Duration: time.Duration(time.Hour)}, 0, time.Hour, 2 * time.Hour,
		},
		"after an earlier trace": {
			Options{Duration: time.Duration(4 * time.Minute)},
			time.Hour, 64 * time.Minute,
			74 * time.Minute,
		},
		"until settled": {
			Options{
				Duration:     5 * time.Minute,
				UntilSettled: time.Hour,
			}, 0, time.Hour, 70 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Recorder{options: c.options, began: c.began}
			r.setEnd()
			if r.End() != c.end {
				t.Errorf("ends at %s, want %s", r.End(), c.end)
			}
			r.Extend()
			r.Extend()
			if r.End() != c.later {
				t.Errorf("extended twice it ends at %s, want %s", r.End(), c.later)
			}
		})
	}
}

// settledFound is a judgement that asks for so many seconds more.
func settledFound(class verdict.Class, longer float64) conclude.Process {
	v := found(class, 0)
	v.Judged.Longer = longer
	v.Decide()
	return v
}

func TestSettle(t *testing.T) {
	const leak, plateau, growing = verdict.ClassLeak, verdict.ClassPlateau, verdict.ClassGrowing
	settledGPU, openGPU := &gpu.Judgement{}, &gpu.Judgement{}
	settledGPU.Class, openGPU.Class, openGPU.Longer = plateau, plateau, 60

	for name, c := range map[string]struct {
		before []verdict.Class // of earlier checks
		main   conclude.Process
		gpus   []*gpu.Judgement
		want   bool
	}{
		"plateau":               {nil, settledFound(plateau, 0), nil, true},
		"plateau that may leak": {nil, settledFound(plateau, 60), nil, false},
		"growing":               {nil, settledFound(growing, 60), nil, false},
		"suspected":             {nil, settledFound(verdict.ClassSuspected, 60), nil, false},
		"leak of one check":     {nil, settledFound(leak, 0), nil, false},
		"leak of three checks":  {[]verdict.Class{leak, leak, leak}, settledFound(leak, 0), nil, true},
		"leak after a pause":    {[]verdict.Class{leak, leak, growing, leak}, settledFound(leak, 0), nil, false},
		"GPU memory":            {nil, settledFound(plateau, 0), []*gpu.Judgement{settledGPU}, true},
		"GPU memory not":        {nil, settledFound(plateau, 0), []*gpu.Judgement{settledGPU, openGPU}, false},
	} {
		t.Run(name, func(t *testing.T) {
			log, r := logged(t), openEndedRecorder()
			r.checks.gpu = verdict.NewRechecks(verdict.InSeconds())
			r.options = Options{
				Duration:     5 * time.Minute,
				UntilSettled: time.Hour,
			}
			r.setEnd()
			r.history.Rows = []growth.Row{{Sample: growth.Sample{Elapsed: 5 * time.Minute}}}
			for _, class := range c.before {
				r.checks.rss.Add(settledFound(class, 0).Verdict)
			}

			r.checks.rss.Due(300)
			all := []conclude.Process{c.main}
			for i, j := range c.gpus {
				if i > 0 {
					all = append(all, settledFound(plateau, 0))
				}
				all[i].GPU = j
			}
			r.checks.settle(r.Recorded(), all, r.End())
			if r.checks.settled != c.want {
				t.Errorf("settled: %t, want %t", r.checks.settled, c.want)
			}
			if c.want {
				mustSay(t, "the log", log.String(), "settled: ")
			} else {
				mustSay(t, "the log", log.String(), "not settled yet: ", "to 1h at most",
					"next check at 6m15s")
			}
		})
	}
}

func TestFirstCheck(t *testing.T) {
	r := &Recorder{options: Options{
		Duration: 5 * time.Minute, UntilSettled: time.Hour,
		Speed: 1,
	}}
	if next := verdict.NewRechecks(r.options.firstCheck()).Next(); next != 300 {
		t.Errorf("first check after %v s, want 300", next)
	}
	if c := r.options.criteria(); c != verdict.InSeconds().Repeated() {
		t.Errorf("criteria %+v are not those of repeated checks", c)
	}
}
