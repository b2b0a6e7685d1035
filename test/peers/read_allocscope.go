package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// summary is what this program reads of allocscope's summary.json.
type summary struct {
	Verdict  string `json:"verdict"`
	Culprits []struct {
		Share   float64  `json:"share"`
		Path    []string `json:"path"`    // inwards
		Callers []string `json:"callers"` // outwards
	} `json:"culprits"`
	Accumulating []struct {
		Share       float64  `json:"share"`
		Stack       []string `json:"stack"`
		Trend       string   `json:"trend"`
		BytesPerMin float64  `json:"bytes_per_min"`
		RateLow     float64  `json:"rate_low"`
		RateHigh    float64  `json:"rate_high"`
	} `json:"accumulating"`
}

// readAllocscope takes the culprits, or the stacks that hold more where it names no culprit.
func readAllocscope(r reporter) (report, error) {
	var s summary
	text, err := os.ReadFile(filepath.Join(r.outer, traceFolder, "summary.json"))
	if err != nil {
		return report{}, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return report{}, fmt.Errorf("read summary.json: %w", err)
	}
	result := report{rates: true, verdict: s.Verdict}
	for _, c := range s.Culprits {
		slices.Reverse(c.Path)
		e := entry{frames: append(c.Path, c.Callers...), share: c.Share}
		result.entries = append(result.entries, e)
		result.cache = result.cache || r.cache.in(e.frames) && !r.leak.in(e.frames)
	}
	for _, a := range s.Accumulating {
		if len(s.Culprits) == 0 {
			result.entries = append(result.entries, entry{frames: a.Stack, share: a.Share})
		}
		result.cache = result.cache || r.cache.in(a.Stack) && a.Trend == "accumulating"
		if r.leak.in(a.Stack) {
			result.rate, result.low, result.top = result.rate+a.BytesPerMin, result.low+a.RateLow, result.top+a.RateHigh
		}
	}
	return result, nil
}
