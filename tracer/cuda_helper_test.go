package tracer_test

// testdata/cuda.c, cuda.py and blocks.py, which know what they hold on GPUs, and what a snapshot says of it.

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A gpuProgram takes orders.
type gpuProgram struct {
	*tracertest.Target
	t testing.TB
}

// libcuda is the library that stands for CUDA's driver.
func libcuda(t testing.TB, flags ...string) string {
	t.Helper()
	return tracertest.BuildLibrary(t, "libcuda.c", "libcuda.so.1", flags...)
}

// startCUDA starts cuda.c with a driver, or without one where there is no argument.
func startCUDA(t testing.TB, arguments ...string) gpuProgram {
	t.Helper()
	target := tracertest.Start(t, tracertest.Build(t, "cuda.c", "-pthread"), arguments...)
	target.Await("ready")
	return gpuProgram{target, t}
}

func startPythonProgram(t testing.TB, name string, arguments ...string) gpuProgram {
	t.Helper()
	target := tracertest.Start(t, python, append([]string{tracertest.Source(name)}, arguments...)...)
	target.Await("ready")
	return gpuProgram{target, t}
}

// do gives orders, and what the last of them printed.
func (g gpuProgram) do(orders ...string) (printed []string) {
	g.t.Helper()
	for _, order := range orders {
		g.Say(order)
		printed = g.Await("done")
	}
	return printed
}

// amounts are objects and bytes, by whatever they are told of; what there is nothing of is left out.
type amounts map[string][2]int64

func (a amounts) add(name string, objects, bytes int64) {
	sum := [2]int64{a[name][0] + objects, a[name][1] + bytes}
	if a[name] = sum; sum == [2]int64{} {
		delete(a, name)
	}
}

// plus is what both are together.
func (a amounts) plus(b amounts) amounts {
	sum := maps.Clone(a)
	for name, of := range b {
		sum.add(name, of[0], of[1])
	}
	return sum
}

// totals are what the library says that there is, by the order of that name.
func (g gpuProgram) totals(order string) amounts {
	g.t.Helper()
	told := make(amounts)
	for _, line := range g.do(order) {
		var kind string
		var objects, bytes int64
		if n, err := fmt.Sscan(line, &kind, &objects, &bytes); n != 3 {
			g.t.Fatalf("%q: %v", line, err)
		}
		told.add(kind, objects, bytes)
	}
	return told
}

// onDevices are kinds of memory on GPUs, and what the driver has taken of the host's.
func onDevices(snapshot *growth.Snapshot) (holdings []growth.Holding) {
	holdings = append(holdings, snapshot.GPUHoldings...)
	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindPinned {
			holdings = append(holdings, h)
		}
	}
	return holdings
}

// holderIn is the innermost function of a stack whose name begins so, itself or by a function within it; "?" if there is none.
func holderIn(stack *growth.Stack, prefix string) string {
	for _, f := range stack.Frames {
		if strings.HasPrefix(f.Function, prefix) {
			name, _, _ := strings.Cut(f.Function, ".<locals>")
			return name
		}
	}
	return "?"
}

// heldByCaller is what is alive by kind, GPU and the function that has called the driver.
func heldByCaller(snapshot *growth.Snapshot) amounts {
	held := make(amounts)
	for _, h := range onDevices(snapshot) {
		caller := "?"
		if len(h.Stack.Frames) > 1 {
			caller = h.Stack.Frames[1].Function
		}
		held.add(callerOf(h, caller), int64(h.InuseObjects), h.InuseBytes)
	}
	return held
}

func callerOf(h growth.Holding, function string) string {
	return strings.Join(strings.Fields(fmt.Sprint(h.Kind, " ", h.GPU, " ", function)), " ")
}

// allocatedByCaller is the same of what has been allocated.
func allocatedByCaller(snapshot *growth.Snapshot) amounts {
	held := make(amounts)
	for _, h := range onDevices(snapshot) {
		if len(h.Stack.Frames) > 1 {
			held.add(callerOf(h, h.Stack.Frames[1].Function), int64(h.AllocObjects), int64(h.AllocBytes))
		}
	}
	return held
}

// mustAmount compares what is told with the truth.
func mustAmount(t testing.TB, what string, got, want amounts) {
	t.Helper()
	for name, of := range want {
		if got[name] != of {
			t.Errorf("%s: %s is %d, want %d (objects, bytes)", what, name, got[name], of)
		}
	}
	for name, of := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is %d, want nothing", what, name, of)
		}
	}
}

// awaited waits a minute for what happens in the background.
func awaited(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

// awaitCUDA waits until the driver's functions are probed, and stacks lead through it.
func awaitCUDA(t testing.TB, s *tracer.Session) {
	t.Helper()
	awaited(t, "the driver is probed", func() bool {
		s.Sample()
		driver, _ := s.WatchesCUDA()
		return driver
	})
	s.AwaitTables()
}

// awaitBlocks waits until blocks are followed.
func awaitBlocks(t testing.TB, s *tracer.Session) {
	t.Helper()
	awaited(t, "blocks are followed", func() bool {
		s.Sample()
		_, blocks := s.WatchesCUDA()
		return blocks
	})
	s.AwaitTables()
}
