package fleet

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

const mib = 1 << 20

// watch adds a sample a second from an age on, and returns the last age.
func (h *history) watch(from, length time.Duration, size func(seconds float64) (anonymous, file float64)) time.Duration {
	for s := 0.0; s < length.Seconds(); s++ {
		anonymous, file := size(s)
		h.add(from.Seconds()+s, growth.Sample{
			RSS: int64(anonymous + file), Anonymous: int64(anonymous), File: int64(file), Shared: 0,
		})
	}

	return from + length
}

func flat(float64) (float64, float64) { return 4096 * mib, 100 * mib }

func TestHistory(t *testing.T) {
	criteria := verdict.InSeconds().Repeated()
	limit := growth.Headroom{Left: 1 << 30, Bytes: 16 << 30, Of: growth.LimitCgroup}

	t.Run("days are bounded", func(t *testing.T) {
		var h history
		end := h.watch(time.Hour, 10*24*time.Hour, flat)
		n := len(h.points)
		if n > maxSamples || n < maxSamples/4 {
			t.Errorf("%d samples", n)
		}
		if last := h.points[n-1].age; last != end.Seconds()-1 {
			t.Errorf("the last sample is at %v", last)
		}
		if span := h.points[n-1].age - h.points[0].age; span > (49*time.Hour).Seconds() || span < (47*time.Hour).Seconds() {
			t.Errorf("the samples span %v", time.Duration(span)*time.Second)
		}
		for i := 2; i < n; i++ {
			if h.points[i].age <= h.points[i-1].age {
				t.Fatalf("sample %d is not in order", i)
			}
		}
		if v := verdict.Decide(h.judge(limit, criteria)); v.Class != verdict.ClassPlateau {
			t.Errorf("it is %s (%s)", v.Class, v.Reason)
		}
	})

	t.Run("a leak that begins after days", func(t *testing.T) {
		var h history
		at := h.watch(time.Hour, 5*24*time.Hour, flat)
		h.watch(at, 4*time.Hour, func(s float64) (float64, float64) { return 4096*mib + s*mib/60, 100 * mib })
		v := verdict.Decide(h.judge(limit, criteria))
		if v.Class != verdict.ClassLeak || v.RateLow > mib/60 || v.RateHigh < mib/60 {
			t.Errorf("it is %s (%s): %v to %v bytes/s", v.Class, v.Reason, v.RateLow, v.RateHigh)
		}
		if want := float64(1<<30) / (mib / 60.); v.ToLimit < 0.9*want || v.ToLimit > 1.1*want {
			t.Errorf("the limit is met in %v s, want %v", v.ToLimit, want)
		}
	})

	t.Run("mapped files grow", func(t *testing.T) {
		var h history
		h.watch(2*time.Hour, 3*time.Hour, func(s float64) (float64, float64) { return 4096 * mib, s * mib })
		if v := verdict.Decide(h.judge(limit, criteria)); v.Class != verdict.ClassPlateau || v.Reason != verdict.ReasonPageCache {
			t.Errorf("it is %s (%s)", v.Class, v.Reason)
		}
	})

	t.Run("unknown sizes and times that go back", func(t *testing.T) {
		var h history
		h.add(5, growth.UnknownSample())
		h.add(6, growth.Sample{RSS: 5})
		h.add(6, growth.Sample{RSS: 7})
		h.add(4, growth.Sample{RSS: 9})
		h.add(6.0003, growth.Sample{RSS: 11}) // the state has milliseconds
		if len(h.points) != 1 || h.points[0].rss != 5 || h.began != 6 {
			t.Errorf("%+v", h)
		}
	})
}

// A process is judged at 90 s first, then ever more rarely, and every five minutes at last. A leak is
// suspected until three checks agree.
func TestJudged(t *testing.T) {
	w := &watchedProcess{}
	w.begin(0, verdict.InSeconds().Repeated(), 1)
	leak := verdict.Verdict{Class: verdict.ClassLeak, ToLimit: 1e6}

	var at []float64
	var classes []verdict.Class
	turns, wants := 0, 0
	for age := 0.0; age < 4*3600; age++ {
		w.history.add(age, growth.Sample{RSS: mib})
		if !w.isDue() {
			continue
		}
		at = append(at, age)
		if w.judge(leak, verdict.Findings{}, 1).isNewStatus {
			turns++
		}
		if w.wantsTrace {
			wants++
			w.wantsTrace = false
		}
		classes = append(classes, w.verdict.Class)
	}

	if at[0] != 90 || at[1] != 113 {
		t.Errorf("judged at %v", at[:2])
	}

	if gap := at[len(at)-1] - at[len(at)-2]; gap != 300 {
		t.Errorf("the last judgements are %v s apart", gap)
	}

	if classes[0] != verdict.ClassSuspected || classes[1] != verdict.ClassSuspected ||
		classes[2] != verdict.ClassLeak || classes[len(classes)-1] != verdict.ClassLeak {
		t.Errorf("the classes are %v", classes[:3])
	}

	if turns != 2 || wants != 1 { // suspected, and then confirmed
		t.Errorf("%d turns, %d traces wanted", turns, wants)
	}

	stable := w.judge(verdict.Verdict{Class: verdict.ClassPlateau}, verdict.Findings{}, 1)
	if !stable.isNewStatus || stable.before != verdict.ClassLeak || w.wantsTrace {
		t.Errorf("back: %+v", stable)
	}

	near := verdict.Verdict{Class: verdict.ClassGrowing, ToLimit: 1800}
	if first := w.judge(near, verdict.Findings{}, 1); first.isNearLimit || w.wantsTrace {
		t.Errorf("the first one: %+v", first)
	}

	if second := w.judge(near, verdict.Findings{}, 1); !second.isNearLimit || !w.wantsTrace {
		t.Errorf("the second one: %+v", second)
	}
}
