//go:build amd64

package tracer_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// generation is the number of what the kernel side knows about a process's code.
func generation(t *testing.T, s *tracer.Session, pid int) uint64 {
	t.Helper()
	var id ebpf.MapID
	if err := s.Maps()[bpf.MapMappings].Lookup(uint32(pid), &id); err != nil {
		t.Fatal(err)
	}
	mappings, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0 // replaced meanwhile
	}
	defer mappings.Close()
	var first bpf.Mapping
	if err := mappings.Lookup(uint32(0), &first); err != nil {
		t.Fatal(err)
	}
	return first.Bias
}

// What is remembered of an address is of one generation. Addresses that differ as two generations do were taken for each other.
func TestRulesOfAnEarlierGenerationAreNotTakenForThoseOfCodeBeside(t *testing.T) {
	const generations = 40
	target := tracertest.Start(t, tracertest.Build(t, "generations.c"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	s.AwaitTables()
	for range generations {
		before := generation(t, s, target.PID())
		target.Say("map")
		target.Await("done")
		for deadline := time.Now().Add(time.Minute); generation(t, s, target.PID()) <= before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the code that was mapped is not known after a minute")
			}
		}
		target.Say("call")
		target.Await("done")
	}
	calls := make(map[string]float64)
	for _, h := range snapshot(t, s).Holdings {
		if len(h.Stack.Frames) > 2 && h.Stack.Frames[2].Function == "main" {
			calls[h.Stack.Frames[1].Function] += h.InuseObjects
		}
	}
	if calls["shallow"] != generations || calls["deep"] != generations {
		t.Errorf("%v objects by function that main has called, want %d by each", calls, generations)
	}
	mustLoseNothing(t, s)
}
