package growth

import (
	"fmt"
	"slices"
)

// An Outsider is a process outside the traced tree, and what it gained over the trace, in bytes.
type Outsider struct {
	PID     int
	Command string
	Growth  int64
}

// covering is the share of the growth around it that the watched tree must explain.
const covering = 0.5

// Covered checks that the tree is what grows: where it does not, and memory around it does, and one process outside of it
// explains most of that and gained more than the tree holds, the verdict is that the wrong process is watched. (Beside a
// trainer that holds more, it is a neighbour.) Outsiders are sorted by growth. Short traces say nothing.
func Covered(v Verdict, h *History, outsiders []Outsider, c Criteria) Verdict {
	switch v.Class {
	case ClassPlateau, ClassSpikyPlateau, ClassTooShort:
	default:
		return v // what is watched grows
	}
	around, tree, ok := h.grown()
	if !ok || len(outsiders) == 0 || h.Rows[len(h.Rows)-1].Elapsed.Seconds() < c.MinFlat {
		return v
	}
	other := outsiders[0]
	if other.Growth < h.Rows[len(h.Rows)-1].Tree.RSS {
		return v
	}
	if float64(around) < c.Around || float64(tree) >= covering*float64(around) || float64(other.Growth) < covering*float64(around) {
		return v
	}
	v.Class = ClassWrongProcess
	v.Why = fmt.Sprintf("PID %d (%s) outside the traced tree grew by %d MiB, the tree by %d MiB (trace that one: --pid %d)",
		other.PID, other.Command, other.Growth>>20, tree>>20, other.PID)
	return v
}

// grown is what the memory around the tree and the tree itself gained: of the cgroup where one limits, else of the machine.
func (h *History) grown() (around, tree int64, ok bool) {
	used := func(r Row) int64 {
		switch {
		case r.Around.CgroupUsed != Unknown:
			return r.Around.CgroupUsed
		case r.Around.Available != Unknown:
			return -r.Around.Available
		}
		return Unknown
	}
	around, ok = h.gained(used)
	tree, known := h.gained(func(r Row) int64 { return r.Tree.RSS })
	return around, tree, ok && known
}

// gained is a median of the last rows less one of the first; false: there are too few.
func (h *History) gained(value func(Row) int64) (bytes int64, ok bool) {
	const few = 5
	if len(h.Rows) < 2*few {
		return 0, false
	}
	median := func(rows []Row) int64 {
		var values []int64
		for _, r := range rows {
			values = append(values, value(r))
		}
		slices.Sort(values)
		return values[few/2]
	}
	first, last := median(h.Rows[:few]), median(h.Rows[len(h.Rows)-few:])
	return last - first, first != Unknown && last != Unknown
}
