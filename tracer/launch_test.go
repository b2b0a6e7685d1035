package tracer_test

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestLaunch compares the memory of programs that the session has started with their own reports.
func TestLaunch(t *testing.T) {
	t.Run("every allocator function counts as its manual page says", testLaunchFunctions)
	t.Run("leak is exact beside a hundredfold churn", testLaunchLeak)
	t.Run("forks, programs and shells", testLaunchPrograms)
	t.Run("programs that start together wait together", testLaunchTogether)
	t.Run("what was there before is named", testLaunchStart)
	t.Run("who keeps what a stack has allocated", testLaunchKeepers)
	t.Run("a program of musl", testLaunchMusl)
	t.Run("what the shim does not see has no heap", testLaunchUnseen)
	t.Run("a static program of a shell is traced late", testLaunchLate)
	t.Run("a program that has exited keeps its sources", testLaunchExited)
	t.Run("beside a library whose probes cannot be used", testLaunchUnusable)
	t.Run("stacks begin at the caller of an operator", testLaunchOperators)
	t.Run("beside another trace", testLaunchBeside)
	t.Run("a command that does not start", testLaunchFails)
	t.Run("the interval keeps to the budget", testLaunchInterval)
	t.Run("an interval reaches a running program", testLaunchMarkers)
	t.Run("the shim's own work is charged", testLaunchWork)
	t.Run("lines of Python hold what tracemalloc has", testLaunchPython)
	t.Run("what has ended is in snapshots", testLaunchEnded)
	t.Run("a program of another PID namespace goes on", testLaunchNamespace)
	t.Run("no program waits if the kernel cannot hold the next", testLaunchUnheld)
	t.Run("programs wait for a small part of the time", testLaunchCredit)
	t.Run("a thousand programs leave nothing behind", testLaunchThousand)
}

// writeShim makes a copy of the shim, which is open until the test ends.
func writeShim(t testing.TB) *os.File {
	t.Helper()
	library := tracertest.Must(shim.Write(t.TempDir()))(t)
	t.Cleanup(func() { library.Close() })
	return library
}

// launch starts a command below a copy of the shim, which comes first in its LD_PRELOAD, and
// waits until it prints a word, if there is one.
func launch(
	t testing.TB, command *exec.Cmd, options tracer.Options, until ...string,
) (*tracer.Session, *tracertest.Target) {
	t.Helper()
	library := writeShim(t)
	path := library.Name()
	var target *tracertest.Target
	options.Children = true
	options.Launch = &tracer.Launch{Shim: library, Command: os.Getpid()}
	options.Launch.Start = func(context.Context) (int, error) {
		preload := "LD_PRELOAD=" + path
		for _, variable := range command.Env {
			if others, ok := strings.CutPrefix(variable, "LD_PRELOAD="); ok {
				preload += ":" + others
			}
		}
		command.Env = append(command.Environ(), preload)
		target = tracertest.StartCommand(t, command)
		return target.PID(), nil
	}
	s := open(t, options)
	for _, word := range until {
		target.Await(word)
	}
	return s, target
}

// launchTraced is launch of one program that is traced from its first allocation on: it is started
// again where the machine was too busy for that. The lines are those before a word.
func launchTraced(
	t testing.TB, command *exec.Cmd, options tracer.Options, until string,
) (s *tracer.Session, target *tracertest.Target, lines []string) {
	t.Helper()
	eventually(t, "the program waits until it is traced", func() bool {
		again := &exec.Cmd{Path: command.Path, Args: command.Args, Env: command.Env, Err: command.Err}
		s, target = launch(t, again, options)
		lines = target.Await(until)
		return areFromStart(t, s, 1, 0)
	})
	return s, target, lines
}

// heldBelowShim is held for stacks without the shim's own frames.
func heldBelowShim(snapshot *growth.Snapshot) amounts { return heldAt(snapshot, 0) }

var preloadedAllocators = []string{
	"", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2",
}

func testLaunchFunctions(t *testing.T) {
	// tcmalloc touches the 4 GiB of a calloc, and mimalloc's realloc(p, 0) returns memory.
	for _, allocator := range preloadedAllocators[:2] {
		for _, mode := range modes {
			t.Run(allocator+" "+mode.String(), func(t *testing.T) {
				command := exec.Command(tracertest.Build(t, "semantics.c", "-pthread"))
				options := tracer.Options{
					Interval: 1, Sources: []string{"heap", "mapping"}, Mode: mode,
				}
				s, target, _ := launchTraced(t, preloading(allocator, command), options, "ready")
				truth := target.Do("go")
				mustHold(t, heldBelowShim(snapshot(t, s)), truth)
				mustLoseStacksAlone(t, s)
			})
		}
	}
}

func testLaunchLeak(t *testing.T) {
	const objects, size, threads = 4000, 96, 8
	for _, allocator := range preloadedAllocators {
		t.Run(allocator, func(t *testing.T) {
			command := exec.Command(tracertest.Build(t, "leak.c", "-pthread"), fmt.Sprint(threads),
				fmt.Sprint(objects/threads), fmt.Sprint(size), "100")
			s, target, _ := launchTraced(t, preloading(allocator, command), exactHeap, "ready")
			order(target, "go")
			mustHoldIn(t, heldBelowShim(snapshot(t, s)), "leak_here", objects, objects*size)
			events := mustLoseStacksAlone(t, s)
			if events.Samples < objects*101 || events.Samples != events.Allocations {
				t.Errorf("%d samples of %d allocations, of at least %d", events.Samples,
					events.Allocations, objects*101)
			}
		})
	}
}

func testLaunchPrograms(t *testing.T) {
	program := tracertest.Build(t, "launched.c")
	for name, c := range map[string]struct {
		programs, forks int // that are traced in the end
		command         []string
	}{
		"program":             {1, 0, []string{program, "leak"}},
		"fork":                {1, 1, []string{program, "fork"}},
		"early fork":          {1, 1, []string{program, "early fork"}},
		"exec":                {1, 0, []string{program, "exec"}},
		"shell that waits":    {2, 0, []string{"/bin/sh", "-c", program + " leak; true"}},
		"shell that executes": {1, 0, []string{"/bin/sh", "-c", "exec " + program + " exec"}},
		"shell in a shell in an env": {
			3, 1, []string{"/usr/bin/env", "sh", "-c", "sh -c '" + program + " fork; :'; :"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			eventually(t, "the programs wait until they are traced", func() bool {
				s, target := launch(t, exec.Command(c.command[0], c.command[1:]...), exactHeap)
				var truth []string
				if c.forks > 0 {
					truth = target.Await("forked")
					eventually(t, "the fork is traced", func() bool {
						s.Follow()
						return len(tracer.Targets(s)) == c.programs+c.forks
					})
					target.Say("go")
				}
				truth = append(truth, target.Await("done")...)
				s.Follow()
				if !areFromStart(t, s, c.programs, c.forks) {
					return false // the machine is busy
				}
				mustHold(t, heldBelowShim(snapshot(t, s)), truth)
				mustLoseStacksAlone(t, s)
				return true
			})
		})
	}
}

// The ranks of a job start while the first of them becomes a target.
func testLaunchTogether(t *testing.T) {
	const ranks = 4

	command := strings.Repeat(tracertest.Build(t, "launched.c")+" leak & ", ranks) + "wait; echo all"
	eventually(t, "the programs wait until they are traced", func() bool {
		s, _ := launch(t, exec.Command("/bin/sh", "-c", command), exactHeap, "all")
		s.Follow()
		return areFromStart(t, s, 1+ranks, 0)
	})
}

// mustLoseStacksAlone accepts stacks without a name: on a busy machine the unwind tables of a program's
// libraries take longer than it is held.
func mustLoseStacksAlone(t testing.TB, s *tracer.Session) growth.Events {
	t.Helper()
	return mustLoseOnly(t, s, growth.LossSiteStacks, growth.LossTruncatedStacks,
		growth.LossUnknownStacks)
}

// areFromStart reports whether so many programs and forks of them are targets, and all programs were
// before they went on. Forks do not wait. If not, the session ends: the next one has the CPUs.
func areFromStart(t testing.TB, s *tracer.Session, programs, forks int) bool {
	t.Helper()
	targets := tracer.Targets(s)
	fromStart := 0
	for _, target := range targets {
		if target.FromStart {
			fromStart++
		}
	}
	if len(targets) == programs+forks && fromStart == programs {
		return true
	}
	must(t, s.Close())
	return false
}

func testLaunchStart(t *testing.T) {
	const most = 1 << 20 // bytes
	command := exec.Command(python, "-c", "print('ready', flush=True); input()")
	s, _, _ := launchTraced(t, command, exact, "ready")
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
	s, _ := launch(t, command, exact, "done")
	s.Follow()

	const most = 1 + 16 // the shell, and those that have ended last
	eventually(t, "the programs are forgotten", func() bool {
		s.Follow()
		k := tracer.Kernel(s)
		return len(tracer.Targets(s)) <= most && entriesOf(t, k.Targets) <= most &&
			entriesOf(t, k.Mappings) <= most
	})
	mustLoseStacksAlone(t, s)
}

// An ended program is in snapshots still, when its script calls other programs afterwards.
func testLaunchEnded(t *testing.T) {
	program := tracertest.Build(t, "launched.c")
	eventually(t, "the programs wait until they are traced", func() bool {
		s, target := launch(t, exec.Command("/bin/sh", "-c", program+
			" leak </dev/null; /bin/true; /bin/true; /bin/true; echo waiting; read line"),
			exactHeap)
		truth := target.Await("waiting")
		s.Follow()
		if !areFromStart(t, s, 5, 0) {
			return false // the machine is busy
		}
		mustHold(t, heldBelowShim(snapshot(t, s)), truth[:1])
		return true
	})
}

// With PYTHONMALLOC=malloc each object of Python is one of malloc.
func testLaunchPython(t *testing.T) {
	script := tracertest.Source("small.py")
	interpret := func(arguments ...string) *exec.Cmd {
		command := exec.Command(python, append(arguments, "-B", script)...)
		command.Env = append(os.Environ(), "PYTHONMALLOC=malloc")
		return command
	}
	counting := tracertest.StartCommand(t, interpret("-X", "tracemalloc=1"))
	counting.Await("ready")
	truth := counting.Do("go")

	s, target, _ := launchTraced(t, interpret(), exactHeap, "ready")
	target.Do("go")
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
		scan(t, row, "%d %d %d", &line, &want[0], &want[1])
		if got[line] != want {
			t.Errorf("line %d holds %d, want %d (objects, bytes)", line, got[line], want)
		}
	}
}

func testLaunchKeepers(t *testing.T) {
	for _, allocator := range preloadedAllocators[:2] {
		t.Run(allocator, func(t *testing.T) {
			command := exec.Command("/usr/bin/python3", tracertest.Source("kept_records.py"))
			s, target, _ := launchTraced(t, preloading(allocator, command), exactHeap, "ready")
			order(target, "keep 300")

			// The payloads are the objects of 5000 bytes.
			var stack *growth.Stack
			for _, h := range snapshot(t, s).Holdings {
				if h.InuseObjects == 300 && h.InuseBytes > 300*5000 {
					stack = h.Stack
				}
			}
			if stack == nil {
				t.Fatal("no stack holds the payloads")
			}

			counted, err := s.Census(t.Context(), tracer.CensusOptions{PID: target.PID()})
			if err != nil || counted.Missing != "" {
				t.Errorf("%q is missing in the census, %v", counted.Missing, err)
			}
			found, err := s.Search(t.Context(), tracer.KeeperSearch{
				PID: target.PID(), Stacks: [][]uint64{{stack.ID}}, To: s.Elapsed(),
				MaxSamples: 1000, Limit: time.Minute,
			})
			if err != nil || len(found) != 1 || len(found[0].Paths) == 0 {
				t.Fatalf("%+v, %v: want a path", found, err)
			}
			root := found[0].Paths[0].Root
			if root.Kind != keeper.RootGlobal || root.Module != "__main__" || root.Name != "cache" {
				t.Errorf("root %+v, want the global cache of __main__", root)
			}
		})
	}
}

func testLaunchMusl(t *testing.T) {
	program := filepath.Join(t.TempDir(), "launched")
	build := exec.Command("musl-gcc", "-O2", "-g", "-o", program, tracertest.Source("launched.c"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s(apt-get install musl-tools)", build, err, out)
	}
	s, _, truth := launchTraced(t, exec.Command(program, "leak"), exactHeap, "done")
	mustHold(t, heldBelowShim(snapshot(t, s)), truth)
}

func testLaunchUnseen(t *testing.T) {
	for name, flags := range map[string][]string{
		"static": {"-static"},
		"linked with jemalloc": {
			"-Wl,--export-dynamic", "-l:libjemalloc.a", "-lpthread", "-lm", "-lstdc++", "-ldl",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := launch(t, exec.Command(tracertest.Build(t, "launched.c", flags...), "leak"),
				exact, "done")
			heap := sourceOf(t, s, "heap")
			if heap.Attached || !strings.Contains(heap.Reason, "does not see its allocations") {
				t.Errorf("source heap: %+v", heap)
			}
			if mapping := sourceOf(t, s, "mapping"); !mapping.Attached {
				t.Errorf("source mapping: %+v", mapping)
			}
		})
	}
}

// A program that does not report its start is found in the tree.
func testLaunchLate(t *testing.T) {
	program := tracertest.Build(t, "launched.c", "-static")
	s, _ := launch(t, exec.Command("/bin/sh", "-c", program+" leak; :"), exact, "done")
	eventually(t, "the static program is traced", func() bool {
		s.Follow()
		return len(tracer.Targets(s)) == 2
	})
}

// The tree may still have a program that has just exited.
func testLaunchExited(t *testing.T) {
	s, target := launch(t, exec.Command(tracertest.Build(t, "launched.c", "-static"), "leak"),
		exact, "done")
	before := sourceOf(t, s, "heap")
	held := openProcess(t, target.PID())
	must(t, target.Process.Kill())
	eventually(t, "its end is noticed", func() bool { return !s.IsTraced(target.PID()) })

	if err := tracer.Attach(s, held, nil); !errors.Is(err, tracer.ErrExited) {
		t.Errorf("attach again: %v, want %v", err, tracer.ErrExited)
	}
	if after := sourceOf(t, s, "heap"); after.Reason != before.Reason {
		t.Errorf("source heap: %+v, before %+v", after, before)
	}
}

// A library of the program has probes of the same provider, with arguments that are unsupported.
func testLaunchUnusable(t *testing.T) {
	library := tracertest.Build(t, "producer.c", "-shared", "-fPIC", "-DUNSUPPORTED", "-lm")
	command := preloading(library, exec.Command(tracertest.Build(t, "launched.c"), "leak"))
	s, _, truth := launchTraced(t, command, exactHeap, "done")
	if heap := sourceOf(t, s, "heap"); !heap.Attached {
		t.Errorf("source heap: %+v", heap)
	}
	mustHold(t, heldBelowShim(snapshot(t, s)), truth)
}

// The operators of libstdc++ call the shim's malloc. In a program that is not C++ they are the shim's.
func testLaunchOperators(t *testing.T) {
	plugin := tracertest.Build(t, "operators_plugin.cc", "-shared", "-fPIC", "-std=c++17")
	script := fmt.Sprintf("import ctypes, sys; lib = ctypes.CDLL(%q); print('ready', flush=True)\n"+
		"for line in sys.stdin: lib.use(); print('done', flush=True)", plugin)
	for name, c := range map[string]struct {
		command *exec.Cmd
		caller  string
	}{
		"C++":    {exec.Command(tracertest.Build(t, "operators.cc", "-pthread")), "operator new"},
		"plugin": {exec.Command(python, "-c", script), "use"},
	} {
		t.Run(name, func(t *testing.T) {
			s, target, _ := launchTraced(t, c.command, exactHeap, "ready")
			eventually(t, "the unwind table of the plugin is ready", func() bool {
				target.Do("go")
				taken := snapshot(t, s)
				for _, h := range taken.Holdings {
					if h.Kind == growth.KindHeap && isShims(h.Stack.Frames[0]) {
						t.Fatalf("the stack begins in the shim: %+v", h.Stack.Frames)
					}
				}
				return heldBelowShim(taken)[c.caller][0] > 0
			})
		})
	}
}

func isShims(f growth.Frame) bool { return f.Module != nil && shim.HasName(f.Module.Path) }

// Another trace of the process raises the probes' semaphores, too, and reads the same samples.
func testLaunchBeside(t *testing.T) {
	const objects, size = 1000, 4096
	s, target, _ := launchTraced(t, exec.Command(tracertest.Build(t, "leak.c", "-pthread"), "1",
		fmt.Sprint(objects), fmt.Sprint(size), "1"), exactHeap, "ready")
	beside := open(t, tracer.Options{PID: target.PID(), Interval: 64 << 10})
	order(target, "go")
	for _, session := range []*tracer.Session{s, beside} {
		mustHoldIn(t, heldBelowShim(snapshot(t, session)), "leak_here", objects, objects*size)
	}
}

// The program makes ten million pairs of malloc and free a second. Its leak is estimated from
// samples of several intervals.
func testLaunchInterval(t *testing.T) {
	const budget = 0.01
	s, target, _ := launchTraced(t, exec.Command(tracertest.Build(t, "paced_leak.c"), "work", "65536",
		"20e6"), tracer.Options{Overhead: budget}, "ready")
	var rounds, leaked int64
	var seconds, cpu float64
	scan(t, target.Do("10")[0], "rounds %d seconds %g cpu %g leaked %d",
		&rounds, &seconds, &cpu, &leaked)

	var bytes, variance float64
	for _, h := range snapshot(t, s).Holdings {
		if h.Kind == growth.KindHeap && len(h.Stack.Frames) > 0 &&
			h.Stack.Frames[0].Function == "keep_object" {
			bytes += float64(h.InuseBytes)
			variance += h.Variance
		}
	}
	if deviation := math.Sqrt(variance); math.Abs(bytes-float64(leaked)) > 4.5*deviation {
		t.Errorf("keep_object holds %.0f ± %.0f bytes, want %d", bytes, deviation, leaked)
	}
	if o := s.Overhead(); o.Mode != growth.HeapFull || bits.OnesCount64(o.Interval) != 1 {
		t.Errorf("mode %s at an interval of %d bytes", o.Mode, o.Interval)
	}
	if n := snapshot(t, s); n.Heap.Bursts != 0 {
		t.Errorf("%d bursts", n.Heap.Bursts)
	}
}

// Each malloc and its free are charged at a cost, whether they are sampled or not. Chance moves the
// sum of samples: temporary objects are sampled every 256 KiB here, 148 times.
func testLaunchWork(t *testing.T) {
	const objects, size, cost = 4000, 96, time.Microsecond
	const least = objects * 101 * cost
	for interval, most := range map[uint64]float64{1: 1.01, 4096: 1.45} {
		t.Run(fmt.Sprintf("an interval of %d bytes", interval), func(t *testing.T) {
			command := exec.Command(tracertest.Build(t, "leak.c", "-pthread"), "1",
				fmt.Sprint(objects), fmt.Sprint(size), "100")
			s, target, _ := launchTraced(t, command, tracer.Options{Interval: interval}, "ready")
			k := tracer.Kernel(s)
			must(t, k.SetCosts(bpf.ProbeCosts{ShimPair: uint32(1000 * cost)}))
			order(target, "go")

			busiest := tracertest.Must(k.TakeBusiest())(t)
			if ratio := float64(busiest.InShim) / float64(least); ratio > most || ratio < 2-most {
				t.Errorf("%v are charged, of %v: %.3f", busiest.InShim, least, ratio)
			}
		})
	}
}

// The number of markers shows the interval, also to a program that is running.
func testLaunchMarkers(t *testing.T) {
	s, target := launch(t, exec.Command(tracertest.Build(t, "launched.c"), "leak"),
		tracer.Options{Interval: 512 << 10}, "done")
	for _, interval := range []uint64{512 << 10, 32 << 20, 4 << 10, 1, 1 << 30, 0} {
		must(t, tracer.Probing(s).SetIntervals(interval, 0))
		got := semaphore(t, target.PID(), "allocscope_interval_semaphore")
		if want := shim.MarkersOf(interval); int(got) != want {
			t.Errorf("an interval of %d bytes is %d markers, want %d", interval, got, want)
		}
	}
}

// Inside a container, the kernel shows no PIDs of programs in another one. They are held like others,
// until the semaphore changes.
func testLaunchNamespace(t *testing.T) {
	if !isContained(t) {
		return
	}
	s, target := launch(t, exec.Command("unshare", "--pid", "--fork", "--kill-child", "sh", "-c",
		"echo ready; read line; /bin/true; echo done; read line"), exact, "ready")
	hold := func() uint16 { return semaphore(t, target.PID(), holdSemaphore) }
	before := hold()
	target.Do("go")
	eventually(t, "the tracer lets it go on", func() bool { return hold() != before })

	ofTargets := counted(t, s, bpf.CountAllocations) + counted(t, s, bpf.CountFrees)
	if calls := counted(t, s, bpf.CountProducerCalls); calls <= ofTargets {
		t.Errorf("%d probes count, of which %d in targets: samples of others cost, too",
			calls, ofTargets)
	}
}

// A program that starts repeatedly waits for half a percent of the time in the long run.
func testLaunchCredit(t *testing.T) {
	const each, between = 40 * time.Millisecond, 300 * time.Millisecond
	now := time.Now()
	credit, isHolding, held := tracer.NewCredit(now), true, time.Duration(0)
	var changes int
	var first time.Duration // held in all until none was
	for range 10_000 {
		var waited time.Duration
		if isHolding {
			waited = each
		}
		now, held = now.Add(between), held+waited
		wasHolding := isHolding
		isHolding = credit(waited, now)
		if isHolding == wasHolding {
			continue
		}
		if changes++; changes == 1 {
			first = held
		}
	}
	if first < 3*time.Second || first > 3200*time.Millisecond {
		t.Errorf("programs are held for %v at first, want 3 s", first)
	}
	share := (held - first).Seconds() / (10_000 * between).Seconds()
	if share < 0.004 || share > 0.006 {
		t.Errorf("they are held for %.2f%% of the time, want 0.5%%", 100*share)
	}
	if changes < 3 {
		t.Errorf("%d changes: they are not held again", changes)
	}
}

// A program that overwrites its semaphore keeps the kernel from raising the semaphores of all
// programs.
func testLaunchUnheld(t *testing.T) {
	s, target := launch(t, exec.Command("/bin/sh", "-c",
		"sleep 1000 & echo $!; echo ready; read line; /bin/true; echo done; read line"),
		exact)
	other := tracertest.Must(strconv.Atoi(target.Await("ready")[0]))(t)
	t.Cleanup(func() { _ = syscall.Kill(other, syscall.SIGKILL) })

	var at int64
	eventually(t, "the other program has loaded the shim, and is traced", func() bool {
		comm := tracertest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/comm", other)))(t)
		isLoaded := false
		at, isLoaded = findSymbol(t, other, holdSemaphore)
		return string(comm) == "sleep\n" && isLoaded && s.IsTraced(other)
	})
	memory := tracertest.Must(os.OpenFile(fmt.Sprintf("/proc/%d/mem", other), os.O_WRONLY, 0))(t)
	defer memory.Close()
	if _, err := memory.WriteAt([]byte{0, 0x80}, at); err != nil {
		t.Fatal(err)
	}

	target.Do("go")
	eventually(t, "no program is held", func() bool {
		return semaphore(t, target.PID(), holdSemaphore) == 0
	})
}

const holdSemaphore = "allocscope_hold_semaphore"

// semaphore is the value of a semaphore of the shim in a process.
func semaphore(t testing.TB, pid int, name string) uint16 {
	t.Helper()
	var value [2]byte
	must(t, openProcess(t, pid).ReadMemory(uint64(symbolAt(t, pid, name)), value[:]))
	return binary.NativeEndian.Uint16(value[:])
}

// symbolAt is the address of a symbol of the shim in a process.
func symbolAt(t testing.TB, pid int, name string) int64 {
	t.Helper()
	at, ok := findSymbol(t, pid, name)
	if !ok {
		t.Fatalf("PID %d has no %s", pid, name)
	}
	return at
}

// findSymbol is symbolAt; false: the process has not loaded the shim, or not all of it.
func findSymbol(t testing.TB, pid int, name string) (int64, bool) {
	t.Helper()
	maps := mapsOf(t, pid)
	i := slices.IndexFunc(maps, func(m process.Mapping) bool { return shim.HasName(m.Path) })
	if i < 0 {
		return 0, false
	}
	file := tracertest.Must(elf.Open(maps[i].Path))(t)
	defer file.Close()
	symbols := tracertest.Must(file.Symbols())(t)
	k := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	at := maps[i].Start + symbols[k].Value
	hasAddress := func(m process.Mapping) bool { return m.Start <= at && at < m.End }
	return int64(at), slices.ContainsFunc(maps, hasAddress)
}

func testLaunchFails(t *testing.T) {
	library := writeShim(t)
	refused := errors.New("refused")
	for want, start := range map[error]func() (int, error){
		refused: func() (int, error) { return 0, refused },
		tracer.ErrExited: func() (int, error) {
			command := exec.Command("/bin/true")
			err := command.Run()
			return command.Process.Pid, err
		},
	} {
		options := tracer.Options{Launch: &tracer.Launch{Shim: library}}
		options.Launch.Start = func(context.Context) (int, error) { return start() }
		if _, err := tracer.Open(t.Context(), options); !errors.Is(err, want) {
			t.Errorf("open: %v, want %v", err, want)
		}
	}
}
