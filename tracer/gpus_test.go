package tracer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// nvmlAnswers is a file that steers testdata/nvml.c, from now on.
func nvmlAnswers(t *testing.T, file string, lines ...string) {
	t.Helper()
	part := file + ".part"
	if err := os.WriteFile(part, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part, file); err != nil {
		t.Fatal(err)
	}
}

// sampleUntil samples until the process's sample is as it should be: NVML is opened beside.
func sampleUntil(t *testing.T, s *tracer.Session, what string, good func(growth.Moment) bool) growth.Moment {
	t.Helper()
	var moment growth.Moment
	eventually(t, what, func() bool {
		moment = s.Sample()
		return len(moment.Processes) == 1 && good(moment)
	})
	return moment
}

func usedIs(bytes int64) func(growth.Moment) bool {
	return func(m growth.Moment) bool { return m.Processes[0].DeviceUsed == bytes }
}

// The library stays loaded in this program: its answers are steered by a file for all parts of the test.
func TestWhatNVMLCountsForTheProcessIsInItsSamples(t *testing.T) {
	file := filepath.Join(t.TempDir(), "answers")
	t.Setenv("NVML_STUB", file)
	target := tracertest.Start(t, tracertest.Build(t, "cuda.c", "-pthread"), tracertest.BuildLibrary(t, "libcuda.c", "libcuda.so.1"))
	target.Await("ready")
	process := func(gpu string, bytes int64) string {
		return fmt.Sprintf("compute.%s 1:77 %d:%d", gpu, target.PID(), bytes)
	}
	nvmlAnswers(t, file, "count 2", "memory.0 5000 80000", "memory.1 700 90000", process("0", 4000), process("1", 600))
	s, err := tracer.Open(t.Context(), tracer.Options{PID: target.PID(), NVML: tracertest.BuildNVML(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	moment := sampleUntil(t, s, "4600 bytes of two GPUs", usedIs(4600))
	if len(moment.GPUs) != 2 || moment.GPUs[0].Used != 5000 || moment.GPUs[1].Total != 90000 || moment.GPUs[1].Instance != -1 ||
		!slices.Equal(moment.GPUs[1].Users, []int{target.PID()}) {
		t.Errorf("GPUs %+v", moment.GPUs)
	}
	mustBeUsed(t, s, 4600, "")

	nvmlAnswers(t, file, "count 1", "memory.0 9000 80000", process("0", 8000))
	sampleUntil(t, s, "growth to 8000 bytes", usedIs(8000))
	nvmlAnswers(t, file, "count 1", "memory.0 9000 80000", "compute.0 1:77")
	sampleUntil(t, s, "nothing of a process that is not listed", usedIs(growth.Unknown))
	mustBeUsed(t, s, growth.Unknown, "does not list")
	nvmlAnswers(t, file, "count 1", "memory.0 9000 80000", "compute.0 !4")
	sampleUntil(t, s, "nothing without permission", func(growth.Moment) bool {
		snapshot, err := s.Snapshot()
		return err == nil && strings.Contains(snapshot.Devices[0].Reason, "permission")
	})
	nvmlAnswers(t, file, "count 1", "mig.0 1", "memory.0.0 3000 40000", "memory.0.2 10 40000", process("0.0", 2500))
	moment = sampleUntil(t, s, "2500 bytes on an instance", usedIs(2500))
	if len(moment.GPUs) != 2 || moment.GPUs[0].Instance != 0 || moment.GPUs[0].Used != 3000 {
		t.Errorf("instances %+v", moment.GPUs)
	}
	nvmlAnswers(t, file, "all 9") // the driver is not loaded any more
	sampleUntil(t, s, "nothing once the driver has vanished", usedIs(growth.Unknown))
}

// mustBeUsed wants a snapshot to say what the driver counts for the only process, or why it does not.
func mustBeUsed(t *testing.T, s *tracer.Session, bytes int64, reason string) {
	t.Helper()
	snapshot, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshot.Devices) != 1 || snapshot.Devices[0].Used != bytes || !strings.Contains(snapshot.Devices[0].Reason, reason) {
		t.Errorf("devices %+v, want %d bytes, %q", snapshot.Devices, bytes, reason)
	}
}

func TestAProcessWithoutAGPUIsNotAskedAbout(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "leak.c"))
	target.Await("ready")
	s, err := tracer.Open(t.Context(), tracer.Options{PID: target.PID(), NVML: "/nonexistent"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	moment := s.Sample()
	snapshot, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if moment.GPUs != nil || moment.Processes[0].CudaDriver != growth.Unknown || snapshot.Devices != nil || s.AskedNVML() {
		t.Errorf("GPUs %+v, devices %+v, sample %+v", moment.GPUs, snapshot.Devices, moment.Processes[0].Sample)
	}
}
