package tracer_test

// What a snapshot and the command itself cost: `make bench`.

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const manyObjects = 100_000

func startLeak(b *testing.B) *tracertest.Target {
	tracertest.NeedsRoot(b)
	target := tracertest.Start(b, tracertest.Build(b, "leak.c", "-pthread"), "1", strconv.Itoa(manyObjects), "64", "0")
	target.Await("ready")
	return target
}

func BenchmarkASnapshotOf100000LiveSamples(b *testing.B) {
	target := startLeak(b)
	s := open(b, tracer.Options{PID: target.PID(), Interval: 1})
	target.Say("go")
	target.Await("done")
	var took []float64
	for range 3 * priceRounds {
		began := time.Now()
		if live := snapshot(b, s).LiveObjects; live < manyObjects {
			b.Fatalf("%d live samples", live)
		}
		took = append(took, milliseconds(began))
	}
	mustLoseNothing(b, s)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "ms/snapshot")
}

func BenchmarkTheCommandAt100000LiveSamples(b *testing.B) {
	command := filepath.Join(b.TempDir(), "allocscope")
	if out, err := exec.Command("go", "build", "-o", command, "../cmd/allocscope").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	metrics := make(map[string][]float64)
	for range 3 {
		for unit, value := range measureCommand(b, command) {
			metrics[unit] = append(metrics[unit], value)
		}
	}
	for unit, values := range metrics {
		b.ReportMetric(median(values), unit)
	}
	b.ReportMetric(0, "ns/op")
}

// measureCommand traces a program that leaks 100,000 objects, all of them sampled.
func measureCommand(b *testing.B, path string) map[string]float64 {
	target := startLeak(b)
	defer target.Hangup()
	folder := filepath.Join(b.TempDir(), "trace")
	command := exec.Command(path, "trace", "--pid", strconv.Itoa(target.PID()), "--interval", "1", "--overhead", "off", "--output", folder)
	lines, err := command.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	metrics := make(map[string]float64)
	began := time.Now()
	stop := startTool(b, command, bufio.NewScanner(lines), "tracing")
	metrics["ms-to-start"] = milliseconds(began)
	target.Say("go")
	target.Await("done")
	awaitSnapshots(b, folder, 3)
	metrics["MiB-RSS"] = statusMiB(b, command.Process.Pid, "VmRSS:")
	metrics["MiB-RSS-peak"] = statusMiB(b, command.Process.Pid, "VmHWM:")
	metrics["MiB-kernel-maps"] = mapsMiB(b, command.Process.Pid)
	began = time.Now()
	stop()
	metrics["ms-to-stop"] = milliseconds(began)
	metrics["s-CPU"] = (command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds()
	return metrics
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

// awaitSnapshots waits until the trace has written so many more.
func awaitSnapshots(b *testing.B, folder string, more int) {
	written := func() int {
		files, _ := filepath.Glob(filepath.Join(folder, "snapshots", "*.pb.gz"))
		return len(files)
	}
	for want := written() + more; written() < want; {
		time.Sleep(50 * time.Millisecond)
	}
}

// statusMiB reads a size in /proc/PID/status.
func statusMiB(b *testing.B, pid int, field string) float64 {
	return number(b, fmt.Sprintf("/proc/%d/status", pid), field) / 1024
}

// mapsMiB is the kernel memory of the BPF maps that a process holds.
func mapsMiB(b *testing.B, pid int) (total float64) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		b.Fatal(err)
	}
	counted := make(map[string]bool)
	for _, file := range files {
		info, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}
		_, after, isMap := strings.Cut(string(info), "map_id:")
		id, _, _ := strings.Cut(after, "\n")
		if isMap && !counted[id] {
			counted[id] = true
			total += number(b, file, "memlock:") / (1 << 20) // here it is bytes
		}
	}
	return total
}

// number reads what follows a field's name.
func number(b *testing.B, file, field string) float64 {
	content, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	_, after, found := strings.Cut(string(content), field)
	words := strings.Fields(after)
	if !found || len(words) == 0 {
		b.Fatalf("%s has no %s", file, field)
	}
	value, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return value
}
