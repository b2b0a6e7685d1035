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

// TestSpikes traces a program with a validation that holds memory for some seconds, repeatedly,
// beside steady work and a bounded cache. It prints how many bytes it holds.
func TestSpikes(t *testing.T) {
	t.Parallel()
	const mib = 200
	var dir string
	var spikes []string
	for range 3 { // a busy machine may count the bytes while a spike still fills them
		dir, spikes = traceSpikes(t, 18, 3, mib, 1000)
		m := readSummary(t, dir).SpikeMemory
		if m.IsCaptured() && m.Captured.Suspect != nil &&
			float64(m.Captured.Suspect.Bytes) > (1-spikeTolerance)*mib*(1<<20) {
			break
		}
	}
	mustNameSpikes(t, dir, spikes)
}

// traceSpikes traces a run of testdata/spikes.py. printed are the lines of its output.
func traceSpikes(t *testing.T, arguments ...any) (dir string, printed []string) {
	t.Helper()
	settings := strings.Fields(fmt.Sprintln(arguments...))
	target := tracertest.Start(t, "/usr/bin/python3",
		append([]string{tracertest.Source("spikes.py")}, settings...)...)
	target.Await("ready")

	dir = newFolder(t)
	call(t, "trace", "--pid", itoa(target.PID()), "--duration", "70s", "--no-tui",
		"--output", dir).mustEnd(0)

	must(t, target.Process.Signal(syscall.SIGTERM))
	return dir, target.Await("done")
}

// spikeTolerance of the bytes: a sample may come while they are being allocated.
const spikeTolerance = 0.25

// mustNameSpikes checks the spikes of a trace by the program's output on them. The suspect leads
// through the line that is marked HELD in its source.
func mustNameSpikes(t *testing.T, dir string, printed []string) {
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
	want := fmt.Sprintf("validate (%s:%d)", source, lineOf(t, source, "# HELD"))
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
