package record

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestAlarm(t *testing.T) {
	t.Run("streak", testStreakAlarm)
	t.Run("near limit", testNearLimit)
}

func TestLastCheck(t *testing.T) {
	t.Run("no duration", testStreakRequired)
	t.Run("duration", testStreakNotRequired)
}

// logged collects the log entries while the test runs. No other may run beside it.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var text bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	return &text
}

// openEndedRecorder is of a trace without a duration.
func openEndedRecorder() *Recorder {
	return &Recorder{checks: checks{rss: verdict.NewRechecks(verdict.InSeconds().Repeated())}}
}

// found is a judgement of a process that grows by 1 MiB a second and meets its limit in so many
// seconds.
func found(class verdict.Class, toLimit float64) conclude.Process {
	v := verdict.Judge(verdict.Series{}, verdict.Setting{}, verdict.InSeconds())
	v.Class, v.Reason, v.Rate, v.ToLimit = class, verdict.ReasonAfterWarmup, 1<<20, toLimit
	return conclude.Process{Judgement: judge.Judgement{Verdict: v, Judged: v}}
}

// check is a verdict of a recheck, and the part of the log that it must add; empty: none.
type check struct {
	class   verdict.Class
	toLimit float64 // seconds
	logs    string
}

func mustLog(t *testing.T, checks ...check) {
	t.Helper()
	r, log := openEndedRecorder(), logged(t)
	for i, c := range checks {
		log.Reset()
		r.checks.addRSS(found(c.class, c.toLimit))
		if c.logs == "" && log.Len() > 0 || !strings.Contains(log.String(), c.logs) ||
			strings.Count(log.String(), "\n") > 1 {
			t.Errorf("check %d, %s with %v s to the limit, logs %q, want %q", i+1, c.class,
				c.toLimit, log, c.logs)
		}
	}
}

func testStreakAlarm(t *testing.T) {
	never := math.NaN()
	const alarm = "LEAK: +60 MiB/min"
	leak := check{verdict.ClassLeak, never, ""}
	mustLog(t, check{verdict.ClassGrowing, never, ""}, leak, leak,
		check{verdict.ClassSuspected, never, ""}, leak, leak,
		check{verdict.ClassLeak, never, alarm}, leak,
		check{verdict.ClassPlateau, never, ""}, leak, leak, leak)
}

// A process that fills the memory within the hour need not be a leak to be warned of.
func testNearLimit(t *testing.T) {
	const hour = 3600
	mustLog(
		t,
		check{verdict.ClassGrowing, 2 * hour, ""},
		check{verdict.ClassGrowing, hour - 60, "; "},
		check{verdict.ClassGrowing, hour - 120, ""},
		check{verdict.ClassSaturating, hour - 180, "; "},
		check{verdict.ClassPlateau, math.NaN(), ""},
		check{verdict.ClassGrowing, 60, "; "},
		check{verdict.ClassLeak, 50, "LEAK"},
		check{verdict.ClassLeak, 40, ""},
		check{verdict.ClassLeak, 30, "LEAK: +60"}, // the alarm
		check{verdict.ClassLeak, 20, ""},
	)
}

func testStreakRequired(t *testing.T) {
	const leak, growing, plateau = verdict.ClassLeak, verdict.ClassGrowing, verdict.ClassPlateau
	for _, c := range []struct {
		before     []verdict.Class
		last, want verdict.Class
		why        string
	}{
		{nil, leak, verdict.ClassSuspected, "in 1 of 3 checks in a row"},
		{[]verdict.Class{leak}, leak, verdict.ClassSuspected, "in 2 of 3 checks in a row"},
		{[]verdict.Class{leak, leak}, leak, leak, "after the warm-up"},
		{[]verdict.Class{leak, leak, growing}, leak, verdict.ClassSuspected, "in 1 of 3"},
		{nil, plateau, plateau, "after the warm-up"},
		{[]verdict.Class{leak, leak, leak}, growing, growing, "after the warm-up"},
	} {
		logged(t)
		r := openEndedRecorder()
		for _, class := range c.before {
			r.checks.addRSS(found(class, math.NaN()))
		}

		all := []conclude.Process{found(plateau, math.NaN()), found(c.last, math.NaN())}
		r.decide(all)
		why := reasonOf(all[1].Verdict)
		if all[0].Class != plateau || all[1].Class != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%v, then %s: %s and %s (%s), want %s (%s)", c.before, c.last, all[0].Class,
				all[1].Class, why, c.want, c.why)
		}
	}
}

// decide decides as the end of a trace does.
func (r *Recorder) decide(all []conclude.Process) {
	r.checks.addLast(all)
	t := r.Recorded()
	for i := range all {
		t.AddChecks(&all[i])
	}
}

func testStreakNotRequired(t *testing.T) {
	all := []conclude.Process{found(verdict.ClassLeak, math.NaN())}
	new(Recorder).decide(all)
	if all[0].Class != verdict.ClassLeak {
		t.Errorf("%s (%s), want the leak that was found", all[0].Class, reasonOf(all[0].Verdict))
	}
}

func TestCriteria(t *testing.T) {
	open := Options{Speed: 1}
	if r := (&Recorder{options: open}); r.options.criteria() != verdict.InSeconds().Repeated() {
		t.Errorf("criteria without a duration: %+v", r.options.criteria())
	}
	open.Duration = time.Duration(time.Minute)
	if r := (&Recorder{options: open}); r.options.criteria() != verdict.InSeconds() {
		t.Errorf("criteria with a duration: %+v", r.options.criteria())
	}
}

// reasonOf is why a verdict has its class, in words.
func reasonOf(v verdict.Verdict) string {
	return words.Reason(summary.VerdictOf(v, summary.AxisSeconds))
}
