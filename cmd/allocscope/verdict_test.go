package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestVerdict(t *testing.T) {
	t.Run("leak and plateau", testVerdictLeak)
	t.Run("steps", testVerdictSteps)
	t.Run("settings", testVerdictSettings)
	t.Run("refusals", testVerdictRefusals)
}

// callHere calls allocscope in this process.
func callHere(t *testing.T, input string, arguments ...string) (string, error) {
	t.Helper()
	out := new(bytes.Buffer)
	command := newRootCommand(console.New(out))
	command.SetIn(strings.NewReader(input))
	command.SetOut(out)
	command.SetArgs(arguments)
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// callVerdict judges a series.
func callVerdict(t *testing.T, text string, flags ...string) (string, error) {
	t.Helper()
	return callHere(t, text, append([]string{"verdict", "-"}, flags...)...)
}

// recorded is a series of an hour, a row every ten seconds, with a little noise; mb is its size
// after so many seconds.
func recorded(mb func(seconds float64) float64) string {
	random := rand.New(rand.NewPCG(7, 7))
	text := new(strings.Builder)
	text.WriteString("time_s,rss_mb\n")
	for i := range 361 {
		fmt.Fprintf(text, "%d,%.2f\n", 10*i, mb(float64(10*i))+2*random.NormFloat64())
	}
	return text.String()
}

func growingSteadily(s float64) float64 { return 100_000 + s } // 60 MB/min

func standingStill(float64) float64 { return 5000 }

// jsonOf calls the command with --json.
func jsonOf(t *testing.T, text string, flags ...string) summary.Verdict {
	t.Helper()
	out := tracertest.Must(callVerdict(t, text, append(flags, "--json")...))(t)

	var v summary.Verdict
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return v
}

func mustBeNear(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is unknown, want about %g", what, want)
	} else if *got < 0.98*want || *got > 1.02*want {
		t.Errorf("%s is %g, want about %g", what, *got, want)
	}
}

func testVerdictLeak(t *testing.T) {
	v := jsonOf(t, recorded(growingSteadily), "--limit", "104800MB")
	if v.Class != verdict.ClassLeak {
		t.Fatalf("%+v", v)
	}

	mustBeNear(t, "rate", v.Rate, 60e6)
	mustBeNear(t, "time to the limit", v.ToLimit, 1200)
	out, err := callVerdict(t, recorded(growingSteadily), "--limit", "104800MB")
	must(t, err)

	mustSay(t, "stdout", out, "LEAK   ", "+57", " MiB/min (95% CI ",
		"out of memory in ", " min (limit 104800MB)\n")

	out, err = callVerdict(t, recorded(growingSteadily), "--fail-on", "suspected")
	if exit.StatusOf(err) != exit.Found ||
		!strings.Contains(err.Error(), "the verdict is leak (--fail-on suspected)") {
		t.Errorf("%v", err)
	}
	mustSay(t, "stdout", out, "LEAK   ", "HOW FAST  +")

	out = tracertest.Must(callVerdict(t, recorded(standingStill), "--fail-on", "suspected"))(t)
	mustSay(t, "stdout", out, "STABLE   ", "would have been seen")
}

func testVerdictSteps(t *testing.T) {
	text := strings.Replace(recorded(growingSteadily), "time_s", "step", 1)
	v := jsonOf(t, text, "--limit", "104800MB")
	if v.Axis != summary.AxisSteps {
		t.Errorf("axis %q", v.Axis)
	}
	mustBeNear(t, "rate", v.Rate, 1e6)
	mustBeNear(t, "steps to the limit", v.ToLimit, 1200)
	v = jsonOf(t, text, "--limit", "104800MB", "--step-time", "500ms")
	if v.Axis != summary.AxisSeconds {
		t.Errorf("axis %q with the time of a step", v.Axis)
	}
	mustBeNear(t, "rate", v.Rate, 120e6)
	mustBeNear(t, "time to the limit", v.ToLimit, 600)
}

// Package flagvalue proves how the values of flags lie on the axis.
func testVerdictSettings(t *testing.T) {
	text := recorded(growingSteadily)
	steps := strings.Replace(text, "time_s", "step", 1)
	for _, test := range []struct {
		name, text, flags string
		class             verdict.Class
		why               string
	}{
		{"nothing", text, "", verdict.ClassLeak, "without a plateau"},
		{"age", text, "--age 3h", verdict.ClassLeak, "after the warm-up"},
		{"first pass is not over", text, "--epoch-end 70m", verdict.ClassGrowing, ""},
		{"a step in time", steps, "--epoch-end 3700 --step-time 2s", verdict.ClassGrowing, ""},
		{"long epochs", text, "--cycle 1h", verdict.ClassGrowing, ""},
		{"tolerated", text, "--tolerable 70MB/min", verdict.ClassPlateau, ""},
		{"not tolerated", text, "--tolerable 50MB/min", verdict.ClassLeak, ""},
		{"tolerated by step", steps, "--tolerable 1.1MB/step", verdict.ClassPlateau, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := jsonOf(t, test.text, strings.Fields(test.flags)...)
			why := words.Reason(v)
			if v.Class != test.class || !strings.Contains(why, test.why) {
				t.Errorf("%s, %s", v.Class, why)
			}
		})
	}
}

func testVerdictRefusals(t *testing.T) {
	text := recorded(standingStill)
	steps := strings.Replace(text, "time_s", "step", 1)
	call(t, "verdict", "/nowhere", "--fail-on", "leak").mustEndSaying(2, "no such file")
	for _, test := range []struct{ text, flags, want string }{
		{text, "--step-time 8s", "--step-time 8s is for a series in steps"},
		{text, "--tolerable 5MB/step", "the series has no steps"},
		{steps, "--age 2h", "--age 2h is a time, and the series is in steps"},
		{steps, "--epoch-end 40m", "--epoch-end 40m is a time"},
		{steps, "--cycle 40m", "--cycle 40m is a time"},
		{text, "--x 3", `read -: find column "3"`},
		{text, "--fail-on plateau", "neither leak nor suspected"},
		{"", "--every 5s", "read -: read lines: the file is empty"},
	} {
		out, err := callVerdict(t, test.text, strings.Fields(test.flags)...)
		if err == nil || !strings.Contains(err.Error(), test.want) || out != "" {
			t.Errorf("%s: %v, prints %q", test.flags, err, out)
		}
	}
}
