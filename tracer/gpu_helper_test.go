package tracer_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A gpuProgram takes orders.
type gpuProgram struct {
	*tracertest.Target
	t testing.TB
}

// libcuda builds the stand-in for CUDA's driver.
func libcuda(t testing.TB, flags ...string) string {
	t.Helper()
	return tracertest.BuildLibrary(t, "libcuda.c", "libcuda.so.1", flags...)
}

// startCUDA starts cuda.c with a driver, or without one where there is no argument.
func startCUDA(t testing.TB, arguments ...string) gpuProgram {
	t.Helper()
	return gpuProgram{start(t, tracertest.Build(t, "cuda.c", "-pthread"), arguments...), t}
}

func startPythonProgram(t testing.TB, name string, arguments ...string) gpuProgram {
	t.Helper()
	return gpuProgram{start(t, python, append([]string{tracertest.Source(name)}, arguments...)...), t}
}

// amounts are objects and bytes by name. Empty ones are left out.
type amounts map[string][2]int64

func (a amounts) add(name string, objects, bytes int64) {
	sum := [2]int64{a[name][0] + objects, a[name][1] + bytes}
	if a[name] = sum; sum == [2]int64{} {
		delete(a, name)
	}
}

// plus is the sum of both.
func (a amounts) plus(b amounts) amounts {
	sum := maps.Clone(a)
	for name, of := range b {
		sum.add(name, of[0], of[1])
	}
	return sum
}

// totals returns the library's own counts, on the order of that name.
func (g gpuProgram) totals(order string) amounts {
	g.t.Helper()
	reported := make(amounts)
	for _, line := range g.Do(order) {
		var kind string
		var objects, bytes int64
		scan(g.t, line, "%s %d %d", &kind, &objects, &bytes)
		reported.add(kind, objects, bytes)
	}
	return reported
}

// onDevices returns the memory on GPUs, and the host memory that the driver has pinned.
func onDevices(snapshot *growth.Snapshot) (holdings []growth.Holding) {
	holdings = append(holdings, snapshot.GPUHoldings...)
	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindPinned {
			holdings = append(holdings, h)
		}
	}
	return holdings
}

// siteIn is the innermost function of a stack whose name begins so, itself or by a function within
// it. "?" if there is none.
func siteIn(stack *growth.Stack, prefix string) string {
	for _, f := range stack.Frames {
		if strings.HasPrefix(f.Function, prefix) {
			name, _, _ := strings.Cut(f.Function, ".<locals>")
			return name
		}
	}
	return "?"
}

// bySite is the live and the allocated memory, by kind, GPU and the function that has called the
// driver.
func bySite(snapshot *growth.Snapshot) (held, allocated amounts) {
	held, allocated = make(amounts), make(amounts)
	for _, h := range onDevices(snapshot) {
		caller := "?"
		if len(h.Stack.Frames) > 1 {
			caller = h.Stack.Frames[1].Function
		}

		held.add(callerOf(h, caller), int64(h.InuseObjects), h.InuseBytes)
		allocated.add(callerOf(h, caller), int64(h.AllocObjects), int64(h.AllocBytes))
	}
	return held, allocated
}

func heldBySite(snapshot *growth.Snapshot) amounts {
	held, _ := bySite(snapshot)
	return held
}

func callerOf(h growth.Holding, function string) string {
	return strings.Join(strings.Fields(fmt.Sprint(h.Kind, " ", h.GPU, " ", function)), " ")
}

// mustAmount compares a result with the truth.
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

// awaitCUDA waits until the driver's functions are probed, and stacks lead through it.
func awaitCUDA(t testing.TB, s *tracer.Session) {
	t.Helper()
	eventually(t, "the driver is probed", func() bool {
		s.Sample()
		driver, _ := tracer.Targets(s)[0].GPU.Active()
		return driver
	})
	awaitTables(s)
}

// awaitBlocks waits until blocks are followed.
func awaitBlocks(t testing.TB, s *tracer.Session) {
	t.Helper()
	eventually(t, "blocks are followed", func() bool {
		s.Sample()
		_, blocks := tracer.Targets(s)[0].GPU.Active()
		return blocks
	})
	awaitTables(s)
}
