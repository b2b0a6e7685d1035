package fleet

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// guard is how long a test waits for an event that must happen; it is reached only where something
// hangs.
const guard = 3 * time.Minute

var eventually = tracertest.Eventually

// startTarget starts the program that does as ordered, with more variables.
func startTarget(t *testing.T, variables []string, arguments ...string) *tracertest.Target {
	t.Helper()
	command := exec.Command(tracertest.Build(t, "steps.c"), arguments...)
	command.Env = append(os.Environ(), variables...)
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return target
}

// startSteps is startTarget, opened.
func startSteps(t *testing.T, variables []string, arguments ...string) *process.Process {
	t.Helper()
	p := tracertest.Must(process.Open(startTarget(t, variables, arguments...).PID()))(t)

	t.Cleanup(func() { p.Close() })
	return p
}

// leaking is a program that keeps 128 KiB more every 20 ms, on a busy machine too. With "still" it keeps
// nothing.
const leaking = `
import sys, time
kept = [bytearray(8 << 20)]
def keep():
    kept.append(bytearray(1 << 17))
print("ready", flush=True)
began, steps = time.monotonic(), 0
while True:
    while sys.argv[1:] != ["still"] and steps < (time.monotonic() - began) / 0.02:
        keep()
        steps += 1
    time.sleep(0.02)
`

// startLeaking starts it as a rank of a job.
func startLeaking(t *testing.T, job string, rank int, arguments ...string) *tracertest.Target {
	t.Helper()
	script := filepath.Join(t.TempDir(), "train.py")
	tracertest.NoError(t, os.WriteFile(script, []byte(leaking), 0o600))

	command := exec.Command("/usr/bin/python3", append([]string{script}, arguments...)...)
	command.Env = append(os.Environ(), "SLURM_JOB_ID="+job, "RANK="+strconv.Itoa(rank), "WORLD_SIZE=8")
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return target
}

// events are the events that an agent reports.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// of returns the events of a kind.
func (e *events) of(kind EventKind) (found []Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event.Kind == kind {
			found = append(found, event)
		}
	}

	return found
}

// A testAgent is an agent that runs, with a trace in place of the real one.
type testAgent struct {
	*Agent
	*events
	stop context.CancelFunc
	done chan error
}

// testSpeed makes a verdict turn to a leak in some six seconds.
const testSpeed = 600

// fakeTrace is a program in place of allocscope: it copies summary.json of its own directory into the
// folder of --output, and profiles if it has some. It ends then, or when it is interrupted if there
// is a file "waits".
const fakeTrace = `#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/calls"
while [ $# -gt 0 ]; do
	case $1 in --output) out=$2 ;; --pid) pid=$2 ;; esac
	shift
done
ends() { cp "$here"/*.pb.gz "$out" 2>/dev/null; sed "s/4242/$pid/; s/171717/$(cut -d' ' -f22 /proc/$pid/stat 2>/dev/null || cat "$here/start")/" "$here/summary.json" > "$out/summary.json"; exit 0; }
trap ends INT
mkdir -m 700 "$out" || exit 2
echo "a line for the log" >&2
while [ -e "$here/waits" ]; do sleep 0.05; done
[ -e "$here/fails" ] && { echo "no privilege" >&2; exit 2; }
ends
`

// newFakeTrace returns the path of the program.
func newFakeTrace(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	s := summary.Summary{
		DurationS: 5,
		Verdict:   summary.Verdict{Class: verdict.ClassSuspected},
		Process:   summary.Process{PID: 4242, Command: "train.py"},
		Target:    &summary.Target{PID: 4242, StartTicks: 171717},
		Breakdown: []summary.BreakdownRow{
			{Process: 4242, Kind: growth.KindHeap, EndBytes: 700},
			{Process: 4242, Kind: growth.KindFile, EndBytes: 30},
			{Process: 4242, Kind: growth.KindHeap, EndBytes: 70},
			{Process: 1, Kind: growth.KindHeap, EndBytes: 5},
			{Process: 4242, Kind: growth.KindSwapped, EndBytes: 9},
		},
		Suspects: []summary.Suspect{{Component: "torch", BytesPerMin: 120}, {Component: "torch", BytesPerMin: 60}},
		Losses:   []growth.Loss{{Kind: growth.LossEvents, Count: 2}, {Kind: growth.LossEvents, Count: 3}},
		Overhead: &summary.Overhead{OwnS: 0.5},
		Text:     summary.ResultText{Who: []string{"train.py keeps"}, Where: []string{"train.py:5"}},
	}

	var text bytes.Buffer
	tracertest.NoError(t, s.Write(&text))

	for _, name := range files {
		tracertest.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}

	path := filepath.Join(dir, "allocscope")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "summary.json"), text.Bytes(), 0o600),
		os.WriteFile(path, []byte(fakeTrace), 0o700)); err != nil {
		t.Fatal(err)
	}

	return path
}

// putProfiles puts the profiles of a trace beside the program in place of it.
func putProfiles(t *testing.T, executable string) {
	t.Helper()
	leak := []growth.Frame{{Function: "leak", File: "train.py", Line: 5}}
	held := []growth.Holding{{
		Stack: &growth.Stack{ID: 1, PID: 4242, Frames: leak}, Kind: growth.KindHeap,
		InuseObjects: 1, InuseBytes: 4096, ResidentBytes: 4096,
	}}
	info := profile.Info{Time: time.Now(), Duration: time.Second, Interval: 1}
	var text bytes.Buffer
	tracertest.NoError(t, profile.Write(&text, held, info))

	for _, name := range []string{folder.WarmupFile, folder.PlateauFile, folder.GrowthFile} {
		path := filepath.Join(filepath.Dir(executable), name)
		tracertest.NoError(t, os.WriteFile(path, text.Bytes(), 0o600))
	}
}

// testOptions watch the processes of one job.
func testOptions(dir, job string) Options {
	return Options{
		Version: "v1", Directory: dir, Keep: 5, KeepBytes: 1 << 20, Duration: time.Second, TraceEvery: time.Hour,
		TracesPerDay: 10, MinRSS: 1, Speed: testSpeed,
		Rules: []Rule{{Environment: map[string]string{"SLURM_JOB_ID": job}, Command: "train.py"}},
	}
}

// startAgent runs an agent until the test ends.
func startAgent(t *testing.T, options Options, executable string) *testAgent {
	t.Helper()
	a := &testAgent{events: &events{}, done: make(chan error, 1)}
	options.Report = a.events.add
	var err error
	if a.Agent, err = New(options); err != nil {
		t.Fatal(err)
	}

	a.executable = executable

	var ctx context.Context
	ctx, a.stop = context.WithCancel(context.Background())
	go func() { a.done <- a.Run(ctx) }()
	t.Cleanup(func() { a.end(t) })
	return a
}

// end ends the agent in order. It may be called again.
func (a *testAgent) end(t *testing.T) {
	t.Helper()
	if a.stop == nil {
		return
	}

	a.stop()
	a.stop = nil
	if err := errors.Join(<-a.done, a.Close()); err != nil {
		t.Errorf("the agent ends: %v", err)
	}
}

// await waits for an event of a kind.
func (a *testAgent) await(t *testing.T, kind EventKind) Event {
	t.Helper()
	eventually(t, "there is an event "+string(kind), func() bool { return len(a.of(kind)) > 0 })
	return a.of(kind)[0]
}
