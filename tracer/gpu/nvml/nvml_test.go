//go:build cgo

package nvml

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A library compiled from C answers by the calls of go-nvml.
func TestLibraryRead(t *testing.T) {
	gpu := func(index int, used, total int64, processes []Process) GPU {
		id := strconv.Itoa(index)
		return GPU{index, wholeGPU, "GPU-" + id, "GPU-name", used, total, processes}
	}

	for _, c := range []struct {
		name    string
		answers []string
		reason  string
		want    []GPU
	}{
		{
			name: "several GPUs, and a process in several lists",
			answers: []string{
				"count 4", "memory.0 50 90", "memory.1 2 9", "memory.2 3 9", "handle.3 16",
				"compute.0 7:10 8:5", "graphics.0 7:10 3:2", "mps.0 8:5 9:1", "compute.2 7:2 8:1",
			},
			reason: "GPU 3: " + errReset.Error(),
			want: []GPU{
				gpu(0, 50, 90, []Process{{3, 2}, {7, 10}, {8, 5}, {9, 1}}),
				gpu(1, 2, 9, []Process{}),
				gpu(2, 3, 9, []Process{{7, 2}, {8, 1}}),
				GPU{Index: 3, Instance: wholeGPU}.withoutFigures(),
			},
		},
		{
			name: "GPU in MIG mode",
			answers: []string{
				"count 2", "memory.0 4 9",
				"mig.1 1", "memory.1 70 90", "compute.1 7:30 8:40",
				"memory.1.0 30 40", "compute.1.0 7:30", "graphics.1.0 !3",
				"memory.1.2 40 40", "compute.1.2 8:-1", "graphics.1.2 !3",
			},
			reason: "GPU 1, MIG device 2: the memory of some processes is not reported",
			want: []GPU{
				gpu(0, 4, 9, []Process{}),
				{1, 0, "MIG-1-0", "GPU-name", 30, 40, []Process{{7, 30}}},
				{1, 2, "MIG-1-2", "GPU-name", 40, 40, []Process{{8, growth.Unknown}}},
			},
		},
		{
			name:    "list that asks for a buffer of size 0",
			answers: []string{"count 1", "memory.0 4 9", "compute.0 7:1", "graphics.0 !7"},
			reason: "GPU 0: graphics processes: the driver's answer makes no sense: " +
				"runtime error: index out of range [0] with length 0",
			want: []GPU{gpu(0, 4, 9, []Process{{7, 1}})},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			setAnswers(t, c.answers...)
			checkReading(t, mustOpen(t, newDriver(tracertest.BuildNVML(t))).Read(), c.reason,
				c.want...)
		})
	}

	t.Run("names of a hostile driver", func(t *testing.T) {
		setAnswers(t, "version 570\x1b[2J", "count 1",
			"name.0 \x07\xff"+strings.Repeat("é", 90), "memory.0 1 1")
		r := mustOpen(t, newDriver(tracertest.BuildNVML(t))).Read()
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
	library := tracertest.BuildNVML(t)
	for answer, want := range map[string]error{
		"init 9": ErrNoDriver, "init 18": ErrMismatch, "init 4": ErrNoPermission,
	} {
		setAnswers(t, answer)
		_, err := open(newDriver(library), longTimeout)
		mustBeUnavailable(t, err, want)
	}

	_, err := open(newDriver(library+".other"), longTimeout)
	if mustBeUnavailable(t, err, ErrLibrary); !strings.Contains(err.Error(), "is loaded already") {
		t.Error(err)
	}
}

// Each of these is loaded by a child.
func TestOtherLibraries(t *testing.T) {
	setAnswers(t, "count 1", "memory.0 4 9", "compute.0 7:1", "graphics.0 8:2")
	whole := GPU{0, wholeGPU, "GPU-0", "GPU-name", 4, 9, []Process{{7, 1}, {8, 2}}}
	unlisted := whole
	unlisted.Processes = nil

	for _, c := range []struct {
		name, library string
		err           error // of opening it
		reason        string
		want          GPU
	}{
		{
			name:    "driver with the first version of each call",
			library: tracertest.BuildNVML(t, "-DOLD"), want: whole,
		},
		{
			name: "driver without a call", library: tracertest.BuildNVML(t, "-DWITHOUT_PROCESSES"),
			reason: "GPU 0: compute processes: " + errNoFunction.Error(), want: unlisted,
		},
		{
			name: "library without nvmlInit", library: tracertest.BuildNVML(t, "-DWITHOUT_INIT"),
			err: ErrLibrary,
		},
		{name: "no library", library: filepath.Join(t.TempDir(), defaultLibrary), err: ErrNoLibrary},
		{name: "text file", library: tracertest.Source("nvml.c"), err: ErrLibrary},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := readInChild(t, c.library)
			switch {
			case c.err == nil:
				checkReading(t, got.Reading, c.reason, c.want)
			case !strings.Contains(got.Error, c.err.Error()):
				t.Errorf("%q, want %v", got.Error, c.err)
			}
		})
	}
}

func TestMemoryFirstVersion(t *testing.T) {
	t.Parallel()
	all := &library{has: func(string) bool { return true }}
	d := nvmlDevice{all, &mock.Device{
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{}, nvml.ERROR_ARGUMENT_VERSION_MISMATCH
		},
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
			return nvml.Memory{Used: 6, Total: 10}, nvml.SUCCESS
		},
	}}

	if used, total, err := d.memory(); used != 6 || total != 10 || err != nil {
		t.Errorf("%d of %d, %v", used, total, err)
	}
}

// An undefined symbol of NVML would end programs with immediate binding at their start.
func TestNVMLSymbols(t *testing.T) {
	t.Parallel()
	program := tracertest.Must(os.Executable())(t)

	command := exec.Command(program, "-test.list", "^"+t.Name()+"$")
	command.Env = append(os.Environ(), "LD_BIND_NOW=1")
	if out, err := command.CombinedOutput(); err != nil ||
		strings.TrimSpace(string(out)) != t.Name() {
		t.Errorf("with immediate binding: %v: %s (go generate ./tracer/gpu)", err, out)
	}
}
