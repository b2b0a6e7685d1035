package tracertest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A GPUTrainer is testdata/gpu/trainer.py: PyTorch on a GPU.
type GPUTrainer struct{ *Target }

// GPUTrainerSource is the path of that program.
func GPUTrainerSource() string { return Source("gpu/trainer.py") }

// GPULeakLine is the number of its line that keeps tensors. It is in keep().
func GPULeakLine(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(GPUTrainerSource())
	must(t, err)

	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(line, "# LEAK") {
			return i + 1
		}
	}

	t.Fatalf("%s has no line that ends with # LEAK", GPUTrainerSource())
	return 0
}

// StartGPUTrainer starts it with the interpreter that the variable PYTHON names. It waits until
// torch is loaded; CUDA has not been called yet.
func StartGPUTrainer(t testing.TB, flags ...string) GPUTrainer {
	t.Helper()
	g := GPUTrainer{Start(t, cmp.Or(os.Getenv("PYTHON"), "python3"),
		append([]string{GPUTrainerSource()}, flags...)...)}
	g.Await("ready")
	return g
}

// Totals are PyTorch's at this moment. The trainer holds still until its next order.
func (g GPUTrainer) Totals() TorchTotals {
	g.t.Helper()
	totals, err := ParseTorchTotals(g.Do("totals"))
	must(g.t, err)
	return totals
}

// Work lets it train for so many seconds. It returns the mean duration of a step in milliseconds.
func (g GPUTrainer) Work(seconds int) float64 {
	g.t.Helper()
	ms, err := ParseStepTime(g.Do("work " + strconv.Itoa(seconds)))
	must(g.t, err)
	return ms
}

// NotReported replaces a total that this version of PyTorch does not report.
const NotReported = -1

// TorchTotals are the counts of PyTorch and CUDA's driver, in bytes except Segments. A total that
// they do not count is NotReported.
type TorchTotals struct {
	Allocated, Reserved int64 // of the caching allocator
	Segments            int64 // number of them
	Free, Total         int64 // of the GPU, by all processes
	Pinned              int64 // of the host's memory, by torch
	Kept                int64 // by the trainer's keep()
}

// ParseTorchTotals reads lines "NAME VALUE" of the trainer. Malformed lines, unknown names and
// repeated names are errors.
func ParseTorchTotals(lines []string) (TorchTotals, error) {
	totals := TorchTotals{NotReported, NotReported, NotReported, NotReported, NotReported, NotReported, NotReported}
	fields := map[string]*int64{
		"allocated": &totals.Allocated, "reserved": &totals.Reserved, "segments": &totals.Segments,
		"free":  &totals.Free,
		"total": &totals.Total, "pinned": &totals.Pinned, "kept": &totals.Kept,
	}

	for _, line := range lines {
		name, text, _ := strings.Cut(line, " ")
		value, err := strconv.ParseUint(text, 10, 63)
		field := fields[name]
		if err != nil || field == nil || *field != NotReported {
			return totals, fmt.Errorf("read the trainer's totals: %q in %q", line, lines)
		}

		*field = int64(value)
	}
	return totals, nil
}

// ParseStepTime reads the line "steps NUMBER seconds WALL" of the trainer as milliseconds a step.
func ParseStepTime(lines []string) (float64, error) {
	var steps, seconds float64
	if len(lines) == 1 {
		if _, err := fmt.Sscanf(lines[0], "steps %f seconds %f", &steps, &seconds); err == nil &&
			steps > 0 && seconds > 0 {
			return 1000 * seconds / steps, nil
		}
	}
	return 0, fmt.Errorf("read the trainer's time: %q, want \"steps NUMBER seconds WALL\"", lines)
}

// MeasuredOnGPU logs a row of the table of docs/reference/gpu.md. It adds the row to the file that the
// variable GPU_TABLE names, if any.
func MeasuredOnGPU(t testing.TB, what, format string, arguments ...any) {
	t.Helper()
	row := fmt.Sprintf("| %s | %s |", what, strings.ReplaceAll(fmt.Sprintf(format, arguments...), "|",
		"\\|"))
	t.Log(row)
	path := os.Getenv("GPU_TABLE")
	if path == "" {
		return
	}

	table, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(table, row)
		table.Close()
	}
	if err != nil {
		t.Errorf("write a row: %v", err)
	}
}

// BuildCachingAllocator compiles the stand-in for libc10_cuda.so against the real libc10 of the
// distribution and the stand-in for the CUDA driver. Flags choose the layout: testdata/caching.cc.
func BuildCachingAllocator(t testing.TB, flags ...string) string {
	t.Helper()
	c10, err := filepath.Glob("/usr/lib/*/libc10.so.*")
	if err != nil || len(c10) == 0 {
		t.Fatalf("no libc10.so in /usr/lib (apt-get install python3-torch): %v", err)
	}

	driver := BuildLibrary(t, "libcuda.c", "libcuda.so.1")
	return BuildLibrary(t, "caching.cc", "libc10_cuda.so", append([]string{
		"-DTOTALS=long", driver, c10[0], "-Wl,-rpath," + filepath.Dir(driver),
	}, flags...)...)
}
