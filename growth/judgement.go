package growth

import (
	"math"
	"time"
)

// A Case is a traced process and what it is judged by.
type Case struct {
	Track *Track
	// Room is how much more the process can take until it meets a limit, in bytes; Unknown where none is known.
	Room int64
	// DeviceRoom is the same of device memory: what the GPU that has least has left. Nothing but JudgeDevice asks for it.
	DeviceRoom int64
	Marks      []Mark
	// Snapshots of the trace, in order.
	Snapshots []*Snapshot
	// Warmup is when the user says that the warm-up ends, since the start of the trace; 0: that is to be found.
	Warmup time.Duration
	// Tolerable is growth in bytes per second that the user calls harmless; 0: none is.
	Tolerable float64
	Criteria  Criteria
	// Owners tell whose memory a stack holds; nil: by the built-in rules.
	Owners *Owners
}

// A Judgement is what the case says. X of its Verdict is seconds since the start of the trace.
type Judgement struct {
	Verdict
	// Window over which the stacks were judged: from the end of the warm-up to the last snapshot of the process's life.
	Window   Window
	Trends   []StackTrend
	Culprits []Culprit
	// StepsPerSecond in the window; NaN where no steps were seen.
	StepsPerSecond float64
}

// JudgeProcess judges a process: its resident memory, and the stacks that hold what it gained.
func JudgeProcess(c Case) Judgement {
	j := Judgement{Verdict: Judge(c.Track.Timeline.Series(), c.setting(), c.Criteria)}
	snapshots := c.snapshots()
	j.Window = c.window(j.Verdict, snapshots)
	j.Trends = JudgeStacks(snapshots, j.Window, j.Rate)
	j.Culprits = Culprits(j.Trends, c.Owners)
	j.StepsPerSecond = stepsPerSecond(c.Track.Timeline, j.Window)
	if c.isSuspect(j.Verdict, j.Trends, func(x float64) int64 { return c.Track.Timeline.RSSAt(time.Duration(x * float64(time.Second))) }) {
		j.Class, j.Why = ClassSuspected, "steady growth, and what accumulates explains it"
	}
	return j
}

// setting is what is known besides the process's series.
func (c Case) setting() Setting {
	s := Setting{Age: c.age(), Tolerable: c.Tolerable}
	if n := len(c.Track.Timeline); n > 0 && c.Room != Unknown {
		if rss := c.Track.Timeline.RSSAt(c.Track.Last); rss != Unknown {
			s.Limit = float64(rss + c.Room)
		}
	}
	end, cycle := EpochsOf(c.Marks)
	if c.Warmup != 0 {
		end = &c.Warmup
	}
	if end != nil {
		seconds := end.Seconds()
		s.EpochEnd = &seconds
	}
	s.Cycle = cycle.Seconds()
	start := math.Inf(-1) // one process: nothing that looks like a restart is one
	s.Start = &start
	return s
}

// age of the process at its first sample, in seconds.
func (c Case) age() float64 {
	if len(c.Track.Timeline) == 0 {
		return 0
	}
	return max(0, (c.Track.Timeline[0].Elapsed - c.Track.Born).Seconds())
}

// snapshots are those of the process, with its holdings alone.
func (c Case) snapshots() []*Snapshot {
	var own []*Snapshot
	for _, s := range c.Snapshots {
		if c.Track.IsIn(s) {
			own = append(own, s.Of(c.Track.PID))
		}
	}
	return own
}

// unsettled is the share of a trace in which what replaces memory older than the attach looks new.
const unsettled = 0.1

// window begins where the last regime does, and leaves out the first moments in any case, and those before all growth comes from
// windows.
func (c Case) window(v Verdict, snapshots []*Snapshot) Window {
	if len(snapshots) == 0 {
		return Window{}
	}
	w := Window{From: c.Track.From, To: snapshots[len(snapshots)-1].Elapsed}
	w.From += time.Duration(unsettled * float64(w.To-w.From))
	for _, from := range []float64{v.Start, v.From} {
		if at := time.Duration(from * float64(time.Second)); !math.IsNaN(from) && at > w.From && at < w.To {
			w.From = at
		}
	}
	if c.Warmup != 0 && c.Warmup < w.To {
		w.From = c.Warmup
	}
	if settled := snapshots[len(snapshots)-1].Watch.settled(); settled < w.To {
		w.From = max(w.From, settled)
	}
	return w
}

// isSuspect: what grows is past its warm-up, has been watched for a while, and most of its growth is held by stacks that
// accumulate. at gives what was judged at a moment, in bytes.
func (c Case) isSuspect(v Verdict, trends []StackTrend, at func(x float64) int64) bool {
	const nearly = 0.99 // a trace of five minutes has samples for a little less
	watched := (c.Track.Last - c.Track.First).Seconds()
	if v.Class != ClassGrowing || v.Length < c.Criteria.MinFlat || watched < nearly*c.Criteria.MinTail/2 {
		return false
	}
	if !c.isWarm(v, at) {
		return false
	}
	explained := 0.0
	for _, t := range trends {
		if t.Trend == TrendAccumulating {
			explained += t.Share
		}
	}
	return explained >= 0.5
}

// isWarm tells whether the process is old, or its warm-up has been seen to end: an epoch is over, or what was gained until the
// last regime came faster, by a quarter at least. A pause in growth that goes on as before ends nothing.
func (c Case) isWarm(v Verdict, at func(x float64) int64) bool {
	if c.age() >= c.Criteria.Old {
		return true
	}
	if math.IsNaN(v.From) {
		return false
	}
	if c.setting().EpochEnd != nil {
		return true
	}
	return float64(at(v.From)-at(v.Start)) >= 1.25*v.Rate*(v.From-v.Start)
}

// stepsPerSecond is the pace of the steps in a window.
func stepsPerSecond(timeline Timeline, w Window) float64 {
	first, last := Sample{Steps: Unknown}, Sample{Steps: Unknown}
	for _, s := range timeline {
		if s.Steps == Unknown || s.Elapsed < w.From || s.Elapsed > w.To {
			continue
		}
		if first.Steps == Unknown {
			first = s
		}
		last = s
	}
	if last.Steps <= first.Steps {
		return math.NaN()
	}
	return float64(last.Steps-first.Steps) / (last.Elapsed - first.Elapsed).Seconds()
}
