package nvml

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// longTimeout is one that no call of a test reaches on a busy machine.
const longTimeout = 10 * time.Minute

// A program can load only one NVML. A test that needs another one starts a child, which is the test
// binary again. This variable names its library.
const childLibrary = "ALLOCSCOPE_TEST_NVML"

func TestMain(m *testing.M) {
	if library := os.Getenv(childLibrary); library != "" {
		runChild(library)
		return
	}

	tracertest.Main(m)
}

// A fakeDriver answers from its fields.
type fakeDriver struct {
	starts, stops                        int
	startError, versionError, countError error
	gpus                                 []*fakeDevice
	onCount                              func() // nil: nothing
}

func (f *fakeDriver) start() error             { f.starts++; return f.startError }
func (f *fakeDriver) stop()                    { f.stops++ }
func (f *fakeDriver) version() (string, error) { return "570.1", f.versionError }

func (f *fakeDriver) count() (int, error) {
	if f.onCount != nil {
		f.onCount()
	}
	return len(f.gpus), f.countError
}

func (f *fakeDriver) device(index int) (device, error) {
	return f.gpus[index], f.gpus[index].handleError
}

// A fakeDevice is a GPU, or a MIG device of one.
type fakeDevice struct {
	id, title   string
	used, total uint64
	migDevices  []*fakeDevice // not nil: in MIG mode; nil elements: none of that index
	lists       map[processList][]processEntry

	handleError, memoryError, modeError, migError error
}

func (f *fakeDevice) uuid() (string, error) { return f.id, nil }
func (f *fakeDevice) name() (string, error) { return f.title, nil }

func (f *fakeDevice) memory() (uint64, uint64, error) { return f.used, f.total, f.memoryError }

func (f *fakeDevice) inMIGMode() (bool, error)    { return f.migDevices != nil, f.modeError }
func (f *fakeDevice) maxMIGDevices() (int, error) { return len(f.migDevices), f.migError }

func (f *fakeDevice) migDevice(index int) (device, error) {
	if f.migDevices[index] == nil {
		return nil, errNotFound
	}
	return f.migDevices[index], f.migDevices[index].handleError
}

func (f *fakeDevice) processes(l processList) ([]processEntry, error) { return f.lists[l], nil }

// entry is a process in a list of a GPU that is not in MIG mode.
func entry(pid uint32, bytes uint64) processEntry {
	return processEntry{pid, ^uint32(0), ^uint32(0), bytes}
}

// fake is a driver with these GPUs.
func fake(gpus ...*fakeDevice) *fakeDriver { return &fakeDriver{gpus: gpus} }

func mustOpen(t *testing.T, d driver) *Monitor {
	t.Helper()
	m := tracertest.Must(open(d, longTimeout))(t)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// checkReading fails the test unless a reading has a reason and GPUs.
func checkReading(t *testing.T, r Reading, reason string, want ...GPU) {
	t.Helper()
	if r.Reason != reason {
		t.Errorf("reason %q, want %q", r.Reason, reason)
	}
	if !reflect.DeepEqual(r.GPUs, want) {
		t.Errorf("GPUs\n%+v, want\n%+v", r.GPUs, want)
	}
}

// mustBeUnavailable fails the test unless an error is an *UnavailableError for a reason.
func mustBeUnavailable(t *testing.T, err, reason error) *UnavailableError {
	t.Helper()
	var u *UnavailableError
	if !errors.Is(err, reason) || !errors.As(err, &u) {
		t.Fatalf("%v, want an UnavailableError for %v", err, reason)
	}
	return u
}

// childAnswer is a child's reading, or the error of opening its library.
type childAnswer struct {
	Error   string
	Reading Reading
}

// runChild prints the answer as JSON.
func runChild(library string) {
	var answer childAnswer
	monitor, err := open(newDriver(library), longTimeout)
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer.Reading = monitor.Read()
	}

	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		panic(err)
	}
}

// readInChild reads a library once, in a child.
func readInChild(t *testing.T, library string) (answer childAnswer) {
	t.Helper()
	program := tracertest.Must(os.Executable())(t)

	command := exec.Command(program)
	command.Env = append(os.Environ(), childLibrary+"="+library)
	command.Stderr = os.Stderr
	out := tracertest.Must(command.Output())(t)

	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return answer
}

// setAnswers sets the answers of the stand-in for NVML.
func setAnswers(t *testing.T, lines ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "answers")
	tracertest.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	t.Setenv("NVML_STUB", file)
}
