package tracer_test

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelSeccomp traces programs whose filter refuses the system call of return probes, on every
// kernel: some kernels apply the filter to it, and the program dies where a return is probed.
func TestKernelSeccomp(t *testing.T) {
	t.Run("filtered program lives and its heap is exact", testKernelSeccompLives)
	if runtime.GOARCH == "amd64" { // elsewhere return probes make no system call
		t.Run("heap is exact without return probes", testKernelSeccompExact)
	}
}

// TestSeccomp injects the verdict that return probes end filtered programs. They are filtered.
func TestSeccomp(t *testing.T) {
	t.Run("program without a filter has return probes", testSeccompUnfiltered)
	t.Run("filter that comes later is noticed by the next opening", testSeccompLater)
	t.Run("memory of tensors is exact without return probes", testSeccompTensors)
	t.Run("calls of CUDA's driver count without return probes", testSeccompCUDA)
}

// refuseReturns runs a program under a filter that refuses the system call by which a probed
// function returns on x86-64 since Linux 6.11, as filters of containers do that do not know it:
// uretprobe, arch/x86/entry/syscalls/syscall_64.tbl.
func refuseReturns(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	return exec.Command(tracertest.Build(t, "deny.c", "-DDENIED=335"), program)
}

// openUnsafe is open on a kernel on which return probes end filtered programs.
func openUnsafe(t *testing.T, options tracer.Options) *tracer.Session {
	t.Helper()
	return open(t, tracer.WithFilterVerdict(options, calibrate.ErrFiltered))
}

// mustHaveNoReturnProbes asks the kernel side, which counts the return probes that have run.
func mustHaveNoReturnProbes(t *testing.T, s *tracer.Session) {
	t.Helper()
	if n := counted(t, s, bpf.CountReturns); n != 0 {
		t.Errorf("%d return probes have run", n)
	}
}

func testKernelSeccompLives(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		target := startCommand(t, refuseReturns(t, tracertest.Build(t, "semantics.c", "-pthread")))
		s := open(t, tracer.Options{
			PID: target.PID(), Interval: 1, Mode: mode, Sources: heapAlone,
		})
		mustHoldSemantics(t, target, s)
		t.Logf("%d return probes have run", counted(t, s, bpf.CountReturns))
	})
}

func testKernelSeccompExact(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, source := range []string{"semantics.c", "filters.c"} {
			t.Run(mode.String()+" "+source, func(t *testing.T) {
				target := startCommand(t, refuseReturns(t, tracertest.Build(t, source, "-pthread")))
				s := openUnsafe(t, tracer.Options{
					PID: target.PID(), Interval: 1, Mode: mode, Sources: heapAlone,
				})
				if details := strings.Join(sourceOf(t, s, "heap").Details, "\n"); !strings.Contains(
					details, "no return probes: "+calibrate.ErrFiltered.Error()) {
					t.Errorf("the status does not say so:\n%s", details)
				}

				if source == "semantics.c" {
					mustHoldSemantics(t, target, s)
				} else {
					mustHoldAllocated(t, target, s)
				}
				mustHaveNoReturnProbes(t, s)
			})
		}
	}
}

// mustHoldAllocated compares with the memory of testdata/filters.c.
func mustHoldAllocated(t *testing.T, target *tracertest.Target, s *tracer.Session) {
	t.Helper()
	truth := target.Do("allocate")
	mustHold(t, held(snapshot(t, s)), truth)
	mustLoseNothing(t, s)
}

func testSeccompUnfiltered(t *testing.T) {
	t.Parallel()
	target := start(t, tracertest.Build(t, "filters.c", "-pthread"))
	s := openUnsafe(t, tracer.Options{PID: target.PID(), Interval: 1, Sources: heapAlone})
	mustHoldAllocated(t, target, s)
	if counted(t, s, bpf.CountReturns) == 0 {
		t.Error("no return probe has run")
	}
}

func testSeccompLater(t *testing.T) {
	t.Parallel()
	target := start(t, tracertest.Build(t, "filters.c", "-pthread"))
	s := openUnsafe(t, tracer.Options{PID: target.PID(), Interval: 1, Sources: heapAlone})
	closeHeap(t, s)
	order(target, "filter")

	before := counted(t, s, bpf.CountReturns)
	must(t, tracer.Probing(s).OpenHeap(false, 1))
	mustHoldAllocated(t, target, s)
	if n := counted(t, s, bpf.CountReturns) - before; n != 0 {
		t.Errorf("%d return probes have run in the filtered program", n)
	}
}

func testSeccompTensors(t *testing.T) {
	t.Parallel()
	command := refuseReturns(t, python)
	command.Args = append(command.Args, tracertest.Source("tensors.py"))
	h := tensorHolder{gpuProgram{startCommand(t, command), t}}
	for _, way := range tensorWays {
		t.Run(fmt.Sprint(way), func(t *testing.T) {
			h.t = t
			h.Do("age")
			s := openUnsafe(t, tracer.Options{
				PID: h.PID(), Interval: 1, Mode: way.mode, Sources: way.sources,
			})

			h.Do("keep 1000 777", "churn 500 777", "fill 5 300000", "keep 3 0")
			mustHoldTensors(t, s, h)
			mustHaveNoReturnProbes(t, s)
		})
	}
}

func testSeccompCUDA(t *testing.T) {
	t.Parallel()
	command := refuseReturns(t, tracertest.Build(t, "cuda.c", "-pthread"))
	command.Args = append(command.Args, libcuda(t))
	g := gpuProgram{startCommand(t, command), t}
	s := openUnsafe(t, tracer.Options{
		PID: g.PID(), Interval: 1, Sources: []string{"cuda", "mapping"},
	})
	if details := strings.Join(sourceOf(t, s, "cuda").Details, "\n"); !strings.Contains(
		details, "return of cuMemAlloc_v2 in ") {
		t.Errorf("no return instruction is probed:\n%s", details)
	}
	mustCountDriverCalls(t, g, s)
}
