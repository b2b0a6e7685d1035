package main

// How `make test-gpu` judges what a trace of a trainer on a GPU says: here of traces made by hand.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// keepsTensors is an error unless a trace says of its only process with a GPU that it retains tensors, and names the line that does, "(FILE:LINE)",
// first.
func keepsTensors(s *summary.Summary, line string) error {
	if len(s.GPUMemory) != 1 {
		return fmt.Errorf("%d processes with a GPU, want one", len(s.GPUMemory))
	}
	d := s.GPUMemory[0]
	if d.Diagnosis != string(growth.DiagnosisTensors) {
		return fmt.Errorf("the diagnosis is %q (verdict %s, judged by %s), want %q", d.Diagnosis, d.Class, d.Judged, string(growth.DiagnosisTensors))
	}
	if len(d.Suspects) == 0 {
		return errors.New("no culprit is named")
	}
	first := d.Suspects[0]
	if !slices.ContainsFunc(slices.Concat(first.Path, first.Callers, []string{first.Function}), func(f string) bool { return strings.HasSuffix(f, line) }) {
		return fmt.Errorf("%s is not in the first culprit: %+v", line, first)
	}
	return nil
}

// A spread is the median of some numbers and their quartiles.
type spread struct{ low, median, high float64 }

func spreadOf(numbers []float64) spread {
	sorted := slices.Sorted(slices.Values(numbers))
	at := func(q float64) float64 {
		place := q * float64(len(sorted)-1)
		below := int(place)
		above := min(below+1, len(sorted)-1)
		return sorted[below] + (sorted[above]-sorted[below])*(place-float64(below))
	}
	return spread{at(0.25), at(0.5), at(0.75)}
}

// String is of ratios, as what they add in percent.
func (s spread) String() string {
	percent := func(ratio float64) float64 { return 100 * (ratio - 1) }
	return fmt.Sprintf("%.2f %% (%.2f to %.2f)", percent(s.median), percent(s.low), percent(s.high))
}

// paired compares each traced stretch with the mean of the native ones before and after it, of which there is one more.
func paired(native, traced []float64) []float64 {
	ratios := make([]float64, len(traced))
	for i := range traced {
		ratios[i] = traced[i] / ((native[i] + native[i+1]) / 2)
	}
	return ratios
}

// unrest compares each native stretch with the mean of its neighbours: what paired says of no trace at all.
func unrest(native []float64) []float64 {
	ratios := make([]float64, 0, len(native))
	for i := 1; i < len(native)-1; i++ {
		ratios = append(ratios, native[i]/((native[i-1]+native[i+1])/2))
	}
	return ratios
}

func TestATraceOfALeakOfTensorsIsJudgedByDiagnosisAndLine(t *testing.T) {
	line := fmt.Sprintf("(%s:%d)", tracertest.GPUTrainerSource(), tracertest.GPULeakLine(t))
	culprit := func(function string) summary.Suspect {
		return summary.Suspect{Component: "trainer.py", Function: "main", Path: []string{"main", function}}
	}
	good := summary.GPUMemory{Diagnosis: string(growth.DiagnosisTensors), Suspects: []summary.Suspect{culprit("keep " + line), culprit("step")}}
	if err := keepsTensors(&summary.Summary{GPUMemory: []summary.GPUMemory{good}}, line); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*summary.Summary){
		"no process":        func(s *summary.Summary) { s.GPUMemory = nil },
		"two processes":     func(s *summary.Summary) { s.GPUMemory = append(s.GPUMemory, good) },
		"another diagnosis": func(s *summary.Summary) { s.GPUMemory[0].Diagnosis = "no-growth" },
		"no culprit":        func(s *summary.Summary) { s.GPUMemory[0].Suspects = nil },
		"another line":      func(s *summary.Summary) { s.GPUMemory[0].Suspects = []summary.Suspect{culprit("keep (x.py:1)")} },
		"not the first": func(s *summary.Summary) {
			s.GPUMemory[0].Suspects = []summary.Suspect{culprit("step"), good.Suspects[0]}
		},
	} {
		s := &summary.Summary{GPUMemory: []summary.GPUMemory{good}}
		change(s)
		if err := keepsTensors(s, line); err == nil {
			t.Errorf("%s: it is taken for a leak that is named", what)
		}
	}
}

func TestTheSlowDownIsThatOfNeighbouringStretches(t *testing.T) {
	native := []float64{100, 200, 400, 300, 100} // milliseconds a step, on a GPU whose clock changes
	traced := []float64{165, 300, 350, 220}
	got := spreadOf(paired(native, traced))
	for i, want := range []float64{1, 1.05, 1.1} {
		if have := []float64{got.low, got.median, got.high}[i]; math.Abs(have-want) > 1e-9 {
			t.Errorf("quartile %d is %g, want %g", i+1, have, want)
		}
	}
	if text := got.String(); text != "5.00 % (0.00 to 10.00)" {
		t.Errorf("it reads %q", text)
	}
	if got := unrest([]float64{100, 100, 110, 100, 100}); len(got) != 3 || math.Abs(got[1]-1.1) > 1e-9 {
		t.Errorf("the unrest is %v", got)
	}
}
