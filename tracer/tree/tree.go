// Package tree finds the processes of a process tree: which belong to it, the role of each in a
// training job, the memory of each, and which deserve a full trace. It reads files of /proc only;
// it stops no process.
package tree

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
)

// MaxMembers bounds the members of a tree. Each holds two file descriptors.
const MaxMembers = 512

// A Tree is a process with its descendants. It is not safe for concurrent use.
type Tree struct {
	root         *process.Process
	children     bool
	systemMemory *process.SystemMemoryReader

	started bool      // the root was added
	members []*Member // in the order in which they were found: parents before children
	byPID   map[int]*Member

	others  map[int]relation // processes that are not members
	grown   map[service]bool // services whose workers have ended, and grew until then
	scans   int
	rollups rollupBudget
}

// A relation is how a process that is not a member is related to the tree.
type relation byte

const (
	unrelated relation = iota + 1
	leftOut            // of the tree, but there are too many members, or it cannot be opened
	zombie             // of the tree, but it has exited
)

// New returns the tree of a process, with its descendants if children is set. The first Scan fills
// it. The caller keeps root and closes it. own may be nil.
func New(root *process.Process, children bool, own *duty.Budget) *Tree {
	return &Tree{
		root: root, children: children, systemMemory: process.NewSystemMemoryReader(),
		byPID: make(map[int]*Member), others: make(map[int]relation),
		grown: make(map[service]bool), rollups: rollupBudget{limit: own.Account(duty.Rollups)},
	}
}

// Changes are the differences between a scan and the scan before.
type Changes struct {
	// New members, parents before children.
	New []*Member

	// Exited processes are no longer members, and are closed.
	Exited []*Member

	// Executed members run another program than before: their Info is new.
	Executed []*Member
}

// Scan finds the processes of the tree. A member remains one when its parent exits. elapsed is the
// time since tracing started. It is an error if /proc cannot be listed.
func (t *Tree) Scan(elapsed time.Duration) (Changes, error) {
	var changes Changes
	t.updateMembers(elapsed, &changes)

	if !t.started {
		t.started = true
		if stat, err := t.root.Stat(); err == nil {
			changes.New = append(changes.New, t.add(t.root, stat, elapsed))
		}
	}
	if !t.children {
		return changes, nil
	}

	found, err := t.findNew()
	if err != nil {
		return changes, fmt.Errorf("find children: %w", err)
	}
	for _, p := range found {
		if member := t.open(p, elapsed); member != nil {
			changes.New = append(changes.New, member)
		}
	}
	return changes, nil
}

// updateMembers finds the members that have exited and those that have executed another program.
func (t *Tree) updateMembers(elapsed time.Duration, changes *Changes) {
	alive := t.members[:0:0]
	for _, m := range t.members {
		stat, err := m.Process.Stat()
		if err != nil || !m.Process.Alive() {
			changes.Exited = append(changes.Exited, m)
			delete(t.byPID, m.Process.PID)
			t.noteGrowth(m)
			t.closeMember(m)
			continue
		}

		m.stat = stat
		alive = append(alive, m)
		if stat.Image != m.image && !stat.Image.IsZero() && m.Process.Refresh() == nil {
			m.describe(stat)
			m.Info.Born = elapsed
			changes.Executed = append(changes.Executed, m)
		}
		m.noticeName(elapsed)
	}
	t.members = alive

	if len(changes.Executed) > 0 {
		for _, m := range t.members {
			m.classify() // roles depend on the parents' roles
		}
	}
}

// A newProcess belongs to the tree and is not a member yet.
type newProcess struct {
	pid  int
	stat process.Stat
}

// scansPerFullScan is how often all processes are read again: a PID may have been reused between
// two scans, and there may be room for more members.
const scansPerFullScan = 64

// findNew returns the new processes of the tree, parents before children. It lists /proc and reads
// stat of new PIDs only: an older process never enters the tree later.
func (t *Tree) findNew() ([]newProcess, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, err
	}

	before := t.others
	if t.scans%scansPerFullScan == 0 {
		before = nil
	}
	t.scans++

	t.others = make(map[int]relation, len(pids))
	t.others[0] = unrelated // the parent of the processes that the kernel has started
	own := os.Getpid()      // allocscope and its children are not of the job
	if t.byPID[own] == nil {
		t.others[own] = unrelated
	}
	unknown := make(map[int]process.Stat)
	for _, pid := range pids {
		if r, ok := before[pid]; ok {
			t.others[pid] = r
		} else if t.byPID[pid] == nil && pid != own {
			if stat, err := process.ReadStat(pid); err == nil {
				unknown[pid] = stat
			}
		}
	}
	return t.relate(unknown), nil
}

// relate returns the processes that belong to the tree, and records the relation of the others. It
// records nothing about a process with an unknown parent, so that the next scan reads it again.
func (t *Tree) relate(unknown map[int]process.Stat) []newProcess {
	var found []newProcess
	inside := make(map[int]bool)

	// A PID may be smaller than its parent's, so that one pass is not enough.
	for progress := true; progress; {
		progress = false
		for _, pid := range sortedPIDs(unknown) {
			stat := unknown[pid]
			parent := t.others[stat.Parent]
			if t.byPID[stat.Parent] == nil && !inside[stat.Parent] && parent == 0 {
				continue
			}

			delete(unknown, pid)
			progress = true
			switch {
			case parent == unrelated:
				t.others[pid] = unrelated
			case stat.State == 'Z':
				t.others[pid] = zombie
			default:
				inside[pid] = true
				found = append(found, newProcess{pid, stat})
			}
		}
	}
	return found
}

func sortedPIDs(processes map[int]process.Stat) []int {
	pids := make([]int, 0, len(processes))
	for pid := range processes {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids
}

// listPIDs lists the processes of our PID namespace.
func listPIDs() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}

	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// open makes a process a member; nil if it is gone, cannot be opened, or there are too many
// members.
func (t *Tree) open(n newProcess, elapsed time.Duration) *Member {
	if len(t.members) >= MaxMembers {
		t.others[n.pid] = leftOut
		return nil
	}

	p, err := process.Open(n.pid)
	switch {
	case hasExited(err):
		return nil
	case err != nil:
		t.others[n.pid] = leftOut
		return nil
	}

	stat, err := p.Stat()
	if err != nil || stat.Start != n.stat.Start { // another process with that PID
		p.Close()
		return nil
	}
	return t.add(p, stat, elapsed)
}

// hasExited reports whether process.Open has failed because the process has exited. An exiting
// process has no memory, and reads as a kernel thread.
func hasExited(err error) bool {
	return errors.Is(err, process.ErrNotFound) || errors.Is(err, process.ErrZombie) ||
		errors.Is(err, process.ErrKernelThread)
}

// Adopt makes a process a member at once, whatever its parent is, and returns it; nil as open.
func (t *Tree) Adopt(pid int, elapsed time.Duration) *Member {
	if m := t.byPID[pid]; m != nil {
		return m
	}
	stat, err := process.ReadStat(pid)
	if err != nil {
		return nil
	}
	delete(t.others, pid) // its children are of the tree as well
	return t.open(newProcess{pid, stat}, elapsed)
}

func (t *Tree) add(p *process.Process, stat process.Stat, elapsed time.Duration) *Member {
	m := &Member{Process: p, parent: t.byPID[stat.Parent], stat: stat}
	m.Info = growth.Process{
		PID: p.PID, Parent: stat.Parent, Born: elapsed - stat.Age(), Start: stat.StartTicks,
		Rank: growth.Unknown,
	}
	m.describe(stat)
	m.classify()

	t.members = append(t.members, m)
	t.byPID[p.PID] = m
	return m
}

// Members returns the members that the last scan found alive, the root first, parents before
// children.
func (t *Tree) Members() []*Member { return slices.Clone(t.members) }

// LeftOut counts the living processes of the tree that are not members, because there are too many
// or they cannot be read.
func (t *Tree) LeftOut() int {
	var n int
	for _, r := range t.others {
		if r == leftOut {
			n++
		}
	}
	return n
}

// closeMember closes a process, unless it is the root, which the caller keeps.
func (t *Tree) closeMember(m *Member) {
	if m.Process != t.root {
		m.Process.Close()
	}
}

// Close closes the members, except for the root.
func (t *Tree) Close() {
	for _, m := range t.members {
		t.closeMember(m)
	}
	t.members = nil
	clear(t.byPID)
	t.systemMemory.Close()
}
