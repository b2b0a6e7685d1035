package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestSuspects traces a program that leaks in two places, twice as much in the first.
func TestSuspects(t *testing.T) {
	const tolerance = 0.05 // the window may begin or end between the two allocations of a round
	source := tracertest.Source("two_leaks.py")
	suspectsOf := func(t *testing.T, places string) []summary.Suspect {
		t.Parallel()
		target := tracertest.Start(t, "/usr/bin/python3", source, places)
		t.Cleanup(target.Hangup)
		options := fastTrace(t, ready(target).PID(), jobSpeed, 12*minute)
		options.Interval = 1
		all := judgeUntilEnd(t, options).Suspects
		return slices.DeleteFunc(all, func(s summary.Suspect) bool {
			return s.Component != filepath.Base(source)
		})
	}

	t.Run("two functions that main calls", func(t *testing.T) {
		got := suspectsOf(t, "functions")
		if len(got) != 2 {
			t.Fatalf("suspects %+v, want two", got)
		}
		for i, function := range []string{"images", "arrays"} {
			line := lineOf(t, source, "# "+function)
			want := fmt.Sprintf("%s (%s:%d)", function, source, line)
			if got[i].Function != want || len(got[i].Lines) != 1 || got[i].Lines[0].Line != line {
				t.Errorf("suspect %+v, want %s", got[i], want)
			}
		}
		if share := float64(got[0].Bytes) / float64(got[0].Bytes+got[1].Bytes); math.Abs(
			share-2.0/3) > tolerance {
			t.Errorf("images have %v of the growth, want two thirds", share)
		}
	})

	for _, function := range []string{"main", "evaluate"} {
		t.Run("two lines of "+function, func(t *testing.T) {
			got := suspectsOf(t, function)
			first, second := lineOf(t, source, "# "+function+" 1"), lineOf(t, source, "# "+function+" 2")
			want := fmt.Sprintf("%s (%s:%d)", function, source, first)
			if len(got) != 1 || got[0].Function != want || len(got[0].Lines) != 2 {
				t.Fatalf("suspects %+v, want %s", got, want)
			}
			lines := got[0].Lines
			if lines[0].Line != first || lines[1].Line != second ||
				math.Abs(lines[0].Share-2.0/3) > tolerance {
				t.Errorf("lines %+v, want %d with two thirds, and %d", lines, first, second)
			}
		})
	}
}
