package growth

import (
	"math"
	"testing"
	"time"
)

const (
	judgedPID  = 7
	otherPID   = 8
	grownLevel = 1 << 30 // bytes at the first sample
)

// mebibytes are growth of 1 MiB a second, which the series alone calls growing until it has been watched for long.
func mebibytes(second float64) float64 { return second * mib }

// still is a process that does not grow.
func still(float64) float64 { return 0 }

// warming grows ten times as fast for 100 s, and steadily from then on.
func warming(second float64) float64 { return mebibytes(second) + 10*mebibytes(min(second, 100)) }

// pausing holds still for 20 s after 100.
func pausing(second float64) float64 { return mebibytes(second - min(20, max(0, second-100))) }

// watched is a process of an age that holds so much more than grownLevel in each second of a trace, all of it by one stack.
func watched(age time.Duration, seconds int, held func(second float64) float64) Case {
	track := &Track{Member: Member{Process: Process{PID: judgedPID, Born: -age}, Traced: true}, Last: time.Duration(seconds) * time.Second}
	for s := range seconds + 1 {
		rss := int64(grownLevel + held(float64(s)))
		track.Timeline = append(track.Timeline, Sample{Elapsed: time.Duration(s) * time.Second, RSS: rss, Steps: 3 * int64(s)})
	}
	c := Case{Track: track, Room: Unknown, Criteria: InSeconds()}
	for s := 0; s <= seconds; s += 5 {
		at := &Snapshot{Elapsed: time.Duration(s) * time.Second, Alive: []int{judgedPID}}
		at.Holdings = []Holding{{Stack: &Stack{ID: 1, PID: judgedPID}, Kind: KindMmap, InuseBytes: int64(held(float64(s)))}}
		c.Snapshots = append(c.Snapshots, at)
	}
	return c
}

// explaining leaves the stack a share of what it holds.
func (c Case) explaining(share float64) Case {
	for _, s := range c.Snapshots {
		s.Holdings[0].InuseBytes = int64(share * float64(s.Holdings[0].InuseBytes))
	}
	return c
}

func TestALeakIsSuspectedOnlyPastTheWarmUpAfterFiveMinutesAndWithStacksThatExplainHalf(t *testing.T) {
	withoutSnapshots := watched(2*time.Hour, 300, mebibytes)
	withoutSnapshots.Snapshots = nil
	late := watched(2*time.Hour, 300, mebibytes)
	for _, s := range late.Snapshots[:len(late.Snapshots)-5] {
		s.Holdings[0].InuseBytes = 0
	}
	tolerated := watched(2*time.Hour, 300, mebibytes)
	tolerated.Tolerable = 2 * mib
	for name, c := range map[string]struct {
		Case
		want Class
	}{
		"an old process":                     {watched(2*time.Hour, 300, mebibytes), ClassSuspected},
		"the last second is not there yet":   {watched(2*time.Hour, 298, mebibytes), ClassSuspected},
		"too short a watch":                  {watched(2*time.Hour, 290, mebibytes), ClassGrowing},
		"no longer young":                    {watched(time.Hour, 300, mebibytes), ClassSuspected},
		"young":                              {watched(time.Hour-time.Second, 300, mebibytes), ClassGrowing},
		"young, and its warm-up is seen":     {watched(0, 400, warming), ClassSuspected},
		"hardly past its warm-up":            {watched(0, 180, warming), ClassGrowing},
		"young, and paused for a while":      {watched(0, 440, pausing), ClassGrowing},
		"old, and paused for a while":        {watched(2*time.Hour, 440, pausing), ClassSuspected},
		"stacks explain more than half":      {watched(2*time.Hour, 300, mebibytes).explaining(0.51), ClassSuspected},
		"stacks explain less than half":      {watched(2*time.Hour, 300, mebibytes).explaining(0.49), ClassGrowing},
		"stacks explain nothing":             {withoutSnapshots, ClassGrowing},
		"what is alive is young":             {late, ClassGrowing},
		"no growth":                          {watched(2*time.Hour, 300, still), ClassPlateau},
		"growth that the user tolerates":     {tolerated, ClassPlateau},
		"watched for as long as a leak asks": {watched(2*time.Hour, 700, mebibytes), ClassLeak},
	} {
		if got := JudgeProcess(c.Case); got.Class != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got.Class, got.Why, c.want)
		}
	}
}

// What a process held at its end stays in the snapshots after it, and is no growth of those that live on.
func TestAProcessIsNotJudgedByWhatAnotherHeldAtItsEnd(t *testing.T) {
	c := watched(2*time.Hour, 300, mebibytes)
	for _, s := range c.Snapshots {
		s.Holdings = append(s.Holdings, Holding{Stack: &Stack{ID: 2, PID: judgedPID + 1}, Kind: KindMmap, InuseBytes: 1 << 30})
		if s.Elapsed < 150*time.Second {
			s.Alive = append(s.Alive, judgedPID+1)
		}
	}
	for _, trend := range JudgeProcess(c).Trends {
		if trend.Stack.PID != judgedPID {
			t.Errorf("judged by %+v", trend)
		}
	}
}

func TestStacksAreJudgedFromTheEndOfTheWarmUpAndNeverFromTheFirstTenth(t *testing.T) {
	late := watched(2*time.Hour, 300, mebibytes)
	late.Track.From = 100 * time.Second
	said, tooLate := watched(0, 400, warming), watched(0, 400, warming)
	said.Warmup, tooLate.Warmup = 30*time.Second, 400*time.Second
	for name, c := range map[string]struct {
		Case
		from, tolerance time.Duration
	}{
		"no warm-up is seen":         {watched(2*time.Hour, 300, mebibytes), 30 * time.Second, 0},
		"traced from a third on":     {late, 120 * time.Second, 0},
		"a warm-up is seen":          {watched(0, 400, warming), 100 * time.Second, 20 * time.Second},
		"the user says when it ends": {said, 30 * time.Second, 0},
		"it ends with the trace":     {tooLate, 100 * time.Second, 20 * time.Second},
	} {
		got := JudgeProcess(c.Case)
		if off := (got.Window.From - c.from).Abs(); off > c.tolerance {
			t.Errorf("%s: judged from %s, want %s within %s", name, got.Window.From, c.from, c.tolerance)
		}
		if want := c.Snapshots[len(c.Snapshots)-1].Elapsed; got.Window.To != want {
			t.Errorf("%s: judged until %s, want the last snapshot at %s", name, got.Window.To, want)
		}
		if math.Abs(got.StepsPerSecond-3) > 1e-9 {
			t.Errorf("%s: %v steps a second, want 3", name, got.StepsPerSecond)
		}
	}
}

// A process of ten minutes grows: where its warm-up is said to have ended in time, that is a leak.
func TestTheEndOfTheWarmUpThatTheUserNamesStandsForTheMarkOfAnEpoch(t *testing.T) {
	for _, c := range []struct {
		warmup time.Duration
		mark   time.Duration
		want   Class
	}{
		{0, 0, ClassGrowing},
		{90 * time.Second, 0, ClassLeak},
		{0, 90 * time.Second, ClassLeak},
		{90 * time.Second, 500 * time.Second, ClassLeak},
		{500 * time.Second, 90 * time.Second, ClassSuspected},
		{0, 500 * time.Second, ClassSuspected},
		{0, 680 * time.Second, ClassGrowing},
	} {
		process := watched(0, 700, mebibytes)
		process.Warmup = c.warmup
		if c.mark != 0 {
			process.Marks = []Mark{{At: c.mark, Text: "epoch 1"}}
		}
		if got := JudgeProcess(process); got.Class != c.want {
			t.Errorf("warm-up of %s, epoch at %s: %s (%s), want %s", c.warmup, c.mark, got.Class, got.Why, c.want)
		}
	}
}

// A regime that is not as long as three epochs may be a part of their cycle.
func TestALeakMustOutlastThreeEpochs(t *testing.T) {
	for period, want := range map[time.Duration]Class{60 * time.Second: ClassLeak, 300 * time.Second: ClassSuspected} {
		c := watched(2*time.Hour, 900, mebibytes)
		for at := time.Second; at < 900*time.Second; at += period {
			c.Marks = append(c.Marks, Mark{At: at, Text: "epoch"})
		}
		if got := JudgeProcess(c); got.Class != want {
			t.Errorf("epochs of %s: %s (%s), want %s", period, got.Class, got.Why, want)
		}
	}
}

// other adds a process that grows faster, by its own stack with the same ID.
func (c Case) other() Case {
	for i, s := range c.Snapshots {
		s.Alive = append(s.Alive, otherPID)
		s.Holdings = append(s.Holdings, Holding{Stack: &Stack{ID: 1, PID: otherPID}, Kind: KindMmap, InuseBytes: int64(i) * 100 * mib})
	}
	return c
}

func TestWhatOtherProcessesHoldIsNotBlamed(t *testing.T) {
	c := watched(2*time.Hour, 300, mebibytes).explaining(0.1).other()
	got := JudgeProcess(c)
	if got.Class != ClassGrowing || len(got.Trends) != 1 || got.Trends[0].Stack.PID != judgedPID {
		t.Errorf("%s, trends %+v; want growing, and the stack of %d alone", got.Class, got.Trends, judgedPID)
	}
	if len(c.Snapshots[0].Holdings) != 2 {
		t.Error("the trace's own snapshots were changed")
	}
}

// What the PID held before its process executed another program is another life's, however near that snapshot is.
func TestTheHoldingsOfAnEarlierLifeAreLeftOut(t *testing.T) {
	c := watched(2*time.Hour, 300, mebibytes)
	c.Track.From = 105 * time.Second
	var rare []*Snapshot
	for i := 0; i < len(c.Snapshots); i += 10 {
		rare = append(rare, c.Snapshots[i])
	}
	rare[2].Holdings[0].InuseBytes = 1000 * mib // at 100 s, and the window begins at 124.5 s
	c.Snapshots = rare
	got := JudgeProcess(c)
	if len(got.Trends) != 1 || got.Trends[0].Trend != TrendAccumulating || got.Trends[0].Growth != 150*mib {
		t.Errorf("trends %+v, want what has accumulated since 150 s", got.Trends)
	}
}

func TestTheWindowEndsWithTheLifeOfTheProcess(t *testing.T) {
	c := watched(2*time.Hour, 300, mebibytes).other()
	for _, s := range c.Snapshots {
		if s.Elapsed > 200*time.Second {
			s.Alive = []int{otherPID}
		}
	}
	if got := JudgeProcess(c); got.Window.To != 200*time.Second || len(got.Trends) != 1 {
		t.Errorf("window %+v with trends %+v, want it to end at 200 s", got.Window, got.Trends)
	}
}

func TestTheRoomThatIsLeftIsTheLimit(t *testing.T) {
	c := watched(2*time.Hour, 700, mebibytes)
	c.Room = 600 * mib
	if got := JudgeProcess(c); math.Abs(got.ToLimit-600) > 6 || got.ToLimitLow > got.ToLimit || got.ToLimitHigh < got.ToLimit {
		t.Errorf("full in %v s (%v to %v), want 600", got.ToLimit, got.ToLimitLow, got.ToLimitHigh)
	}
	c.Room = 0
	if got := JudgeProcess(c); got.ToLimit > 1 {
		t.Errorf("full in %v s, want at once", got.ToLimit)
	}
	c.Room = Unknown
	if got := JudgeProcess(c); !math.IsNaN(got.ToLimit) {
		t.Errorf("full in %v s, want that nobody knows", got.ToLimit)
	}
}

func TestAProcessOfWhichNothingIsKnownIsNotJudged(t *testing.T) {
	gaps := watched(2*time.Hour, 300, mebibytes)
	for i := range gaps.Track.Timeline {
		gaps.Track.Timeline[i] = UnknownSample()
	}
	gaps.Room = mib
	paused := watched(2*time.Hour, 300, still)
	for i := range paused.Track.Timeline {
		paused.Track.Timeline[i].Steps = 100
	}
	if got := JudgeProcess(paused); !math.IsNaN(got.StepsPerSecond) {
		t.Errorf("%v steps a second of a process that makes none", got.StepsPerSecond)
	}
	unseen := watched(2*time.Hour, 300, mebibytes)
	unseen.Snapshots[0].Alive = nil
	unseen.Snapshots = unseen.Snapshots[:1]
	for name, c := range map[string]Case{
		"no samples":       {Track: &Track{}, Room: 1, Criteria: InSeconds()},
		"one sample":       {Track: &Track{Timeline: Timeline{{RSS: 5, Steps: Unknown}}}, Criteria: InSeconds()},
		"nothing but gaps": gaps,
	} {
		got := JudgeProcess(c)
		if got.Class != ClassTooShort || !math.IsNaN(got.Rate) || !math.IsNaN(got.ToLimit) || !math.IsNaN(got.StepsPerSecond) {
			t.Errorf("%s: %+v, want that it is too short to tell", name, got)
		}
	}
	if got := JudgeProcess(unseen); got.Window != (Window{}) || got.Trends != nil || got.Class != ClassGrowing {
		t.Errorf("alive in no snapshot: %s in %+v with %+v, want no stacks", got.Class, got.Window, got.Trends)
	}
}

// faster is the case of a process that lives so many times as fast.
func (c Case) faster(factor float64) Case {
	quick := func(d *time.Duration) { *d = time.Duration(float64(*d) / factor) }
	for i := range c.Track.Timeline {
		quick(&c.Track.Timeline[i].Elapsed)
	}
	for _, s := range c.Snapshots {
		quick(&s.Elapsed)
	}
	quick(&c.Track.Born)
	quick(&c.Track.Last)
	c.Criteria = c.Criteria.Faster(factor)
	return c
}

func TestALifeThatIsFasterIsJudgedLikeAnother(t *testing.T) {
	for _, factor := range []float64{0.5, 60, 600} {
		for name, build := range map[string]func() Case{
			"leak":                    func() Case { return watched(2*time.Hour, 700, mebibytes) },
			"no warm-up is ever seen": func() Case { return watched(0, 1900, mebibytes) },
			"too slow to be a fill":   func() Case { return watched(0, 1250, func(s float64) float64 { return warming(s) / 10 }) },
			"suspected":               func() Case { return watched(0, 400, warming) },
			"growing":                 func() Case { return watched(0, 300, mebibytes) },
			"plateau":                 func() Case { return watched(0, 300, still) },
			"too short":               func() Case { return watched(0, 60, still) },
		} {
			want, got := JudgeProcess(build()), JudgeProcess(build().faster(factor))
			if got.Class != want.Class || !closeTo(got.Rate, want.Rate*factor) || !closeTo(got.Longer, want.Longer/factor) {
				t.Errorf("%s at %v times the pace: %s, %v bytes/s, %v s longer; want %s, %v, %v", name, factor, got.Class, got.Rate, got.Longer,
					want.Class, want.Rate*factor, want.Longer/factor)
			}
		}
	}
}

// closeTo allows for times that are whole nanoseconds, by which a sample may come into another block.
func closeTo(got, want float64) bool { return math.Abs(got-want) <= 0.01*math.Abs(want) }

// Half an hour of growth is enough for one look at a young process, and an hour for looks again and again.
func TestLooksAgainAndAgainAskForMore(t *testing.T) {
	for _, c := range []struct {
		seconds        int
		once, repeated Class
	}{
		{1700, ClassGrowing, ClassGrowing},
		{1900, ClassLeak, ClassGrowing},
		{3500, ClassLeak, ClassGrowing},
		{3700, ClassLeak, ClassLeak},
	} {
		once, repeated := watched(0, c.seconds, mebibytes), watched(0, c.seconds, mebibytes)
		repeated.Criteria = repeated.Criteria.Repeated()
		if a, b := JudgeProcess(once).Class, JudgeProcess(repeated).Class; a != c.once || b != c.repeated {
			t.Errorf("%d s: once %s, repeated %s; want %s and %s", c.seconds, a, b, c.once, c.repeated)
		}
	}
}
