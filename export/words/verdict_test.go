package words

import (
	"math"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
)

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
	for _, test := range []struct {
		name    string
		verdict verdict.Verdict
		axis    summary.Axis
		want    string
	}{
		{
			"leak", leak, summary.AxisSeconds,
			`LEAK: grows by 572.2 MiB/min (95% CI 567.8-576.6), steady growth after warm-up
out of memory in 28-31 min
spikes of 4.19 GiB on top, in 6.7% of the samples
growing at this rate since 82 min`,
		},
		{
			"leak without a last moment", endless, summary.AxisSeconds,
			`LEAK: grows by 572.2 MiB/min (95% CI 567.8-576.6), steady growth after warm-up
out of memory in 28 min at the earliest`,
		},
		{
			"leak at the limit", full, summary.AxisSteps,
			`LEAK: grows by 9.54 MiB/step (95% CI 9.46-9.61), steady growth after warm-up
out of memory now`,
		},
		{
			"suspected", suspected, summary.AxisSeconds,
			`LEAK SUSPECTED: grows by 60 MiB/min (95% CI 54-66), steady growth, explained by stacks that accumulate
out of memory in 2 h at this rate
watch at least 21 min more to confirm it`,
		},
		{
			"growing", growing, summary.AxisSteps,
			`GROWING, too early to tell: by 161.7 MiB/step (95% CI 157.9-165.4)
out of memory in 120 steps at this rate
watch at least 30 steps more`,
		},
		{
			"saturating", saturating, summary.AxisSeconds,
			`SATURATING: grows by 30 MiB/min (95% CI 24-36), and slows down
expected to level off near 12.3 GiB
growing at this rate since 60 s
watch at least 5 days more`,
		},
		{
			"plateau", plateau, summary.AxisSeconds,
			`NO LEAK (plateau): no growth is seen, the rate is 0 MiB/min (95% CI -14 to 14)
if there is a leak, it is below 12 MiB/min (95% confidence)
the plateau began at 5 min, after a restart at 2 min
watch at least 91 s more to exclude a smaller one`,
		},
		{
			"falling", falling, summary.AxisSteps,
			`NO LEAK (plateau): no growth is seen, the rate is -4.9 MiB/step (95% CI -6.0 to -3.7)
a leak of any size is excluded (95% confidence)
only what follows the restart at step 40 is judged`,
		},
		{
			"residual growth", residual, summary.AxisSteps,
			`NO LEAK (spiky plateau): a residual growth of 2.1 MiB/step (95% CI 0.7-3.5) is seen, but not proven to last
if there is a leak, it is below 3.3 MiB/step (95% confidence)
spikes of 512 MiB on top, in 25% of the samples
the plateau began at step 40
watch at least 328 steps more to exclude a smaller one`,
		},
		{"too short", short, summary.AxisSeconds, "TOO SHORT to tell\nwatch at least 90 s more"},
		{
			"too noisy", noisy, summary.AxisSeconds,
			"TOO SHORT: too noisy to tell yet\nwatch at least 61 min more",
		},
		{
			"wrong process",
			wrong, summary.AxisSeconds,
			"WRONG PROCESS? PID 7 (python) outside the traced tree grew by 30 MiB, the tree by 1 MiB " +
				"(trace that one: --pid 7)",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := VerdictLines(summary.VerdictOf(test.verdict, test.axis), "out of memory")
			if got := strings.Join(lines, "\n"); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if len(lines) > 5 {
				t.Errorf("%d lines", len(lines))
			}
		})
	}

	// Whatever is unknown, no line speaks of it.
	t.Run("unknown values are left out", func(t *testing.T) {
		for _, class := range []verdict.Class{
			verdict.ClassLeak, verdict.ClassSuspected, verdict.ClassGrowing, verdict.ClassSaturating,
			verdict.ClassPlateau, verdict.ClassSpikyPlateau, verdict.ClassTooShort,
			verdict.ClassWrongProcess,
		} {
			for _, axis := range []summary.Axis{summary.AxisSeconds, summary.AxisSteps} {
				v := summary.VerdictOf(unknownVerdict(class, "why"), axis)
				lines := VerdictLines(v, "out of memory")
				text := strings.Join(lines, "\n")
				if len(lines) != 1 || strings.ContainsAny(text, "0123456789") ||
					strings.Contains(text, "NaN") {
					t.Errorf("%s says\n%s", class, text)
				}
			}
		}
	})
}

func TestHeadlineParts(t *testing.T) {
	for _, test := range []struct {
		verdict                  summary.Verdict
		name, sentence, headline string
	}{
		{
			summary.Verdict{Class: verdict.ClassGrowing},
			"GROWING, too early to tell", "by an unknown rate",
			"GROWING, too early to tell: by an unknown rate",
		},
		{
			summary.Verdict{Class: verdict.ClassWrongProcess, Why: "PID 7 grew"},
			"WRONG PROCESS?", "PID 7 grew", "WRONG PROCESS? PID 7 grew",
		},
		{
			summary.Verdict{Class: verdict.ClassTooShort, WhyCode: verdict.ReasonTooShort},
			"TOO SHORT", "to tell", "TOO SHORT to tell",
		},
		{
			summary.Verdict{Class: verdict.ClassTooShort, Why: "too noisy"},
			"TOO SHORT", "too noisy", "TOO SHORT: too noisy",
		},
		{
			summary.Verdict{
				Class: verdict.ClassGrowing, WhyCode: verdict.ReasonFragmentation, Why: "freed memory",
			},
			"FRAGMENTATION", "grows by an unknown rate, most of it freed memory",
			"FRAGMENTATION: grows by an unknown rate, most of it freed memory",
		},
		{
			summary.Verdict{
				Class: verdict.ClassPlateau, WhyCode: verdict.ReasonPageCache, Why: "only files grow",
			},
			"NO LEAK (page cache)", "only files grow", "NO LEAK (page cache): only files grow",
		},
	} {
		name, sentence := HeadlineParts(test.verdict)
		headline := Headline(test.verdict)
		if name != test.name || sentence != test.sentence || headline != test.headline {
			t.Errorf("%q and %q, as %q", name, sentence, headline)
		}
	}
}
