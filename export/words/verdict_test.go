package words

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
)

var allClasses = []verdict.Class{
	verdict.ClassLeak, verdict.ClassSuspected, verdict.ClassGrowing, verdict.ClassFillsUp,
	verdict.ClassSaturating,
	verdict.ClassPlateau, verdict.ClassSpikyPlateau, verdict.ClassTooShort,
	verdict.ClassWrongProcess,
}

// unknownVerdict knows nothing but its class.
func unknownVerdict(class verdict.Class, reason verdict.Reason) verdict.Verdict {
	nan := math.NaN()
	return verdict.Verdict{
		Class: class, Reason: reason, Rate: nan, RateLow: nan, RateHigh: nan, Bound: nan, Level: nan,
		LevelAt: nan, From: nan, Length: nan, Start: nan, ExpectedLevel: nan,
		ToLimit: nan, ToLimitLow: nan, ToLimitHigh: nan,
	}
}

// with gives a verdict a rate in MiB per X, with its interval and bound.
func with(class verdict.Class, reason verdict.Reason, rate, low, high, bound float64) verdict.Verdict {
	v := unknownVerdict(class, reason)
	v.Rate, v.RateLow, v.RateHigh, v.Bound = rate*bytesPerMiB, low*bytesPerMiB, high*bytesPerMiB,
		bound*bytesPerMiB
	return v
}

func TestVerdictLines(t *testing.T) {
	leak := with(verdict.ClassLeak, verdict.ReasonAfterWarmup, 9.5367, 9.4628, 9.6106, 9.59)
	leak.ToLimit, leak.ToLimitLow, leak.ToLimitHigh, leak.From = 1770, 1690, 1855, 4900
	leak.Spikes = &verdict.Spikes{Share: 0.067, Height: 4.19 * 1024 * bytesPerMiB}
	endless := leak
	endless.ToLimitHigh, endless.Spikes, endless.From = math.Inf(1), nil, math.NaN()
	full := leak
	full.ToLimit, full.ToLimitLow, full.ToLimitHigh, full.Spikes, full.From = 0, 0, 0, nil,
		math.NaN()
	suspected := with(verdict.ClassSuspected, verdict.ReasonStacksAccumulate, 1, 0.9, 1.1, 1.05)
	suspected.ToLimit, suspected.Longer = 7300, 1201
	growing := with(verdict.ClassGrowing, verdict.ReasonStillGrowing, 161.66, 157.94, 165.43, 164.6)
	growing.ToLimit, growing.Longer = 119.6, 30
	saturating := with(verdict.ClassSaturating, verdict.ReasonSlowsDown, 0.5, 0.4, 0.6, 0.58)
	saturating.ExpectedLevel, saturating.Longer, saturating.From = 12.3*1024*bytesPerMiB, 5*24*3600, 60
	plateau := with(verdict.ClassPlateau, verdict.ReasonNoGrowth, -0.0001, -0.23, 0.23, 0.193)
	plateau.From, plateau.Longer, plateau.Start, plateau.Restarted = 300, 91, 120, true
	falling := with(verdict.ClassPlateau, verdict.ReasonNoGrowth, -4.851, -5.97, -3.73, 0)
	falling.Start, falling.Restarted = 40, true
	residual := with(verdict.ClassSpikyPlateau, verdict.ReasonNotProven, 2.13, 0.714, 3.546, 3.2401)
	residual.From, residual.Longer = 40, 327.2
	residual.Spikes = &verdict.Spikes{Share: 0.25, Height: 512 * bytesPerMiB}
	short := unknownVerdict(verdict.ClassTooShort, verdict.ReasonTooShort)
	short.Longer = 90
	noisy := with(verdict.ClassTooShort, verdict.ReasonTooNoisy, 76, 0.25, 150, 138)
	noisy.From, noisy.Longer = 10, 3600.5
	wrong := unknownVerdict(verdict.ClassWrongProcess, verdict.ReasonOtherProcess)
	wrong.Other = &verdict.OtherGrowth{
		PID: 7, Command: "python", Growth: 30 * bytesPerMiB, TreeGrowth: bytesPerMiB,
	}
	cases := []struct {
		name    string
		verdict verdict.Verdict
		axis    summary.Axis
	}{
		{"leak", leak, summary.AxisSeconds},
		{"leak without a last moment", endless, summary.AxisSeconds},
		{"leak at the limit", full, summary.AxisSteps},
		{"suspected", suspected, summary.AxisSeconds},
		{"growing", growing, summary.AxisSteps},
		{"levelling off", saturating, summary.AxisSeconds},
		{"stable", plateau, summary.AxisSeconds},
		{"falling", falling, summary.AxisSteps},
		{"residual growth", residual, summary.AxisSteps},
		{"too short", short, summary.AxisSeconds},
		{"too noisy", noisy, summary.AxisSeconds},
		{"wrong process", wrong, summary.AxisSeconds},
	}

	var text strings.Builder
	for _, c := range cases {
		lines := VerdictLines(summary.VerdictOf(c.verdict, c.axis), AtLimit)
		if len(lines) > 5 {
			t.Errorf("%s: %d lines", c.name, len(lines))
		}
		fmt.Fprintf(&text, "== %s\n%s\n\n", c.name, strings.Join(lines, "\n"))
	}
	exporttest.Golden(t, "verdicts.txt", text.String())

	// Whatever is unknown, no line speaks of it.
	t.Run("unknown values are left out", func(t *testing.T) {
		for _, class := range allClasses {
			for _, axis := range []summary.Axis{summary.AxisSeconds, summary.AxisSteps} {
				v := summary.VerdictOf(unknownVerdict(class, "why"), axis)
				lines := VerdictLines(v, "out of memory")
				text := strings.Join(lines, "\n")
				if strings.ContainsAny(text, "0123456789") || strings.Contains(text, "NaN") {
					t.Errorf("%s says\n%s", class, text)
				}
			}
		}
	})
}

// All classes have names of their own, and so have two reasons.
func TestName(t *testing.T) {
	names := make(map[string]bool)
	for _, class := range allClasses {
		names[Name(summary.Verdict{Class: class})] = true
	}
	freed := summary.Verdict{Class: verdict.ClassLeak, WhyCode: verdict.ReasonFragmentation}
	names[Name(freed)] = true
	if len(names) != 9 {
		t.Errorf("%d names: %v", len(names), names)
	}
}
