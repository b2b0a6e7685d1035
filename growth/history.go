package growth

import (
	"slices"
	"time"
)

// A Track is the life of one process in a trace.
type Track struct {
	Member
	// Timeline of a process that is no worker. Of workers there is their Group alone: they come and go in numbers.
	Timeline Timeline
	// First and Last moment at which it was seen.
	First, Last time.Duration
	// End is when its PID was found to run another program; 0: it was not.
	End time.Duration

	pss, private int64 // latest reading
	peak         int64 // of the resident memory
}

// A History is what has been seen of a process tree. The zero value is empty.
type History struct {
	// Tracks of all processes, in the order in which they appeared.
	Tracks []*Track
	// Rows, one a moment.
	Rows  []Row
	Marks []Mark
	// GPUs as they were seen last, in the order in which they appeared.
	GPUs []GPUSample

	alive  map[int]*Track // by PID, in the last moment
	groups map[Role]*Group
}

// Add adds a moment, which is later than those before, and gives its row.
func (h *History) Add(m Moment) Row {
	alive := make(map[int]*Track, len(m.Members))
	row := Row{Tree: Tree{Processes: int64(len(m.Members))}, Around: m.Around, Price: m.Price}
	var traced []Sample
	for i, member := range m.Members {
		t := h.track(member, m.Elapsed)
		alive[member.PID] = t
		t.add(m.Processes[i].Sample)
		if member.Traced {
			traced = append(traced, m.Processes[i].Sample)
		}
		row.Tree.RSS = sumKnown(row.Tree.RSS, m.Processes[i].RSS)
		row.Tree.PSS = sumKnown(row.Tree.PSS, t.pss)
		row.Tree.Private = sumKnown(row.Tree.Private, t.private)
	}
	row.Sample = sumSamples(traced)
	row.Elapsed = m.Elapsed
	h.alive = alive
	h.Rows = append(h.Rows, row)
	h.prune(m.Elapsed)
	h.addGroups(m)
	h.addGPUs(m.GPUs)
	return row
}

// mostGPUs bounds how many GPUs and instances are remembered: a machine of sixteen has 112 instances at most.
const mostGPUs = 256

// addGPUs remembers the state of GPUs.
func (h *History) addGPUs(gpus []GPUSample) {
	for _, g := range gpus {
		i := slices.IndexFunc(h.GPUs, func(known GPUSample) bool { return known.Index == g.Index && known.Instance == g.Instance })
		switch {
		case i >= 0:
			h.GPUs[i] = g
		case len(h.GPUs) < mostGPUs:
			h.GPUs = append(h.GPUs, g)
		}
	}
}

// mostTracks bounds the tracks: a script may run any number of short commands.
const mostTracks = 64

// prune forgets processes that have gone: first those that were not traced, then the smallest.
func (h *History) prune(now time.Duration) {
	for len(h.Tracks) > mostTracks {
		least := -1
		for i, t := range h.Tracks {
			if t.Last < now && (least < 0 || t.isLessThan(h.Tracks[least])) {
				least = i
			}
		}
		if least < 0 {
			return // all live
		}
		h.Tracks = slices.Delete(h.Tracks, least, least+1)
	}
}

// isLessThan tells which of two processes is of less interest.
func (t *Track) isLessThan(other *Track) bool {
	if t.Traced != other.Traced {
		return !t.Traced
	}
	return t.peak < other.peak
}

// track gives the track of a member; one whose PID lives on in another program begins anew.
func (h *History) track(member Member, now time.Duration) *Track {
	t, ok := h.alive[member.PID]
	if !ok || t.Born != member.Born {
		if ok {
			t.End = now
		}
		t = &Track{First: now, pss: Unknown, private: Unknown}
		h.Tracks = append(h.Tracks, t)
	}
	if t.Traced && !member.Traced { // it has just ended; what was traced counts
		member.Traced, member.From = true, t.From
	}
	t.Member, t.Last = member, now
	return t
}

func (t *Track) add(s Sample) {
	t.peak = max(t.peak, s.RSS)
	if s.PSS != Unknown {
		t.pss, t.private = s.PSS, s.Private
	}
	if !t.Role.IsWorker() || t.Traced {
		t.Timeline = append(t.Timeline, s)
	}
}

// IsIn tells whether a snapshot has what the process held while it was traced.
func (t *Track) IsIn(s *Snapshot) bool {
	return s.Elapsed >= t.From && (t.End == 0 || s.Elapsed < t.End) && slices.Contains(s.Alive, t.PID)
}

// IsGlimpse tells a process that was seen in one moment and had gone in the next, like the copy of one that is about to
// execute a program.
func (h *History) IsGlimpse(t *Track) bool {
	return t.First == t.Last && t.Last < h.Rows[len(h.Rows)-1].Elapsed
}

// IsWorker tells the roles of processes that come in numbers and serve another.
func (r Role) IsWorker() bool {
	return r == RoleCompileWorker || r == RoleLoaderWorker || r == RoleOther
}

// Main is the traced process that the trace is about: of the large ones the last to be alive, and of several the one that
// grew most. Large is what holds a quarter of what the largest did, at its peak: what a script runs after its trainer is
// not. nil: none was traced.
func (h *History) Main() *Track {
	traced := h.Traced()
	var largest int64
	for _, t := range traced {
		largest = max(largest, t.peak)
	}
	var main *Track
	for _, t := range traced {
		if t.peak < largest/4 {
			continue
		}
		if main == nil || t.Last > main.Last || t.Last == main.Last && t.grown() > main.grown() {
			main = t
		}
	}
	return main
}

// Traced are the tracks of processes with all sources.
func (h *History) Traced() []*Track {
	return slices.DeleteFunc(slices.Clone(h.Tracks), func(t *Track) bool { return !t.Traced })
}

func (t *Track) grown() int64 {
	if len(t.Timeline) == 0 {
		return 0
	}
	return t.Timeline.RSSAt(t.Last) - t.Timeline.RSSAt(0)
}

// Series is the resident memory over time. Gaps are left out.
func (t Timeline) Series() Series {
	var s Series
	for _, sample := range t {
		if sample.RSS != Unknown {
			s.X = append(s.X, sample.Elapsed.Seconds())
			s.Y = append(s.Y, float64(sample.RSS))
		}
	}
	return s
}
