package tracer_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestObjects counts and searches in a traced process, beside the session's other work.
func TestObjects(t *testing.T) {
	t.Run("who keeps what a stack has allocated", testObjectsOfStack)
	t.Run("who has allocated tensors, and what C++ alone holds", testObjectsOfTensors)
}

func testObjectsOfStack(t *testing.T) {
	t.Parallel()
	target := startCommand(t,
		exec.Command("/usr/bin/python3", tracertest.Source("kept_records.py")))
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Sources: []string{"heap"}})
	order(target, "keep 100")
	from := s.Elapsed()
	order(target, "keep 300")
	to := s.Elapsed()
	order(target, "keep 200")

	// The payloads are the objects of 5000 bytes.
	var stack *growth.Stack
	for _, h := range snapshot(t, s).Holdings {
		if h.InuseObjects == 600 && h.InuseBytes > 600*5000 && slices.Contains(functions(h.Stack), "keep") {
			stack = h.Stack
		}
	}
	if stack == nil {
		t.Fatal("no stack holds the payloads")
	}

	if pids := s.TracedPIDs(); !slices.Equal(pids, []int{target.PID()}) {
		t.Fatalf("processes %v are traced, want %d", pids, target.PID())
	}
	counted, err := s.Census(t.Context(), tracer.CensusOptions{PID: target.PID(), Samples: 4})
	if err != nil || counted.PID != target.PID() {
		t.Fatalf("%v, %v: want the census of the process", counted, err)
	}
	for _, c := range counted.Types {
		if c.Type == "__main__.Record" && c.Count != 600 {
			t.Errorf("%v records, want 600", c.Count)
		}
	}

	before := s.Elapsed()
	found, err := s.Search(t.Context(), tracer.KeeperSearch{
		PID: target.PID(), Stacks: [][]uint64{{1}, {2, stack.ID}}, From: from, To: to,
		MaxSamples: 1000, Limit: time.Minute,
	})
	must(t, err)
	// The first suspect has no objects. Of the second, 300 were allocated between the two moments.
	if len(found) != 1 || found[0].Stack != 2 || found[0].Samples == 0 || found[0].Samples > 300 {
		t.Fatalf("%+v, want one search of up to 300 samples", found)
	}
	if at := found[0].Elapsed; at < before || at > s.Elapsed() {
		t.Errorf("the entries were counted at %s, want between %s and now", at, before)
	}
	if len(found[0].Paths) == 0 {
		t.Fatalf("%+v, want a path", found[0])
	}
	root := found[0].Paths[0].Root
	if root.Kind != keeper.RootGlobal || root.Module != "__main__" || root.Name != "cache" {
		t.Errorf("root %+v, want the global cache of __main__", root)
	}
	if s.ObjectsCPUTime() <= 0 {
		t.Error("it has cost no CPU time")
	}
}

func testObjectsOfTensors(t *testing.T) {
	t.Parallel()
	h := startTensors(t)
	h.Do("keep 3 70000") // before: no stack is known
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1})
	h.Do("keep 40 5000", "keep 7 70000", "view", "save 50")

	counted, err := s.Census(t.Context(), tracer.CensusOptions{PID: h.PID()})
	must(t, err)
	if got := counted.Tensors.InCPPOnly; got != 50*4000 {
		t.Errorf("C++ alone holds %d bytes, want %d", got, 50*4000)
	}
	found := make(map[string]bool)
	for _, g := range counted.Tensors.Groups {
		group := fmt.Sprint(g.DType, g.Shape, g.Storages, g.Tensors, g.Bytes)
		for _, held := range snapshot(t, s).Holdings {
			if held.Stack.ID == g.Stack && held.Stack.ID != 0 {
				group += " " + strings.Join(functions(&growth.Stack{Frames: ofPython(held.Stack)}), " ")
			}
		}
		found[group] = true
	}
	for _, want := range []string{
		"uint8[5000] 40 80 200000 Holder.order_keep main <module>",
		"uint8[70000] 10 20 700000 Holder.order_keep main <module>",
		"float32[1000] 2 2 8000 Holder.order_save main <module>",
	} {
		if !found[want] {
			t.Errorf("there is no %q in %v", want, found)
		}
	}

	h.Do("drop 200")
	counted, err = s.Census(t.Context(), tracer.CensusOptions{PID: h.PID()})
	if err != nil || counted.Tensors.InCPPOnly != 0 {
		t.Errorf("%v, %+v: want nothing that C++ alone holds", err, counted)
	}

	t.Run("heap that is not traced", func(t *testing.T) {
		s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Sources: []string{"mapping"}})
		counted, err := s.Census(t.Context(), tracer.CensusOptions{PID: h.PID()})
		if err != nil || counted.Tensors.InCPPOnly != -1 {
			t.Fatalf("%v, %+v: want that it is not known what C++ alone holds", err, counted)
		}
		for _, g := range counted.Tensors.Groups {
			if g.Stack != 0 {
				t.Errorf("%+v has a stack", g)
			}
		}
	})
}
