package shim

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// boundOf returns how far a sum may be from its mean, by its variance and the greatest of its terms:
// by chance it is farther once in a million at most (Bernstein's inequality).
func boundOf(variance, greatest float64) float64 {
	const exponent = 14.5 // 2 e^-exponent is a millionth
	third := exponent * greatest / 3
	return third + math.Sqrt(third*third+2*exponent*variance)
}

// maxCoarsening is how many times as long the interval of a site may be.
const maxCoarsening = 64

// A weightedSum is a sum of weights, of so many samples.
type weightedSum struct{ samples, weight float64 }

// sumsOf returns the sums of each size. Each weight must be the weight of the interval, or of a
// multiple.
func sumsOf(t *testing.T, events []event, interval float64) map[uint64]weightedSum {
	sums := make(map[uint64]weightedSum)
	for _, e := range events {
		if e.Kind != allocated {
			continue
		}

		isWeight := false
		for multiple := 1.0; multiple <= maxCoarsening; multiple *= 2 {
			want := weightOf(float64(e.Size), multiple*interval)
			isWeight = isWeight || math.Abs(float64(e.Weighted)-want) < 0.51+1e-6*want
		}
		if !isWeight {
			t.Fatalf("weight %d of %d bytes, at an interval of %.0f", e.Weighted, e.Size, interval)
		}
		sum := sums[e.Size]
		sums[e.Size] = weightedSum{sum.samples + 1, sum.weight + float64(e.Weighted)}
	}
	return sums
}

// check compares a sum of weights with the truth, with the variance of a sample's weight.
func (s weightedSum) check(t *testing.T, size, count, interval float64) {
	t.Helper()
	weight := weightOf(size, interval)
	bound := boundOf(count*size*(weight-size), weight)
	if math.Abs(s.weight-count*size) > bound {
		t.Errorf("weights of %.0f bytes sum to %.0f, want %.0f (+-%.0f)",
			size, s.weight, count*size, bound)
	}
}

// TestSampling compares samples of many sizes with the program's own counts, at several intervals.
func TestSampling(t *testing.T) {
	program := buildPreloaded(t)
	for _, c := range []struct{ markers, allocations int }{
		{24, 500_000}, {19, 1_000_000}, {15, 5_000_000}, {0, 20_000_000},
	} {
		t.Run(fmt.Sprintf("%d markers", c.markers), func(t *testing.T) {
			r := newRecorder(t)
			r.mark(c.markers)
			r.probe(AllocProbe, r.nothing) // another tool's changes nothing
			lines, events := r.run(program, "mixed", fmt.Sprint(c.allocations))
			interval := math.Exp2(float64(MaxMarkers - c.markers))
			if c.markers == 0 {
				interval = 512 << 10
			}

			sums := sumsOf(t, events, interval)
			for _, line := range lines {
				var size uint64
				var count float64
				if n, _ := fmt.Sscan(line, &size, &count); n != 2 {
					t.Fatalf("the program said %q", line)
				}
				sums[size].check(t, float64(size), count, maxCoarsening*interval)
			}
		})
	}
}

// TestSites has two sites, one of which keeps its objects. All of the other's die at once: fewer of
// them are sampled.
func TestSites(t *testing.T) {
	const markers, interval, n = 19, 4096, 500_000
	const keptSize, temporarySize = 1000, 1001 // as the program has them
	r := newRecorder(t)
	r.mark(markers)
	_, events := r.run(buildPreloaded(t), "sites", fmt.Sprint(n))

	sums := sumsOf(t, events, interval)
	p := keptSize / weightOf(keptSize, interval)
	kept, temporary := sums[keptSize], sums[temporarySize]
	if bound := boundOf(n*p*(1-p), 1); math.Abs(kept.samples-n*p) > bound {
		t.Errorf("%.0f kept objects are sampled, want %.0f (+-%.0f)", kept.samples, n*p, bound)
	}
	kept.check(t, keptSize, n, interval)
	temporary.check(t, temporarySize, n, maxCoarsening*interval)
	if want := n * p / maxCoarsening; temporary.samples > 1.5*want {
		t.Errorf("%.0f temporaries are sampled, want some %.0f", temporary.samples, want)
	}
}

func weightOf(size, interval float64) float64 { return -size / math.Expm1(-size/interval) }

// TestLevels changes the interval of a program that runs, and takes the probes away.
func TestLevels(t *testing.T) {
	const megabytes = 100 // in one round of the program
	r := newIdle(t)
	target := r.start("", buildPreloaded(t), "idle")
	target.Await("ready")
	round := func() (allocations, weighted int) {
		target.Say("go")
		target.Await("done")
		for _, e := range r.read() {
			if e.Kind == allocated && e.Size == 1<<20 {
				allocations++
				weighted += int(e.Weighted)
			}
		}
		return allocations, weighted
	}

	if n, _ := round(); n != 0 {
		t.Errorf("%d events without probes", n)
	}

	detach := r.probe(AllocProbe, r.program(allocated))
	if n, _ := round(); n < 16 || n == megabytes { // 0.87 of the first ones at 512 KiB
		t.Errorf("%d of %d allocations without markers", n, megabytes)
	}

	unmark := r.mark(MaxMarkers)
	round() // the first megabyte ends the draws
	if n, weighted := round(); n != megabytes || weighted != megabytes<<20 {
		t.Errorf("%d allocations of %d bytes with %d markers", n, weighted, MaxMarkers)
	}

	unmark()
	unmark = r.mark(1)
	round()
	if n, _ := round(); n > 5 { // one each GiB
		t.Errorf("%d of %d allocations with one marker", n, megabytes)
	}

	unmark()
	detach()
	round()
	if n, _ := round(); n != 0 {
		t.Errorf("%d events after the probes were detached", n)
	}
	for name, value := range r.semaphores(target.PID()) {
		if value != 0 {
			t.Errorf("semaphore of %s is %d after the probes were detached", name, value)
		}
	}
}

// TestStart holds a program at its start until the hold is taken away, or for half a second.
func TestStart(t *testing.T) {
	r := newIdle(t)
	r.probe(StartProbe, r.program(started))
	release := r.probe(HoldProbe, r.nothing)

	held := r.start("", buildPreloaded(t), "idle")
	pid := r.awaitStart()
	if pid != held.PID() {
		t.Fatalf("process %d has started, want %d", pid, held.PID())
	}
	if got := r.semaphores(pid); got[HoldProbe] != 1 || got[StartProbe] != 1 || got[AllocProbe] != 0 {
		t.Errorf("semaphores: %v", got)
	}
	release()
	held.Await("ready")

	r.probe(HoldProbe, r.nothing)
	began := time.Now()
	r.start("", buildPreloaded(t), "idle").Await("ready")
	if waited := time.Since(began); waited < MaxHold {
		t.Errorf("was held for %v, want %v at least", waited, MaxHold)
	}
}

// awaitStart returns the process that reports a start.
func (r *recorder) awaitStart() (pid int) {
	for range 1000 {
		for _, e := range r.read() {
			if e.Kind == started {
				return int(e.PID)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatal("no program has started")
	return 0
}
