package overhead

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
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
