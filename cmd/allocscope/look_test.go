package main

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// logged collects what is logged while the test runs. No other may run beside it.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var text bytes.Buffer
	slog.SetDefault(newLogger(&text, false))
	return &text
}

// looking is a recorder of a trace without a known end.
func looking() *recorder {
	return &recorder{looks: growth.NewLooks(growth.InSeconds().Repeated())}
}

// found is a judgement of a process that grows by 1 MiB a second and meets its limit in so many seconds.
func found(class growth.Class, toLimit float64) judged {
	v := growth.Judge(growth.Series{}, growth.Setting{}, growth.InSeconds())
	v.Class, v.Why, v.Rate, v.ToLimit = class, "steady growth after warm-up", 1<<20, toLimit
	return judged{Judgement: growth.Judgement{Verdict: v}}
}

// A look finds a class, with so many seconds to the limit, and the trace says something of it or nothing.
type aLook struct {
	class   growth.Class
	toLimit float64
	says    string
}

func mustSayAtLooks(t *testing.T, looks ...aLook) {
	t.Helper()
	r, log := looking(), logged(t)
	for i, look := range looks {
		log.Reset()
		r.alarm(found(look.class, look.toLimit))
		if look.says == "" && log.Len() > 0 || !strings.Contains(log.String(), look.says) || strings.Count(log.String(), "\n") > 1 {
			t.Errorf("look %d, %s with %v s to the limit, says %q, want %q", i+1, look.class, look.toLimit, log, look.says)
		}
	}
}

func TestThreeLooksThatFindALeakRaiseTheAlarmOnce(t *testing.T) {
	never := math.NaN()
	const alarm = "LEAK: grows by 60 MiB/min, steady growth after warm-up\n"
	mustSayAtLooks(
		t,
		aLook{growth.ClassGrowing, never, ""},
		aLook{growth.ClassLeak, never, ""},
		aLook{growth.ClassLeak, never, ""},
		aLook{growth.ClassSuspected, never, ""},
		aLook{growth.ClassLeak, never, ""},
		aLook{growth.ClassLeak, never, ""},
		aLook{growth.ClassLeak, never, alarm},
		aLook{growth.ClassLeak, never, ""},
		aLook{growth.ClassPlateau, never, ""},
		aLook{growth.ClassLeak, never, ""},
		aLook{growth.ClassLeak, never, ""},
		aLook{growth.ClassLeak, never, ""},
	)
}

// A process that fills the memory within the hour need not be a leak to be warned of.
func TestALimitThatIsNearIsSaidAtOnceAndOnce(t *testing.T) {
	const hour = 3600
	mustSayAtLooks(
		t,
		aLook{growth.ClassGrowing, 2 * hour, ""},
		aLook{growth.ClassGrowing, hour - 60, "GROWING, too early to tell: by 60 MiB/min; memory is full in 59 min if this pace holds"},
		aLook{growth.ClassGrowing, hour - 120, ""},
		aLook{growth.ClassSaturating, hour - 180, "SATURATING"},
		aLook{growth.ClassPlateau, math.NaN(), ""},
		aLook{growth.ClassGrowing, 60, "memory is full in 60 s if this pace holds"},
		aLook{growth.ClassLeak, 50, "LEAK"},
		aLook{growth.ClassLeak, 40, ""},
		aLook{growth.ClassLeak, 30, "LEAK: grows"}, // the alarm
		aLook{growth.ClassLeak, 20, ""},
	)
}

func TestALeakThatTooFewLooksHaveSeenIsSuspected(t *testing.T) {
	for _, c := range []struct {
		before []growth.Class
		last   growth.Class
		want   growth.Class
		why    string
	}{
		{nil, growth.ClassLeak, growth.ClassSuspected, "in 1 of 3 looks in a row"},
		{[]growth.Class{growth.ClassLeak}, growth.ClassLeak, growth.ClassSuspected, "in 2 of 3 looks in a row"},
		{[]growth.Class{growth.ClassLeak, growth.ClassLeak}, growth.ClassLeak, growth.ClassLeak, "steady growth after warm-up"},
		{[]growth.Class{growth.ClassLeak, growth.ClassLeak, growth.ClassGrowing}, growth.ClassLeak, growth.ClassSuspected, "in 1 of 3"},
		{nil, growth.ClassPlateau, growth.ClassPlateau, "steady growth after warm-up"},
		{[]growth.Class{growth.ClassLeak, growth.ClassLeak, growth.ClassLeak}, growth.ClassGrowing, growth.ClassGrowing, "steady growth after warm-up"},
	} {
		logged(t)
		r := looking()
		for _, class := range c.before {
			r.alarm(found(class, math.NaN()))
		}
		all := []judged{found(growth.ClassPlateau, math.NaN()), found(c.last, math.NaN())}
		r.settle(all)
		if all[0].Class != growth.ClassPlateau {
			t.Errorf("%v, then %s: the plateau beside it is %s", c.before, c.last, all[0].Class)
		}
		if got := all[1]; got.Class != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%v, then %s: %s (%s), want %s (%s)", c.before, c.last, got.Class, got.Why, c.want, c.why)
		}
	}
}

func TestOneLookAtTheEndOfATraceWithADurationSettlesIt(t *testing.T) {
	all := []judged{found(growth.ClassLeak, math.NaN())}
	new(recorder).settle(all)
	if all[0].Class != growth.ClassLeak {
		t.Errorf("%s (%s), want the leak that was found", all[0].Class, all[0].Why)
	}
}

func TestATraceThatIsJudgedAgainAndAgainHasSternerCriteria(t *testing.T) {
	open := traceFlags{pace: 1}
	if r := (&recorder{flags: open}); r.criteria() != growth.InSeconds().Repeated() {
		t.Errorf("criteria without a duration: %+v", r.criteria())
	}
	open.duration = durationValue(time.Minute)
	if r := (&recorder{flags: open}); r.criteria() != growth.InSeconds() {
		t.Errorf("criteria with a duration: %+v", r.criteria())
	}
}

// An hour of the job's life takes six seconds. Then looks can find a leak, and a leak at the end says that three have.
// It goes on until the alarm is raised: a look that a busy machine disturbs begins the count anew.
func TestALeakIsFoundByLookingAgainAndAgainUntilCtrlC(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var said output
	slog.SetDefault(newLogger(&said, false))
	job := startJob(t, "fill=50", "leak=64")
	ctx, interrupt := context.WithTimeout(t.Context(), guard)
	defer interrupt()
	go func() {
		for ctx.Err() == nil && !strings.Contains(said.String(), "LEAK: grows by") {
			time.Sleep(10 * time.Millisecond)
		}
		interrupt()
	}()
	v, err := judgeUntil(ctx, t, fastTrace(t, job.PID(), 600, 0))
	if err != nil {
		t.Error(err)
	}
	v.mustBe(t, growth.ClassLeak)
	if v.Ended != summary.EndedInterrupt {
		t.Errorf("ended: %q", v.Ended)
	}
}
