package process

import (
	"os"
	"path/filepath"

	"github.com/allocscope/allocscope/growth"
)

// Surroundings reads the memory around processes: of the machine, and of the cgroups that limit them.
type Surroundings struct {
	root   string // "/"; tests have another
	mounts []hierarchy
}

// FindSurroundings looks for the mounted cgroup hierarchies. Where there are none, only the machine is looked at.
func FindSurroundings() *Surroundings { return findSurroundings("/") }

func findSurroundings(root string) *Surroundings {
	raw, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return &Surroundings{root: root}
	}
	return &Surroundings{root: root, mounts: parseMounts(raw)}
}

// Around is the memory around a process. What cannot be read is Unknown.
func (s *Surroundings) Around(p *Process) growth.Around {
	membership, err := p.read("cgroup")
	if err != nil {
		membership = nil
	}
	return s.around(membership)
}

func (s *Surroundings) around(membership []byte) growth.Around {
	around := growth.Around{Available: Unknown, SwapFree: Unknown, CgroupUsed: Unknown, CgroupLimit: Unknown, CgroupCache: Unknown}
	if raw, err := os.ReadFile(filepath.Join(s.root, "proc/meminfo")); err == nil {
		fields := parseFields(raw)
		around.Available, around.SwapFree = kibibytes(fields, "MemAvailable"), kibibytes(fields, "SwapFree")
	}
	if first := s.firstLimit(membership); first != nil {
		around.CgroupUsed, around.CgroupLimit, around.CgroupCache = first.used, first.limit, first.cache
	}
	return around
}
