package tree

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// MaxTraced bounds the processes of a tree that are traced in full.
const MaxTraced = 16

const (
	// outgrowFactor is how many times another process's memory and growth must be exceeded to
	// outgrow it clearly.
	outgrowFactor = 4

	// minGrowthBytes in ten seconds count as growth.
	minGrowthBytes = 1 << 20
)

// A Candidate is a process that could be traced in full.
type Candidate struct {
	growth.Process
	Root   bool // the process that the user has named
	Traced bool // is being traced

	// Private is the private memory now, and Before some seconds ago, in bytes; growth.Unknown
	// where it was not read.
	Private, Before int64
	// Lasting is by how much it has grown at least in each of the last three periods of ten seconds;
	// 0: it has not, or that is not known.
	Lasting int64
	// IsReplacement: it is a worker of a process whose earlier workers have grown until they ended.
	IsReplacement bool
}

func (c Candidate) hasHistory() bool {
	return c.Private != growth.Unknown && c.Before != growth.Unknown
}

// grown is the growth since Before, in bytes; 0 if it is unknown.
func (c Candidate) grown() int64 {
	if !c.hasHistory() {
		return 0
	}
	return c.Private - c.Before
}

// isTraining reports whether the role of the process is to train.
func (c Candidate) isTraining() bool {
	return c.Role == growth.RoleTrainer || c.Role == growth.RoleRank
}

// A Decision is which processes to trace in addition to those that are being traced.
type Decision struct {
	// Trace holds the PIDs. It is empty if there is nothing to trace for the moment.
	Trace []int

	// Selection explains the decision.
	Selection growth.Selection
}

// SelectTraced decides which processes of a tree to trace in full: the root, with two exceptions. A
// root that only starts others is not traced, nor is one that is small and steady beside a large
// descendant that grows. Then all ranks are traced, or else the trainer.
//
// Among several possible trainers SelectTraced takes the one that grows most, or else the largest.
// It takes workers and helpers only if they clearly outgrow all others, if they grow for half a
// minute, when it takes the one of each role that grows most, or if earlier ones of the same
// process grew until they ended. Traced processes stay traced: later decisions add to them.
// candidates are the living members in any order.
func SelectTraced(candidates []Candidate) Decision {
	var s selection
	for _, c := range candidates {
		switch {
		case c.Traced:
			s.traced = append(s.traced, c)
		case c.Private != growth.Unknown:
			s.untraced = append(s.untraced, c)
		}
		if c.Root {
			s.root = &c
		}
	}
	slices.SortFunc(s.untraced, func(a, b Candidate) int { return cmp.Compare(a.PID, b.PID) })

	if len(s.traced) > 0 {
		return s.additional()
	}
	return s.initial()
}

type selection struct {
	root             *Candidate // nil: it has exited
	traced, untraced []Candidate
}

// initial decides while nothing is traced.
func (s selection) initial() Decision {
	main := s.root
	if s.root == nil || s.root.Role == growth.RoleLauncher {
		if ranks := s.ranks(); len(ranks) > 0 {
			return s.trace(ranks)
		}

		trainer, undecided := s.trainer()
		if undecided {
			return s.because(growth.SelectionTrainers)
		}
		if trainer != nil {
			main = trainer
		} // else the launcher has started nothing yet, and may have to be traced itself
	}
	if main == nil {
		return s.because(growth.SelectionNone)
	}

	larger, undecided := s.outgrowing(*main, outgrowFactor)
	switch {
	case undecided:
		return s.because(growth.SelectionLarger)
	case len(larger) > 0 && larger[0].Role == growth.RoleRank:
		return s.trace(s.ranks())
	case len(larger) > 0:
		return s.trace(larger)
	case main.Role == growth.RoleLauncher && main.grown() < minGrowthBytes:
		return s.because(growth.SelectionWaiting)
	}
	return s.trace([]Candidate{*main})
}

// additional decides what to add to the traced processes: new ranks, processes that outgrow all of
// them, or workers that grow.
func (s selection) additional() Decision {
	if ranks := s.ranks(); len(ranks) > 0 {
		return s.trace(ranks)
	}

	if next := s.replacement(); next != nil {
		return s.trace([]Candidate{*next})
	}

	var largest Candidate // with the largest size and the largest growth
	var grown int64
	for _, c := range s.traced {
		if !c.hasHistory() {
			return Decision{}
		}
		largest.Private, grown = max(largest.Private, c.Private), max(grown, c.grown())
	}
	largest.Before = largest.Private - grown

	if larger, _ := s.outgrowing(largest, 1); len(larger) > 0 {
		return s.trace(larger)
	}
	return s.trace(s.growingWorkers(grown))
}

// replacement returns the youngest worker of those that take the place of workers that grew, so
// that most of its life is seen; nil: one is traced, or there is none.
func (s selection) replacement() (youngest *Candidate) {
	for i := range s.untraced {
		c := &s.untraced[i]
		isTraced := slices.ContainsFunc(s.traced, func(t Candidate) bool {
			return t.Parent == c.Parent && t.Service == c.Service && t.Role == c.Role
		})
		if c.IsReplacement && !isTraced && (youngest == nil || c.Born > youngest.Born) {
			youngest = c
		}
	}
	return youngest
}

// growingWorkers returns the worker of each role that grows most, where none of its role is traced.
// Growth far below the growth of the traced processes explains little, and is not worth the
// cost.
func (s selection) growingWorkers(tracedGrowth int64) []Candidate {
	most := make(map[growth.Role]Candidate)
	for _, c := range s.untraced {
		isTraced := slices.ContainsFunc(s.traced, func(t Candidate) bool { return t.Role == c.Role })
		least := max(minGrowthBytes, most[c.Role].Lasting+1, tracedGrowth/outgrowFactor)
		if c.Role.IsWorker() && !isTraced && c.Lasting >= least {
			most[c.Role] = c
		}
	}
	return slices.SortedFunc(maps.Values(most), func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Lasting, a.Lasting), cmp.Compare(a.PID, b.PID))
	})
}

// ranks returns the untraced ranks by number.
func (s selection) ranks() []Candidate {
	ranks := s.untracedOf(growth.RoleRank)
	slices.SortStableFunc(ranks, func(a, b Candidate) int { return cmp.Compare(a.Rank, b.Rank) })
	return ranks
}

func (s selection) untracedOf(role growth.Role) []Candidate {
	return slices.DeleteFunc(slices.Clone(s.untraced), func(c Candidate) bool {
		return c.Role != role
	})
}

// trainer returns the trainer: of several the one that grows most, or the largest where none grows.
// It is nil if there is none, or if it is undecided because the growth is not known yet.
func (s selection) trainer() (trainer *Candidate, undecided bool) {
	trainers := s.untracedOf(growth.RoleTrainer)
	if len(trainers) == 0 {
		return nil, false
	}
	isNew := func(c Candidate) bool { return !c.hasHistory() }
	if len(trainers) > 1 && slices.ContainsFunc(trainers, isNew) {
		return nil, true
	}

	best := trainers[0]
	for _, c := range trainers[1:] {
		grows := max(best.grown(), c.grown()) >= minGrowthBytes
		if grows && c.grown() > best.grown() || !grows && c.Private > best.Private {
			best = c
		}
	}
	return &best, false
}

// outgrowing returns the processes that are so much larger than a process, and grow so much more,
// that they should be traced. One that trains must be factor times as large; workers and helpers
// always outgrowFactor times. It is undecided if larger ones have no history yet.
func (s selection) outgrowing(than Candidate, factor int64) (larger []Candidate, undecided bool) {
	for _, c := range s.untraced {
		times := factor
		if !c.isTraining() {
			times = outgrowFactor
		}

		switch {
		case c.IsReplacement: // it is followed by replacement
		case c.PID == than.PID || c.Private < times*max(0, than.Private):
		case !c.hasHistory() || !than.hasHistory():
			undecided = undecided || c.isTraining()
		case c.grown() >= max(minGrowthBytes, outgrowFactor*than.grown()):
			larger = append(larger, c)
		}
	}

	slices.SortStableFunc(larger, func(a, b Candidate) int {
		return cmp.Compare(b.Private, a.Private)
	})
	return pickLarger(larger), undecided
}

// pickLarger picks from processes in descending order of size. If any trains, it picks a rank, or
// else the trainer that grows most. If there are only workers and helpers, it picks all of about
// one size, except those that another of them has started.
func pickLarger(larger []Candidate) []Candidate {
	training := slices.DeleteFunc(slices.Clone(larger), func(c Candidate) bool {
		return !c.isTraining()
	})
	if len(training) > 0 {
		return []Candidate{slices.MaxFunc(training, func(a, b Candidate) int {
			return cmp.Or(
				cmp.Compare(a.rankOrder(), b.rankOrder()),
				cmp.Compare(a.grown(), b.grown()))
		})}
	}

	var picked []Candidate
	for _, c := range larger {
		isChild := slices.ContainsFunc(larger, func(p Candidate) bool { return p.PID == c.Parent })
		if !isChild && c.Private >= larger[0].Private/outgrowFactor {
			picked = append(picked, c)
		}
	}
	return picked
}

// rankOrder orders ranks before trainers.
func (c Candidate) rankOrder() int {
	if c.Role == growth.RoleRank {
		return 1
	}
	return 0
}

// trace decides to trace as many of the processes as MaxTraced allows.
func (s selection) trace(chosen []Candidate) Decision {
	kept := chosen[:min(len(chosen), max(0, MaxTraced-len(s.traced)))]
	if len(kept) == 0 {
		return Decision{}
	}

	first, d := kept[0], s.because(growth.SelectionTraced)
	if len(s.traced) > 0 {
		d.Selection.Reason = growth.SelectionAdded
	}
	d.Selection.Processes, d.Selection.LeftOut = len(kept), len(chosen)-len(kept)
	d.Selection.PID, d.Selection.Parent = first.PID, first.Parent
	d.Selection.Role, d.Selection.Rank = first.Role, first.Rank
	d.Selection.Traced = first.commandLine()
	for _, c := range kept {
		d.Trace = append(d.Trace, c.PID)
		d.Selection.Private += c.Private
	}

	if len(kept) == 1 && first.Root { // as requested
		d.Selection = growth.Selection{}
	}
	return d
}

// because makes a decision that traces nothing yet, with the reason and the root.
func (s selection) because(reason growth.SelectionReason) Decision {
	why := growth.Selection{Reason: reason}
	if s.root != nil {
		why.Root, why.Command, why.RootRole = s.root.PID, s.root.commandLine(), s.root.Role
	}
	return Decision{Selection: why}
}

// commandLine is the program with its arguments, or its short name where these are unknown.
func (c Candidate) commandLine() string {
	if len(c.Arguments) > 0 {
		return strings.Join(c.Arguments, " ")
	}
	return c.Command
}
