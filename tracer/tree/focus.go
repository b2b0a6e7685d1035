package tree

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// MaxTraced bounds the processes of a tree that are traced in full.
const MaxTraced = 16

// What counts as clearly more, and as growth at all, over the ten seconds that a candidate's memory is compared.
const (
	clearly   = 4
	minGrowth = 1 << 20 // bytes
)

// A Candidate is a process that could be traced in full.
type Candidate struct {
	growth.Process
	// Root: it is the process that the user has named. Traced: it is being traced.
	Root, Traced bool
	// Private is its private memory now, and Before what it was some seconds ago, in bytes; growth.Unknown where it was not
	// read.
	Private, Before int64
}

func (c Candidate) known() bool { return c.Private != growth.Unknown && c.Before != growth.Unknown }

// grown since Before, in bytes; 0 if that is unknown.
func (c Candidate) grown() int64 {
	if !c.known() {
		return 0
	}
	return c.Private - c.Before
}

// trains reports whether the process is of those that are traced for what they are.
func (c Candidate) trains() bool { return c.Role == growth.RoleTrainer || c.Role == growth.RoleRank }

// A Decision is which processes are to be traced in full, besides those that are already.
type Decision struct {
	// Trace has the PIDs; empty: none for the moment, and Reason may say what is waited for.
	Trace []int
	// Reason in words; empty where there is nothing to say.
	Reason string
}

// Focus decides which processes of a tree deserve a full trace: the root, unless it only starts others or is small and
// still beside a descendant that is large and grows; then all ranks, else the trainer. Among several that could be it, the
// one that grows most is taken, else the largest. Workers and helpers are taken only if they clearly outgrow all others.
// Processes that are traced stay so: later decisions add to them. Candidates are the living members, in any order.
func Focus(candidates []Candidate) Decision {
	f := focus{}
	for _, c := range candidates {
		switch {
		case c.Traced:
			f.traced = append(f.traced, c)
		case c.Private != growth.Unknown:
			f.rest = append(f.rest, c)
		}
		if c.Root {
			f.root = &c
		}
	}
	slices.SortFunc(f.rest, func(a, b Candidate) int { return cmp.Compare(a.PID, b.PID) })
	if len(f.traced) > 0 {
		return f.more()
	}
	return f.first()
}

type focus struct {
	root         *Candidate // nil: it has exited
	traced, rest []Candidate
}

// first decides as long as nothing is traced.
func (f focus) first() Decision {
	main, undecided := f.root, false
	if f.root == nil || f.root.Role == growth.RoleLauncher {
		if ranks := f.ranks(); len(ranks) > 0 {
			return f.trace(ranks)
		}
		if main, undecided = f.trainer(); undecided {
			return Decision{Reason: f.subject() + "several processes under it could be the trainer; looking which of them grows"}
		}
	}
	if main == nil {
		main = f.root // a launcher that has started nothing yet; it may have to be traced itself
	}
	if main == nil {
		return Decision{Reason: "the process has exited, and nothing under it could be traced"}
	}
	heavier, undecided := f.heavier(*main, clearly)
	switch {
	case undecided:
		return Decision{Reason: f.subject() + "a process under it holds more; looking which of them grows"}
	case len(heavier) > 0 && heavier[0].Role == growth.RoleRank:
		heavier = f.ranks()
	case len(heavier) == 0 && main.Role == growth.RoleLauncher && main.grown() < minGrowth:
		return Decision{Reason: f.subject() + "waiting for the program that it starts"}
	case len(heavier) == 0:
		heavier = []Candidate{*main}
	}
	return f.trace(heavier)
}

// more decides what to add to what is traced: ranks that have come, and what outgrows all that is traced.
func (f focus) more() Decision {
	if ranks := f.ranks(); len(ranks) > 0 {
		return f.trace(ranks)
	}
	var most Candidate // the largest size and the largest growth
	var grown int64
	for _, c := range f.traced {
		if !c.known() {
			return Decision{}
		}
		most.Private, grown = max(most.Private, c.Private), max(grown, c.grown())
	}
	most.Before = most.Private - grown
	heavier, _ := f.heavier(most, 1)
	return f.trace(heavier)
}

// ranks are those that are not traced, by number.
func (f focus) ranks() []Candidate {
	var ranks []Candidate
	for _, c := range f.rest {
		if c.Role == growth.RoleRank {
			ranks = append(ranks, c)
		}
	}
	slices.SortStableFunc(ranks, func(a, b Candidate) int { return cmp.Compare(a.Rank, b.Rank) })
	return ranks
}

// trainer is the one that trains: of several the one that grows most, or the largest where none grows. Nil: there is none.
func (f focus) trainer() (trainer *Candidate, undecided bool) {
	var trainers []Candidate
	for _, c := range f.rest {
		if c.Role == growth.RoleTrainer {
			trainers = append(trainers, c)
		}
	}
	if len(trainers) == 0 {
		return nil, false
	}
	if len(trainers) > 1 && slices.ContainsFunc(trainers, func(c Candidate) bool { return !c.known() }) {
		return nil, true
	}
	best := trainers[0]
	for _, c := range trainers[1:] {
		grows := max(best.grown(), c.grown()) >= minGrowth
		if grows && c.grown() > best.grown() || !grows && c.Private > best.Private {
			best = c
		}
	}
	return &best, false
}

// heavier are the processes beside which one is small and still, largest first. One that trains has to be a factor larger,
// workers and helpers always clearly. Undecided: some are larger, and it is not known yet whether they grow.
func (f focus) heavier(than Candidate, factor int64) (heavier []Candidate, undecided bool) {
	for _, c := range f.rest {
		times := factor
		if !c.trains() {
			times = clearly
		}
		switch {
		case c.PID == than.PID || c.Private < times*max(0, than.Private):
		case !c.known() || !than.known():
			undecided = undecided || c.trains()
		case c.grown() >= max(minGrowth, clearly*than.grown()):
			heavier = append(heavier, c)
		}
	}
	slices.SortStableFunc(heavier, func(a, b Candidate) int { return cmp.Compare(b.Private, a.Private) })
	return heaviest(heavier), undecided
}

// heaviest picks from what is heavy: what trains if any does, and of that the one that grows most, unless they are ranks; of
// workers and helpers all that are of about one size, but none that another of them has started.
func heaviest(heavy []Candidate) []Candidate {
	trainers := slices.DeleteFunc(slices.Clone(heavy), func(c Candidate) bool { return !c.trains() })
	if len(trainers) > 0 {
		return []Candidate{slices.MaxFunc(trainers, func(a, b Candidate) int {
			return cmp.Or(cmp.Compare(rankFirst(a), rankFirst(b)), cmp.Compare(a.grown(), b.grown()))
		})}
	}
	var picked []Candidate
	for _, c := range heavy {
		started := slices.ContainsFunc(heavy, func(h Candidate) bool { return h.PID == c.Parent })
		if !started && c.Private >= heavy[0].Private/clearly {
			picked = append(picked, c)
		}
	}
	return picked
}

func rankFirst(c Candidate) int {
	if c.Role == growth.RoleRank {
		return 1
	}
	return 0
}

// trace takes what there is room for.
func (f focus) trace(chosen []Candidate) Decision {
	d := Decision{Reason: f.because(chosen)}
	for _, c := range chosen[:min(len(chosen), f.room())] {
		d.Trace = append(d.Trace, c.PID)
	}
	return d
}

func (f focus) room() int { return max(0, MaxTraced-len(f.traced)) }
