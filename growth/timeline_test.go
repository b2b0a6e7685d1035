package growth

import (
	"testing"
	"time"
)

func TestRSSAtAMomentIsThatOfTheLastSampleUpToIt(t *testing.T) {
	timeline := Timeline{{Elapsed: time.Second, RSS: 10}, {Elapsed: 2 * time.Second, RSS: 0}, {Elapsed: 4 * time.Second, RSS: 40}}
	for _, c := range []struct {
		at   time.Duration
		want int64
	}{
		{0, 10}, // there is none before: the first
		{time.Second, 10},
		{2*time.Second - 1, 10},
		{2 * time.Second, 0},
		{3 * time.Second, 0},
		{4 * time.Second, 40},
		{time.Hour, 40},
	} {
		if got := timeline.RSSAt(c.at); got != c.want {
			t.Errorf("RSSAt(%v) = %d, want %d", c.at, got, c.want)
		}
	}
}

func TestAnEmptyTimelineKnowsNoRSS(t *testing.T) {
	if got := Timeline(nil).RSSAt(time.Second); got != Unknown {
		t.Errorf("RSSAt = %d, want Unknown", got)
	}
	if got := (Timeline{{RSS: Unknown}}).RSSAt(time.Second); got != Unknown {
		t.Errorf("RSSAt = %d, want Unknown", got)
	}
}

// A process that exits has no memory in its last sample.
func TestAGapInTheTimelineIsPassedOver(t *testing.T) {
	timeline := Timeline{{Elapsed: 0, RSS: Unknown}, {Elapsed: 1, RSS: 10}, {Elapsed: 2, RSS: Unknown}, {Elapsed: 9, RSS: 90}, {Elapsed: 10, RSS: Unknown}}
	for at, want := range []int64{10, 10, 10, 10, 10, 10, 10, 10, 10, 90, 90, 90} {
		if got := timeline.RSSAt(time.Duration(at)); got != want {
			t.Errorf("RSSAt(%d) = %d, want %d", at, got, want)
		}
	}
}
