package overhead

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

func TestOverhead(t *testing.T) {
	for name, c := range map[string]struct {
		o        Overhead
		slowdown float64
		limit    time.Duration
	}{
		"busy": {
			o: Overhead{
				Limits: Limits{0.03, 0.02}, Elapsed: time.Minute, Traced: 100 * time.Second,
				Busiest: 400 * time.Millisecond, Waited: 200 * time.Millisecond,
				InShim: 600 * time.Millisecond,
			},
			slowdown: 0.02, limit: 3 * time.Second,
		},
		"idle": {
			o: Overhead{
				Limits: Limits{0.03, 0.02}, Elapsed: 10 * time.Second,
				Busiest: 100 * time.Millisecond,
			},
			slowdown: 0.01, limit: 200 * time.Millisecond,
		},
		"no limit":    {o: Overhead{Elapsed: time.Second}},
		"nothing yet": {},
	} {
		if c.o.Slowdown() != c.slowdown || c.o.OwnLimit() != c.limit {
			t.Errorf("%s: %v and %v, want %v and %v",
				name, c.o.Slowdown(), c.o.OwnLimit(), c.slowdown, c.limit)
		}
	}
}

// allocscope may take the limit and the time in advance of its tasks. They pay for a start of more
// than 3 s.
func TestOwnExcess(t *testing.T) {
	const length = 100 * time.Second
	free := 2*time.Second + duty.Advance()
	objects := duty.MemoryAdvance()
	for name, c := range map[string]struct {
		o      Overhead
		excess time.Duration
		used   float64 // cores
	}{
		"nothing": {},
		"in advance": {
			Overhead{OwnCPU: OwnCPU{3 * time.Second, duty.Advance(), time.Minute}}, 0, 0,
		},
		"limit":        {Overhead{OwnCPU: OwnCPU{0, free, 0}}, 0, 0.02},
		"above":        {Overhead{OwnCPU: OwnCPU{0, free + time.Second, 0}}, time.Second, 0.03},
		"a long start": {Overhead{OwnCPU: OwnCPU{4 * time.Second, free, 0}}, 0, 0.03},
		"objects": {
			Overhead{OwnCPU: OwnCPU{0, free, 0}, Objects: objects + time.Second}, 0, 0.03,
		},
	} {
		c.o.Limits, c.o.Elapsed = Limits{0.03, 0.02}, length
		use := c.o.Use()
		isUse := math.Abs(use.Used-c.used) < 1e-9 && math.Abs(use.Limit-0.02) < 1e-9
		if c.o.OwnExcess() != c.excess || !isUse {
			t.Errorf("%s: %v too much, use %+v; want %v and %g",
				name, c.o.OwnExcess(), use, c.excess, c.used)
		}
		c.o.Limits = Limits{}
		if c.o.OwnExcess() != 0 {
			t.Errorf("%s: %v too much without a limit", name, c.o.OwnExcess())
		}
	}
}

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		part, whole time.Duration
		want        int64
	}{
		{time.Second, 4 * time.Second, 250},
		{0, time.Second, 0},
		{time.Second, 0, growth.Unknown},
		{-1, time.Second, growth.Unknown},
	} {
		if got := ratio(c.part, c.whole, 1e3); got != c.want {
			t.Errorf("%v of %v: %d, want %d", c.part, c.whole, got, c.want)
		}
	}
}

func TestChangesAreBounded(t *testing.T) {
	var r Runner
	for i := range 3 * maxChanges {
		r.note(Change{At: time.Duration(i)}, Change{At: time.Duration(i)})
	}
	if len(r.changes) != maxChanges || r.leftOut != 5*maxChanges || r.changes[maxChanges-1].At != maxChanges/2-1 {
		t.Errorf("%d changes are kept, %d are left out", len(r.changes), r.leftOut)
	}
}
