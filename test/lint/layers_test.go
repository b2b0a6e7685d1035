package main

import (
	"fmt"
	"strings"
	"testing"
)

// Each import is one that a rule refuses; the package that has it imports nothing else.
func TestLayers(t *testing.T) {
	for _, test := range []struct{ pkg, imported, because string }{
		{"growth", module + "export/units", "growth uses only growth"},
		{"growth/verdict", module + "growth", "not below"},
		{"growth/trend", module + "growth/judge", "not below"},
		{"growth/judge", module + "tracer/process", "growth uses only growth"},
		{"growth/trend", "os/exec", "no I/O"},
		{"growth/trend", "github.com/cilium/ebpf", "kernel"},
		{"export/page/pagetest", module + "tracer", "export uses only export, growth"},
		{"export/report", module + "bpf", "export uses only"},
		{"export/report", "github.com/cilium/ebpf/link", "kernel"},
		{"export/units", module + "export/words", "not below"},
		{"export/report", module + "cmd/allocscope/view", "export uses only"},
		{"tracer/gpu/nvml", module + "export/units", "tracer uses only"},
		{"tracer/residency/pages", "log/slog", "only cmd logs"},
		{"tracer/overhead/controller", "github.com/google/pprof/profile", "pprof"},
		{"tracer/doctor", module + "tracer", "not below"},
		{"tracer/kernel", module + "tracer/source", "not below"},
		{"tracer/source", module + "tracer/stack", "not below"},
		{"tracer/stack", module + "tracer/estimate", "not below"},
		{"tracer/liveness", module + "tracer/residency", "not below"},
		{"tracer/estimate", module + "tracer/gpu", "not below"},
		{"tracer/gpu", module + "tracer/doctor", "not below"},
		{"tracer/process", module + "tracer/probe", "not below"},
		{"tracer/gpu", "github.com/NVIDIA/go-nvml/pkg/nvml", "NVML"},
		{"cmd/allocscope/trace", "github.com/NVIDIA/go-nvml/pkg/nvml", "NVML"},
		{"bpf", module + "tracer", "bpf uses only bpf"},
		{"tracer/new/room", "fmt", "in no layer"},
		{"growth/new", "fmt", "in no layer"},
	} {
		imports := make(importsOf)
		file := fmt.Sprintf("package p\n\nimport %q\n", test.imported)
		if err := imports.add(source{test.pkg + "/file.go", file}); err != nil {
			t.Fatal(err)
		}
		faults := imports.faults()
		if len(faults) != 1 || !strings.Contains(faults[0], test.because) {
			t.Errorf("%s imports %s: faults %q, want one with %q",
				test.pkg, test.imported, faults, test.because)
		}
	}
}

func TestLayersAllow(t *testing.T) {
	imports := make(importsOf)
	for file, imported := range map[string]string{
		"growth/judge/a.go":       module + "growth/verdict",
		"export/report/a.go":      module + "growth/trend",
		"export/profile/a.go":     "github.com/google/pprof/profile",
		"tracer/a.go":             module + "tracer/residency/pages",
		"tracer/kernel/a.go":      "github.com/cilium/ebpf",
		"tracer/gpu/nvml/a.go":    "github.com/NVIDIA/go-nvml/pkg/nvml",
		"tracer/kernel/a_test.go": module + "tracer",
		"cmd/allocscope/a.go":     "log/slog",
		"test/kernels/a.go":       module + "cmd/allocscope/view",
	} {
		text := fmt.Sprintf("package p\n\nimport %q\n", imported)
		if err := imports.add(source{file, text}); err != nil {
			t.Fatal(err)
		}
	}
	if faults := imports.faults(); len(faults) > 0 {
		t.Errorf("faults %q, want none", faults)
	}
}
