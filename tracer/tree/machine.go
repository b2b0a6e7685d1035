package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/heap/allocators"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Listed is a process of the machine. All texts are printable.
type Listed struct {
	PID, Parent int

	// Age since its start, and Start, which distinguishes processes that had the same PID.
	Age, Start time.Duration

	// RSS in bytes; growth.Unknown where it cannot be read.
	RSS int64

	// Arguments are its command line; its short name where it has none.
	Arguments []string

	// Role in a training job, and the rank, or growth.Unknown. RoleTrainer is of a Python program,
	// or of a program that a launcher of one job has started.
	Role growth.Role
	Rank int

	// Container is its short ID or name; empty: none is known.
	Container string

	// Allocator by the names of mapped files; empty: not known, or out of reach.
	Allocator string

	// IsPython is set for a program that has the name of a Python.
	IsPython bool

	// IsReadable is set if its memory map, executable and environment could be read.
	IsReadable bool

	program Program
}

// ListMachine returns the processes of the machine by PID, without kernel threads and zombies. It is
// an error if /proc cannot be listed. A process can keep others from reading its command line, which
// takes long to notice: the processes of its user have short names then, and nothing else that
// takes the lock of an address space.
func ListMachine() ([]Listed, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	slices.Sort(pids)

	images := make(map[int]process.Image)
	stalled := make(map[uint32]bool)
	var all []Listed
	for _, pid := range pids {
		if one, image, ok := list(pid, stalled); ok {
			images[pid] = image
			all = append(all, one)
		}
	}

	for i := range all { // of a process that is out of reach, the kernel hides the image
		parent, ok := images[all[i].Parent]
		all[i].program.Forked = all[i].IsReadable && ok && parent == images[all[i].PID]
	}
	classifyMachine(all)
	return all, nil
}

// list reads a process; false: it is gone, or is none that has memory. stalled has the users of
// processes that have not answered, and is added to.
func list(pid int, stalled map[uint32]bool) (l Listed, image process.Image, ok bool) {
	stat, err := process.ReadStat(pid)
	resident, _, hasMemory := readResident(stat.TID)
	if err != nil || !hasMemory || resident == 0 { // kernel threads and zombies have none
		return l, image, false
	}
	l = Listed{
		PID: pid, Parent: stat.Parent, Age: stat.Age(), Start: stat.Start, RSS: resident,
		Rank: growth.Unknown,
	}

	user, err := userOf(pid)
	if err != nil || stalled[user] {
		l.Arguments = []string{nameOf(pid)}
		l.program.Arguments = l.Arguments
		return l, stat.Image, err == nil
	}

	p, err := process.OpenAny(pid)
	if err != nil {
		return l, image, false
	}
	defer p.Close()
	l.describe(p)
	stalled[user] = p.Stalled() != nil
	return l, stat.Image, true
}

// describe reads the facts that only an open process has.
func (l *Listed) describe(p *process.Process) {
	l.Arguments, l.Container = p.Arguments, p.Container()
	l.IsPython, l.IsReadable = parseCommand(p.Arguments).isPython, p.Executable != ""
	l.program = Program{
		Name: p.Name, Arguments: p.Arguments, Environment: p.Environment(rankVariables()...),
	}
	if len(l.Arguments) == 0 {
		l.Arguments = []string{p.Name}
	}
	if maps, err := p.Maps(); err == nil {
		l.Allocator = allocators.OfFiles(maps)
	}
}

// userOf returns the user of a process.
func userOf(pid int) (uint32, error) {
	var stat unix.Stat_t
	err := unix.Stat(filepath.Join("/proc", strconv.Itoa(pid)), &stat)
	return stat.Uid, err
}

// nameOf returns the short name of a process, printable.
func nameOf(pid int) string {
	raw, err := process.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return "?"
	}
	return growth.Printable(strings.TrimSuffix(string(raw), "\n"))
}

// classifyMachine sets the roles.
func classifyMachine(all []Listed) {
	index := make(map[int]int, len(all))
	for i := range all {
		index[all[i].PID], all[i].Role = i, ""
	}

	var classify func(i, depth int)
	classify = func(i, depth int) {
		l := &all[i]
		if l.Role != "" {
			return
		}
		l.Role, l.Rank = growth.RoleOther, growth.Unknown // ends a cycle, which PIDs reused can make

		isOfJob := false
		if at, ok := index[l.Parent]; ok && depth < maxAncestors {
			classify(at, depth+1)
			isOfJob = l.program.setParent(all[at].program, all[at].Role)
		}
		l.Role, l.Rank = l.program.roleAmongAll(isOfJob)
	}
	for i := range all {
		classify(i, 0)
	}
}

// ReadRSS returns the RSS of a process that was listed, in bytes; growth.Unknown: it is gone. It
// waits for nothing that the process can hold up.
func (l Listed) ReadRSS() int64 {
	stat, err := process.ReadStat(l.PID)
	resident, _, ok := readResident(stat.TID)
	if !ok || err != nil || stat.Start != l.Start {
		return growth.Unknown
	}
	return resident
}

// Command is the command line in one text.
func (l Listed) Command() string { return strings.Join(l.Arguments, " ") }

// ErrNoMatch means that no process has a text in its command line.
var ErrNoMatch = errors.New("no process has it in its command line")

// Match returns the jobs whose command lines have a text: of a launcher and its descendants, or of
// a process and its forks, the outermost one. It leaves out allocscope, in any terminal, and the
// launchers that have started it (sudo, a shell).
func Match(all []Listed, text string) ([]Listed, error) {
	byPID := make(map[int]Listed, len(all))
	for _, l := range all {
		byPID[l.PID] = l
	}

	isOwn := make(map[int]bool)
	for _, l := range all {
		if l.PID != os.Getpid() && filepath.Base(l.Arguments[0]) != "allocscope" {
			continue
		}
		isOwn[l.PID] = true
		for at := byPID[l.Parent]; at.Role == growth.RoleLauncher && !isOwn[at.PID]; at = byPID[at.Parent] {
			isOwn[at.PID] = true
		}
	}

	matches := make(map[int]bool)
	for _, l := range all {
		matches[l.PID] = !isOwn[l.PID] && !l.startsOthers() && strings.Contains(l.Command(), text)
	}

	var found []Listed
	for _, l := range all {
		if matches[l.PID] && !hasMatchingAncestor(l, byPID, matches) {
			found = append(found, l)
		}
	}
	if len(found) == 0 {
		return nil, ErrNoMatch
	}
	return found, nil
}

func hasMatchingAncestor(l Listed, byPID map[int]Listed, matches map[int]bool) bool {
	for range maxAncestors {
		parent, ok := byPID[l.Parent]
		if !ok {
			return false
		}
		if matches[parent.PID] {
			return true
		}
		l = parent
	}
	return false
}

// startsOthers reports whether a process launches more than one job: tmux, or a service manager.
func (l Listed) startsOthers() bool {
	return l.Role == growth.RoleLauncher && !launchesJob(l.program.Arguments)
}
