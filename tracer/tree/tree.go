// Package tree follows a process and those that it starts: which belong to it, what each does in a training job, what each
// holds, and which of them are worth a full trace. All that is read is of files in /proc; no process is stopped.
package tree

import (
	"fmt"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// MaxMembers bounds the processes that are followed at a time. Each holds two file descriptors.
const MaxMembers = 512

// A Tree is a process with its descendants. Its methods may be called from one goroutine at a time.
type Tree struct {
	root         *process.Process
	children     bool
	surroundings *process.Surroundings
	begun        bool
	members      []*Member // in the order in which they were found: parents before children
	byPID        map[int]*Member
	others       map[int]standing // processes that are no members
	scans        int
	rollups      rollupBudget
}

// New makes a tree of a process, with its descendants if children is set. The first Scan fills it. The root stays the
// caller's.
func New(root *process.Process, children bool) *Tree {
	return &Tree{
		root: root, children: children, surroundings: process.FindSurroundings(),
		byPID: make(map[int]*Member), others: make(map[int]standing),
	}
}

// Changes are the members that a scan found to differ from the scan before.
type Changes struct {
	// New members, parents before children. Gone have exited; they are members no more, and closed.
	// Executed runs another program than before: role and description are new.
	New, Gone, Executed []*Member
}

// Scan looks which processes belong to the tree. A member stays one when its parent exits. Elapsed is the time since the
// start of the trace. It is an error if /proc cannot be listed.
func (t *Tree) Scan(elapsed time.Duration) (Changes, error) {
	var changes Changes
	t.look(elapsed, &changes)
	if !t.begun {
		t.begun = true
		if stat, err := t.root.Stat(); err == nil {
			changes.New = append(changes.New, t.add(t.root, stat, elapsed))
		}
	}
	if !t.children {
		return changes, nil
	}
	found, err := t.newcomers()
	if err != nil {
		return changes, fmt.Errorf("look for children: %w", err)
	}
	for _, n := range found {
		if member := t.take(n, elapsed); member != nil {
			changes.New = append(changes.New, member)
		}
	}
	return changes, nil
}

// look finds out which members have exited and which have executed another program.
func (t *Tree) look(elapsed time.Duration, changes *Changes) {
	alive := t.members[:0:0]
	for _, m := range t.members {
		stat, err := m.Process.Stat()
		if err != nil || !m.Process.Alive() {
			changes.Gone = append(changes.Gone, m)
			delete(t.byPID, m.Process.PID)
			t.release(m)
			continue
		}
		alive = append(alive, m)
		if stat.Image != m.image && !stat.Image.HasEnded() && m.Process.Refresh() == nil {
			m.describe(stat)
			m.Facts.Born = elapsed
			changes.Executed = append(changes.Executed, m)
		}
	}
	t.members = alive
	if len(changes.Executed) > 0 {
		for _, m := range t.members {
			m.classify() // roles depend on those of the parents
		}
	}
}

// take makes a member of a process, if it is still there and can be read; nil: it is not, or there is no room.
func (t *Tree) take(n newcomer, elapsed time.Duration) *Member {
	if len(t.members) >= MaxMembers {
		t.others[n.pid] = leftOut
		return nil
	}
	p, err := process.Open(n.pid)
	switch {
	case hasEnded(err):
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

func (t *Tree) add(p *process.Process, stat process.Stat, elapsed time.Duration) *Member {
	m := &Member{Process: p, parent: t.byPID[stat.Parent]}
	m.Facts = growth.Process{PID: p.PID, Parent: stat.Parent, Born: elapsed - stat.Age(), Rank: growth.Unknown}
	m.describe(stat)
	m.classify()
	t.members = append(t.members, m)
	t.byPID[p.PID] = m
	return m
}

// Members are those that the last scan found alive, the root first, parents before children.
func (t *Tree) Members() []*Member { return slices.Clone(t.members) }

// LeftOut counts the living processes of the tree that are no members, because they are too many or cannot be read.
func (t *Tree) LeftOut() int {
	var n int
	for _, s := range t.others {
		if s == leftOut {
			n++
		}
	}
	return n
}

// release closes a process, unless it is the caller's.
func (t *Tree) release(m *Member) {
	if m.Process != t.root {
		m.Process.Close()
	}
}

// Close lets go of the members, except for the root.
func (t *Tree) Close() {
	for _, m := range t.members {
		t.release(m)
	}
	t.members = nil
	clear(t.byPID)
}
