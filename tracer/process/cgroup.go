package process

import (
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// A Cgroup accounts the memory of its members and of the cgroups below it.
type Cgroup struct {
	hierarchy
	path []string                 // below the mount
	file func(name string) []byte // its content; nil: it cannot be read
}

// ContainerOf returns the cgroup whose memory the process fills: the one with the least headroom,
// or where none has a limit, its own. ok is false where that is the root of all cgroups (the whole
// machine), or cannot be seen.
func (r *SystemMemoryReader) ContainerOf(p *Process) (container Cgroup, ok bool) {
	membership := r.membershipOf(p)
	all := r.cgroups(membership)
	if !r.shows(membership) {
		r.inside.update(p, membership)
		all = r.inside.cgroups
	}
	if nearest := tightest(all); nearest != nil {
		return *nearest.of, true
	}

	files, _ := accounting(membership)
	i := slices.IndexFunc(all, func(g Cgroup) bool { return g.memoryFiles == files && !g.isRoot() })
	if i < 0 || all[i].Charged() == Unknown {
		return container, false
	}
	return all[i], true
}

func (g *Cgroup) isRoot() bool { return len(g.root)+len(g.path) == 0 }

// IsV2 is false of version 1.
func (g *Cgroup) IsV2() bool { return g.memoryFiles == memoryFilesV2 }

// Path is the path of the cgroup, as /proc/PID/cgroup has it, printable.
func (g *Cgroup) Path() string {
	return growth.Printable("/" + strings.Join(slices.Concat(g.root, g.path), "/"))
}

// Has reports whether the cgroup accounts the memory of a process, by the text of its
// /proc/PID/cgroup.
func (g *Cgroup) Has(membership []byte) bool {
	path, ok := g.folder(g.membership(membership))
	return ok && len(path) >= len(g.path) && slices.Equal(path[:len(g.path)], g.path)
}

// Charged is the memory that the cgroup is charged with, in bytes.
func (g *Cgroup) Charged() int64 { return parseNumber(g.file(g.usage)) }

// Limit in bytes: where the kernel throttles or ends processes, the lower of both; Unknown: none.
func (g *Cgroup) Limit() int64 {
	limit, _ := g.limit()
	return limit
}

// Stat is memory.stat by line, the first of each name; the numbers of version 1 that include the
// cgroups below begin with "total_".
func (g *Cgroup) Stat() map[string]int64 {
	stat := make(map[string]int64)
	for line := range strings.Lines(string(g.file(memoryStat))) {
		name, value, _ := strings.Cut(line, " ")
		if _, ok := stat[name]; !ok {
			stat[name] = number(strings.TrimSpace(value))
		}
	}
	return stat
}

// Kernel is the memory of the kernel that version 1 charges, in bytes; Unknown in version 2, whose
// Stat has it.
func (g *Cgroup) Kernel() int64 {
	if g.kernelUsage == "" {
		return Unknown
	}
	return parseNumber(g.file(g.kernelUsage))
}

// limit returns the lower of the two limits, and whether the kernel throttles there.
func (g *Cgroup) limit() (limit int64, throttles bool) {
	if limit = parseNumber(g.file(g.memoryFiles.limit)); limit >= minUnlimitedBytes {
		limit = Unknown
	}
	if g.high == "" {
		return limit, false
	}

	high := parseNumber(g.file(g.high))
	if high == Unknown || limit != Unknown && limit <= high {
		return limit, false
	}
	return high, true
}

// swapLeft is the swap that the cgroup may still fill, in bytes; Unknown: it has no limit of its own.
// charged is its memory.
func (g *Cgroup) swapLeft(charged int64) int64 {
	limit, used := parseNumber(g.file(g.swapLimit)), parseNumber(g.file(g.swapUsage))
	if limit == Unknown || limit >= minUnlimitedBytes || used == Unknown {
		return Unknown
	}
	if !g.IsV2() {
		limit, used = limit-parseNumber(g.file(g.memoryFiles.limit)), used-charged
	}
	return max(0, limit-used)
}

// names are the files that the methods read.
func (f memoryFiles) names() []string {
	names := []string{f.limit, f.usage, memoryStat}
	for _, name := range []string{f.high, f.kernelUsage, f.swapLimit, f.swapUsage} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

const memoryStat = "memory.stat"
