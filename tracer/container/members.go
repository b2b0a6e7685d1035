package container

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
)

// A member is a process whose memory a cgroup accounts.
type member struct {
	pid    int
	start  time.Duration // distinguishes processes that had the same PID
	status process.Status
}

// maxMembers bounds the members, and with them the rows.
const maxMembers = 4096

// membersOf returns the processes in a cgroup and in the cgroups below it, the largest first. It
// compares the cgroups of all processes: some containers do not show the folders of a cgroup.
func membersOf(g *process.Cgroup) (members []member) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil
	}

	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || len(members) >= maxMembers {
			continue
		}
		if !isMember(g, name) {
			continue
		}
		stat, err := process.ReadStat(pid)
		if err != nil {
			continue
		}
		status, err := process.ReadStatus(stat.TID)
		if err == nil && status.RSS != process.Unknown {
			members = append(members, member{pid, stat.Start, status})
		}
	}
	slices.SortFunc(members, func(a, b member) int {
		return int(max(-1, min(1, b.status.RSS-a.status.RSS)))
	})
	return members
}

// isMember reports whether a cgroup accounts the memory of a process.
func isMember(g *process.Cgroup, pid string) bool {
	membership, err := process.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	return err == nil && g.Has(membership)
}
