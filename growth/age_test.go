package growth

import (
	"testing"
	"time"
)

// What leaks evenly for 100 s is 50 s old on average; what fills a cache in the first 10 s is 95 s old.
func TestTheMeanAgeIsThatOfABytesMiddleOfItsBin(t *testing.T) {
	s := &Snapshot{Elapsed: 100 * time.Second}
	var leak, cache Holding
	for bin := range 10 {
		s.Bins = append(s.Bins, time.Duration(10*(bin+1))*time.Second)
		leak.AddBirth(Birth{Bin: bin, InuseBytes: 1000})
	}
	cache.AddBirth(Birth{Bin: 0, InuseBytes: 3000})
	for name, c := range map[string]struct {
		holdings []*Holding
		want     time.Duration
		known    bool
	}{
		"leak":           {[]*Holding{&leak}, 50 * time.Second, true},
		"cache":          {[]*Holding{&cache}, 95 * time.Second, true},
		"both, by bytes": {[]*Holding{&leak, &cache}, 60384615384 * time.Nanosecond, true},
		"no births":      {[]*Holding{{InuseBytes: 1000}}, 0, false},
		"beyond bins":    {[]*Holding{{Births: []Birth{{Bin: 10, InuseBytes: 1}, {Bin: -1, InuseBytes: 1}}}}, 0, false},
	} {
		var age Age
		for _, h := range c.holdings {
			age.Add(s, h)
		}
		if got, known := age.Mean(); known != c.known || (got-c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, known, c.want, c.known)
		}
	}
}
