package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testdata = "../../testdata/peers"

func workloadNamed(t *testing.T, name string) (w workload, leak, cache place) {
	t.Helper()
	chosen, err := choose(workloads, name, func(w workload) string { return w.name })
	if err != nil {
		t.Fatal(err)
	}
	leak, cache, err = placesOf(chosen[0], testdata)
	if err != nil {
		t.Fatal(err)
	}
	return chosen[0], leak, cache
}

func TestEveryWorkloadMarksItsLeakAndItsCache(t *testing.T) {
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

func TestRatiosCompareWithTheStretchesAround(t *testing.T) {
	of := func(s stretch) float64 { return s.cpu }
	native := []stretch{{cpu: 1}, {cpu: 3}, {cpu: 5}}
	traced := []stretch{{cpu: 4}, {cpu: 2}}
	if got := paired(native, traced, of); got[0] != 2 || got[1] != 0.5 {
		t.Errorf("paired: %v, want 2 and 0.5", got)
	}
	if got := noise(native, of); len(got) != 1 || got[0] != 1 {
		t.Errorf("noise: %v, want 1", got)
	}
	if got := spreadOf([]float64{4, 1, 3, 2, 5}); got != (spread{2, 3, 4}) {
		t.Errorf("spread: %v, want 2, 3 and 4", got)
	}
	if got := spreadOf(nil).median; !math.IsNaN(got) {
		t.Errorf("the median of nothing: %v", got)
	}
}

func TestCollapsedStacksAreRankedByWhatTheyHold(t *testing.T) {
	_, leak, cache := workloadNamed(t, "dispatch")
	r := collapsed([]byte("main (/d.py:3);fill (/d.py:9) 10\nmain (/d.py:3);keep (/tmp/" + leak.line + ");c10::alloc_cpu(unsigned long) 25\n" +
		"main (/d.py:3);keep (/tmp/" + leak.line + ");c10::alloc_cpu(unsigned long) 50\nmain;remember (/tmp/" + cache.line + ") 15\nnone 0\n"))
	if len(r.entries) != 3 {
		t.Fatalf("%d entries, want 3: %v", len(r.entries), r.entries)
	}
	if at, share := r.named(leak); at != 1 || share != 0.75 {
		t.Errorf("the leak is number %d with %v, want 1 with 0.75", at, share)
	}
	if at, share := r.named(cache); at != 2 || share != 0.15 {
		t.Errorf("the cache is number %d with %v, want 2 with 0.15", at, share)
	}
	if got := r.entries[0].shown(place{line: "other:1"}); got != "c10::alloc_cpu(unsigned long) < keep ("+leak.line+")" {
		t.Errorf("shown without the line: %q", got)
	}
	if got := r.entries[0].shown(leak); got != "keep ("+leak.line+")" {
		t.Errorf("shown: %q", got)
	}
}

func TestALineIsNotTakenForAnotherThatBeginsLikeIt(t *testing.T) {
	p := place{line: "dispatch.py:5"}
	if p.is("keep (/tmp/dispatch.py:52)") || !p.is("keep (/tmp/dispatch.py:5)") {
		t.Error("line 5 is taken for line 52, or not known")
	}
}

func readFrom(t *testing.T, name, text string, read func(reporter) (report, error), workload string) (report, place) {
	t.Helper()
	r := reporter{outer: t.TempDir()}
	r.workload, r.leak, r.cache = workloadNamed(t, workload)
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

func TestMemleaksStacksAreRead(t *testing.T) {
	r, leak := readFrom(t, outputFile, `Tracing outstanding memory allocs...  Hit Ctrl-C to end
[2:41:40] Top 2 stacks with outstanding allocations:
3000 bytes in 19995 allocations from stack
	0 [<000055feeae97492>] remember_block+0x22 [/tmp/loop]
	1 [<000055feeae97493>] main+0x40 [/tmp/loop]
1000 bytes in 4 allocations from stack
	0 [<000055feeae974ae>] keep_block+0xe [/tmp/loop]
done
`, readMemleak, "loop")
	if at, share := r.named(leak); at != 2 || share != 0.25 {
		t.Errorf("the leak is number %d with %v, want 2 with 0.25", at, share)
	}
	if got := r.entries[0].shown(leak); got != "remember_block < main" {
		t.Errorf("shown: %q", got)
	}
}

func TestAllocscopesSummaryIsRead(t *testing.T) {
	const summary = `{"verdict": "suspected",
		"culprits": [{"share": 0.9, "path": ["keep_block (/tmp/loop)", "leaf (/lib/c)"], "callers": ["main (/tmp/loop)"]}],
		"accumulating": [
			{"share": 0.9, "stack": ["leaf (/lib/c)", "keep_block (/tmp/loop)"], "trend": "accumulating", "bytes_per_min": 60, "rate_low": 50, "rate_high": 70},
			{"share": 0.1, "stack": ["remember_block (/tmp/loop)"], "trend": "TREND", "bytes_per_min": 6, "rate_low": 5, "rate_high": 7}]}`
	for trend, called := range map[string]bool{"accumulating": true, "no-growth": false} {
		r, leak := readFrom(t, filepath.Join(traceFolder, "summary.json"), strings.Replace(summary, "TREND", trend, 1), readAllocscope, "loop")
		if at, share := r.named(leak); at != 1 || share != 0.9 {
			t.Errorf("the leak is number %d with %v, want 1 with 0.9", at, share)
		}
		if r.rate != 60 || r.low != 50 || r.top != 70 || r.verdict != "suspected" {
			t.Errorf("%+v, want the leak's rates and the verdict", r)
		}
		if r.cache != called {
			t.Errorf("a cache that is %s is called a leak: %v", trend, r.cache)
		}
	}
}
