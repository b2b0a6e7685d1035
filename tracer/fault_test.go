package tracer_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// attachFaults takes stacks at page faults, by a program of bpf/selftest.c that shares the maps of the session.
func attachFaults(t *testing.T, s *tracer.Session) (stacks *ebpf.Map) {
	t.Helper()
	object := map[string]string{"amd64": "x86", "arm64": "arm64"}[runtime.GOARCH]
	spec, err := ebpf.LoadCollectionSpec("../bpf/selftest_" + object + "_bpfel_test.o")
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Programs {
		if name != "on_page_fault" {
			delete(spec.Programs, name)
		}
	}
	shared := make(map[string]*ebpf.Map)
	for name, m := range s.Maps() {
		if wanted := spec.Maps[name]; wanted != nil && wanted.Type != ebpf.Array || name == "found_rules" || name == "found_codes" {
			shared[name] = m
			wanted.MaxEntries = m.MaxEntries()
		}
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(collection.Close)
	l, err := link.Tracepoint("exceptions", "page_fault_user", collection.Programs["on_page_fault"], nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return collection.Maps["fault_stacks"]
}

func TestStacksOfPageFaultsAreWholeAndBeginWithTheFunctionThatFaults(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "steps.c", "-fomit-frame-pointer"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID()})
	stacks := attachFaults(t, s)
	target.Say("map 4 1048576 65536")
	target.Await("done")
	found := false
	var id uint64
	var tgid uint32
	for entries := stacks.Iterate(); entries.Next(&id, &tgid); {
		stack := s.Stack(id)
		names := functions(stack)
		if stack.Truncated != "" || names[len(names)-1] != "_start" {
			t.Errorf("%q is cut: %s", names, stack.Truncated)
		}
		found = found || strings.Contains(names[0], "memset") && names[1] == "main"
	}
	if !found {
		t.Error("no stack is that of the memset that touches the pages")
	}
	mustLoseNothing(t, s)
}
