package nvml

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// patient is a bound that no call of a test reaches on a busy machine.
const patient = 10 * time.Minute

func TestMain(m *testing.M) {
	if library := os.Getenv(childLibrary); library != "" {
		beChild(library)
		return
	}
	code := m.Run()
	tracertest.Cleanup()
	os.Exit(code)
}

// A fakeDriver answers from its fields.
type fakeDriver struct {
	starts, stops        int
	startError           error
	versionError, counts error
	gpus                 []*fakeDevice
	entered              func() // on every count; nil: nothing
}

func (f *fakeDriver) start() error             { f.starts++; return f.startError }
func (f *fakeDriver) stop()                    { f.stops++ }
func (f *fakeDriver) version() (string, error) { return "570.1", f.versionError }

func (f *fakeDriver) count() (int, error) {
	if f.entered != nil {
		f.entered()
	}
	return len(f.gpus), f.counts
}

func (f *fakeDriver) device(index int) (device, error) {
	return f.gpus[index], f.gpus[index].handleError
}

// A fakeDevice is a GPU, or an instance if it is in one.
type fakeDevice struct {
	id, title   string
	used, total uint64
	instances   []*fakeDevice // not nil: in MIG mode; nil among them: an empty slot
	lists       map[list][]use

	handleError, memoryError, modeError, slotsError error
	listErrors                                      map[list]error
}

func (f *fakeDevice) uuid() (string, error)                 { return f.id, nil }
func (f *fakeDevice) name() (string, error)                 { return f.title, nil }
func (f *fakeDevice) memory() (used, total uint64, e error) { return f.used, f.total, f.memoryError }

func (f *fakeDevice) divided() (bool, error) { return f.instances != nil, f.modeError }

func (f *fakeDevice) slots() (int, error)             { return len(f.instances), f.slotsError }
func (f *fakeDevice) processes(l list) ([]use, error) { return f.lists[l], f.listErrors[l] }

func (f *fakeDevice) instance(slot int) (device, error) {
	if f.instances[slot] == nil {
		return nil, errNotFound
	}
	return f.instances[slot], f.instances[slot].handleError
}

// entry is a process in a list of a GPU that is not divided.
func entry(pid uint32, bytes uint64) use { return use{pid, ^uint32(0), ^uint32(0), bytes} }

func mustOpen(t *testing.T, d driver) *Monitor {
	t.Helper()
	m, err := open(d, patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// mustBeAbsent fails unless an error is of a kind.
func mustBeAbsent(t *testing.T, err, kind error) *Absence {
	t.Helper()
	var absence *Absence
	if !errors.Is(err, kind) || !errors.As(err, &absence) {
		t.Fatalf("%v, want an absence for %v", err, kind)
	}
	return absence
}
