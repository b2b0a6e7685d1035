package tree

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
)

// A Census is the private memory of all processes of the machine at one moment. It reads two small files of each.
type Census map[int]citizen

type citizen struct {
	start time.Duration // tells processes apart that had the same PID
	bytes int64
}

// An Outsider is a process outside of the tree.
type Outsider struct {
	PID int
	// Command is a short name of what runs, printable.
	Command string
	// Growth of its private memory between two censuses, in bytes: all of it if the process is younger than the first.
	Growth int64
}

// TakeCensus reads what all processes hold. Processes that cannot be read are not in it. It is an error if /proc cannot be
// listed.
func TakeCensus() (Census, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, fmt.Errorf("take census: %w", err)
	}
	census := make(Census, len(pids))
	for _, pid := range pids {
		bytes, ok := readPrivate(pid)
		if !ok {
			continue
		}
		if stat, err := process.ReadStat(pid); err == nil {
			census[pid] = citizen{stat.Start, bytes}
		}
	}
	return census, nil
}

// readPrivate is resident less shared memory by /proc/PID/statm, which is read without a walk through page tables.
func readPrivate(pid int) (bytes int64, ok bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(raw)) // size, resident, shared, ..., in pages
	if len(fields) < 3 {
		return 0, false
	}
	resident, err1 := strconv.ParseInt(fields[1], 10, 64)
	shared, err2 := strconv.ParseInt(fields[2], 10, 64)
	return max(0, resident-shared) * int64(os.Getpagesize()), err1 == nil && err2 == nil
}

// Grown gives the processes that have grown most from one census to a later one, at most so many, largest first. Those for
// which inside says so, and this process, are left out.
func (c Census) Grown(later Census, inside func(pid int) bool, most int) []Outsider {
	var grown []Outsider
	for pid, now := range later {
		before := c[pid]
		if before.start != now.start {
			before.bytes = 0
		}
		if now.bytes > before.bytes && pid != os.Getpid() && !inside(pid) {
			grown = append(grown, Outsider{PID: pid, Growth: now.bytes - before.bytes})
		}
	}
	slices.SortFunc(grown, func(a, b Outsider) int {
		return cmp.Or(cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.PID, b.PID))
	})
	grown = grown[:min(len(grown), most)]
	for i := range grown {
		grown[i].Command = commandOf(grown[i].PID)
	}
	return grown
}

// commandOf is a short name of what a process runs; a question mark if it has exited.
func commandOf(pid int) string {
	p, err := process.Open(pid)
	if err != nil {
		return "?"
	}
	defer p.Close()
	return p.Command()
}
