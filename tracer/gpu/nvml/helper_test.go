package nvml

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
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

// A program can load only one NVML, so each test that loads one starts a child, which is the test
// binary again. These variables name the child's library and its timeout.
const (
	childLibrary = "ALLOCSCOPE_TEST_NVML"
	childTimeout = "ALLOCSCOPE_TEST_NVML_TIMEOUT"
)

func TestMain(m *testing.M) {
	if library := os.Getenv(childLibrary); library != "" {
		runChild(library)
		return
	}

	code := m.Run()
	tracertest.Cleanup()
	os.Exit(code)
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
	m, err := open(d, longTimeout)
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

// childAnswer is what a child answers to an order.
type childAnswer struct {
	Reading Reading
	Error   string
}

// runChild opens NVML and executes orders from standard input, answering each with a line of JSON.
func runChild(library string) {
	timeout, err := time.ParseDuration(os.Getenv(childTimeout))
	if err != nil {
		panic(err)
	}
	answer := func(a childAnswer, err error) {
		if err != nil {
			a.Error = err.Error()
		}
		text, err := json.Marshal(a)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s\ndone\n", text)
	}

	monitor, err := open(newDriver(library), timeout)
	answer(childAnswer{}, err)

	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		switch orders.Text() {
		case "read":
			answer(childAnswer{Reading: monitor.Read()}, nil)
		case "close":
			answer(childAnswer{}, monitor.Close())
		case "open another":
			_, err := open(newDriver(library+".other"), timeout)
			answer(childAnswer{}, err)
		}
	}
}

// A child has loaded a stand-in for NVML, which answers from a file.
type child struct {
	t         *testing.T
	file      string
	target    *tracertest.Target
	openError string
}

func startChild(t *testing.T, timeout time.Duration, library string, answers ...string) *child {
	t.Helper()
	c := &child{t: t, file: filepath.Join(t.TempDir(), "answers")}
	c.setAnswers(answers...)

	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), "NVML_STUB="+c.file, childLibrary+"="+library,
		childTimeout+"="+timeout.String())
	c.target = tracertest.StartCommand(t, command)

	c.openError = c.await().Error
	return c
}

// setAnswers replaces the stand-in's answers.
func (c *child) setAnswers(lines ...string) {
	c.t.Helper()
	part := c.file + ".part"
	if err := os.WriteFile(part, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(part, c.file); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) await() (answer childAnswer) {
	c.t.Helper()
	lines := c.target.Await("done")
	if err := json.Unmarshal([]byte(strings.Join(lines, "")), &answer); err != nil {
		c.t.Fatalf("%q: %v", lines, err)
	}
	return answer
}

func (c *child) order(what string) childAnswer {
	c.t.Helper()
	c.target.Say(what)
	return c.await()
}

func (c *child) read() Reading {
	c.t.Helper()
	return c.order("read").Reading
}

// readUntil reads until a reading is as expected; the machine may be busy.
func (c *child) readUntil(what string, expected func(Reading) bool) Reading {
	c.t.Helper()
	var r Reading
	for range 10000 {
		if r = c.read(); expected(r) {
			return r
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatalf("%+v, want it %s in the end", r, what)
	return r
}
