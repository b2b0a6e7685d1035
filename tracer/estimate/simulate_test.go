package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

// A leakSimulation is a program that leaks 1 MiB a second among calls that are slowed in bursts.
type leakSimulation struct {
	size     uint64  // of the objects, in bytes
	slowdown float64 // of the program within bursts
	byTime   float64 // share of the leak that is paced by a clock; the rest by the work done
	steps    float64 // of training in a second outside of bursts
	cached   float64 // bytes that are freed and stay resident, as a share of the leak
	costlier float64 // by which share probes cost more than was calibrated, as on a busy machine
}

const (
	simulatedLeak     = 1 << 20 // bytes/s
	simulatedSeconds  = 300
	simulatedInterval = 16 << 10 // between samples, as in bursts where traps are most of the cost
)

// run simulates five minutes, and returns the estimate as a multiple of the truth, and whether its
// 95% interval has the truth.
func (l leakSimulation) run(seed uint64) (ratio float64, covered bool) {
	random := rand.New(rand.NewPCG(seed, 1))
	schedule := &Schedule{Lag: time.Minute}
	calibrated := 1000 / (1 + l.costlier) * math.Exp(0.15*random.NormFloat64())
	costs := controller.Costs{Entry: calibrated}
	var allocations []bpf.Allocation
	p := 1 - math.Exp(-float64(l.size)/simulatedInterval)

	moment := func(seconds float64) uint64 { return uint64(seconds * 1e9) }
	for now := 1.0; ; {
		pause := min(3, random.ExpFloat64()) * 10
		length := 0.1 + 0.4*random.Float64()
		if now+pause+length > simulatedSeconds {
			break
		}
		schedule.Outside.Add(costs, controller.Reading{}, l.progress(pause, 1, random))

		from := now + pause
		schedule.Open(moment(from), true)
		schedule.Close(moment(from + length))
		schedule.Inside.Add(costs, controller.Reading{}, l.progress(length, l.slowdown, random))
		if now == 1 { // so that the first burst represents the time since the first second
			first := ProbePeriod{From: moment(0.5), To: moment(1)}
			schedule.Periods = append([]ProbePeriod{first}, schedule.Periods...)
		}

		rate := simulatedLeak * (l.byTime + (1-l.byTime)/l.slowdown) / float64(l.size)
		for born := from; ; {
			born += random.ExpFloat64() / (rate * p)
			if born > from+length {
				break
			}
			allocations = append(allocations, bpf.Allocation{
				Born: moment(born), Size: l.size, Interval: simulatedInterval,
				Kind: bpf.KindHeap,
			})
		}
		now = from + length
	}

	tracker := liveness.NewTracker(duty.Account{})
	var totals StackTotals
	var estimator *Estimator
	for at := 0.0; at <= simulatedSeconds; at += simulatedSeconds / 20 {
		estimator = NewEstimator(schedule, &tracker, false, moment(at), nil, nil)
		totals = StackTotals{}
		for i := range allocations {
			e := estimator.estimate(&bpf.Address{}, &allocations[i])
			if e.countedFrom <= moment(at) {
				estimator.totals.add(&allocations[i], e)
				totals.AddLive(l.size, e, 0)
			}
		}
		chunks := float64(tracker.SizeClass(0, l.size)) / float64(l.size)
		resident := (100<<20 + at*simulatedLeak*chunks*(1+l.cached)) + 1e5*random.NormFloat64()
		schedule.Calibrate(estimator, moment(at), int64(resident))
	}

	held := make(Holdings)
	held.Add(&growth.Stack{}, growth.KindHeap, "", &totals)
	held.AddEvidence(estimator)
	h := held.List()[0]
	truth := simulatedLeak * float64(estimator.totals.to-estimator.totals.from) / 1e9
	deviation := (float64(h.InuseBytes) - truth) / math.Sqrt(h.Variance)
	return float64(h.InuseBytes) / truth, math.Abs(deviation) < 1.96
}

// progress returns the progress of the program in some time, slowed by a factor. The rest of its
// CPU time is the probes', one microsecond each.
func (l leakSimulation) progress(
	seconds, slowdown float64, random *rand.Rand,
) controller.Reading {
	work := seconds / slowdown
	steps := work * l.steps
	return controller.Reading{
		At:      time.Duration(seconds * 1e9),
		Traced:  time.Duration(seconds * 1e9),
		Entries: uint64((seconds - work) * 1e6),
		Steps:   int(steps + random.Float64()),
	}
}

// TestUnbiased is the whole way from sampled objects to estimates, against a known truth.
func TestUnbiased(t *testing.T) {
	const seeds = 200
	for name, l := range map[string]leakSimulation{
		"small objects, paced by work":    {size: 64, slowdown: 18},
		"on a busy machine":               {size: 64, slowdown: 40, costlier: 0.5},
		"small objects, paced by time":    {size: 64, slowdown: 18, byTime: 1},
		"1 KiB, paced by work":            {size: 1 << 10, slowdown: 18},
		"1 KiB, paced by work, very slow": {size: 1 << 10, slowdown: 60},
		"1 KiB, paced by time":            {size: 1 << 10, slowdown: 18, byTime: 1},
		"half by time":                    {size: 1 << 10, slowdown: 18, byTime: 0.5},
		// With a slowdown of 18, three of ten traces see a single one of them.
		"large objects, paced by work": {size: 1 << 20, slowdown: 2},
		"large objects, paced by time": {size: 1 << 20, slowdown: 18, byTime: 1},
		"trainer with steps":           {size: 1 << 10, slowdown: 1.5, steps: 50},
		"trainer whose heap fragments": {size: 1 << 10, slowdown: 1.5, steps: 50, cached: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			var sum, squares, covered float64
			for seed := range uint64(seeds) {
				ratio, isCovered := l.run(seed)
				sum += ratio
				squares += ratio * ratio
				if isCovered {
					covered++
				}
			}

			mean := sum / seeds
			spread := math.Sqrt(max(0, squares/seeds-mean*mean))
			t.Logf("mean %.3f, standard deviation %.3f, covered %.0f%%",
				mean, spread, 100*covered/seeds)
			if math.Abs(mean-1) > 0.05 || covered < 0.9*seeds {
				t.Errorf("mean %.3f of the truth (standard deviation %.3f), covered %.0f%%",
					mean, spread, 100*covered/seeds)
			}
		})
	}
}
