package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Each import is one that a rule refuses; the package that has it imports nothing else.
func TestLayers(t *testing.T) {
	for _, test := range []struct{ pkg, imported, because string }{
		{"growth", module + "export/units", "growth uses only growth"},
		{"growth/verdict", module + "growth", "not below"},
		{"growth/trend", "os/exec", "no I/O"},
		{"growth/trend", "github.com/cilium/ebpf", "kernel"},
		{"export/page/pagetest", module + "tracer", "export uses only export, growth"},
		{"export/report", module + "bpf", "export uses only"},
		{"export/units", module + "export/words", "not below"},
		{"tracer/gpu/nvml", module + "export/units", "tracer uses only"},
		{"tracer/mem", "log/slog", "only cmd logs"},
		{"tracer/overhead/controller", "github.com/google/pprof/profile", "pprof"},
		{"tracer/kernel", module + "tracer/source", "not below"},
		{"cmd/allocscope/trace", "github.com/NVIDIA/go-nvml/pkg/nvml", "NVML"},
		{"shim", "github.com/cilium/ebpf/link", "kernel"},
		{"record", "github.com/spf13/cobra", "no flag"},
		{"cmd/allocscope/console", module + "cmd/allocscope/trace", "not below"},
		{"bpf", module + "tracer", "bpf uses only bpf"},
		{"tracer/new/room", "fmt", "in no layer"},
	} {
		imports := make(importsOf)
		file := fmt.Sprintf("package p\n\nimport %q\n", test.imported)
		tracertest.NoError(t, imports.add(source{test.pkg + "/file.go", file}))
		faults := imports.faults()
		if len(faults) != 1 || !strings.Contains(faults[0], test.because) {
			t.Errorf("%s imports %s: faults %q, want one with %q",
				test.pkg, test.imported, faults, test.because)
		}
	}

	imports := make(importsOf)
	text := "package p\n\nimport \"github.com/NVIDIA/go-nvml/pkg/nvml\"\n"
	tracertest.NoError(t, imports.add(source{"growth/trend/file_test.go", text}))
	if faults := imports.faults(); len(faults) != 1 || !strings.Contains(faults[0], "NVML") {
		t.Errorf("a test imports NVML: faults %q", faults)
	}

	for _, file := range []string{"growth/judge/file.go", "growth/verdict/file_test.go"} {
		imports := make(importsOf)
		text := fmt.Sprintf("package p\n\nimport %q\n", module+"growth/verdict")
		if err := imports.add(source{file, text}); err != nil || len(imports.faults()) > 0 {
			t.Errorf("%s: faults %q, %v, want none", file, imports.faults(), err)
		}
	}
}
