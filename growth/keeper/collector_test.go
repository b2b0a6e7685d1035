package keeper

import "testing"

func TestWaits(t *testing.T) {
	usual := [3]int{700, 10, 10}
	for name, c := range map[string]struct {
		collector       Collector
		frozen, garbage int
		want            WaitFor
	}{
		"running": {Collector{IsEnabled: true, Thresholds: usual, Counts: [3]int{90, 4, 2}}, 0, 8, ""},
		"off":     {Collector{Thresholds: usual, Counts: [3]int{701, 4, 2}}, 0, 8, WaitEnable},
		"off, and collects young objects itself": {
			Collector{Thresholds: usual, Counts: [3]int{90, 400, 2}}, 0, 8, WaitEnable,
		},
		"off for a moment": {
			Collector{Thresholds: usual, Counts: [3]int{700, 11, 2}}, 0, 8, "",
		},
		"threshold 0": {
			Collector{IsEnabled: true, Thresholds: [3]int{0, 10, 10}, Counts: [3]int{9000, 0, 0}},
			0, 8,
			WaitThreshold0,
		},
		"frozen": {Collector{Thresholds: usual, Counts: [3]int{9000, 0, 0}}, 4, 8, WaitUnfreeze},
		"a few are frozen": {
			Collector{Thresholds: usual, Counts: [3]int{9000, 0, 0}}, 3, 8, WaitEnable,
		},
		"incremental": {
			Collector{IsEnabled: true, IsIncremental: true, Thresholds: [3]int{2000, 10, 0}},
			0, 8,
			WaitUpgrade,
		},
		"a quarter is not new": {
			Collector{
				IsEnabled: true, Thresholds: usual, Counts: [3]int{90, 4, 11}, LongLived: 4004, Pending: 1000,
			}, 0, 8, WaitQuarter,
		},
		"a quarter is new": {
			Collector{
				IsEnabled: true, Thresholds: usual, Counts: [3]int{90, 4, 11}, LongLived: 4000, Pending: 1000,
			}, 0, 8, "",
		},
		"raised": {
			Collector{IsEnabled: true, Thresholds: [3]int{100000, 10, 10}}, 0, 8, WaitThresholds,
		},
		"raised for the oldest": {
			Collector{IsEnabled: true, Thresholds: [3]int{700, 10, 1000}}, 0, 8, WaitThresholds,
		},
	} {
		got := c.collector.Waits(c.frozen, c.garbage)
		if got.For != c.want || (got.Pending > 0) != (got.For == WaitQuarter) ||
			(len(got.Thresholds) > 0) != (got.For == WaitThresholds) {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}
