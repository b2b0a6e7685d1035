package tracertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGPUTrainer drives testdata/gpu/trainer.py on the processor.
func TestGPUTrainer(t *testing.T) {
	t.Run("executes its orders", testGPUTrainerOrders)
	t.Run("totals are PyTorch's and the driver's", testGPUTrainerTotals)
	t.Run("malformed totals are refused", testGPUTrainerMalformed)
	t.Run("line that leaks is in keep()", testGPUTrainerLeakLine)
	t.Run("rows are added to the table", testGPUTrainerTable)
}

// startOnCPU starts the trainer without a GPU. Its orders are the same.
func startOnCPU(t *testing.T, flags ...string) GPUTrainer {
	t.Helper()
	t.Setenv("PYTHON", python)
	small := []string{
		"--device", "cpu", "--width", "16", "--layers", "1", "--batch", "2", "--length",
		"8", "--batches", "4",
	}
	return StartGPUTrainer(t, append(small, flags...)...)
}

func testGPUTrainerOrders(t *testing.T) {
	g := startOnCPU(t, "--leak", "4", "--workers", "1")
	g.Do("context", "build")
	steps := g.Do("train 2")
	if len(steps) != 8 || !strings.HasPrefix(steps[0], "step 1 ") ||
		!strings.HasPrefix(steps[7], "step 8 ") {
		t.Errorf("two epochs of four batches: %q", steps)
	}

	g.Do("validate 1", "keep 3 16", "hold 1", "empty")
	want := TorchTotals{NotReported, NotReported, NotReported, NotReported, NotReported, NotReported, 8*4096 + 3*16384 + 512}
	if got := g.Totals(); got != want {
		t.Errorf("totals %+v, want %+v", got, want)
	}
	if ms := g.Work(1); ms <= 0 {
		t.Errorf("a step takes %g ms", ms)
	}
	if got := g.Totals(); got.Kept <= want.Kept || (got.Kept-want.Kept)%(4*4096) != 0 {
		t.Errorf("%d bytes are kept after whole epochs of four steps, before them %d", got.Kept,
			want.Kept)
	}

	g.Hangup()
	if !g.ProcessState.Success() {
		t.Errorf("the trainer ends with %s", g.ProcessState)
	}
}

// fakeTorchCUDA replaces torch.cuda. The program prints the trainer's result from its figures.
const fakeTorchCUDA = `
import sys
sys.path.insert(0, %q)
import trainer
class cuda:
    memory_allocated = staticmethod(lambda device: 1024)
    memory_reserved = staticmethod(lambda device: 2097152)
    memory_stats = staticmethod(lambda device: {"segment.all.current": 1, "segment.all.peak": 7})
    mem_get_info = staticmethod(lambda device: (5000, 80000))
%s
for name, value in trainer.cuda_totals(cuda, "cuda:0"):
    print(name, value)
`

func testGPUTrainerTotals(t *testing.T) {
	const host = "    host_memory_stats = staticmethod(lambda: {%s})\n"
	for _, c := range []struct {
		hostStats string
		pinned    int64
	}{
		{"", NotReported}, // before torch 2.6
		{fmt.Sprintf(host, `"allocated_bytes.current": 100, "reserved_bytes.current": 4096`), 4096},
		{fmt.Sprintf(host, `"allocated_bytes.current": 8192, "active_bytes.current": 100`), 8192},
	} {
		program := fmt.Sprintf(fakeTorchCUDA, filepath.Dir(GPUTrainerSource()), c.hostStats)
		command := exec.Command(python, "-B", "-c", program)
		command.Stderr = os.Stderr
		out, err := command.Output()
		must(t, err)

		got, err := ParseTorchTotals(strings.Split(strings.TrimSpace(string(out)), "\n"))
		if want := (TorchTotals{1024, 2097152, 1, 5000, 80000, c.pinned, NotReported}); err != nil ||
			got != want {
			t.Errorf("%q: totals %+v, %v, want %+v", c.hostStats, got, err, want)
		}
	}
}

func testGPUTrainerMalformed(t *testing.T) {
	for _, lines := range [][]string{
		{"allocated"},
		{"allocated x"},
		{"allocated -1"},
		{"lost 5"},
		{"kept 1", "kept 1"},
		{"kept 1 2"},
		{""},
	} {
		if totals, err := ParseTorchTotals(lines); err == nil {
			t.Errorf("%q is read as %+v", lines, totals)
		}
	}

	for _, lines := range [][]string{
		nil,
		{"steps 0 seconds 1"},
		{"steps 3 seconds 0"},
		{"steps 3"},
		{"steps 3 seconds 1", "done"},
	} {
		if ms, err := ParseStepTime(lines); err == nil {
			t.Errorf("%q is read as %g ms", lines, ms)
		}
	}

	if ms, err := ParseStepTime([]string{"steps 4 seconds 0.1"}); err != nil || ms != 25 {
		t.Errorf("four steps in 0.1 s take %g ms each, %v", ms, err)
	}
}

func testGPUTrainerLeakLine(t *testing.T) {
	text, err := os.ReadFile(GPUTrainerSource())
	must(t, err)
	lines := strings.Split(string(text), "\n")
	if n := GPULeakLine(t); !strings.HasPrefix(lines[n-2], "    def keep(") ||
		strings.Count(string(text), "# LEAK") != 1 {
		t.Errorf("line %d is below %q", n, lines[n-2])
	}
}

func testGPUTrainerTable(t *testing.T) {
	table := filepath.Join(t.TempDir(), "table")
	t.Setenv("GPU_TABLE", table)
	MeasuredOnGPU(t, "blocks", "%d bytes", 512)
	MeasuredOnGPU(t, "segments", "a|b")
	text, err := os.ReadFile(table)
	if want := "| blocks | 512 bytes |\n| segments | a\\|b |\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
}
