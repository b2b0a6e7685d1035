package controller

import (
	"math"
	"testing"
	"time"
)

func TestWhatProbesTakeIsNoWorkOfTheProgram(t *testing.T) {
	p := Prices{Entry: 1000, Stepped: 8000, Return: 500, Fault: 250, Mapping: 400}
	a := Reading{At: 7 * time.Second, Entries: 1, Samples: 1, Traced: time.Second, Own: time.Second}
	b := Reading{
		At: 9 * time.Second, Entries: 100_001, Stepped: 10_000, TensorEntries: 20_000, Returns: 40_000, Faults: 80_000,
		MappingCalls: 50_000, Walk: 30 * time.Millisecond, KernelWalk: 10 * time.Millisecond, Samples: 5_001, Traced: 3 * time.Second, Own: 1100 * time.Millisecond,
	}
	s := p.between(a, b)
	for name, c := range map[string]struct{ got, want float64 }{
		"elapsed": {s.elapsed, 2},
		"walking": {s.walking, 0.030 + 0.005},
		"probes":  {s.probes, 0.090 + 0.080 + 0.020 + 0.035},
		"kernel":  {s.kernel, 0.020 + 0.020 + 0.010},
		"own":     {s.own, 0.1},
		"native":  {s.native, 2 - 0.225 - 0.050},
		"work":    {s.work, 2 - 0.225 - 0.050},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s %.6f s, want %.6f", name, c.got, c.want)
		}
	}
	b.Traced = a.Traced + 300*time.Millisecond
	if s := p.between(a, b); s.work != quiet*2 {
		t.Errorf("a program that hardly runs works for %.3f s of 2, want %v", s.work, quiet*2)
	}
}
