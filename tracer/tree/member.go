package tree

import (
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Member is a process of the tree.
type Member struct {
	// Process is open while it is a member. Scan may refresh its description.
	Process *process.Process

	// Info for the report. Parent is the process under which it was found, even if that has exited.
	Info growth.Process

	parent  *Member // nil: not a member
	image   process.Image
	stat    process.Stat // at the last scan
	program Program
	rollup  account
	history []privateSample
	isNamed bool // its name was read again after the fork
}

// A privateSample is the private memory of a process at one moment.
type privateSample struct {
	elapsed time.Duration // since tracing started
	bytes   int64
}

// historySpan is how far back the private memory of a member is kept: three periods, so that growth
// that lasts differs from a jump.
const (
	historyPeriod = 10 * time.Second
	historySpan   = 3 * historyPeriod
)

// describe records the program that the process executes.
func (m *Member) describe(stat process.Stat) {
	m.image = stat.Image
	m.Info.Command = m.Process.Command()
	m.Info.Executable, m.Info.Arguments = m.Process.Executable, m.Process.Arguments

	m.program = Program{
		Name: m.Process.Name, Arguments: m.Process.Arguments,
		Environment: m.Process.Environment(identityVariables()...),
		Forked:      m.parent != nil && m.parent.image == m.image,
	}
}

// IsForked reports whether the process is a copy of its parent and has executed nothing since.
func (m *Member) IsForked() bool { return m.program.Forked }

// namingTime is how long after its fork a worker may still get its name.
const namingTime = 5 * time.Second

// noticeName reads once more the name of a fork, which begins with the name of its parent.
func (m *Member) noticeName(elapsed time.Duration) {
	if m.isNamed || !m.IsForked() || elapsed-m.Info.Born < namingTime {
		return
	}
	m.isNamed = true
	if status, err := m.Process.Status(); err == nil && status.Name != m.program.Name {
		m.program.Name = status.Name
		m.classify()
	}
}

// classify sets the role and the rank.
func (m *Member) classify() {
	if m.parent != nil {
		m.program.ParentRole = m.parent.Info.Role
		m.program.ParentArguments = m.parent.Info.Arguments
		m.program.ParentService = m.parent.Info.Service
	}
	m.Info.Service = m.program.service()
	m.Info.Role, m.Info.Rank = m.program.Role()
	m.Info.Identity = m.program.identity(m.Process, m.Info.Role, m.Info.Rank)
}

// Sample reads the counters of all members and the memory available to them. A value that cannot be
// read is growth.Unknown. So are PSS and Private of members whose turn it is not, and steps and
// tensors.
func (t *Tree) Sample(elapsed time.Duration) growth.TreeSample {
	sample := growth.TreeSample{
		Elapsed: elapsed, Processes: make([]growth.ProcessSample, len(t.members)),
	}
	for i, m := range t.members {
		sample.Processes[i] = growth.ProcessSample{
			PID: int64(m.Process.PID), Sample: m.sample(elapsed),
		}
	}
	t.addRollups(sample)

	limited := t.root
	if len(t.members) > 0 {
		limited = t.members[0].Process
	}
	sample.System = t.systemMemory.Read(limited)
	return sample
}

// sample reads the counters of the process, and adds its private memory to the history.
func (m *Member) sample(elapsed time.Duration) growth.Sample {
	sample, err := m.Process.SampleAfter(m.stat)
	if err != nil {
		sample = growth.UnknownSample()
	}
	sample.Elapsed = elapsed

	if sample.Anonymous != growth.Unknown {
		private := sample.Anonymous + max(0, sample.Swap)
		m.history = append(m.history, privateSample{elapsed, private})
	}
	for len(m.history) > 1 && m.history[0].elapsed < elapsed-historySpan {
		m.history = m.history[1:]
	}
	return sample
}

// addRollups adds PSS and Private of the members whose turn it is.
func (t *Tree) addRollups(sample growth.TreeSample) {
	accounts := make([]*account, len(t.members))
	for i, m := range t.members {
		accounts[i] = &m.rollup
		t.rollups.estimateCost(&m.rollup, sample.Processes[i].RSS)
	}

	t.rollups.share(accounts, sample.Elapsed)
	t.rollups.readDue(accounts, func(i int) (cost time.Duration) {
		s := &sample.Processes[i].Sample
		cost = process.MeasureCPUTime(func() {
			s.PSS, s.Private, _ = t.members[i].Process.Rollup() // Unknown if it cannot be read
		})
		t.rollups.learn(s.RSS, cost)
		return cost
	})
}

// Candidates returns the members for SelectTraced, with their private memory at the last sample and
// up to ten seconds before. traced reports whether a process is being traced.
func (t *Tree) Candidates(traced func(pid int) bool) []Candidate {
	candidates := make([]Candidate, len(t.members))
	for i, m := range t.members {
		c := Candidate{
			Process: m.Info, Root: m.Process == t.root, Traced: traced(m.Process.PID),
			Private: growth.Unknown, Before: growth.Unknown,
		}
		if n := len(m.history); n > 0 {
			now := m.history[n-1]
			c.Private = now.bytes
			if n > 1 {
				c.Before = m.privateAt(now.elapsed - historyPeriod)
			}
			c.Lasting = m.lastingGrowth()
		}
		c.IsReplacement = m.Info.Role == growth.RoleWorker && t.grown[m.service()]
		candidates[i] = c
	}
	return candidates
}

// privateAt is the private memory at the first sample from a moment on. The history has one.
func (m *Member) privateAt(moment time.Duration) int64 {
	i := slices.IndexFunc(m.history, func(s privateSample) bool { return s.elapsed >= moment })
	return m.history[i].bytes
}

// lastingGrowth is the least growth of the private memory in one of the last three periods; 0 where
// less is known.
func (m *Member) lastingGrowth() int64 {
	now := m.history[len(m.history)-1]
	if now.elapsed-m.history[0].elapsed < historySpan-historyPeriod/2 {
		return 0
	}

	least, later := int64(math.MaxInt64), now.bytes
	for back := historyPeriod; back <= historySpan; back += historyPeriod {
		before := m.privateAt(now.elapsed - back)
		least, later = min(least, later-before), before
	}
	return max(0, least)
}

// A service is the workers that a process starts one after the other.
type service struct {
	parent int
	name   string
}

func (m *Member) service() service { return service{m.Info.Parent, m.Info.Service} }

const (
	// minLifeGrowth is the growth of a worker, in bytes, until its end from which on its successors
	// are of interest. maxServices bounds the services.
	minLifeGrowth = 4 << 20
	maxServices   = 256
)

// noteGrowth notes the service of a worker that has ended and grew.
func (t *Tree) noteGrowth(m *Member) {
	n := len(m.history)
	if m.Info.Role != growth.RoleWorker || n < 2 || len(t.grown) >= maxServices {
		return
	}
	const exitSamples = 3 // within which it may have freed its memory
	for _, s := range m.history[max(1, n-exitSamples):] {
		if s.bytes-m.history[0].bytes >= minLifeGrowth {
			t.grown[m.service()] = true
		}
	}
}
