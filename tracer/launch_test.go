package tracer_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestLaunch compares what programs that the session has started hold with what they say.
func TestLaunch(t *testing.T) {
	t.Run("every allocator function counts as its manual page says", testLaunchFunctions)
	t.Run("leak is exact beside a hundredfold churn", testLaunchLeak)
	t.Run("forks, programs and shells", testLaunchPrograms)
	t.Run("what was there before is named", testLaunchStart)
	t.Run("lines of Python hold what tracemalloc has", testLaunchPython)
	t.Run("a thousand programs leave nothing behind", testLaunchThousand)
}

// launch starts a command below a copy of the shim, which comes first in its LD_PRELOAD.
func launch(
	t testing.TB, command *exec.Cmd, options tracer.Options,
) (*tracer.Session, *tracertest.Target) {
	t.Helper()
	path, err := shim.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	var target *tracertest.Target
	options.Children = true
	options.Launch = &tracer.Launch{Shim: path, Start: func(context.Context) (int, error) {
		preload := "LD_PRELOAD=" + path
		for _, variable := range command.Env {
			if others, ok := strings.CutPrefix(variable, "LD_PRELOAD="); ok {
				preload += ":" + others
			}
		}
		command.Env = append(command.Environ(), preload)
		target = tracertest.StartCommand(t, command)
		return target.PID(), nil
	}}
	return open(t, options), target
}

func preloading(path string, command *exec.Cmd) *exec.Cmd {
	command.Env = append(os.Environ(), "LD_PRELOAD="+path)
	return command
}

var preloadedAllocators = []string{
	"", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2",
}

func testLaunchFunctions(t *testing.T) {
	for _, allocator := range preloadedAllocators[:3] { // mimalloc's realloc(p, 0) returns memory
		t.Run(allocator, func(t *testing.T) {
			command := exec.Command(tracertest.Build(t, "semantics.c", "-pthread"))
			options := tracer.Options{Interval: 1, Sources: []string{"heap", "mapping"}}
			s, target := launch(t, preloading(allocator, command), options)
			target.Await("ready")
			mustHoldSemantics(t, target, s)
		})
	}
}

func testLaunchLeak(t *testing.T) {
	const objects, size, threads = 4000, 96, 8
	for _, allocator := range preloadedAllocators {
		t.Run(allocator, func(t *testing.T) {
			command := exec.Command(tracertest.Build(t, "leak.c", "-pthread"), fmt.Sprint(threads),
				fmt.Sprint(objects/threads), fmt.Sprint(size), "100")
			s, target := launch(t, preloading(allocator, command), tracer.Options{Interval: 1})
			target.Await("ready")
			order(target, "go")
			want := [2]int64{objects, objects * size}
			if got := held(snapshot(t, s))["leak_here"]; got != want {
				t.Errorf("leak_here holds %d, want %d (objects, bytes)", got, want)
			}
			events := mustLoseNothing(t, s)
			if events.Samples < objects*101 || events.Samples != events.Allocations {
				t.Errorf("%d samples of %d allocations, of at least %d", events.Samples,
					events.Allocations, objects*101)
			}
		})
	}
}

func testLaunchPrograms(t *testing.T) {
	program := tracertest.Build(t, "launched.c")
	for name, command := range map[string][]string{
		"program":                    {program, "leak"},
		"fork":                       {program, "fork"},
		"exec":                       {program, "exec"},
		"shell that waits":           {"/bin/sh", "-c", program + " leak; true"},
		"shell that executes":        {"/bin/sh", "-c", "exec " + program + " exec"},
		"shell in a shell in an env": {"/usr/bin/env", "sh", "-c", "sh -c '" + program + " fork; :'; :"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, target := launch(t, exec.Command(command[0], command[1:]...), tracer.Options{Interval: 1})
			truth := target.Await("done")
			s.Follow()
			mustHold(t, held(snapshot(t, s)), truth)
			mustLoseNothing(t, s)
		})
	}
}

func testLaunchStart(t *testing.T) {
	const most = 1 << 20 // bytes
	command := exec.Command(python, "-c", "print('ready', flush=True); input()")
	s, target := launch(t, command, tracer.Options{Interval: 1})
	target.Await("ready")
	var bytes int64
	for _, h := range snapshot(t, s).Holdings {
		if h.Kind != growth.KindBeforeTracing {
			continue
		}
		bytes += h.ResidentBytes
		if h.Stack.Root != "[start of the process]" {
			t.Errorf("%d bytes are %s", h.ResidentBytes, h.Stack.Root)
		}
	}
	if bytes == 0 || bytes > most {
		t.Errorf("%d bytes were there before, want some and at most %d", bytes, most)
	}
}

func testLaunchThousand(t *testing.T) {
	command := exec.Command("/bin/sh", "-c",
		"i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done; echo done; read line")
	s, target := launch(t, command, tracer.Options{Interval: 1})
	target.Await("done")
	s.Follow()

	shell := func() bool {
		s.Follow()
		return len(tracer.Targets(s)) <= 2 && entriesOf(t, tracer.Kernel(s).Targets) <= 2
	}
	eventually(t, "the programs are forgotten", shell)
	mustLoseNothing(t, s)
}

// With PYTHONMALLOC=malloc each object of Python is one of malloc.
func testLaunchPython(t *testing.T) {
	script := tracertest.Source("small.py")
	interpret := func(arguments ...string) *exec.Cmd {
		command := exec.Command(python, append(arguments, "-B", script)...)
		command.Env = append(os.Environ(), "PYTHONMALLOC=malloc")
		return command
	}
	keep := func(target *tracertest.Target) []string {
		target.Await("ready")
		target.Say("go")
		return target.Await("done")
	}
	truth := keep(tracertest.StartCommand(t, interpret("-X", "tracemalloc=1")))

	s, target := launch(t, interpret(), tracer.Options{Interval: 1})
	keep(target)
	got := make(map[int][2]int64)
	for _, h := range snapshot(t, s).Holdings {
		i := slices.IndexFunc(h.Stack.Frames, func(f growth.Frame) bool { return f.Python })
		if h.Kind == growth.KindHeap && i >= 0 && h.Stack.Frames[i].File == script {
			line := h.Stack.Frames[i].Line
			sum := got[line]
			got[line] = [2]int64{sum[0] + int64(h.InuseObjects), sum[1] + h.InuseBytes}
		}
	}

	if len(truth) < 5 {
		t.Fatalf("tracemalloc has %q: the test is wrong", truth)
	}
	for _, row := range truth {
		var line int
		var want [2]int64
		if _, err := fmt.Sscan(row, &line, &want[0], &want[1]); err != nil {
			t.Fatalf("%q: %v", row, err)
		}
		if got[line] != want {
			t.Errorf("line %d holds %d, want %d (objects, bytes)", line, got[line], want)
		}
	}
}
