package component

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth/growthtest"

	"github.com/allocscope/allocscope/growth"
)

// recordedStack reads a stack of testdata/stacks and the component that its header names. A line is
// function|file|line|module; the file is Python's, which has no module.
func recordedStack(t testing.TB, name string) (component string, s *growth.Stack) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s = &growth.Stack{ID: 1, PID: 1}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if header, ok := strings.CutPrefix(lines.Text(), "# component: "); ok {
			component = header
		}
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "|")
		if len(fields) != 4 {
			t.Fatalf("%s: %q", name, lines.Text())
		}
		frame := growth.Frame{Function: fields[0], File: fields[1], Python: fields[1] != ""}
		frame.Line, _ = strconv.Atoi(fields[2])
		if fields[3] != "" {
			frame.Module = &growth.Module{Path: fields[3]}
		}
		s.Frames = append(s.Frames, frame)
	}

	return component, s
}

func recordings(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/stacks/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names
}

func TestStacksOfRealLibrariesHaveTheirOwners(t *testing.T) {
	for _, name := range recordings(t) {
		want, s := recordedStack(t, name)
		if got := DefaultRules().Of(s); want == "" || got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// One frame below the script, for lines of the table that no recording needs.
func TestEachLineOfTheTableTellsItsFrames(t *testing.T) {
	for _, c := range []struct {
		want  string
		frame growth.Frame
	}{
		{"inductor-run", growthtest.PythonFrame("copy_misaligned_inputs", packages+"torch/_inductor/utils.py", 1)},
		{"inductor-run", growthtest.NativeFrame("kernel", "/tmp/torchinductor_u/ab/cab.so")},
		{"inductor-compile", growthtest.PythonFrame("Scheduler.__init__", packages+"torch/_inductor/scheduler.py", 1)},
		{"inductor-compile", growthtest.PythonFrame("compile_fx", packages+"torch/_inductor/compile_fx.py", 1)},
		{"inductor-compile", growthtest.PythonFrame("make_ir", packages+"triton/compiler/code_generator.py", 1)},
		{"inductor-compile", growthtest.NativeFrame("mlir::run", packages+"triton/_C/libtriton.so")},
		{"dynamo", growthtest.PythonFrame("_compile", packages+"torch/_dynamo/convert_frame.py", 1)},
		{"dynamo", growthtest.PythonFrame("build", packages+"torch/_dynamo/variables/builder.py", 1)},
		{"dynamo", growthtest.PythonFrame("FakeTensorMode.dispatch", packages+"torch/_subclasses/fake_tensor.py", 1)},
		{"pinned", growthtest.NativeFrame("at::_ops::_pin_memory::call", packages+"torch/lib/libtorch_cpu.so")},
		{"pil", growthtest.NativeFrame("jpeg_mem_dest", packages+"pillow.libs/libjpeg-1.so")},
		{"hf-arrow", growthtest.NativeFrame("arrow::f", "/usr/lib/libarrow.so.1900")},
		{"hf-arrow", growthtest.NativeFrame("f", packages+"pyarrow/lib.cpython-312.so")},
		{"tokenizers", growthtest.PythonFrame("encode", packages+"tiktoken/core.py", 1)},
		{"metrics", growthtest.PythonFrame("log_metrics", packages+"lightning/pytorch/loggers/csv_logs.py", 1)},
		{"optimizer", growthtest.NativeFrame("torch::optim::AdamW::step", packages+"torch/lib/libtorch_cpu.so")},
		{"dataloader", growthtest.NativeFrame("dali::f", packages+"nvidia/dali/libdali.so")},
		{"numpy", growthtest.PythonFrame("tile", packages+"numpy/lib/shape_base.py", 1)},
		{"train.py", growthtest.PythonFrame("tqdm.__iter__", packages+"tqdm/std.py", 1)},
		{"transformers", growthtest.PythonFrame("Trainer.train", packages+"transformers/trainer.py", 1)},
	} {
		if got := DefaultRules().Of(&growth.Stack{Frames: []growth.Frame{mallocFrame, c.frame, stepLine}}); got != c.want {
			t.Errorf("%+v: %q, want %q", c.frame, got, c.want)
		}
	}
}

func TestEveryComponentHasAStack(t *testing.T) {
	// TestRulesOfRoots and TestRulesOf have these.
	seen := []string{"file", "before-tracing", "libc", "openmp", "other"}
	for _, name := range recordings(t) {
		component, _ := recordedStack(t, name)
		seen = append(seen, component)
	}
	for _, rule := range DefaultRules().rules {
		if rule.component != layerName && rule.component != ownName &&
			!slices.Contains(seen, rule.component) {
			t.Errorf("no stack of component %q", rule.component)
		}
	}
}

// BenchmarkRules compares stacks whose places are new with those that have been seen.
func BenchmarkRules(b *testing.B) {
	var stacks []*growth.Stack
	for _, name := range recordings(b) {
		_, s := recordedStack(b, name)
		stacks = append(stacks, s)
	}
	for _, first := range []bool{true, false} {
		b.Run(fmt.Sprintf("first=%v", first), func(b *testing.B) {
			o, _ := ParseRules("", nil)
			for b.Loop() {
				if first {
					o, _ = ParseRules("", nil)
				}
				for _, s := range stacks {
					o.Of(s)
				}
			}
		})
	}
}
