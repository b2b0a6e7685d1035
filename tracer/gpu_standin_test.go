package tracer_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// withoutGPU makes trainers run with what stands for torch and for CUDA's driver, and the tracer with what stands for NVML.
func withoutGPU(t *testing.T) gpuBench {
	t.Helper()
	answers := filepath.Join(t.TempDir(), "answers")
	nvmlAnswers(t, answers, "count 1", "memory.0 5000 80000", "compute.0 1:77")
	libraries := []string{
		realLibC10(t), libcuda(t), tracertest.BuildLibrary(t, "c10.cc", "libc10_cuda.so"),
	}
	for name, value := range map[string]string{
		"PYTHON": python, "PYTHONPATH": tracertest.Source("gpu/standin"), "PYTHONDONTWRITEBYTECODE": "1",
		"STANDIN": strings.Join(libraries, ":"), "NVML_STUB": answers,
	} {
		t.Setenv(name, value)
	}
	return gpuBench{libraries: []string{callsForTorch}, nvml: tracertest.BuildNVML(t)}
}

func TestTheChecksOfAGPUPassWhereEverythingIsAsItShouldBe(t *testing.T) {
	for name, check := range map[string]func(gpuBench, *testing.T){
		"from the start":      func(b gpuBench, t *testing.T) { b.checkFromStart(t, "of the stand-in") },
		"late":                func(b gpuBench, t *testing.T) { b.checkLateAttach(t, "of the stand-in") },
		"NVML":                gpuBench.checkNVML,
		"pinned":              gpuBench.checkPinned,
		"without torch's own": gpuBench.checkWithoutCache,
	} {
		t.Run(name, func(t *testing.T) { check(withoutGPU(t), t) })
	}
}
