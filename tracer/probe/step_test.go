package probe

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestParseStepFunction(t *testing.T) {
	for text, want := range map[string]StepFunction{
		"":                      BackwardPass,
		"libm:sin":              {"libm", "sin"},
		"train:a::B::step":      {"train", "a::B::step"},
		"libtorch_cpu.so.2:_ZN": {"libtorch_cpu.so.2", "_ZN"},
		"sin":                   {},
		"libm:":                 {},
		":sin":                  {},
		"a::B::step":            {},
		"/usr/lib/libm.so:sin":  {},
		"::":                    {},
	} {
		got, err := ParseStepFunction(text)
		if got != want || (err != nil) != (want == StepFunction{}) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestStepFunctionIsIn(t *testing.T) {
	const path = "/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13"
	for library, want := range map[string]bool{
		"libtorch_cpu": true, "libtorch_cpu.so.1.13": true, "libtorch_cpu.so": false,
		"libtorch": false, "torch_cpu": false, "": false,
	} {
		f := StepFunction{library, "f"}
		for _, mapped := range []string{path, path + " (deleted)", "libtorch_cpu.so.1.13"} {
			if got := f.IsIn(mapped); got != want {
				t.Errorf("%q is in %s: %t", library, mapped, got)
			}
		}
	}
	if !(StepFunction{"trainer", "f"}).IsIn("/opt/trainer") {
		t.Error("a program is not found by its name")
	}
}

// mapped starts a process that maps a library, and returns the mapping of its code.
func mapped(t *testing.T, library string) (*process.Process, process.Mapping) {
	t.Helper()
	program := tracertest.Build(t, "stepper.c", "-pthread", "-Wl,--no-as-needed", library)
	p, maps := start(t, exec.Command(program))
	isCode := func(m process.Mapping) bool { return m.Path == library && m.Execute }
	at := slices.IndexFunc(maps, isCode)
	if at < 0 {
		t.Fatalf("%s is not mapped", library)
	}
	return p, maps[at]
}

func TestStepFunctionResolve(t *testing.T) {
	library := tracertest.Build(t, "passes.cc", "-shared", "-fPIC")
	file, _ := openBoth(t, library)
	defined := addresses(t, library)
	p, m := mapped(t, library)
	for name, want := range map[string]string{
		"training_step":                        "training_step",
		"training_ste":                         "training_step",
		"training_sto":                         "training_stop",
		"optimizer":                            "optimizer_step", // two names, one function
		"hidden_step":                          "hidden_step",    // in .symtab alone
		"_ZN7trainer6Engine7executeE":          "_ZN7trainer6Engine7executeEi",
		"trainer::Engine::execute":             "_ZN7trainer6Engine7executeEi", // of two with the prefix
		"trainer::Engine::execute_s":           "_ZN7trainer6Engine14execute_slowlyEi",
		"_ZN7trainer6Engine8evaluateEl":        "_ZN7trainer6Engine8evaluateEl",
		"_ZN7trainer6Engine14execute_slowlyEi": "_ZN7trainer6Engine14execute_slowlyEi",
	} {
		found, err := StepFunction{"libpasses", name}.Resolve(p, m)
		if err != nil || len(found.Sites) != 1 || defined[want] == 0 {
			t.Errorf("%s: %v, %+v; by nm it is at %#x", name, err, found.Sites, defined[want])
			continue
		}
		entry := fileOffset(t, file, defined[want])
		if at := found.Sites[0].Offset; at < entry || at >= entry+16 {
			t.Errorf("%s is probed at %#x, but %s begins at %#x", name, at, want, entry)
		}
	}

	for name, reasons := range map[string][]string{
		"training": {"several functions match", "training_step, training_stop", "name one of them"},
		"trainer::Engine::evaluate": {
			"several", "_ZN7trainer6Engine8evaluateEi", "_ZN7trainer6Engine8evaluateEl",
		},
		"trainer::":      {"several", "execute_slowly"},
		"execute":        {"no such function"},
		"training_step2": {"no such function"},
	} {
		found, err := StepFunction{"libpasses", name}.Resolve(p, m)
		if err == nil {
			t.Errorf("%s: %+v", name, found)
			continue
		}
		for _, reason := range reasons {
			if !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: %q has no %q", name, err, reason)
			}
		}
	}
}

// The list in an error is bounded, in its names and in their length.
func TestCandidates(t *testing.T) {
	var c candidates
	for i := range uint64(1000) {
		c.add(strings.Repeat("\x1b", 5000), 64*i)
		c.add("alias", 64*i)
	}

	_, err := c.only(nil)
	if err == nil || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") ||
		!strings.Contains(err.Error(), ", ...") {
		t.Errorf("%v", err)
	}
}
