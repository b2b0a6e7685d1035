package spike

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A job leaks 1 MB a second, and is in a spike for so many seconds of each period.
type validated struct{ spike, period, phase, height, seconds int }

func (v validated) inSpike(second int) bool { return (second+v.phase)%v.period < v.spike }

func (v validated) timeline() (t growth.Timeline) {
	for s := range v.seconds + 1 {
		rss := int64(240e6 + 1e6*s)
		if v.inSpike(s) {
			rss += int64(v.height) << 20
		}
		t = append(t, growth.Sample{Elapsed: time.Duration(s) * time.Second, RSS: rss})
	}
	return t
}

// snapshots are two seconds apart, half a second after a sample.
func (v validated) snapshots() (all []*growth.Snapshot) {
	for at := 500 * time.Millisecond; at < time.Duration(v.seconds)*time.Second; at += 2 * time.Second {
		all = append(all, &growth.Snapshot{Elapsed: at})
	}
	return all
}

// TestOutside cuts traces out of a job at each second of its period: no snapshot that is compared
// lies in a spike, and the first and the last ones are near the ends of the trace.
func TestOutside(t *testing.T) {
	for _, job := range []validated{
		{spike: 20, period: 50, height: 300},
		{spike: 12, period: 30, height: 150},
		{spike: 5, period: 40, height: 1000},
		{spike: 30, period: 80, height: 200},
	} {
		for _, seconds := range []int{120, 200, 300} {
			for phase := range job.period {
				job.seconds, job.phase = seconds, phase
				all := job.snapshots()
				calm, ok := Outside(all, job.timeline())
				if !ok || len(calm) < len(all)/3 {
					t.Errorf("%+v: %d of %d snapshots lie outside", job, len(calm), len(all))
				}
				for _, s := range calm {
					if second := int(s.Elapsed / time.Second); job.inSpike(second) {
						t.Errorf("%+v: the snapshot at %s lies in a spike", job, s.Elapsed)
					}
				}

				first, last := calm[0].Elapsed, calm[len(calm)-1].Elapsed
				longest := time.Duration(job.spike+5) * time.Second
				if first > longest || last < all[len(all)-1].Elapsed-longest {
					t.Errorf("%+v: compared from %s to %s", job, first, last)
				}
			}
		}
	}
}

// Nothing is left out of growth that does not fall back.
func TestOutsideOfGrowth(t *testing.T) {
	for name, rss := range map[string]func(second int) int64{
		"steady":        func(s int) int64 { return 240e6 + 2e6*int64(s) },
		"a step":        func(s int) int64 { return 240e6 + 400e6*int64(s/90) },
		"stairs":        func(s int) int64 { return 240e6 + 60e6*int64(s/25) },
		"a late step":   func(s int) int64 { return 240e6 + 400e6*int64(s/170) },
		"an early step": func(s int) int64 { return 240e6 + 400e6*int64(min(1, s/10)) },
	} {
		job := validated{seconds: 180}
		timeline := growth.Timeline{}
		for s := range job.seconds + 1 {
			at := time.Duration(s) * time.Second
			timeline = append(timeline, growth.Sample{Elapsed: at, RSS: rss(s)})
		}

		all := job.snapshots()
		if calm, ok := Outside(all, timeline); !ok || len(calm) != len(all) {
			t.Errorf("%s: %d of %d snapshots", name, len(calm), len(all))
		}
		if calm := Without(timeline); len(calm) != len(timeline) {
			t.Errorf("%s: %d of %d samples", name, len(calm), len(timeline))
		}
	}
}

// Where all snapshots lie in spikes, the lowest of each half are compared, and that is known.
func TestOutsideNone(t *testing.T) {
	job := validated{spike: 20, period: 50, height: 300, seconds: 150, phase: 20}
	at := func(second int) *growth.Snapshot {
		return &growth.Snapshot{Elapsed: time.Duration(second) * time.Second}
	}
	all := []*growth.Snapshot{at(40), at(45), at(88), at(95), at(140)}
	calm, ok := Outside(all, job.timeline())
	if ok || len(calm) != 2 || calm[0] != all[0] || calm[1] != all[3] {
		t.Errorf("%v of %d snapshots", ok, len(calm))
	}

	timeline := job.timeline()
	for i := range timeline {
		timeline[i].RSS = growth.Unknown
	}
	if calm, ok := Outside(all, timeline); !ok || len(calm) != len(all) {
		t.Error("without an RSS there are spikes")
	}
}
