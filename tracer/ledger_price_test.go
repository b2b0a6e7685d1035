package tracer_test

// What a snapshot costs by what processes have in memory: `make bench`.

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A shape is what a process has done to its address space.
type shape struct {
	name   string
	orders []string
	// gib resident, of one process or of all
	gib float64
}

var shapes = []shape{
	{"nothing", nil, 0},
	{"resident=1GiB", []string{"resident 1024"}, 1},
	{"resident=4GiB", []string{"resident 4096"}, 4},
	{"huge=4GiB", []string{"huge 4096"}, 4},
	{"reserved=50GiB", []string{"reserve 50"}, 0},
	{"mappings=60000", []string{"mappings 60000"}, 0},
	{"stripes=500000", []string{"stripes 500000"}, 2},
	{"workers=50x0.25GiB", []string{"resident 256", "workers 50"}, 12.75},
}

func startScale(t testing.TB, orders ...string) *tracertest.Target {
	tracertest.NeedsRoot(t)
	target := tracertest.Start(t, tracertest.Build(t, "scale.c", "-pthread"))
	target.Await("ready")
	for _, o := range orders {
		order(target, "%s", o)
	}
	return target
}

// processorTime of this process, in milliseconds.
func processorTime(t testing.TB) float64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return float64(now.Nano()) / 1e6
}

// The snapshots follow each other without a pause: what the budget leaves to the interval between them shows as the least
// share. The first one is apart, because everything is looked at for the first time.
func BenchmarkASnapshotByWhatIsResident(b *testing.B) {
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			target := startScale(b, shape.orders...)
			began, cpu := time.Now(), processorTime(b)
			s := open(b, tracer.Options{PID: target.PID(), Children: true})
			followUntilTraced(b, s, target.PID())
			b.ReportMetric(milliseconds(began), "ms/attach")
			b.ReportMetric(processorTime(b)-cpu, "ms-CPU/attach")
			var took, spent []float64
			var looked float64
			for range priceRounds {
				began, cpu = time.Now(), processorTime(b)
				got := snapshot(b, s)
				took, spent = append(took, milliseconds(began)), append(spent, processorTime(b)-cpu)
				looked = got.Residents[len(got.Residents)-1].Scanned
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(took[0], "ms/first")
			b.ReportMetric(median(took[1:]), "ms/snapshot")
			b.ReportMetric(median(spent[1:]), "ms-CPU/snapshot")
			b.ReportMetric(100*looked, "%-looked-at")
			target.Hangup()
		})
	}
}

// What a thread of the process that maps and unmaps all the time waits for, because the kernel holds the lock of the address
// space for reading while pages are looked at.
func BenchmarkAStallOfAThreadThatMapsWhileItsProcessIsLookedAt(b *testing.B) {
	const gib, snapshots = 6, 40
	target := startScale(b, fmt.Sprintf("resident %d", gib<<10))
	stalls := func(during func()) (ns [5]float64) {
		order(target, "storm")
		during()
		target.Say("calm")
		if _, err := fmt.Sscanf(target.Await("done")[0], "ns %f %f %f %f %f", &ns[0], &ns[1], &ns[2], &ns[3], &ns[4]); err != nil {
			b.Fatal(err)
		}
		return ns
	}
	s := open(b, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	for _, c := range []struct {
		name string
		look func()
	}{{"without", func() {}}, {"whole", func() { s.LookWhole() }}, {"budget", func() { snapshot(b, s) }}} {
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
