package bpf

import (
	"errors"
	"os"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestLoad(t *testing.T) {
	needRoot(t)
	spec := tracertest.Must(LoadKernel())(t)

	var specs Specs
	tracertest.NoError(t, spec.Assign(&specs))
	specs.Live.MaxEntries = 7
	delete(spec.Programs, ProgHeapSession) // which needs Linux 6.13

	loaded, err := Load(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer loaded.Close()

	loaded.Preload(ProgHeapOnEntry, ProgOnFault, ProgExitMapping, ProgProducerAlloc)
	if n := loaded.Live.MaxEntries(); n != 7 {
		t.Errorf("the live map has %d entries, want 7", n)
	}
	if _, err := loaded.Program(ProgHeapSession); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v for a program that the spec lacks", err)
	}
	entry, err := loaded.Program(ProgHeapOnEntry)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if all, err := loaded.AllPrograms(); err != nil || all[ProgHeapOnEntry] != entry || len(all) < 2 {
		t.Errorf("programs %v: %+v", all, err)
	}
	if err := loaded.Interval.Set(uint32(1)); err != nil {
		t.Errorf("set a variable: %v", err)
	}
}

// The types of the kernel are decoded once for loads that follow each other, and are not kept.
func TestKernelTypes(t *testing.T) {
	first := KernelTypes()
	if KernelTypes() != first {
		t.Error("two loads have types of their own")
	}
	dropTypes()
	if KernelTypes() == first {
		t.Error("the types are kept")
	}
}
