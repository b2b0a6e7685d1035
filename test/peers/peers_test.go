package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth/verdict"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/test/harness"
)

const testdata = "../../testdata/peers"

func workloadNamed(t *testing.T, name string) (w workload, leak, cache place) {
	t.Helper()
	chosen, err := harness.Choose(workloads, name, func(w workload) string { return w.name })
	if err != nil {
		t.Fatal(err)
	}
	leak, cache, err = placesOf(chosen[0], testdata)
	if err != nil {
		t.Fatal(err)
	}
	return chosen[0], leak, cache
}

func TestPlacesOf(t *testing.T) {
	for _, w := range workloads {
		_, leak, cache := workloadNamed(t, w.name)
		text, err := os.ReadFile(filepath.Join(testdata, w.source))
		if err != nil {
			t.Fatal(err)
		}

		for _, p := range []place{leak, cache} {
			if strings.Count(string(text), p.function) < 2 {
				t.Errorf("%s has no function %q that is called", w.source, p.function)
			}
		}
		if leak.line == cache.line {
			t.Errorf("%s: the leak and the cache are both at %s", w.source, leak.line)
		}
	}
}

func TestRatios(t *testing.T) {
	of := func(s stretch) float64 { return s.cpu }
	native := []stretch{
		{steps: 1, cpu: 1, seconds: 4}, {steps: 1, cpu: 3, seconds: 4}, {steps: 1, cpu: 5, seconds: 4},
	}
	traced := []stretch{{steps: 1, cpu: 4}, {steps: 1, cpu: 2}}
	if got := paired(native, traced, of); got[0] != 2 || got[1] != 0.5 {
		t.Errorf("paired: %v, want 2 and 0.5", got)
	}
	if got := noise(native, of); len(got) != 1 || got[0] != 1 {
		t.Errorf("noise: %v, want 1", got)
	}
	r := result{native: native, traced: traced}
	for bound, want := range map[float64]bool{0: false, 0.9: true, 1.1: false} {
		if err := r.exceeds(bound); (err != nil) != want {
			t.Errorf("half a second more, half a second less, and the bound %v: %v", bound, err)
		}
	}
	if got := spreadOf([]float64{4, 1, 3, 2, 5}); got != (spread{2, 3, 4}) {
		t.Errorf("spread: %v, want 2, 3 and 4", got)
	}
	if got := spreadOf(nil).median; !math.IsNaN(got) {
		t.Errorf("the median of nothing: %v", got)
	}
}

func TestCollapsed(t *testing.T) {
	_, leak, cache := workloadNamed(t, "dispatch")
	r := collapsed([]byte("main (/d.py:3);fill (/d.py:9) 10\n" +
		"main (/d.py:3);keep (/tmp/" + leak.line + ");c10::alloc_cpu(unsigned long) 25\n" +
		"main (/d.py:3);keep (/tmp/" + leak.line + ");c10::alloc_cpu(unsigned long) 50\n" +
		"main;remember (/tmp/" + cache.line + ") 15\nnone 0\n"))
	if len(r.entries) != 3 {
		t.Fatalf("%d entries, want 3: %v", len(r.entries), r.entries)
	}
	if at, share := r.named(leak); at != 1 || share != 0.75 {
		t.Errorf("the leak is number %d with %v, want 1 with 0.75", at, share)
	}
	if at, share := r.named(cache); at != 2 || share != 0.15 {
		t.Errorf("the cache is number %d with %v, want 2 with 0.15", at, share)
	}

	want := "c10::alloc_cpu(unsigned long) < keep (" + leak.line + ")"
	if got := r.entries[0].shown(place{line: "other:1"}); got != want {
		t.Errorf("shown without the line: %q, want %q", got, want)
	}
	if got := r.entries[0].shown(leak); got != "keep ("+leak.line+")" {
		t.Errorf("shown: %q", got)
	}
	if p := (place{line: "dispatch.py:5"}); p.is("keep (/tmp/dispatch.py:52)") {
		t.Error("line 5 matches line 52")
	}
}

// readFrom reads the report of a tool on the workload loop from a file.
func readFrom(
	t *testing.T, name, text string, read func(reporter) (report, error),
) (report, place) {
	t.Helper()
	r := reporter{outer: t.TempDir()}
	r.workload, r.leak, r.cache = workloadNamed(t, "loop")

	path := filepath.Join(r.outer, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := read(r)
	if err != nil {
		t.Fatal(err)
	}
	return got, r.leak
}

func TestReadMemleak(t *testing.T) {
	r, leak := readFrom(t, outputFile, `Tracing outstanding memory allocs...  Hit Ctrl-C to end
[2:41:40] Top 2 stacks with outstanding allocations:
3000 bytes in 19995 allocations from stack
	0 [<000055feeae97492>] remember_block+0x22 [/tmp/loop]
	1 [<000055feeae97493>] main+0x40 [/tmp/loop]
1000 bytes in 4 allocations from stack
	0 [<000055feeae974ae>] keep_block+0xe [/tmp/loop]
done
`, readMemleak)
	if at, share := r.named(leak); at != 2 || share != 0.25 {
		t.Errorf("the leak is number %d with %v, want 2 with 0.25", at, share)
	}
	if got := r.entries[0].shown(leak); got != "remember_block < main" {
		t.Errorf("shown: %q", got)
	}
}

// The summary is written by its own types, so that its keys are allocscope's.
func TestReadAllocscope(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	share := 0.9
	suspects := []summary.Suspect{{
		Share: &share, Path: []string{"keep_block (/tmp/loop)", "leaf (/lib/c)"},
		Callers: []string{"main (/tmp/loop)"},
	}}

	for _, c := range []struct {
		suspects   []summary.Suspect
		cacheTrend growth.Trend
		entries    int
	}{
		{suspects, growth.TrendAccumulating, 1},
		{suspects, growth.TrendNoGrowth, 1},
		{nil, growth.TrendNoGrowth, 2},
	} {
		s := summary.Summary{Suspects: c.suspects, Accumulating: []summary.Accumulation{
			{
				Share: 0.9, Stack: []string{"leaf (/lib/c)", "keep_block (/tmp/loop)"},
				Trend:       growth.TrendAccumulating,
				BytesPerMin: number(60), RateLow: number(50), RateHigh: number(70),
			},
			{Share: 0.1, Stack: []string{"remember_block (/tmp/loop)"}, Trend: c.cacheTrend},
		}}
		s.Class = verdict.ClassSuspected
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}

		file := filepath.Join(traceFolder, "summary.json")
		r, leak := readFrom(t, file, string(text), readAllocscope)
		if at, share := r.named(leak); at != 1 || share != 0.9 || len(r.entries) != c.entries {
			t.Errorf("the leak is number %d of %d with %v, want 1 of %d with 0.9",
				at, len(r.entries), share, c.entries)
		}
		if r.rate != 60 || r.low != 50 || r.top != 70 || r.verdict != string(s.Class) {
			t.Errorf("%+v, want the leak's rates and %s", r, s.Class)
		}
		if isLeak := c.cacheTrend == growth.TrendAccumulating; r.cache != isLeak {
			t.Errorf("a cache that is %s is called a leak: %v", c.cacheTrend, r.cache)
		}
	}
}
