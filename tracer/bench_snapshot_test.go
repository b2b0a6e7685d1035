package tracer_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
	"golang.org/x/sys/unix"
)

func BenchmarkSnapshotLiveObjects(b *testing.B) {
	const manyObjects = 100_000
	target := start(b, tracertest.Build(b, "leak.c", "-pthread"), "1", strconv.Itoa(manyObjects), "64",
		"0")
	s := open(b, tracer.Options{PID: target.PID(), Interval: 1})

	order(target, "go")
	var took []float64
	for range 3 * costRounds {
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

func milliseconds(since time.Time) float64 {
	return float64(time.Since(since).Microseconds()) / 1000
}

var shapes = []struct {
	name   string
	orders []string
}{
	{"nothing", nil},
	{"resident=1GiB", []string{"resident 1024"}},
	{"resident=4GiB", []string{"resident 4096"}},
	{"huge=4GiB", []string{"huge 4096"}},
	{"reserved=50GiB", []string{"reserve 50"}},
	{"mappings=60000", []string{"mappings 60000"}},
	{"stripes=500000", []string{"stripes 500000"}},
	{"workers=50x0.25GiB", []string{"resident 256", "workers 50"}},
}

func processorTime(t testing.TB) float64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return float64(now.Nano()) / 1e6
}

// BenchmarkSnapshotResident takes snapshots without a pause, so that the budget shows as the
// smallest share. The first one is apart, because it scans everything for the first time.
func BenchmarkSnapshotResident(b *testing.B) {
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			target := startScale(b, shape.orders...)
			began, cpu := time.Now(), processorTime(b)
			s := open(b, tracer.Options{PID: target.PID(), Children: true})
			followUntilTraced(b, s, target.PID())
			b.ReportMetric(milliseconds(began), "ms/attach")
			b.ReportMetric(processorTime(b)-cpu, "ms-CPU/attach")
			var took, spent []float64
			var scanned float64
			for range costRounds {
				began, cpu = time.Now(), processorTime(b)
				got := snapshot(b, s)
				took, spent = append(took, milliseconds(began)), append(spent, processorTime(b)-cpu)
				scanned = got.Residents[len(got.Residents)-1].Scanned
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(took[0], "ms/first")
			b.ReportMetric(median(took[1:]), "ms/snapshot")
			b.ReportMetric(median(spent[1:]), "ms-CPU/snapshot")
			b.ReportMetric(100*scanned, "%-scanned")
			target.Hangup()
		})
	}
}

// BenchmarkScanStall measures how long a thread waits that maps and unmaps all the time: the kernel
// holds the lock of the address space for reading while pages are scanned.
func BenchmarkScanStall(b *testing.B) {
	const gib, snapshots = 6, 40
	target := startScale(b, fmt.Sprintf("resident %d", gib<<10))
	stalls := func(during func()) (ns [5]float64) {
		order(target, "storm")
		during()
		target.Say("calm")
		if _, err := fmt.Sscanf(target.Await("done")[0], "ns %f %f %f %f %f", &ns[0], &ns[1], &ns[2],
			&ns[3], &ns[4]); err != nil {
			b.Fatal(err)
		}

		return ns
	}
	s := open(b, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})

	for _, c := range []struct {
		name string
		look func()
	}{
		{"without", func() {}},
		{"whole", func() { scanAll(s) }},
		{"budget", func() { snapshot(b, s) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			ns := stalls(func() {
				for range snapshots {
					c.look()
					time.Sleep(50 * time.Millisecond)
				}
			})
			b.ReportMetric(0, "ns/op")
			for i, unit := range []string{"us-median", "us-p99", "us-p99.9", "us-worst"} {
				b.ReportMetric(ns[i]/1000, unit)
			}
		})
	}
}

// BenchmarkAttachDetach measures what a rank costs that comes or goes while the trace goes on.
func BenchmarkAttachDetach(b *testing.B) {
	root, target := startSteps(b), startSteps(b)
	s := open(b, tracer.Options{PID: root.PID(), Interval: 1})

	var attach, detach []float64
	for range costRounds {
		began := time.Now()
		mustAttach(b, s, target.PID())
		attach = append(attach, milliseconds(began))
		order(target, "leak 10000 64")
		began = time.Now()
		mustDetach(b, s, target.PID())
		detach = append(detach, milliseconds(began))
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(attach), "ms/attach")
	b.ReportMetric(median(detach), "ms/detach")
}
