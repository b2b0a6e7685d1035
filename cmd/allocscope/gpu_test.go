package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// buildCaching compiles the stand-in for libc10_cuda.so against the real libc10 of the distribution and the stand-in for CUDA's driver.
func buildCaching(t *testing.T) string {
	t.Helper()
	c10, err := filepath.Glob("/usr/lib/*/libc10.so.*")
	if err != nil || len(c10) == 0 {
		t.Fatalf("no libc10.so in /usr/lib (apt-get install python3-torch): %v", err)
	}
	driver := tracertest.BuildLibrary(t, "libcuda.c", "libcuda.so.1")
	return tracertest.BuildLibrary(t, "caching.cc", "libc10_cuda.so", "-DTOTALS=long", driver, c10[0], "-Wl,-rpath,"+filepath.Dir(driver))
}

// judgeGPUJob traces testdata/gpu_job.py from its start for so many minutes of its life.
func judgeGPUJob(t *testing.T, minutes int, settings ...string) (verdictOn, summary.GPUMemory) {
	t.Helper()
	arguments := append([]string{tracertest.Source("gpu_job.py"), buildCaching(t), "wait=1"}, settings...)
	job := tracertest.Start(t, "/usr/bin/python3", arguments...)
	t.Cleanup(job.Hangup)
	job.Await("ready")
	flags := fastTrace(t, job.PID(), time.Minute.Seconds()/minute.Seconds(), time.Duration(minutes)*minute)
	defer beginWith(t, job, flags)()
	v := judge(t, flags)
	if len(v.GPUMemory) != 1 || v.GPUMemory[0].Process != job.PID() {
		t.Fatalf("devices %+v", v.GPUMemory)
	}
	return v, v.GPUMemory[0]
}

func TestALeakOfTensorsOnAGPUIsNamedByItsLine(t *testing.T) {
	t.Parallel()
	v, d := judgeGPUJob(t, 40, "leak=256")
	if d.Class != growth.ClassLeak || d.Diagnosis != string(growth.DiagnosisTensors) {
		t.Errorf("the verdict on device memory is %s (%s), diagnosis %s", d.Class, d.Why, d.Diagnosis)
	}
	text, err := os.ReadFile(tracertest.Source("gpu_job.py"))
	if err != nil {
		t.Fatal(err)
	}
	number := slices.IndexFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.HasSuffix(line, "# LEAK") }) + 1
	line := fmt.Sprintf("remember (%s:%d)", tracertest.Source("gpu_job.py"), number)
	if len(d.Suspects) == 0 || !slices.Contains(append(d.Suspects[0].Callers, d.Suspects[0].Path...), line) {
		t.Errorf("culprits %+v, want %s", d.Suspects, line)
	}
	mustSumToTheLedger(t, v, d)
	if !strings.Contains(v.stdout, "tensors are kept") || !strings.Contains(v.stdout, "what the driver counts is not known: ") {
		t.Errorf("the result does not say what it means, or why NVML tells nothing:\n%s", v.stdout)
	}
}

// mustSumToTheLedger wants the profile of the end to have on GPUs what the ledger has, which is what torch has reserved: that was sampled
// before, and a segment or two of 20 MiB may have come since.
func mustSumToTheLedger(t *testing.T, v verdictOn, d summary.GPUMemory) {
	t.Helper()
	var ledger, profiled int64
	for _, row := range d.Breakdown {
		ledger += row.EndBytes
	}
	p := readProfile(t, v.folder, folder.PlateauFile)
	place := -1
	for i, of := range p.SampleType {
		if of.Type == "device_space" {
			place = i
		}
	}
	if place < 0 {
		t.Fatalf("no device_space among %v", p.SampleType)
	}
	for _, s := range p.Sample {
		profiled += s.Value[place]
	}
	reserved := int64(-1)
	for _, c := range d.Curves {
		if c.Name == summary.GPUReserved && c.EndBytes != nil {
			reserved = *c.EndBytes
		}
	}
	const segment = 20 << 20
	if since := ledger - reserved; profiled != ledger || reserved < 0 || since%segment != 0 || since < 0 || since > 2*segment {
		t.Errorf("%d bytes in the ledger and %d in the profile, and torch had reserved %d", ledger, profiled, reserved)
	}
}

func TestAJobThatKeepsNothingOnItsGPUDoesNotLeakThere(t *testing.T) {
	t.Parallel()
	_, d := judgeGPUJob(t, 40)
	if d.Class.Grows() || len(d.Suspects) > 0 {
		t.Errorf("the verdict on device memory is %s (%s), culprits %+v", d.Class, d.Why, d.Suspects)
	}
}
