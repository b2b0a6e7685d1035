package objects_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A holder is testdata/held.py.
type holder struct {
	process *process.Process
	input   io.Writer
	output  *bufio.Reader
}

func startHolder(b *testing.B, size int) *holder {
	b.Helper()
	command := exec.Command("/usr/bin/python3", "../../testdata/held.py", fmt.Sprint(size))
	command.Stderr = os.Stderr
	input := tracertest.Must(command.StdinPipe())(b)
	output, err := command.StdoutPipe()
	tracertest.NoError(b, err)
	tracertest.NoError(b, command.Start())
	h := &holder{input: input, output: bufio.NewReader(output)}
	var pid, objects int
	if _, err := fmt.Fscanf(h.output, "ready %d %d\n", &pid, &objects); err != nil {
		b.Fatal(err)
	}
	if h.process, err = process.Open(pid); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = h.process.Close()
		_ = input.Close()
		_ = command.Wait()
	})
	return h
}

// steps returns how long the steps of the job took since the last call, in microseconds.
func (h *holder) steps(b *testing.B) (count int, median, p99, p999, longest float64) {
	b.Helper()
	if _, err := fmt.Fprintln(h.input); err != nil {
		b.Fatal(err)
	}
	_, err := fmt.Fscanf(h.output, "%d %g %g %g %g\n", &count, &median, &p99, &p999, &longest)
	tracertest.NoError(b, err)
	return count, median, p99, p999, longest
}

// BenchmarkObjects measures a census and a search in a process that holds some bytes of small
// objects, and how long the steps of its own work take meanwhile, beside how long they take
// without. The variable ALLOCSCOPE_BENCH_BYTES has another size.
func BenchmarkObjects(b *testing.B) {
	sizes := []int{10 << 20, 100 << 20, 1 << 30}
	if text := os.Getenv("ALLOCSCOPE_BENCH_BYTES"); text != "" {
		size := tracertest.Must(strconv.Atoi(text))(b)
		sizes = []int{size}
	}
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dMiB", size>>20), func(b *testing.B) { benchmarkObjects(b, size) })
	}
}

func benchmarkObjects(b *testing.B, size int) {
	job := startHolder(b, size)
	heap := tracertest.Must(objects.Open(job.process))(b)
	defer heap.Close()
	status := tracertest.Must(job.process.Status())(b)

	report := func(name string, value float64, n int) { b.ReportMetric(value/float64(n), name) }
	var census, search, wall time.Duration
	var alone, during [2]float64
	for b.Loop() {
		job.steps(b)
		time.Sleep(2 * time.Second)
		_, median, _, p999, _ := job.steps(b)
		alone[0], alone[1] = alone[0]+median, alone[1]+p999

		counted, err := heap.Census(context.Background(), objects.CensusOptions{Samples: 16})
		tracertest.NoError(b, err)
		census += counted.Took
		began := time.Now()
		found, err := heap.Search(context.Background(), []objects.Suspect{{
			Type: "__main__.Record", Objects: counted.Samples["__main__.Record"],
		}}, math.MaxInt64)
		tracertest.NoError(b, err)
		wall += time.Since(began)
		if len(found[0].Paths) == 0 || found[0].Paths[0].Root.Name != "held" {
			b.Fatalf("kept by %+v", found[0])
		}
		search += found[0].Took
		_, median, _, p999, _ = job.steps(b)
		during[0], during[1] = during[0]+median, during[1]+p999
	}
	gib := float64(status.RSS) / (1 << 30)
	report("RSS-MiB", float64(status.RSS)/(1<<20)*float64(b.N), b.N)
	report("census-CPU-s", census.Seconds(), b.N)
	report("census-CPU-s/GiB", census.Seconds()/gib, b.N)
	report("search-CPU-s", search.Seconds(), b.N)
	report("search-CPU-s/GiB", search.Seconds()/gib, b.N)
	report("search-wall-s", wall.Seconds(), b.N)
	report("median-us", alone[0], b.N)
	report("p99.9-us", alone[1], b.N)
	report("during-median-us", during[0], b.N)
	report("during-p99.9-us", during[1], b.N)
	b.ReportMetric(0, "ns/op")
}
