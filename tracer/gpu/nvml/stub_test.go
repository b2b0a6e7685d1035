//go:build cgo

package nvml

import (
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func mustRead(t *testing.T, s *stub, reason string, want ...GPU) {
	t.Helper()
	r := s.read()
	if !reflect.DeepEqual(r.GPUs, want) {
		t.Errorf("GPUs\n%+v, want\n%+v", r.GPUs, want)
	}
	if r.Reason != reason {
		t.Errorf("reason %q, want %q", r.Reason, reason)
	}
}

func startReadable(t *testing.T, library string, answers ...string) *stub {
	t.Helper()
	s := startStub(t, patient, library, answers...)
	if s.opened != "" {
		t.Fatal(s.opened)
	}
	return s
}

func TestMemoryThatGrowsIsFollowedByProcess(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t),
		"version 575.57.08", "count 1", "name.0 NVIDIA H100", "memory.0 3000 80000", "compute.0 7:1000 9:1500")
	if r := s.read(); r.Driver != "575.57.08" {
		t.Errorf("driver %q", r.Driver)
	}
	g := GPU{0, whole, "GPU-0", "NVIDIA H100", 3000, 80000, []Process{{7, 1000}, {9, 1500}}}
	mustRead(t, s, "", g)
	s.answer("count 1", "name.0 NVIDIA H100", "memory.0 9000 80000", "compute.0 9:1500 7:7000")
	g.Used, g.Processes = 9000, []Process{{7, 7000}, {9, 1500}}
	mustRead(t, s, "", g)
	s.answer("count 1", "name.0 NVIDIA H100", "memory.0 500 80000")
	g.Used, g.Processes = 500, []Process{}
	mustRead(t, s, "", g)
}

func TestEveryGPUIsRead(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "count 3", "memory.0 1 9", "memory.1 2 9", "memory.2 3 9", "compute.0 7:1", "compute.2 7:2 8:1")
	mustRead(t, s, "",
		GPU{0, whole, "GPU-0", "GPU-name", 1, 9, []Process{{7, 1}}},
		GPU{1, whole, "GPU-1", "GPU-name", 2, 9, []Process{}},
		GPU{2, whole, "GPU-2", "GPU-name", 3, 9, []Process{{7, 2}, {8, 1}}})
}

func TestAProcessInSeveralListsIsCountedOnce(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "count 1", "memory.0 50 90", "compute.0 7:10 8:5", "graphics.0 7:10 3:2", "mps.0 8:5 9:1")
	mustRead(t, s, "", GPU{0, whole, "GPU-0", "GPU-name", 50, 90, []Process{{3, 2}, {7, 10}, {8, 5}, {9, 1}}})
}

func TestAListLongerThanTheRoomForItIsReadWhole(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	var want []Process
	for pid := 1; pid <= 700; pid++ {
		list.WriteString(" " + strconv.Itoa(pid) + ":3")
		want = append(want, Process{pid, 3})
	}
	s := startReadable(t, tracertest.BuildNVML(t), "count 1", "memory.0 50 90", "compute.0"+list.String())
	mustRead(t, s, "", GPU{0, whole, "GPU-0", "GPU-name", 50, 90, want})
}

func TestOfAGPUInMIGModeTheInstancesAreRead(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "count 2", "memory.0 4 9", "mig.1 1", "memory.1 70 90", "compute.1 7:30 8:40",
		"memory.1.0 30 40", "compute.1.0 7:30", "graphics.1.0 !3", "memory.1.2 40 40", "compute.1.2 8:40", "graphics.1.2 !3")
	want := []GPU{
		{0, whole, "GPU-0", "GPU-name", 4, 9, []Process{}},
		{1, 0, "MIG-1-0", "GPU-name", 30, 40, []Process{{7, 30}}},
		{1, 2, "MIG-1-2", "GPU-name", 40, 40, []Process{{8, 40}}},
	}
	mustRead(t, s, "", want...)
}

func TestWithoutPermissionForProcessesTheMemoryIsRead(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "count 1", "memory.0 4 9", "compute.0 !4")
	mustRead(t, s, "GPU 0: compute processes: no permission (run as root on the host)", GPU{0, whole, "GPU-0", "GPU-name", 4, 9, nil})
}

func TestMemoryThatNVMLCannotTellIsUnknown(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "count 1", "memory.0 4 9", "compute.0 7:-1 8:1")
	mustRead(t, s, "GPU 0: the memory of some processes is not told",
		GPU{0, whole, "GPU-0", "GPU-name", 4, 9, []Process{{7, growth.Unknown}, {8, 1}}})
}

func TestAListThatAsksForNoRoomIsLeftOut(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "count 1", "memory.0 4 9", "compute.0 7:1", "graphics.0 !7")
	mustRead(t, s, "GPU 0: graphics processes: the driver's answer makes no sense: runtime error: index out of range [0] with length 0",
		GPU{0, whole, "GPU-0", "GPU-name", 4, 9, []Process{{7, 1}}})
}

func TestADriverWithOldCallsAloneIsRead(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t, "-DOLD"), "count 1", "mig.0 1", "memory.0 4 9", "compute.0 7:1", "graphics.0 8:2")
	mustRead(t, s, "", GPU{0, whole, "GPU-0", "GPU-name", 4, 9, []Process{{7, 1}, {8, 2}}})
}

func TestACallThatTheDriverLacksIsNotMade(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t, "-DWITHOUT_PROCESSES"), "count 1", "memory.0 4 9")
	mustRead(t, s, "GPU 0: compute processes: this driver has no such call (install a newer one)",
		GPU{0, whole, "GPU-0", "GPU-name", 4, 9, nil})
}

func TestALibraryThatIsNotNVMLIsRefused(t *testing.T) {
	t.Parallel()
	s := startStub(t, patient, tracertest.BuildNVML(t, "-DWITHOUT_INIT"))
	if !strings.Contains(s.opened, ErrLibrary.Error()) || !strings.Contains(s.opened, "nvmlInit") {
		t.Errorf("%q", s.opened)
	}
}

func TestAMissingLibraryIsSaid(t *testing.T) {
	t.Parallel()
	missing := startStub(t, patient, filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	if !strings.Contains(missing.opened, ErrNoLibrary.Error()) {
		t.Errorf("%q, want %v", missing.opened, ErrNoLibrary)
	}
	text := startStub(t, patient, tracertest.Source("nvml.c"))
	if !strings.Contains(text.opened, ErrLibrary.Error()) {
		t.Errorf("%q, want %v", text.opened, ErrLibrary)
	}
}

func TestALibraryWithoutADriverIsSaid(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{"init 9": ErrNoDriver, "init 18": ErrMismatch, "init 4": ErrNoPermission} {
		if s := startStub(t, patient, tracertest.BuildNVML(t), answer); !strings.Contains(s.opened, want.Error()) {
			t.Errorf("%s: %q, want %v", answer, s.opened, want)
		}
	}
}

func TestOneLibraryIsLoadedInALife(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "count 0")
	if heard := s.order("open another"); !strings.Contains(heard.Error, "is loaded already") {
		t.Errorf("%q", heard.Error)
	}
}

func TestADriverThatVanishesIsReadAgainWhenItIsBack(t *testing.T) {
	t.Parallel()
	there := []string{"count 1", "memory.0 4 9", "compute.0 7:1"}
	s := startReadable(t, tracertest.BuildNVML(t), there...)
	full := GPU{0, whole, "GPU-0", "GPU-name", 4, 9, []Process{{7, 1}}}
	mustRead(t, s, "", full)
	s.answer("all 1", "init 9")
	mustRead(t, s, "read NVML: count the GPUs: the NVIDIA driver is gone", full.unread())
	s.answer(there...)
	r := s.read()
	for n := 1; n < restartEvery; n++ {
		if r.Reason == "" {
			t.Fatalf("NVML was started again after %d readings", n)
		}
		r = s.read()
	}
	if r.Reason != "" || !reflect.DeepEqual(r.GPUs, []GPU{full}) {
		t.Errorf("%+v after %d readings", r, restartEvery)
	}
}

func TestAGPUThatIsLostKeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "count 2", "memory.0 4 9", "memory.1 5 9")
	s.read()
	s.answer("count 2", "handle.0 15", "memory.0 4 9", "memory.1 6 9")
	mustRead(t, s, "GPU 0: "+errLost.Error(), GPU{Index: 0, Instance: whole, UUID: "GPU-0", Name: "GPU-name"}.unread(),
		GPU{1, whole, "GPU-1", "GPU-name", 6, 9, []Process{}})
}

func TestACallThatBlocksHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	there := []string{"count 1", "memory.0 4 9", "compute.0 7:1"}
	s := startStub(t, 50*time.Millisecond, tracertest.BuildNVML(t), there...)
	full := []GPU{{0, whole, "GPU-0", "GPU-name", 4, 9, []Process{{7, 1}}}}
	isFull := func(r Reading) bool { return r.Reason == "" && reflect.DeepEqual(r.GPUs, full) }
	s.readUntil("with all that there is", isFull)
	s.answer(append(there, "block memory.0")...)
	r := s.readUntil("late", func(r Reading) bool { return r.Reason != "" })
	if !reflect.DeepEqual(r.GPUs, full) || !strings.Contains(r.Reason, "figures of the reading before") {
		t.Errorf("%+v, want the figures before", r)
	}
	s.readUntil("without figures", func(r Reading) bool { return len(r.GPUs) == 1 && r.GPUs[0].Used == growth.Unknown })
	s.answer(there...)
	s.readUntil("with all that there is", isFull)
	s.answer(append(there, "block memory.0")...)
	s.readUntil("late", func(r Reading) bool { return r.Reason != "" })
	if heard := s.order("close"); !strings.Contains(heard.Error, "no answer") {
		t.Errorf("%q, want an error for a driver that hangs", heard.Error)
	}
}

func TestNamesOfADriverAreBoundedAndPrintable(t *testing.T) {
	t.Parallel()
	s := startReadable(t, tracertest.BuildNVML(t), "version 570\x1b[2J", "count 1", "name.0 \x07\xff"+strings.Repeat("é", 90), "memory.0 1 1")
	r := s.read()
	if r.Driver != "570?[2J" {
		t.Errorf("driver %q", r.Driver)
	}
	if len(r.GPUs) != 1 || !strings.HasPrefix(r.GPUs[0].Name, "??éé") || len(r.GPUs[0].Name) > maxText {
		t.Errorf("%+v", r.GPUs)
	}
}
