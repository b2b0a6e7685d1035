package record

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/verdict"
)

// The end of a trace without a duration counts as a check, and the end of another one does not.
func TestLastCheck(t *testing.T) {
	const leak, suspected = verdict.ClassLeak, verdict.ClassSuspected
	openEnded, _ := openEndedRecorder()
	for i, r := range []*Recorder{new(Recorder), openEnded, openEnded, openEnded} {
		all := []conclude.Process{found(verdict.ClassPlateau, math.NaN()), found(leak, math.NaN())}
		r.decide(all)
		want := []verdict.Class{leak, suspected, suspected, leak}[i]
		if all[0].Class != verdict.ClassPlateau || all[1].Class != want {
			t.Errorf("end %d: %s and %s, want %s", i, all[0].Class, all[1].Class, want)
		}
	}
}

// reported collects events.
type reported []Event

func (r *reported) report(e Event) { *r = append(*r, e) }

// openEndedRecorder is of a trace without a duration.
func openEndedRecorder() (*Recorder, *reported) {
	var events reported
	return &Recorder{checks: checks{
		report: events.report, rss: verdict.NewRechecks(verdict.InSeconds().Repeated()),
	}}, &events
}

// found is a judgement of a process that grows by 1 MiB a second and meets its limit in so many
// seconds.
func found(class verdict.Class, toLimit float64) conclude.Process {
	v := verdict.Judge(verdict.Series{}, verdict.Setting{}, verdict.InSeconds())
	v.Class, v.Reason, v.Rate, v.ToLimit = class, verdict.ReasonAfterWarmup, 1<<20, toLimit
	return conclude.Process{Judgement: judge.Judgement{Verdict: v, Judged: v}}
}

// check is a verdict of a recheck, and the event that it must report; nil: none.
type check struct {
	class   verdict.Class
	toLimit float64 // seconds
	want    Event
}

func mustReport(t *testing.T, checks ...check) {
	t.Helper()
	r, got := openEndedRecorder()
	for i, c := range checks {
		*got = nil
		r.checks.addRSS(found(c.class, c.toLimit))
		if n := len(*got); n > 1 || (n == 1) != (c.want != nil) ||
			n == 1 && reflect.TypeOf((*got)[0]) != reflect.TypeOf(c.want) {
			t.Errorf("check %d, %s with %v s to the limit, reports %T, want %T", i+1, c.class,
				c.toLimit, *got, c.want)
		}
	}
}

// A process that fills the memory within the hour need not be a leak to be warned of.
func TestNearLimit(t *testing.T) {
	const hour = 3600
	mustReport(
		t,
		check{verdict.ClassGrowing, 2 * hour, nil},
		check{verdict.ClassGrowing, hour - 60, LimitNear{}},
		check{verdict.ClassGrowing, hour - 120, nil},
		check{verdict.ClassSaturating, hour - 180, LimitNear{}},
		check{verdict.ClassPlateau, math.NaN(), nil},
		check{verdict.ClassGrowing, 60, LimitNear{}},
		check{verdict.ClassLeak, 50, LimitNear{}},
		check{verdict.ClassLeak, 40, nil},
		check{verdict.ClassLeak, 30, LeakFound{}}, // the alarm
		check{verdict.ClassLeak, 20, nil},
	)
}

// decide decides as the end of a trace does.
func (r *Recorder) decide(all []conclude.Process) {
	r.checks.addLast(all)
	t := r.Recorded()
	for i := range all {
		t.AddChecks(&all[i])
	}
}

func TestCriteria(t *testing.T) {
	open := Options{Speed: 1}
	if c := open.criteria(); c != verdict.InSeconds().Repeated() {
		t.Errorf("criteria without a duration: %+v", c)
	}
	open.Duration = time.Minute
	if c := open.criteria(); c != verdict.InSeconds() {
		t.Errorf("criteria with a duration: %+v", c)
	}
}

// reasonOf is why a verdict has its class, in words.
func reasonOf(v verdict.Verdict) string {
	return words.Reason(summary.VerdictOf(v, summary.AxisSeconds))
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
			r, got := openEndedRecorder()
			r.checks.gpu = verdict.NewRechecks(verdict.InSeconds())
			r.options = Options{Duration: 5 * time.Minute, UntilSettled: time.Hour}
			r.end.set(0, &r.options)
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
			r.checks.settle(r.Recorded(), all, r.end.At())
			if r.checks.settled != c.want {
				t.Errorf("settled: %t, want %t", r.checks.settled, c.want)
			}
			last := (*got)[len(*got)-1]
			switch e := last.(type) {
			case Settled:
				if !c.want {
					t.Errorf("reports %+v", e)
				}
			case Unsettled:
				if c.want || e.Next != 375*time.Second || e.End != time.Hour {
					t.Errorf("next check at %s, end at %s", e.Next, e.End)
				}
			default:
				t.Errorf("reports %T", e)
			}
		})
	}
}

func TestFirstCheck(t *testing.T) {
	o := Options{Duration: 5 * time.Minute, UntilSettled: time.Hour, Speed: 1}
	if next := verdict.NewRechecks(o.firstCheck()).Next(); next != 300 {
		t.Errorf("first check after %v s, want 300", next)
	}
	if c := o.criteria(); c != verdict.InSeconds().Repeated() {
		t.Errorf("criteria %+v are not those of repeated checks", c)
	}
}
