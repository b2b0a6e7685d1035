package tracer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// pythonAPIs are those of cuda.c that cuda.py has, too.
var pythonAPIs = []string{"malloc", "pitch", "managed", "async", "pool", "create", "hostalloc", "allochost"}

// mustGoThrough wants that a stack leads from the driver through the function one and its caller, which are Python's, to the program's start.
func mustGoThrough(t *testing.T, h growth.Holding, caller string) {
	t.Helper()
	var python []string
	for _, f := range h.Stack.Frames {
		if f.Python {
			python = append(python, f.Function[strings.LastIndexByte(f.Function, '.')+1:])
		}
	}
	whole := strings.Join(python, " ")
	if !strings.HasPrefix(whole, "one "+caller+" order_hold ") || h.Stack.Truncated != "" {
		t.Errorf("%s: the stack of what is held is %v %s", caller, functions(h.Stack), h.Stack.Truncated)
	}
	if leaf := h.Stack.Frames[0]; leaf.Python || !strings.HasPrefix(leaf.Function, "cuMem") {
		t.Errorf("%s: the stack begins at %+v", caller, leaf)
	}
}

func TestPythonFramesStandBetweenThoseOfTheDriverAndTheProgram(t *testing.T) {
	t.Parallel()
	g := startPythonProgram(t, "cuda.py", libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	want, all := make(amounts), int64(0)
	for _, name := range pythonAPIs {
		a := gpuAPINamed(name)
		for _, order := range []string{"hold %s 7 %d", "churn %s 20 %d", "threads 4 %s 25 %d"} {
			g.do(fmt.Sprintf(order, name, a.size))
		}
		g.do("free "+name+" 3", "fail "+name+" 5")
		want.add(a.holder(), 104, 104*a.counts)
		all += 104 * a.counts
	}
	taken, got, bytes := snapshot(t, s), make(amounts), int64(0)
	for _, h := range onDevices(taken) {
		bytes += h.InuseBytes
		caller := holderIn(h.Stack, "hold_")
		if h.InuseObjects > 0 {
			got.add(callerOf(h, caller), int64(h.InuseObjects), h.InuseBytes)
			mustGoThrough(t, h, caller)
		}
	}
	mustAmount(t, "held", got, want)
	var told int64
	for kind, of := range g.totals("totals") {
		if kind != "imported" {
			told += of[1]
		}
	}
	if bytes != all || told != all {
		t.Errorf("%d bytes in all, the library says %d, want %d", bytes, told, all)
	}
	mustLoseNothing(t, s)
}
