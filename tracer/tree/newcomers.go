package tree

import (
	"errors"
	"os"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/tracer/process"
)

// A standing is how a process that is no member stands to the tree.
type standing byte

const (
	outside standing = iota + 1
	leftOut          // it belongs to the tree, but there was no room for it or no permission
	ended            // it belongs to the tree, and waits for its parent
)

// A newcomer is a process of the tree that is no member yet.
type newcomer struct {
	pid  int
	stat process.Stat
}

// relook is after how many scans all processes are looked at again: a PID may have been used again between two scans, and
// there may be room again.
const relook = 64

// newcomers finds them, parents before children. /proc is listed, and stat read of the PIDs alone that were not there
// before: a process can come under the tree later only if it was in it all along.
func (t *Tree) newcomers() ([]newcomer, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, err
	}
	before := t.others
	if t.scans%relook == 0 {
		before = nil
	}
	t.scans++
	t.others = make(map[int]standing, len(pids))
	t.others[0] = outside // the parent of those that the kernel has started
	fresh := make(map[int]process.Stat)
	for _, pid := range pids {
		if s, ok := before[pid]; ok {
			t.others[pid] = s
		} else if t.byPID[pid] == nil {
			if stat, err := process.ReadStat(pid); err == nil {
				fresh[pid] = stat
			}
		}
	}
	return t.sort(fresh), nil
}

// sort finds out which of the processes belong to the tree, and notes the others. Of a process whose parent is not known
// nothing is noted, so that it is looked at again.
func (t *Tree) sort(fresh map[int]process.Stat) []newcomer {
	var found []newcomer
	inside := make(map[int]bool)
	for progress := true; progress; {
		progress = false
		for _, pid := range sortedPIDs(fresh) {
			stat := fresh[pid]
			of := t.others[stat.Parent]
			if t.byPID[stat.Parent] == nil && !inside[stat.Parent] && of == 0 {
				continue // not yet, or never
			}
			delete(fresh, pid)
			progress = true
			switch {
			case of == outside:
				t.others[pid] = outside
			case stat.State == 'Z':
				t.others[pid] = ended
			default:
				inside[pid] = true
				found = append(found, newcomer{pid, stat})
			}
		}
	}
	return found
}

func sortedPIDs(of map[int]process.Stat) []int {
	pids := make([]int, 0, len(of))
	for pid := range of {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids
}

// listPIDs gives the processes of our PID namespace.
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

// hasEnded reports whether a process could not be opened because it is no more. Without memory is, besides threads of the
// kernel, what is just exiting.
func hasEnded(err error) bool {
	return errors.Is(err, process.ErrNotFound) || errors.Is(err, process.ErrZombie) || errors.Is(err, process.ErrKernelThread)
}
