package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A version of the cgroup interface, by the names of its memory files (Documentation/admin-guide/cgroup-v2.rst and
// cgroup-v1/memory.rst).
type version struct {
	limit, usage string
	// Lines of memory.stat, descendants included: page cache that was not used lately; all page cache, with shared memory; that.
	droppable, cache, shared string
}

var (
	version1 = version{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_cache", "total_shmem"}
	version2 = version{"memory.max", "memory.current", "inactive_file", "file", "shmem"}
)

// noLimit is what version 1 has for none: the largest multiple of the page size below 2^63; nobody has as much.
const noLimit = 1 << 60

// A hierarchy is a mount of cgroups that may account memory.
type hierarchy struct {
	version
	// top is the cgroup that is mounted there, as its path components; at is the folder.
	top []string
	at  string
}

// parseMounts finds the hierarchies in the text of /proc/self/mountinfo (proc_pid_mountinfo(5)).
func parseMounts(raw []byte) []hierarchy {
	var found []hierarchy
	for line := range strings.Lines(string(raw)) {
		// ID parent device root mountpoint options [tags] - type source superoptions
		mount, filesystem, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(mount), strings.Fields(filesystem)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		h := hierarchy{top: components(unescape(left[3])), at: unescape(left[4])}
		switch {
		case right[0] == "cgroup2":
			h.version = version2
		case right[0] == "cgroup" && slices.Contains(strings.Split(right[2], ","), "memory"):
			h.version = version1
		default:
			continue
		}
		found = append(found, h)
	}
	return found
}

// unescape undoes what the kernel does to white space and backslashes in mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

func components(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// folder is where a cgroup lies in the mounted hierarchy, relative to it. Paths count from the root of our cgroup namespace
// and may begin with "..". What the mount does not show has no folder.
func (h hierarchy) folder(cgroup string) ([]string, bool) {
	path := components(cgroup)
	if cgroup == "" || len(path) < len(h.top) || !slices.Equal(path[:len(h.top)], h.top) {
		return nil, false
	}
	path = path[len(h.top):]
	return path, !slices.Contains(path, "..")
}

// A limit of memory and what is used of it, in bytes, without page cache that could be dropped. cache is the page cache of
// files, used lately or not; Unknown where that is not told.
type limit struct{ used, limit, cache int64 }

func (l limit) room() int64 { return l.limit - l.used }

// firstLimit is the limit with the smallest room among those of the process's cgroups and the cgroups above; nil: there is
// none that we can see. membership is the text of /proc/PID/cgroup.
func (s *Surroundings) firstLimit(membership []byte) *limit {
	var first *limit
	for _, h := range s.mounts {
		path, ok := h.folder(h.cgroup(membership))
		for n := len(path); ok && n >= 0; n-- {
			folder := filepath.Join(s.root, h.at, filepath.Join(path[:n]...))
			if l := h.read(folder); l != nil && (first == nil || l.room() < first.room()) {
				first = l
			}
		}
	}
	return first
}

// cgroup is the process's cgroup in the hierarchy, as its path; empty if none is named.
func (h hierarchy) cgroup(membership []byte) string {
	for line := range strings.Lines(string(membership)) {
		// number:controllers:path
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		if h.version == version2 && parts[0] == "0" && parts[1] == "" ||
			h.version == version1 && slices.Contains(strings.Split(parts[1], ","), "memory") {
			return parts[2]
		}
	}
	return ""
}

// read reads the limit of a cgroup; nil: it has none.
func (v version) read(folder string) *limit {
	most := readNumber(filepath.Join(folder, v.limit))
	used := readNumber(filepath.Join(folder, v.usage))
	if most == Unknown || most >= noLimit || used == Unknown {
		return nil
	}
	l := &limit{used: used, limit: most, cache: Unknown}
	raw, err := os.ReadFile(filepath.Join(folder, "memory.stat"))
	if err != nil {
		return l
	}
	stat := statistics(raw)
	if droppable, ok := stat[v.droppable]; ok {
		l.used = max(0, used-max(0, droppable))
	}
	cache, known := stat[v.cache]
	if shared, ok := stat[v.shared]; known && ok && cache >= shared && shared >= 0 {
		l.cache = cache - shared
	}
	return l
}

// statistics are the lines of memory.stat by name, the first of each.
func statistics(raw []byte) map[string]int64 {
	stat := make(map[string]int64)
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, " ")
		if _, ok := stat[name]; !ok {
			stat[name] = number(strings.TrimSpace(value))
		}
	}
	return stat
}

// readNumber reads a file that holds one number; "max" and what cannot be read are Unknown.
func readNumber(path string) int64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Unknown
	}
	return number(strings.TrimSpace(string(raw)))
}
