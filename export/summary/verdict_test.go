package summary

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// judged is a verdict in which everything is known, in X. In seconds it is in the golden summary.
func judged() verdict.Verdict {
	return verdict.Verdict{
		Class: verdict.ClassLeak, Reason: verdict.ReasonAfterWarmup, Rate: 1000.4, RateLow: 900,
		RateHigh: 1100, Bound: 1080, Level: 5e9, LevelAt: 1800.5, From: 300.1234, Length: 3300,
		Start: 12, Restarted: true, ExpectedLevel: 6e9,
		Spikes: &verdict.Spikes{
			Share: 0.25, Height: 1e9 + 0.4, Spans: []verdict.Span{{From: 600, To: 601.5}},
		},
		ToLimit: 1000, ToLimitLow: 900, ToLimitHigh: 1100, Longer: 60,
		Phases: []verdict.Phase{
			{Kind: verdict.PhaseWarmup, From: 12, To: 300, Rate: 5000},
			{Kind: verdict.PhaseGrowth, From: 300, To: 3600, Rate: 1000.4},
		},
	}
}

// keysOf has the keys of a verdict as JSON.
func keysOf(t *testing.T, v any) map[string]any {
	t.Helper()
	text := tracertest.Must(json.Marshal(v))(t)
	keys := make(map[string]any)
	tracertest.NoError(t, json.Unmarshal(text, &keys))
	return keys
}

func parsed(t *testing.T, text string) (keys map[string]any) {
	t.Helper()
	tracertest.NoError(t, json.Unmarshal([]byte(text), &keys))
	return keys
}

func TestVerdictOf(t *testing.T) {
	t.Run("steps", func(t *testing.T) {
		want := parsed(t,
			`{"verdict": "leak", "axis": "step", "why_code": "after-warm-up", "rate_bytes": 1000, "rate_low_bytes": 900, "rate_high_bytes": 1100, "bound_bytes": 1080,
		"plateau_from": 300.123, "segment": 3300, "restarted_at": 12, "level_bytes": 5e9, "level_at": 1800.5, "levels_off_at_bytes": 6e9,
		"to_limit": 1000, "to_limit_low": 900, "to_limit_high": 1100, "watch_longer": 60, "spikes": {"share": 0.25, "height_bytes": 1e9, "spans": [{"from": 600, "to": 601.5}]},
		"phases": [{"kind": "warm-up", "from": 12, "to": 300, "rate_bytes": 5000}, {"kind": "growth", "from": 300, "to": 3600, "rate_bytes": 1000}],
		"evidence": {"for": [{"code": "after-warm-up", "length": 288.123}]}}`)
		v := VerdictOf(judged(), AxisSteps)
		if got := keysOf(t, v); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if seconds := VerdictOf(judged(), AxisSeconds); !v.InSteps() || seconds.InSteps() {
			t.Errorf("in steps: %v, in seconds: %v", v.InSteps(), seconds.InSteps())
		}
	})

	t.Run("unknown values", func(t *testing.T) {
		nan := math.NaN()
		unknown := verdict.Verdict{
			Class: verdict.ClassTooShort, Reason: verdict.ReasonTooShort, Rate: nan, RateLow: math.Inf(-1),
			RateHigh: math.Inf(1), Bound: math.Inf(1), Level: nan, LevelAt: nan, From: nan,
			Length: nan, ExpectedLevel: nan, ToLimit: nan, ToLimitLow: nan, ToLimitHigh: math.Inf(1),
			Longer: 90, Start: 5,
		}
		want := parsed(t,
			`{"verdict": "too-short", "axis": "s", "why_code": "too-short", "watch_longer": 90, "phases": []}`)
		if got := keysOf(t, VerdictOf(unknown, AxisSeconds)); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v", got)
		}
	})
}
