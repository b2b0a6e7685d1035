package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A machine is a folder of programs and one of devices, as they may be where `make test-gpu` is called.
type machine struct{ programs, devices string }

// newMachine has no GPU, and nothing but a shell's own tools.
func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t.TempDir(), t.TempDir()}
	for _, tool := range []string{"sh", "grep"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(m.programs, tool)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// add puts a file into one of the folders; of programs it is a script.
func add(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// check gives what is said to stderr, and whether nothing is missing.
func (m machine) check(t *testing.T, python string) (said string, ok bool) {
	t.Helper()
	command := exec.Command("./check", python, m.devices)
	command.Env = []string{"PATH=" + m.programs}
	out, err := command.CombinedOutput()
	return string(out), err == nil
}

// mustLack wants one line that says what is missing.
func (m machine) mustLack(t *testing.T, python string, words ...string) {
	t.Helper()
	said, ok := m.check(t, python)
	if ok || !strings.HasPrefix(said, "make test-gpu: ") || strings.Count(said, "\n") != 1 {
		t.Errorf("status 0: %t, %q, want one line", ok, said)
	}
	for _, word := range words {
		if !strings.Contains(said, word) {
			t.Errorf("%q does not say %q", said, word)
		}
	}
}

const (
	// torches are programs that stand for Python with a torch of some sort: they execute what they are given, with that.
	withTorch = `#!/bin/sh
exec /usr/bin/python3 -c "
import sys, types
torch = types.ModuleType('torch')
torch.__version__, torch.version, torch.cuda = '2.6.0', types.SimpleNamespace(cuda=CUDA), types.SimpleNamespace(is_available=lambda: AVAILABLE)
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

func TestWhatIsMissingForAGPUIsSaidInOneLine(t *testing.T) {
	m := newMachine(t)
	m.mustLack(t, "python3", "no NVIDIA GPU", m.devices+"/nvidia0", "nvidia-smi")
	add(t, m.programs, "nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not communicate with the driver'\nexit 9\n")
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
	if said, ok := m.check(t, "python3"); !ok || said != "" {
		t.Errorf("nothing is missing, and it says %q", said)
	}
}

func TestADeviceIsAGPUWhereTheDriversToolIsMissing(t *testing.T) {
	m := newMachine(t)
	add(t, m.devices, "nvidiactl", "")
	m.mustLack(t, "python3", "no NVIDIA GPU")
	add(t, m.devices, "nvidia3", "")
	m.mustLack(t, "python3", "no python3")
}
