//go:build cgo

package nvml

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// startReadableChild starts a child whose library can be opened.
func startReadableChild(t *testing.T, library string, answers ...string) *child {
	t.Helper()
	c := startChild(t, longTimeout, library, answers...)
	if c.openError != "" {
		t.Fatal(c.openError)
	}
	return c
}

// A library compiled from C answers by the calls of go-nvml.
func TestLibraryRead(t *testing.T) {
	var longList strings.Builder
	var manyProcesses []Process
	for pid := 1; pid <= 700; pid++ {
		longList.WriteString(" " + strconv.Itoa(pid) + ":3")
		manyProcesses = append(manyProcesses, Process{pid, 3})
	}
	gpu := func(index int, used, total int64, processes []Process) GPU {
		id := strconv.Itoa(index)
		return GPU{index, wholeGPU, "GPU-" + id, "GPU-name", used, total, processes}
	}

	for _, c := range []struct {
		name    string
		flags   []string // of the C compiler
		answers []string
		reason  string
		want    []GPU
	}{
		{
			name: "several GPUs",
			answers: []string{
				"count 3", "memory.0 1 9", "memory.1 2 9", "memory.2 3 9",
				"compute.0 7:1", "compute.2 7:2 8:1",
			},
			want: []GPU{
				gpu(0, 1, 9, []Process{{7, 1}}),
				gpu(1, 2, 9, []Process{}),
				gpu(2, 3, 9, []Process{{7, 2}, {8, 1}}),
			},
		},
		{
			name: "process in several lists",
			answers: []string{
				"count 1", "memory.0 50 90",
				"compute.0 7:10 8:5", "graphics.0 7:10 3:2", "mps.0 8:5 9:1",
			},
			want: []GPU{gpu(0, 50, 90, []Process{{3, 2}, {7, 10}, {8, 5}, {9, 1}})},
		},
		{
			name:    "list longer than go-nvml's first buffer",
			answers: []string{"count 1", "memory.0 50 90", "compute.0" + longList.String()},
			want:    []GPU{gpu(0, 50, 90, manyProcesses)},
		},
		{
			name: "GPU in MIG mode",
			answers: []string{
				"count 2", "memory.0 4 9",
				"mig.1 1", "memory.1 70 90", "compute.1 7:30 8:40",
				"memory.1.0 30 40", "compute.1.0 7:30", "graphics.1.0 !3",
				"memory.1.2 40 40", "compute.1.2 8:40", "graphics.1.2 !3",
			},
			want: []GPU{
				gpu(0, 4, 9, []Process{}),
				{1, 0, "MIG-1-0", "GPU-name", 30, 40, []Process{{7, 30}}},
				{1, 2, "MIG-1-2", "GPU-name", 40, 40, []Process{{8, 40}}},
			},
		},
		{
			name:    "no permission for processes",
			answers: []string{"count 1", "memory.0 4 9", "compute.0 !4"},
			reason:  "GPU 0: compute processes: no permission (run as root on the host)",
			want:    []GPU{gpu(0, 4, 9, nil)},
		},
		{
			name:    "memory that NVML does not report",
			answers: []string{"count 1", "memory.0 4 9", "compute.0 7:-1 8:1"},
			reason:  "GPU 0: the memory of some processes is not reported",
			want:    []GPU{gpu(0, 4, 9, []Process{{7, growth.Unknown}, {8, 1}})},
		},
		{
			name:    "list that asks for a buffer of size 0",
			answers: []string{"count 1", "memory.0 4 9", "compute.0 7:1", "graphics.0 !7"},
			reason: "GPU 0: graphics processes: the driver's answer makes no sense: " +
				"runtime error: index out of range [0] with length 0",
			want: []GPU{gpu(0, 4, 9, []Process{{7, 1}})},
		},
		{
			name:  "driver with the first version of each call",
			flags: []string{"-DOLD"},
			answers: []string{
				"count 1", "mig.0 1", "memory.0 4 9", "compute.0 7:1", "graphics.0 8:2",
			},
			want: []GPU{gpu(0, 4, 9, []Process{{7, 1}, {8, 2}})},
		},
		{
			name:    "driver without a call",
			flags:   []string{"-DWITHOUT_PROCESSES"},
			answers: []string{"count 1", "memory.0 4 9"},
			reason:  "GPU 0: compute processes: this driver has no such call (install a newer one)",
			want:    []GPU{gpu(0, 4, 9, nil)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkReading(t,
				startReadableChild(t, tracertest.BuildNVML(t, c.flags...), c.answers...).read(),
				c.reason, c.want...)
		})
	}
}

func TestLibraryReadAgain(t *testing.T) {
	t.Run("processes that grow and end", func(t *testing.T) {
		t.Parallel()
		c := startReadableChild(t, tracertest.BuildNVML(t), "version 575.57.08", "count 1",
			"name.0 NVIDIA H100", "memory.0 3000 80000", "compute.0 7:1000 9:1500")
		g := GPU{0, wholeGPU, "GPU-0", "NVIDIA H100", 3000, 80000, []Process{{7, 1000}, {9, 1500}}}
		r := c.read()
		checkReading(t, r, "", g)
		if r.Driver != "575.57.08" {
			t.Errorf("driver %q", r.Driver)
		}

		c.setAnswers("count 1", "name.0 NVIDIA H100", "memory.0 9000 80000",
			"compute.0 9:1500 7:7000")
		g.Used, g.Processes = 9000, []Process{{7, 7000}, {9, 1500}}
		checkReading(t, c.read(), "", g)

		c.setAnswers("count 1", "name.0 NVIDIA H100", "memory.0 500 80000")
		g.Used, g.Processes = 500, []Process{}
		checkReading(t, c.read(), "", g)
	})

	t.Run("GPU that is lost", func(t *testing.T) {
		t.Parallel()
		c := startReadableChild(t, tracertest.BuildNVML(t), "count 2", "memory.0 4 9",
			"memory.1 5 9")
		c.read()

		c.setAnswers("count 2", "handle.0 15", "memory.0 4 9", "memory.1 6 9")
		lost := GPU{Index: 0, Instance: wholeGPU, UUID: "GPU-0", Name: "GPU-name"}.withoutFigures()
		checkReading(t, c.read(), "GPU 0: "+errLost.Error(), lost,
			GPU{1, wholeGPU, "GPU-1", "GPU-name", 6, 9, []Process{}})
	})

	t.Run("call that blocks", func(t *testing.T) {
		t.Parallel()
		answers := []string{"count 1", "memory.0 4 9", "compute.0 7:1"}
		c := startChild(t, 50*time.Millisecond, tracertest.BuildNVML(t), answers...)
		full := []GPU{{0, wholeGPU, "GPU-0", "GPU-name", 4, 9, []Process{{7, 1}}}}
		isFull := func(r Reading) bool { return r.Reason == "" && reflect.DeepEqual(r.GPUs, full) }
		isLate := func(r Reading) bool { return r.Reason != "" }
		c.readUntil("complete", isFull)

		c.setAnswers(append(answers, "block memory.0")...)
		r := c.readUntil("late", isLate)
		if !reflect.DeepEqual(r.GPUs, full) ||
			!strings.Contains(r.Reason, "figures of the reading before") {
			t.Errorf("%+v, want the figures before", r)
		}
		c.readUntil("without figures",
			func(r Reading) bool { return len(r.GPUs) == 1 && r.GPUs[0].Used == growth.Unknown })

		c.setAnswers(answers...)
		c.readUntil("complete", isFull)

		c.setAnswers(append(answers, "block memory.0")...)
		c.readUntil("late", isLate)
		if answer := c.order("close"); !strings.Contains(answer.Error, "no answer") {
			t.Errorf("%q, want an error for a driver that hangs", answer.Error)
		}
	})

	t.Run("names of a hostile driver", func(t *testing.T) {
		t.Parallel()
		name := "name.0 \x07\xff" + strings.Repeat("é", 90)
		r := startReadableChild(t, tracertest.BuildNVML(t), "version 570\x1b[2J", "count 1", name,
			"memory.0 1 1").read()
		if r.Driver != "570?[2J" {
			t.Errorf("driver %q", r.Driver)
		}
		if len(r.GPUs) != 1 || !strings.HasPrefix(r.GPUs[0].Name, "??éé") ||
			len(r.GPUs[0].Name) > maxNameBytes {
			t.Errorf("%+v", r.GPUs)
		}
	})
}

func TestLibraryOpen(t *testing.T) {
	build := func(flags ...string) func(*testing.T) string {
		return func(t *testing.T) string { return tracertest.BuildNVML(t, flags...) }
	}

	missing := func(t *testing.T) string { return filepath.Join(t.TempDir(), defaultLibrary) }
	text := func(*testing.T) string { return tracertest.Source("nvml.c") }

	for _, c := range []struct {
		name    string
		library func(*testing.T) string
		answer  string
		want    error
	}{
		{"no driver", build(), "init 9", ErrNoDriver},
		{"driver of another version", build(), "init 18", ErrMismatch},
		{"no permission", build(), "init 4", ErrNoPermission},
		{"library without nvmlInit", build("-DWITHOUT_INIT"), "", ErrLibrary},
		{"no library", missing, "", ErrNoLibrary},
		{"text file", text, "", ErrLibrary},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			child := startChild(t, longTimeout, c.library(t), c.answer)
			if !strings.Contains(child.openError, c.want.Error()) {
				t.Errorf("%q, want %v", child.openError, c.want)
			}
		})
	}

	t.Run("second library", func(t *testing.T) {
		t.Parallel()
		c := startReadableChild(t, tracertest.BuildNVML(t), "count 0")
		if answer := c.order("open another"); !strings.Contains(answer.Error, "is loaded already") {
			t.Errorf("%q", answer.Error)
		}
	})
}

// mocked is NVML with one GPU by go-nvml's mock, which panics at calls that are not set.
func mocked(d *mock.Device, lacking ...string) *library {
	return &library{
		has: func(name string) bool { return !slices.Contains(lacking, name) },
		calls: &mock.Interface{
			InitFunc:                   func() nvml.Return { return nvml.SUCCESS },
			ShutdownFunc:               func() nvml.Return { return nvml.SUCCESS },
			SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "1", nvml.SUCCESS },
			DeviceGetCountFunc:         func() (int, nvml.Return) { return 1, nvml.SUCCESS },
			DeviceGetHandleByIndexFunc: func(int) (nvml.Device, nvml.Return) {
				return d, nvml.SUCCESS
			},
		},
	}
}

func TestNVMLDevice(t *testing.T) {
	memory := func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Used: 6, Total: 10}, nvml.SUCCESS
	}
	processes := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }

	t.Run("calls that the library lacks are not made", func(t *testing.T) {
		t.Parallel()
		lacking := []string{
			"nvmlDeviceGetMemoryInfo_v2",
			"nvmlDeviceGetUUID",
			"nvmlDeviceGetName",
			"nvmlDeviceGetMigMode",
		}
		for _, list := range []string{"Graphics", "MPSCompute"} {
			name := "nvmlDeviceGet" + list + "RunningProcesses"
			lacking = append(lacking, name, name+"_v2", name+"_v3")
		}
		m := mustOpen(
			t,
			mocked(
				&mock.Device{GetMemoryInfoFunc: memory, GetComputeRunningProcessesFunc: processes},
				lacking...),
		)
		checkReading(t, m.Read(), "GPU 0: graphics processes: "+errNoFunction.Error(),
			GPU{0, wholeGPU, "", "", 6, 10, []Process{}})
	})

	t.Run("MIG device", func(t *testing.T) {
		t.Parallel()
		name := func(text string) func() (string, nvml.Return) {
			return func() (string, nvml.Return) { return text, nvml.SUCCESS }
		}
		instance := &mock.Device{
			GetUUIDFunc: name("MIG-a"), GetNameFunc: name("mocked"),
			GetMigModeFunc: func() (int, int, nvml.Return) {
				return 0, 0, nvml.ERROR_NOT_SUPPORTED
			},
			GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
				return nvml.Memory_v2{Used: 5, Total: 10}, nvml.SUCCESS
			},
			GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
				return []nvml.ProcessInfo{
					{Pid: 7, UsedGpuMemory: 3},
					{Pid: 8, UsedGpuMemory: notAvailable},
				}, nvml.SUCCESS
			},
			GetGraphicsRunningProcessesFunc:   processes,
			GetMPSComputeRunningProcessesFunc: processes,
		}
		m := mustOpen(t, mocked(&mock.Device{
			GetMigModeFunc: func() (int, int, nvml.Return) {
				return nvml.DEVICE_MIG_ENABLE, 0, nvml.SUCCESS
			},
			GetMaxMigDeviceCountFunc: func() (int, nvml.Return) { return 3, nvml.SUCCESS },
			GetMigDeviceHandleByIndexFunc: func(index int) (nvml.Device, nvml.Return) {
				if index != 1 {
					return nil, nvml.ERROR_NOT_FOUND
				}
				return instance, nvml.SUCCESS
			},
		}))
		checkReading(t, m.Read(),
			"GPU 0, MIG device 1: the memory of some processes is not reported",
			GPU{0, 1, "MIG-a", "mocked", 5, 10, []Process{{7, 3}, {8, growth.Unknown}}})
	})

	t.Run("first version of a call that fails", func(t *testing.T) {
		t.Parallel()
		d := nvmlDevice{mocked(nil), &mock.Device{
			GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
				return nvml.Memory_v2{}, nvml.ERROR_ARGUMENT_VERSION_MISMATCH
			},
			GetMemoryInfoFunc: memory,
		}}
		if used, total, err := d.memory(); used != 6 || total != 10 || err != nil {
			t.Errorf("%d of %d, %v", used, total, err)
		}
	})
}

func TestResultError(t *testing.T) {
	t.Parallel()
	for result, want := range map[nvml.Return]error{
		nvml.SUCCESS:             nil,
		nvml.ERROR_UNINITIALIZED: errDriverGone, nvml.ERROR_DRIVER_NOT_LOADED: errDriverGone,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: ErrMismatch, nvml.ERROR_LIBRARY_NOT_FOUND: ErrNoLibrary,
		nvml.ERROR_NO_PERMISSION: ErrNoPermission, nvml.ERROR_NOT_SUPPORTED: errNotSupported,
		nvml.ERROR_FUNCTION_NOT_FOUND: errNoFunction, nvml.ERROR_NOT_FOUND: errNotFound,
		nvml.ERROR_GPU_IS_LOST: errLost, nvml.ERROR_RESET_REQUIRED: errReset,
	} {
		if got := resultError(result); !errors.Is(got, want) {
			t.Errorf("%d: %v, want %v", int32(result), got, want)
		}
	}
	if got := resultError(nvml.ERROR_UNKNOWN); got == nil ||
		got.Error() != "NVML's error 999 (its number in nvml.h)" {
		t.Errorf("%v", got)
	}
}

// An undefined symbol of NVML would end programs with immediate binding at their start.
func TestNVMLSymbols(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.ImportedSymbols()
	if err != nil || len(symbols) == 0 {
		t.Fatalf("%v, %v: the test is wrong", symbols, err)
	}
	for _, symbol := range symbols {
		if strings.HasPrefix(symbol.Name, "nvml") {
			t.Errorf("%s is undefined: go generate ./tracer/gpu", symbol.Name)
		}
	}

	command := exec.Command(program, "-test.list", "^"+t.Name()+"$")
	command.Env = append(os.Environ(), "LD_BIND_NOW=1")
	if out, err := command.CombinedOutput(); err != nil ||
		strings.TrimSpace(string(out)) != t.Name() {
		t.Errorf("with immediate binding: %v: %s", err, out)
	}
}
