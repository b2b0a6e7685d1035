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

	pss, private int64 // latest reading
}

// A History is what has been seen of a process tree. The zero value is empty.
type History struct {
	// Tracks of all processes, in the order in which they appeared.
	Tracks []*Track
	// Rows, one a moment.
	Rows  []Row
	Marks []Mark

	alive  map[int]*Track // by PID, in the last moment
	groups map[Role]*Group
}

// Add adds a moment, which is later than those before, and gives its row.
func (h *History) Add(m Moment) Row {
	alive := make(map[int]*Track, len(m.Members))
	row := Row{Tree: Tree{Processes: int64(len(m.Members))}, Around: m.Around}
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
	h.addGroups(m)
	return row
}

// track gives the track of a member; one whose PID lives on in another program begins anew.
func (h *History) track(member Member, now time.Duration) *Track {
	t, ok := h.alive[member.PID]
	if !ok || t.Born != member.Born {
		t = &Track{First: now, pss: Unknown, private: Unknown}
		h.Tracks = append(h.Tracks, t)
	}
	t.Member, t.Last = member, now
	return t
}

func (t *Track) add(s Sample) {
	if s.PSS != Unknown {
		t.pss, t.private = s.PSS, s.Private
	}
	if !t.Role.IsWorker() || t.Traced {
		t.Timeline = append(t.Timeline, s)
	}
}

// IsWorker tells the roles of processes that come in numbers and serve another.
func (r Role) IsWorker() bool {
	return r == RoleCompileWorker || r == RoleLoaderWorker || r == RoleOther
}

// Main is the traced process that the trace is about: the last to be alive, and of several the one that grew most. nil:
// none was traced.
func (h *History) Main() *Track {
	var main *Track
	for _, t := range h.Traced() {
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
