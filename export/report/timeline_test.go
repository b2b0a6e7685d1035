package report

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

func curveOf(t *testing.T, d *timelineData, key string) []*int64 {
	t.Helper()
	i := slices.IndexFunc(d.Series, func(c curve) bool { return c.Key == key })
	if i < 0 {
		t.Fatalf("there is no curve %s", key)
	}
	return d.Series[i].Values
}

func TestTimeline(t *testing.T) {
	t.Run("curves", func(t *testing.T) {
		s := leakingSummary()
		d := timelineOf(&s, timelineRows(300))
		for key, want := range map[string][2]int64{
			"rss": {80 * mib, 180 * mib}, "private": {60 * mib, 160 * mib},
			"pss": {70 * mib, 170 * mib}, "tree": {480 * mib, 580 * mib}, "workers": {5, 5},
		} {
			if values := curveOf(t, d, key); *values[0] != want[0] || *values[100] != want[1] ||
				len(values) != 301 {
				t.Errorf("%s is %d and %d", key, *values[0], *values[100])
			}
		}
		if values := curveOf(t, d, "tensors"); values[19] != nil || *values[20] != 50*mib ||
			*values[300] != 330*mib {
			t.Errorf("tensors are %d, %d and %d", values[19], values[20], values[300])
		}
		if curveOf(t, d, "private")[1] != nil || d.TimeS[300] != 300 || *d.Steps[300] != 3000 ||
			*d.BaselineS != 60 || d.Spikes[0] != (span{100, 110}) {
			t.Errorf("%+v", d)
		}
		if d.Phases[1] != (phaseBand{span{60, 300}, "growth", "growth"}) {
			t.Errorf("phases %+v", d.Phases)
		}
	})

	t.Run("gap", func(t *testing.T) {
		s := leakingSummary()
		s.Gaps = []summary.Gap{{FromS: 100, ToS: 201}, {FromS: -1e15, ToS: 1e15}, {FromS: 301, ToS: 400}}
		rows := timelineRows(300)
		d := timelineOf(&s, append(rows[:101:101], rows[201:]...))
		if d.TimeS[100] != 100 || d.TimeS[101] != 150.5 || d.TimeS[102] != 201 || len(d.TimeS) != 202 {
			t.Fatalf("times %v around the gap, %d in all", d.TimeS[100:103], len(d.TimeS))
		}
		for _, key := range []string{"rss", "tree", "workers", "tensors"} {
			if values := curveOf(t, d, key); values[101] != nil || values[100] == nil || values[102] == nil {
				t.Errorf("%s leads over the gap", key)
			}
		}
	})

	t.Run("process without a tree", func(t *testing.T) {
		s := leakingSummary()
		d := timelineOf(&s, gpuRows(10, func(int, *growth.Sample) {}))
		if len(d.Series) != 1 || d.Steps != nil {
			t.Errorf("%+v", d)
		}
	})

	// The line goes through the level where that is, 10 s before the middle of the last segment.
	t.Run("slope", func(t *testing.T) {
		s := leakingSummary()
		want := slope{
			span{60, 300}, 510 * mib, 1 * mib, 943718, 1153434, "60 MiB/min (95% CI 54-66)",
		}
		got := timelineOf(&s, timelineRows(300)).Slope
		got.LowBytesPerS, got.HighBytesPerS = float64(int(got.LowBytesPerS)),
			float64(int(got.HighBytesPerS+1))
		if *got != want {
			t.Errorf("%+v, want %+v", *got, want)
		}
		for name, edit := range map[string]func(*summary.Summary){
			"steps":  func(s *summary.Summary) { s.Axis = summary.AxisSteps },
			"late":   func(s *summary.Summary) { s.PlateauFrom = new(300.0) },
			"unsure": func(s *summary.Summary) { s.RateLow = nil },
		} {
			s := leakingSummary()
			edit(&s)
			if got := timelineOf(&s, timelineRows(300)).Slope; got != nil {
				t.Errorf("%s: %+v", name, *got)
			}
		}
	})

	t.Run("order of times and steps", func(t *testing.T) {
		s := leakingSummary()
		list := timelineRows(10)
		list[4].Elapsed = list[3].Elapsed
		list[7].Elapsed = 0
		list[8].Steps, list[9].Steps = 5, growth.Unknown
		d := timelineOf(&s, list)
		if !slices.Equal(d.TimeS, []float64{0, 1, 2, 3, 5, 6, 8, 9, 10}) || *d.Steps[6] != 60 ||
			d.Steps[7] != nil || *d.Steps[8] != 100 {
			t.Errorf("%v", d.TimeS)
		}
		if d := timelineOf(&s, timelineRows(0)); d != nil {
			t.Error("one row makes a chart")
		}
	})

	t.Run("probing", func(t *testing.T) {
		bursts := func(from, to float64) phaseBand {
			return phaseBand{span{from, to}, "bursts", "heap sampled in bursts"}
		}
		off := func(from, to float64) phaseBand {
			return phaseBand{span{from, to}, "off", "heap not probed"}
		}
		at := func(seconds float64, mode growth.HeapMode) summary.OverheadChange {
			return summary.OverheadChange{AtS: seconds, Mode: mode}
		}
		for name, test := range map[string]struct {
			overhead *summary.Overhead
			want     []phaseBand
		}{
			"nothing is known": {nil, []phaseBand{}},
			"all the time":     {&summary.Overhead{Mode: growth.HeapFull}, []phaseBand{}},
			"bursts from the beginning": {
				&summary.Overhead{Mode: growth.HeapBursts}, []phaseBand{bursts(0, 300)},
			},
			"a storm": {
				changes(at(60, growth.HeapBursts), at(70, growth.HeapBursts),
					at(80, growth.HeapOff), at(90, growth.HeapFull)),
				[]phaseBand{bursts(60, 80), off(80, 90)},
			},
			"until the end": {changes(at(250, growth.HeapOff)), []phaseBand{off(250, 300)}},
			"forged":        {changes(at(90, growth.HeapOff), at(10, "<mode>")), []phaseBand{}},
		} {
			s := leakingSummary()
			s.Overhead = test.overhead
			if got := probingOf(&s); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s: %+v, want %+v", name, got, test.want)
			}
			s.Sources = []summary.Source{{Name: "heap", State: summary.SourceOff}}
			if got := probingOf(&s); len(got) != 0 {
				t.Errorf("%s, where heap was not asked for: %+v", name, got)
			}
		}
	})

	t.Run("changes of the probes", func(t *testing.T) {
		s := leakingSummary()
		d := timelineOf(&s, timelineRows(300))
		want := []markLine{{20, "heap sampled in bursts"}, {90, "walking stacks takes little: one sample in 128 KiB"}}
		if !slices.Equal(d.Changes, want) {
			t.Errorf("%+v, want %+v", d.Changes, want)
		}
		if want := []markLine{{61.5, "epoch 1"}}; !slices.Equal(d.Marks, want) {
			t.Errorf("marks %+v, want %+v", d.Marks, want)
		}
	})
}

// Whatever is left out of a long timeline: its spikes, falls and gaps are not.
func TestThinned(t *testing.T) {
	long := timelineRows(100_000)
	for i := range long {
		long[i].RSS, long[i].Tree.RSS, long[i].Private = 100, 200, growth.Unknown
		long[i].GPUUsed, long[i].CudaReserved = 300, 50
	}
	long[31_007].RSS, long[62_345].RSS, long[77_777].RSS = 900, 3, growth.Unknown
	long[80_003].Tree.RSS, long[50_001].Private = 7777, 55
	long[41_007].GPUUsed, long[72_345].GPUUsed = 9000, 4

	few := thinned(long)
	seen := make(map[int64]bool)
	for i, r := range few {
		for _, value := range []int64{r.RSS, r.Tree.RSS, r.Private, r.GPUUsed} {
			seen[value] = true
		}
		if i > 0 && r.Elapsed <= few[i-1].Elapsed {
			t.Errorf("%s follows %s", r.Elapsed, few[i-1].Elapsed)
		}
	}
	if !slices.ContainsFunc(few, func(r growth.Row) bool { return r.RSS == growth.Unknown }) {
		t.Error("the gap is lost")
	}
	for _, value := range []int64{900, 3, 7777, 55, 9000, 4} {
		if !seen[value] {
			t.Errorf("%d is lost", value)
		}
	}
	if len(few) > maxPoints || few[0].Elapsed != 0 || few[len(few)-1].Elapsed < 99_950*time.Second {
		t.Errorf("%d rows, from %s to %s", len(few), few[0].Elapsed, few[len(few)-1].Elapsed)
	}
	if hours := timelineRows(14_400); len(thinned(hours)) != len(hours) {
		t.Error("four hours are thinned")
	}
}

func changes(list ...summary.OverheadChange) *summary.Overhead {
	return &summary.Overhead{Mode: list[len(list)-1].Mode, Changes: list}
}

func TestCurveText(t *testing.T) {
	s, flat := leakingSummary(), timelineRows(60)
	for i := range flat {
		flat[i].RSS = 112*mib + int64(i%2)
	}
	if got := timelineText(&s, timelineOf(&s, flat)); !strings.HasPrefix(got,
		"RSS over 60 s: never more than 112 MiB. LEAK") {
		t.Error(got)
	}
}
