package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
)

func TestLoad(t *testing.T) {
	needRoot(t)
	spec, err := LoadKernel()
	if err != nil {
		t.Fatal(err)
	}

	var specs Specs
	if err := spec.Assign(&specs); err != nil {
		t.Fatal(err)
	}
	specs.Live.MaxEntries = 7
	delete(spec.Programs, ProgHeapSession) // which needs Linux 6.13

	objects, err := Load(spec, ebpf.CollectionOptions{})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer objects.Close()

	if n := objects.Live.MaxEntries(); n != 7 {
		t.Errorf("the live map has %d entries, want 7", n)
	}
	if objects.HeapSession != nil || objects.HeapOnEntry == nil {
		t.Errorf("programs %v and %v, want only the one that the spec has", objects.HeapSession,
			objects.HeapOnEntry)
	}
	if err := objects.Interval.Set(uint32(1)); err != nil {
		t.Errorf("set a variable: %v", err)
	}
}
