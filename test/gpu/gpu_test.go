package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The script `run` chooses tests by their names. `go test` succeeds if it finds none.
func TestRun(t *testing.T) {
	script := tracertest.Must(os.ReadFile("run"))(t)
	commands := goTest.FindAllStringSubmatch(string(script), -1)
	if want := strings.Count(string(script), "\ngo test "); len(commands) != want || want == 0 {
		t.Fatalf("found the patterns of %d commands of %d", len(commands), want)
	}

	for _, command := range commands {
		function, _, _ := strings.Cut(command[1], "/") // and sub-benchmarks of it
		pattern := regexp.MustCompile(function)
		for folder := range strings.FieldsSeq(command[2]) {
			if !hasFunction(t, filepath.Join("..", "..", folder), pattern) {
				t.Errorf("no file with the tag gpu in %s has a function %s", folder, pattern)
			}
		}
	}
}

var (
	// goTest matches a command of the script: its pattern, and the folders of the packages.
	goTest = regexp.MustCompile(`(?m)^go test .* -(?:run|bench) '(\^[^$']+)'[^.]*((?:\s\./\S+)+)`)

	function = regexp.MustCompile(`(?m)^func (\w+)\(\w+ \*testing\.`)
)

// hasFunction reports whether a test or benchmark with the build tag gpu matches a pattern.
func hasFunction(t *testing.T, folder string, pattern *regexp.Regexp) bool {
	t.Helper()
	files := tracertest.Must(filepath.Glob(filepath.Join(folder, "*_test.go")))(t)

	for _, file := range files {
		text := tracertest.Must(os.ReadFile(file))(t)
		if !strings.Contains(string(text), "//go:build gpu") {
			continue
		}
		for _, name := range function.FindAllStringSubmatch(string(text), -1) {
			if pattern.MatchString(name[1]) {
				return true
			}
		}
	}
	return false
}

// A machine has a folder of programs and one of device files, for the script `check`.
type machine struct{ programs, devices string }

// newMachine returns one without a GPU, and with few programs.
func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t.TempDir(), t.TempDir()}

	for _, tool := range []string{"sh", "grep"} {
		path := tracertest.Must(exec.LookPath(tool))(t)
		tracertest.NoError(t, os.Symlink(path, filepath.Join(m.programs, tool)))
	}
	return m
}

// add writes a file to one of the folders. A program is a script.
func add(t *testing.T, folder, name, text string) {
	t.Helper()
	tracertest.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755))
}

// check returns the output of the script, and whether nothing is missing.
func (m machine) check(t *testing.T, python string) (output string, ok bool) {
	t.Helper()
	command := exec.Command("./check", python, m.devices)
	command.Env = []string{"PATH=" + m.programs}
	out, err := command.CombinedOutput()
	return string(out), err == nil
}

// mustLack checks that the script prints one line, with the missing part.
func (m machine) mustLack(t *testing.T, python string, words ...string) {
	t.Helper()
	output, ok := m.check(t, python)
	if ok || !strings.HasPrefix(output, "make test-gpu: ") || strings.Count(output, "\n") != 1 {
		t.Errorf("status 0: %t, %q, want one line", ok, output)
	}
	for _, word := range words {
		if !strings.Contains(output, word) {
			t.Errorf("%q does not contain %q", output, word)
		}
	}
}

const (
	// withTorch is a program in place of a Python that has PyTorch. It runs the given script.
	withTorch = `#!/bin/sh
exec /usr/bin/python3 -c "
import sys, types
torch = types.ModuleType('torch')
torch.__version__, torch.version = '2.6.0', types.SimpleNamespace(cuda=CUDA)
torch.cuda = types.SimpleNamespace(is_available=lambda: AVAILABLE)
sys.modules['torch'] = torch
exec(sys.argv[1])
" "$2"
`
	withoutTorch = `#!/bin/sh
exec /usr/bin/python3 -S -I -c "$2"
`
)

func torch(cuda, available string) string {
	return strings.NewReplacer("CUDA", cuda, "AVAILABLE", available).Replace(withTorch)
}

func TestCheckMissing(t *testing.T) {
	m := newMachine(t)
	m.mustLack(t, "python3", "no NVIDIA GPU", m.devices+"/nvidia0", "nvidia-smi")
	add(t, m.programs, "nvidia-smi", "#!/bin/sh\n"+
		"echo 'NVIDIA-SMI has failed because it could not communicate with the driver'\nexit 9\n")
	m.mustLack(t, "python3", "no NVIDIA GPU")

	add(t, m.programs, "nvidia-smi", "#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-1)'\n")
	m.mustLack(t, "python3", "no python3", "PYTHON=")

	add(t, m.programs, "python3", withoutTorch)
	m.mustLack(t, "python3", m.programs+"/python3 has no PyTorch", "PYTHON=")
	add(t, m.programs, "python3", torch("None", "False"))
	m.mustLack(t, "python3", "2.6.0 without CUDA")
	add(t, m.programs, "python3", torch("'12.4'", "False"))
	m.mustLack(t, "python3", "with CUDA 12.4 that reaches no GPU")

	add(t, m.programs, "broken", "#!/bin/sh\nexit 127\n")
	m.mustLack(t, "broken", "cannot be run")

	add(t, m.programs, "python3", torch("'12.4'", "True"))
	if output, ok := m.check(t, "python3"); !ok || output != "" {
		t.Errorf("nothing is missing, and it prints %q", output)
	}
}

func TestCheckDeviceFile(t *testing.T) {
	m := newMachine(t)
	add(t, m.devices, "nvidiactl", "")
	m.mustLack(t, "python3", "no NVIDIA GPU")
	add(t, m.devices, "nvidia3", "")
	m.mustLack(t, "python3", "no python3")
}
