package overhead

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

func TestShare(t *testing.T) {
	for name, c := range map[string]struct {
		o    Overhead
		want float64
	}{
		"busy": {
			o: Overhead{
				Elapsed: time.Minute, Traced: 100 * time.Second,
				InProbes: time.Second, Own: time.Second,
			},
			want: 0.02,
		},
		"idle counts as a fifth of a core": {
			o:    Overhead{Elapsed: 10 * time.Second, InProbes: 100 * time.Millisecond},
			want: 0.05,
		},
		"nothing yet": {},
	} {
		if got := c.o.Share(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
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
