package probe

import (
	"debug/elf"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestAStepFunctionIsParsedOrRefused(t *testing.T) {
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

func TestALibraryIsNamedWholeOrUpToItsSuffix(t *testing.T) {
	const path = "/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13"
	for library, want := range map[string]bool{
		"libtorch_cpu": true, "libtorch_cpu.so.1.13": true, "libtorch_cpu.so": false, "libtorch": false, "torch_cpu": false, "": false,
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

// mapped gives a process that maps a library, and the mapping of its code.
func mapped(t *testing.T, library string) (*process.Process, process.Mapping) {
	t.Helper()
	target := tracertest.StartCommand(t, exec.Command(tracertest.Build(t, "stepper.c", "-pthread", "-Wl,--no-as-needed", library)))
	target.Await("ready")
	p, maps := opened(t, target.PID())
	at := slices.IndexFunc(maps, func(m process.Mapping) bool { return m.Path == library && m.Execute })
	if at < 0 {
		t.Fatalf("%s is not mapped", library)
	}
	return p, maps[at]
}

func TestTheStepFunctionIsTheOneThatTheNameMeans(t *testing.T) {
	library := tracertest.Build(t, "passes.cc", "-shared", "-fPIC")
	file, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	defined := addresses(t, library)
	p, m := mapped(t, library)
	for name, want := range map[string]string{
		"training_step":                        "training_step",
		"training_ste":                         "training_step",
		"training_sto":                         "training_stop",
		"optimizer":                            "optimizer_step", // two names, one function
		"hidden_step":                          "hidden_step",    // in .symtab alone
		"_ZN7trainer6Engine7executeE":          "_ZN7trainer6Engine7executeEi",
		"trainer::Engine::execute":             "_ZN7trainer6Engine7executeEi", // of two that begin so
		"trainer::Engine::execute_s":           "_ZN7trainer6Engine14execute_slowlyEi",
		"_ZN7trainer6Engine8evaluateEl":        "_ZN7trainer6Engine8evaluateEl",
		"_ZN7trainer6Engine14execute_slowlyEi": "_ZN7trainer6Engine14execute_slowlyEi",
	} {
		target, err := StepFunction{"libpasses", name}.Resolve(p, m)
		if err != nil || len(target.Sites) != 1 || defined[want] == 0 {
			t.Errorf("%s: %v, %+v; nm says %#x", name, err, target.Sites, defined[want])
			continue
		}
		entry := fileOffset(t, file, defined[want])
		if at := target.Sites[0].Offset; at < entry || at >= entry+16 {
			t.Errorf("%s is probed at %#x, but %s begins at %#x", name, at, want, entry)
		}
	}
}

func TestANameThatMeansSeveralFunctionsIsRefusedWithAllOfThem(t *testing.T) {
	p, m := mapped(t, tracertest.Build(t, "passes.cc", "-shared", "-fPIC"))
	for name, reasons := range map[string][]string{
		"training":                  {"several functions match", "training_step, training_stop", "name one of them"},
		"trainer::Engine::evaluate": {"several", "_ZN7trainer6Engine8evaluateEi", "_ZN7trainer6Engine8evaluateEl"},
		"trainer::":                 {"several", "execute_slowly"},
		"execute":                   {"no such function"},
		"training_step2":            {"no such function"},
	} {
		target, err := StepFunction{"libpasses", name}.Resolve(p, m)
		if err == nil {
			t.Errorf("%s: %+v", name, target)
			continue
		}
		for _, reason := range reasons {
			if !strings.Contains(err.Error(), reason) {
				t.Errorf("%s: %q does not say %q", name, err, reason)
			}
		}
	}
}

// Of names that many functions have, some are listed, and none at a length that fills the screen.
func TestTheListOfFunctionsIsBounded(t *testing.T) {
	var c candidates
	for i := range uint64(1000) {
		c.add(strings.Repeat("\x1b", 5000), 64*i)
		c.add("alias", 64*i)
	}
	_, err := c.only(nil)
	if err == nil || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") || !strings.Contains(err.Error(), ", ...") {
		t.Errorf("%v", err)
	}
}
