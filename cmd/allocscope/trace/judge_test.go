package trace

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/growth"
)

func TestAlarm(t *testing.T) {
	t.Run("streak", testStreakAlarm)
	t.Run("near limit", testNearLimit)
}

func TestRequireStreak(t *testing.T) {
	t.Run("no duration", testStreakRequired)
	t.Run("duration", testStreakNotRequired)
}

// logged collects what is logged while the test runs. No other may run beside it.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var text bytes.Buffer
	slog.SetDefault(console.New(&text).Logger(false))
	return &text
}

// openEndedRecorder is of a trace without a duration.
func openEndedRecorder() *Recorder {
	return &Recorder{rechecks: growth.NewLooks(growth.InSeconds().Repeated())}
}

// found is a judgement of a process that grows by 1 MiB a second and meets its limit in so many
// seconds.
func found(class growth.Class, toLimit float64) ProcessVerdict {
	v := growth.Judge(growth.Series{}, growth.Setting{}, growth.InSeconds())
	v.Class, v.Why, v.Rate, v.ToLimit = class, "steady growth after warm-up", 1<<20, toLimit
	return ProcessVerdict{Judgement: growth.Judgement{Verdict: v}}
}

// check is a verdict of a recheck, and the part of the log that it must add; empty: none.
type check struct {
	class   growth.Class
	toLimit float64 // seconds
	logs    string
}

func mustLog(t *testing.T, checks ...check) {
	t.Helper()
	r, log := openEndedRecorder(), logged(t)
	for i, c := range checks {
		log.Reset()
		r.raiseAlarm(found(c.class, c.toLimit))
		if c.logs == "" && log.Len() > 0 || !strings.Contains(log.String(), c.logs) ||
			strings.Count(log.String(), "\n") > 1 {
			t.Errorf("check %d, %s with %v s to the limit, logs %q, want %q", i+1, c.class,
				c.toLimit, log, c.logs)
		}
	}
}

func testStreakAlarm(t *testing.T) {
	never := math.NaN()
	const alarm = "LEAK: grows by 60 MiB/min, steady growth after warm-up\n"
	mustLog(t, check{growth.ClassGrowing, never, ""}, check{growth.ClassLeak, never, ""},
		check{growth.ClassLeak, never, ""}, check{growth.ClassSuspected, never, ""},
		check{growth.ClassLeak, never, ""}, check{growth.ClassLeak, never, ""},
		check{growth.ClassLeak, never, alarm}, check{growth.ClassLeak, never, ""},
		check{growth.ClassPlateau, never, ""}, check{growth.ClassLeak, never, ""},
		check{growth.ClassLeak, never, ""}, check{growth.ClassLeak, never, ""})
}

// A process that fills the memory within the hour need not be a leak to be warned of.
func testNearLimit(t *testing.T) {
	const hour = 3600
	mustLog(
		t,
		check{growth.ClassGrowing, 2 * hour, ""},
		check{growth.ClassGrowing, hour - 60, "; "},
		check{growth.ClassGrowing, hour - 120, ""},
		check{growth.ClassSaturating, hour - 180, "; "},
		check{growth.ClassPlateau, math.NaN(), ""},
		check{growth.ClassGrowing, 60, "; "},
		check{growth.ClassLeak, 50, "LEAK"},
		check{growth.ClassLeak, 40, ""},
		check{growth.ClassLeak, 30, "LEAK: grows"}, // the alarm
		check{growth.ClassLeak, 20, ""},
	)
}

func testStreakRequired(t *testing.T) {
	for _, c := range []struct {
		before []growth.Class
		last   growth.Class
		want   growth.Class
		why    string
	}{
		{nil, growth.ClassLeak, growth.ClassSuspected, "in 1 of 3 checks in a row"},
		{
			[]growth.Class{growth.ClassLeak},
			growth.ClassLeak, growth.ClassSuspected,
			"in 2 of 3 checks in a row",
		},
		{
			[]growth.Class{growth.ClassLeak, growth.ClassLeak},
			growth.ClassLeak, growth.ClassLeak,
			"steady growth after warm-up",
		},
		{
			[]growth.Class{growth.ClassLeak, growth.ClassLeak, growth.ClassGrowing},
			growth.ClassLeak,
			growth.ClassSuspected, "in 1 of 3",
		},
		{nil, growth.ClassPlateau, growth.ClassPlateau, "steady growth after warm-up"},
		{
			[]growth.Class{growth.ClassLeak, growth.ClassLeak, growth.ClassLeak},
			growth.ClassGrowing,
			growth.ClassGrowing, "steady growth after warm-up",
		},
	} {
		logged(t)
		r := openEndedRecorder()
		for _, class := range c.before {
			r.raiseAlarm(found(class, math.NaN()))
		}

		all := []ProcessVerdict{found(growth.ClassPlateau, math.NaN()), found(c.last, math.NaN())}
		r.requireStreak(all)
		if all[0].Class != growth.ClassPlateau {
			t.Errorf("%v, then %s: the plateau beside it is %s", c.before, c.last, all[0].Class)
		}

		if got := all[1]; got.Class != c.want || !strings.Contains(got.Why, c.why) {
			t.Errorf("%v, then %s: %s (%s), want %s (%s)", c.before, c.last, got.Class, got.Why,
				c.want, c.why)
		}
	}
}

func testStreakNotRequired(t *testing.T) {
	all := []ProcessVerdict{found(growth.ClassLeak, math.NaN())}
	new(Recorder).requireStreak(all)
	if all[0].Class != growth.ClassLeak {
		t.Errorf("%s (%s), want the leak that was found", all[0].Class, all[0].Why)
	}
}

func TestCriteria(t *testing.T) {
	open := Options{Speed: 1}
	if r := (&Recorder{options: open}); r.criteria() != growth.InSeconds().Repeated() {
		t.Errorf("criteria without a duration: %+v", r.criteria())
	}
	open.Duration = flagvalue.Duration(time.Minute)
	if r := (&Recorder{options: open}); r.criteria() != growth.InSeconds() {
		t.Errorf("criteria with a duration: %+v", r.criteria())
	}
}
