package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestSpikes traces programs with a validation that holds memory for some seconds, repeatedly,
// beside steady work and a bounded cache. They print how many bytes it holds.
func TestSpikes(t *testing.T) {
	t.Parallel()
	const every, seconds, mib = 18, 3, 200

	for _, c := range []struct {
		name, way string
		pace      int // objects of the steady work in a step
		line      string
		flags     []string
	}{
		{"objects of the heap, sampled in bursts", "small", 1000, "# small", nil},
		{"one object, between snapshots", "large", 40, "# large", []string{"--snapshot-every", "40s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			arguments := strings.Fields(fmt.Sprintln(every, seconds, mib, c.way, c.pace))
			var dir string
			var spikes []string
			for range 3 { // a busy machine may count the bytes while a spike still fills them
				dir, spikes = traceSpikes(t, arguments, c.flags)
				m := readSummary(t, dir).SpikeMemory
				if m.IsCaptured() && m.Captured.Suspect != nil &&
					float64(m.Captured.Suspect.Bytes) > (1-spikeTolerance)*mib*(1<<20) {
					break
				}
			}
			mustNameSpikes(t, dir, c.line, spikes)
		})
	}
}

// traceSpikes traces a run of testdata/spikes.py. printed are the lines of its output.
func traceSpikes(t *testing.T, arguments, flags []string) (dir string, printed []string) {
	t.Helper()
	arguments = append([]string{tracertest.Source("spikes.py")}, arguments...)
	target := tracertest.Start(t, "/usr/bin/python3", arguments...)
	target.Await("ready")

	dir = newFolder(t)
	flags = append([]string{
		"trace", "--pid", fmt.Sprint(target.PID()), "--duration", "70s", "--no-tui", "--output", dir,
	}, flags...)
	call(t, flags...).mustEnd(0)

	must(t, target.Process.Signal(syscall.SIGTERM))
	return dir, target.Await("done")
}

// spikeTolerance of the bytes: a sample may come while they are being allocated.
const spikeTolerance = 0.25

// mustNameSpikes checks the spikes of a trace by the program's output on them. The line is the one
// with a mark in its source, of the function that the suspect leads through.
func mustNameSpikes(t *testing.T, dir, mark string, printed []string) {
	t.Helper()
	var held float64
	if len(printed) < 3 {
		t.Fatalf("the program printed %q", printed)
	}
	if _, err := fmt.Sscanf(printed[0], "spike %f", &held); err != nil {
		t.Fatalf("the program printed %q: %v", printed[0], err)
	}

	s := readSummary(t, dir)
	m := s.SpikeMemory
	if !m.IsCaptured() || m.Captured.Suspect == nil {
		t.Fatalf("spikes %+v of\n%s", m, readFile(t, dir, folder.TimelineFile))
	}
	if m.Count < 2 || m.Count > len(printed) {
		t.Errorf("%d spikes, the program printed %q", m.Count, printed)
	}

	suspect := m.Captured.Suspect
	near := func(what string, got float64) {
		if math.Abs(got-held) > spikeTolerance*held {
			t.Errorf("%s: %.0f bytes, the program held %.0f", what, got, held)
		}
	}
	near("peak", float64(m.PeakBytes))
	near("above the level", float64(m.Captured.Bytes))
	near("suspect", float64(suspect.Bytes))

	source := tracertest.Source("spikes.py")
	want := fmt.Sprintf("validate (%s:%d)", source, lineOf(t, source, mark+"\n"))
	frames := slices.Concat(suspect.Path, suspect.Callers)
	if !slices.Contains(frames, want) || suspect.Component != "spikes.py" || *suspect.Share < 0.8 {
		t.Errorf("suspect %+v, want %s", suspect, want)
	}
	mustSay(t, "its sentence", words.SpikeSuspect(m), "most by spikes.py: ", "filled (spikes.py:")

	var inProfile int64
	for _, sample := range readProfile(t, dir, s.Files["spikes"]).Sample {
		inProfile += sample.Value[len(sample.Value)-1]
	}
	near("in "+folder.SpikesFile, float64(inProfile))
	mustSay(t, "the report", readFile(t, dir, folder.ReportFile), "What is alive in spikes only")
}
