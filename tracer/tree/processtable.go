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

// A ProcessTable is the private memory of all processes of the machine at one moment, by PID.
type ProcessTable map[int]processMemory

type processMemory struct {
	start  time.Duration // distinguishes processes that had the same PID
	bytes  int64
	parent int
}

// An OtherProcess is a process outside of the tree.
type OtherProcess struct {
	PID int

	// Command is a short name of the running program, printable.
	Command string

	// Growth of its private memory between two tables, in bytes: all of it for a process that is
	// younger than the first table.
	Growth int64
}

// ReadProcessTable reads two small files of each process, and omits processes that cannot be read.
// It is an error if /proc cannot be listed.
func ReadProcessTable() (ProcessTable, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, fmt.Errorf("read process table: %w", err)
	}

	table := make(ProcessTable, len(pids))
	for _, pid := range pids {
		bytes, ok := readPrivate(pid)
		if !ok {
			continue
		}
		if stat, err := process.ReadStat(pid); err == nil {
			table[pid] = processMemory{stat.Start, bytes, stat.Parent}
		}
	}
	return table, nil
}

// readPrivate returns resident minus shared memory of a process in bytes.
func readPrivate(pid int) (bytes int64, ok bool) {
	resident, shared, ok := readResident(pid)
	return max(0, resident-shared), ok
}

// readResident returns resident memory, and the shared part of it, of /proc/PID/statm in bytes. The
// kernel reads it from counters, without walking page tables.
func readResident(pid int) (resident, shared int64, ok bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(raw)) // size, resident, shared, ..., in pages
	if len(fields) < 3 {
		return 0, 0, false
	}

	resident, err1 := strconv.ParseInt(fields[1], 10, 64)
	shared, err2 := strconv.ParseInt(fields[2], 10, 64)
	page := int64(process.PageSize)
	return resident * page, shared * page, err1 == nil && err2 == nil
}

// TopGrowers returns up to limit processes that have grown most until a later table, largest growth
// first, of those that matter; allocscope itself never does.
func (c ProcessTable) TopGrowers(
	later ProcessTable, matters func(pid int) bool, limit int,
) []OtherProcess {
	var grown []OtherProcess
	for pid, now := range later {
		before := c[pid]
		if before.start != now.start {
			before.bytes = 0
		}
		if now.bytes > before.bytes && pid != os.Getpid() && matters(pid) {
			grown = append(grown, OtherProcess{PID: pid, Growth: now.bytes - before.bytes})
		}
	}

	slices.SortFunc(grown, func(a, b OtherProcess) int {
		return cmp.Or(cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.PID, b.PID))
	})
	grown = grown[:min(len(grown), limit)]
	for i := range grown {
		grown[i].Command = commandOf(grown[i].PID)
	}
	return grown
}

// commandOf returns a short name of a process's program; a question mark if it has exited.
func commandOf(pid int) string {
	p, err := process.Open(pid)
	if err != nil {
		return "?"
	}
	defer p.Close()
	return p.Command()
}
