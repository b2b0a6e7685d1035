package tree

import (
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Member is a process of the tree.
type Member struct {
	// Process is held for as long as it is a member. A scan may refresh its description.
	Process *process.Process
	// Facts for the report. Parent is the one under which it was found, also when that has exited.
	Facts growth.Process

	parent   *Member // nil: not a member
	image    process.Image
	program  Program
	rollup   account
	readings []reading
}

// A reading is private memory at a moment, in bytes.
type reading struct {
	elapsed time.Duration
	private int64
}

// describe takes down what the process executes.
func (m *Member) describe(stat process.Stat) {
	m.image = stat.Image
	m.Facts.Command, m.Facts.Executable, m.Facts.Arguments = m.Process.Command(), m.Process.Executable, m.Process.Arguments
	m.program = Program{
		Name: m.Process.Name, Arguments: m.Process.Arguments, Environment: m.Process.Environment(rankVariables()...),
		Forked: m.parent != nil && m.parent.image == m.image,
	}
}

// classify finds the role.
func (m *Member) classify() {
	if m.parent != nil {
		m.program.ParentRole, m.program.ParentArguments = m.parent.Facts.Role, m.parent.Facts.Arguments
	}
	m.Facts.Role, m.Facts.Rank = m.program.Role()
}

// window is how far back a member's readings go.
const window = 10 * time.Second

// Sample reads the state of all members and of the memory around them. What cannot be read is growth.Unknown; so are PSS and
// Private where it is not their turn, and steps and tensors always.
func (t *Tree) Sample(elapsed time.Duration) growth.Moment {
	moment := growth.Moment{Elapsed: elapsed, Processes: make([]growth.ProcessSample, len(t.members))}
	for i, m := range t.members {
		moment.Processes[i] = growth.ProcessSample{PID: int64(m.Process.PID), Sample: m.sample(elapsed)}
	}
	t.rollUp(moment)
	around := t.root
	if len(t.members) > 0 {
		around = t.members[0].Process
	}
	moment.Around = t.surroundings.Around(around)
	return moment
}

func (m *Member) sample(elapsed time.Duration) growth.Sample {
	sample, err := m.Process.Sample()
	if err != nil {
		sample = growth.UnknownSample()
	}
	sample.Elapsed = elapsed
	if sample.Anonymous != growth.Unknown {
		m.readings = append(m.readings, reading{elapsed, sample.Anonymous + max(0, sample.Swap)})
	}
	for len(m.readings) > 1 && m.readings[0].elapsed < elapsed-window {
		m.readings = m.readings[1:]
	}
	return sample
}

// rollUp adds PSS and Private of the members whose turn it is.
func (t *Tree) rollUp(moment growth.Moment) {
	accounts := make([]*account, len(t.members))
	for i, m := range t.members {
		accounts[i] = &m.rollup
		t.rollups.expect(&m.rollup, moment.Processes[i].RSS)
	}
	t.rollups.share(accounts, moment.Elapsed)
	t.rollups.round(accounts, func(i int) (cost time.Duration) {
		sample := &moment.Processes[i].Sample
		cost = process.ProcessorTime(func() {
			sample.PSS, sample.Private, _ = t.members[i].Process.Rollup() // unknown where it cannot be read
		})
		t.rollups.learn(sample.RSS, cost)
		return cost
	})
}

// Candidates are the members as Focus wants them: with their private memory at the last sample and up to ten seconds before.
// The caller says which are being traced.
func (t *Tree) Candidates(traced func(pid int) bool) []Candidate {
	candidates := make([]Candidate, len(t.members))
	for i, m := range t.members {
		c := Candidate{
			Process: m.Facts, Root: m.Process == t.root, Traced: traced(m.Process.PID), Private: growth.Unknown, Before: growth.Unknown,
		}
		if n := len(m.readings); n > 0 {
			c.Private = m.readings[n-1].private
			if n > 1 {
				c.Before = m.readings[0].private
			}
		}
		candidates[i] = c
	}
	return candidates
}
