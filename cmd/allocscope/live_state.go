package main

import (
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/live"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// mostMarksShown are handed to the screen.
const mostMarksShown = 20

// state is where the trace stands, in a copy.
func (d *liveDisplay) state(sample growth.Sample, events tracer.Events, losses []tracer.Loss, overhead *summary.Overhead) *live.State {
	d.looks.glance()
	d.looks.compare()
	r, p := d.r, d.looks
	track := r.history.Main()
	about := r.processOf(track)
	s := &live.State{
		Command: about.Command, PID: about.PID, Processes: int(r.history.Rows[len(r.history.Rows)-1].Tree.Processes),
		Traced: r.tracedNow(), Elapsed: sample.Elapsed, Duration: time.Duration(r.flags.duration), RSS: growth.Unknown,
		Verdict: p.verdict, JudgedAt: p.at, Blame: p.blame,
		Since: p.seen.since, Warm: p.seen.warm, Stacks: p.seen.stacks, Book: p.seen.book, Resident: p.seen.resident,
		Steps: -1, Events: d.pace.at(sample.Elapsed, events), MarkCount: len(r.history.Marks), Overhead: overhead,
	}
	if track != nil && len(track.Timeline) > 0 {
		s.RSS = track.Timeline[len(track.Timeline)-1].RSS
		s.Steps = recentSteps(track.Timeline)
		d.follow(track)
		s.Device = d.device(track)
	}
	s.Trail = d.trail
	s.Room, s.Limit = r.history.Rows[len(r.history.Rows)-1].Around.Room()
	s.CPU, s.OwnRSS = d.cost.now()
	s.Drops, s.DropReason = drops(losses)
	for _, m := range r.history.Marks[max(0, len(r.history.Marks)-mostMarksShown):] {
		s.Marks = append(s.Marks, summary.Mark{AtS: summary.Seconds(m.At), Text: m.Text})
	}
	return s
}

// follow adds the newest size of a process to the trail, which begins anew where the trace turns to another one.
func (d *liveDisplay) follow(track *growth.Track) {
	if d.track != track {
		d.track, d.trail = track, live.Trail{}
		for _, s := range track.Timeline[:len(track.Timeline)-1] {
			d.add(s)
		}
	}
	d.add(track.Timeline[len(track.Timeline)-1])
}

func (d *liveDisplay) add(s growth.Sample) {
	if s.RSS != growth.Unknown {
		d.trail = d.trail.With(s.Elapsed, s.RSS)
	}
}

// tracedNow is how many processes are traced and alive.
func (r *recorder) tracedNow() int {
	n, now := 0, r.history.Rows[len(r.history.Rows)-1].Elapsed
	for _, t := range r.history.Tracks {
		if t.Traced && t.Last == now {
			n++
		}
	}
	return n
}

// recentSteps are the training steps a second over the last minute; negative where none were seen.
func recentSteps(timeline growth.Timeline) float64 {
	last := timeline[len(timeline)-1]
	for i := max(0, len(timeline)-60); i < len(timeline)-1; i++ {
		first := timeline[i]
		if first.Steps != growth.Unknown && last.Steps > 0 && last.Elapsed > first.Elapsed {
			return float64(last.Steps-first.Steps) / (last.Elapsed - first.Elapsed).Seconds()
		}
	}
	return -1
}

// ownCost is what allocscope takes itself.
type ownCost struct {
	at  time.Time
	cpu time.Duration
}

// now is its CPU time since the last call as a share of one core, and its RSS in bytes.
func (c *ownCost) now() (share float64, rss int64) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0, 0
	}
	before := *c
	*c = ownCost{time.Now(), time.Duration(used.Utime.Nano() + used.Stime.Nano())}
	if !before.at.IsZero() {
		share = (c.cpu - before.cpu).Seconds() / c.at.Sub(before.at).Seconds()
	}
	if math.IsInf(share, 0) || math.IsNaN(share) {
		share = 0
	}
	return share, ownRSS()
}

func ownRSS() int64 {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
