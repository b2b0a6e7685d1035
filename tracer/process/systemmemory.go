package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// A SystemMemoryReader reads the memory that limits a process: the memory of the machine, and of
// the cgroups it belongs to.
type SystemMemoryReader struct {
	root        string // "/"; tests have another
	hierarchies []hierarchy
	inside      insideView

	// of is the process that was read last, and membership the text of its /proc/PID/cgroup then.
	of         *Process
	membership []byte
}

// NewSystemMemoryReader finds the mounted cgroup hierarchies. Without any, it reads the machine's
// memory only.
func NewSystemMemoryReader() *SystemMemoryReader { return newSystemMemoryReader("/") }

func newSystemMemoryReader(root string) *SystemMemoryReader {
	raw, _ := ReadFile(filepath.Join(root, "proc/self/mountinfo")) // without it there are none
	return &SystemMemoryReader{
		root: root, hierarchies: parseMounts(raw, memoryController),
		inside: insideView{openFile: hostile.Open},
	}
}

// Read returns the memory available to a process. A value that cannot be read is Unknown. Where no
// mount of ours shows the cgroup of the process, mounts of its own are read.
func (r *SystemMemoryReader) Read(p *Process) growth.SystemMemory {
	membership := r.membershipOf(p)
	memory := r.readFor(membership)
	if r.shows(membership) {
		return memory
	}

	r.inside.update(p, membership)
	memory.CgroupHidden = !r.inside.shown
	tightest(r.inside.cgroups).describe(&memory)
	return memory
}

// membershipOf returns the text of /proc/PID/cgroup; nil: it cannot be read. A process that exits is
// moved to the root of a hierarchy of version 1 after it has given its memory back: the earlier
// membership counts then.
func (r *SystemMemoryReader) membershipOf(p *Process) []byte {
	membership, err := p.read("cgroup")
	size, sizeErr := p.read("statm")
	hasMemory := err == nil && sizeErr == nil && !strings.HasPrefix(string(size), "0 ")
	if !hasMemory && r.of == p {
		return r.membership
	}
	if err != nil {
		return nil
	}

	r.of, r.membership = p, membership
	return membership
}

// Close closes the files of the last process whose own mounts were read.
func (r *SystemMemoryReader) Close() { r.inside.close() }

// shows reports whether a mount of ours shows the cgroup of a process that accounts its memory, or
// the process is in no cgroup.
func (r *SystemMemoryReader) shows(membership []byte) bool {
	files, path := accounting(membership)
	if path == "" || path == "/" && isInitialCgroupNamespace() {
		return true
	}
	return slices.ContainsFunc(r.hierarchies, func(h hierarchy) bool {
		_, ok := h.folder(path)
		return ok && h.memoryFiles == files
	})
}

// accounting returns the cgroup that accounts the memory of a process, in the hierarchy of these
// files; empty: none does.
func accounting(membership []byte) (files memoryFiles, path string) {
	for _, files = range []memoryFiles{memoryFilesV1, memoryFilesV2} {
		h := hierarchy{memoryFiles: files, controller: memoryController}
		if path = h.membership(membership); path != "" {
			break
		}
	}
	return files, path
}

// isInitialCgroupNamespace reports whether cgroup paths count from the root of all cgroups for us:
// PROC_CGROUP_INIT_INO in https://github.com/torvalds/linux/blob/v6.13/include/linux/proc_ns.h
func isInitialCgroupNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/cgroup")
	return err == nil && link == fmt.Sprintf("cgroup:[%d]", 0xEFFFFFFB)
}

// Headroom returns the bytes left until the kernel refuses the process more address space or more
// private memory (RLIMIT_AS, RLIMIT_DATA); the zero value: it has neither limit.
func (c *counters) Headroom() (nearest growth.Headroom) {
	raw, err := c.read("limits")
	if err != nil {
		return nearest
	}
	space, data := softLimit(raw, "Max address space"), softLimit(raw, "Max data size")
	if space == Unknown && data == Unknown {
		return nearest
	}
	if raw, err = c.read("status"); err != nil {
		return nearest
	}

	fields := parseFields(raw)
	for _, l := range []struct {
		limit, used int64
		of          string
	}{
		{space, kibibytes(fields, "VmSize"), growth.LimitAddressSpace},
		{data, kibibytes(fields, "VmData"), growth.LimitData},
	} {
		if l.limit != Unknown && l.used != Unknown {
			left := max(0, l.limit-l.used)
			nearest = nearest.Nearest(growth.Headroom{Left: left, Bytes: l.limit, Of: l.of})
		}
	}
	return nearest
}

// softLimit returns a limit of /proc/PID/limits; Unknown: there is none.
func softLimit(raw []byte, name string) int64 {
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return number(fields[0]) // "unlimited" is none
			}
		}
	}
	return Unknown
}

// readFor returns the memory available to the members of cgroups; membership is the text of
// /proc/PID/cgroup.
func (r *SystemMemoryReader) readFor(membership []byte) growth.SystemMemory {
	memory := growth.SystemMemory{
		Available: Unknown, SwapFree: Unknown,
		CgroupUsed: Unknown, CgroupLimit: Unknown, CgroupCache: Unknown, CgroupSwapFree: Unknown,
		Shared: Unknown, Kernel: Unknown,
	}

	if raw, err := ReadFile(filepath.Join(r.root, "proc/meminfo")); err == nil {
		fields := parseFields(raw)
		memory.Available = kibibytes(fields, "MemAvailable")
		memory.SwapFree = kibibytes(fields, "SwapFree")
		memory.Shared, memory.Kernel = kibibytes(fields, "Shmem"), kibibytes(fields, "SUnreclaim")
	}

	tightest(r.cgroups(membership)).describe(&memory)
	return memory
}

// memoryFiles names the memory files of one version of the cgroup interface
// (https://docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/memory.html).
type memoryFiles struct {
	// high is where the kernel begins to throttle; empty: version 1 has none. kernelUsage is the part
	// of usage that the kernel itself takes; empty: version 2 has it in memory.stat.
	limit, high, usage, kernelUsage string

	// swapLimit and swapUsage are of swap, and of memory and swap together in version 1.
	swapLimit, swapUsage string

	// Lines of memory.stat that include descendants: page cache on the inactive list, all page
	// cache including shared memory, shared memory, and memory of the kernel that it cannot drop; empty:
	// version 1 counts it apart.
	inactiveFile, cache, shmem, kernel string
	activeFile                         string // page cache on the active list
}

var (
	memoryFilesV1 = memoryFiles{
		limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes",
		kernelUsage: "memory.kmem.usage_in_bytes",
		swapLimit:   "memory.memsw.limit_in_bytes", swapUsage: "memory.memsw.usage_in_bytes",
		inactiveFile: "total_inactive_file", cache: "total_cache", shmem: "total_shmem",
		activeFile: "total_active_file",
	}
	memoryFilesV2 = memoryFiles{
		limit: "memory.max", high: "memory.high", usage: "memory.current",
		swapLimit: "memory.swap.max", swapUsage: "memory.swap.current",
		inactiveFile: "inactive_file", cache: "file", shmem: "shmem", kernel: "slab_unreclaimable",
		activeFile: "active_file",
	}
)

// minUnlimitedBytes is the smallest limit that counts as none. Version 1 writes the largest
// multiple of the page size below 2^63 for "no limit".
const minUnlimitedBytes = 1 << 60

// memoryController is the name of the controller of version 1 that accounts memory.
const memoryController = "memory"

// A hierarchy is a cgroup mount that may have a controller.
type hierarchy struct {
	memoryFiles          // of its version
	controller  string   // of version 1
	mount       uint64   // its number in mountinfo
	root        []string // path components of the cgroup that is mounted there
	mountPoint  string
}

func (h hierarchy) equals(other hierarchy) bool {
	return h.memoryFiles == other.memoryFiles && h.mount == other.mount &&
		h.mountPoint == other.mountPoint && slices.Equal(h.root, other.root)
}

// parseMounts finds the hierarchies that may have a controller in the text of /proc/self/mountinfo
// (proc_pid_mountinfo(5)).
func parseMounts(raw []byte, controller string) []hierarchy {
	var found []hierarchy
	for line := range strings.Lines(string(raw)) {
		// ID parent device root mountpoint options [tags] - type source superoptions
		mount, filesystem, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(mount), strings.Fields(filesystem)
		if len(left) < 5 || len(right) < 3 {
			continue
		}

		h := hierarchy{
			controller: controller, root: components(unescape(left[3])), mountPoint: unescape(left[4]),
		}
		h.mount, _ = strconv.ParseUint(left[0], 10, 64)
		switch {
		case right[0] == "cgroup2":
			h.memoryFiles = memoryFilesV2
		case right[0] == "cgroup" && slices.Contains(strings.Split(right[2], ","), controller):
			h.memoryFiles = memoryFilesV1
		default:
			continue
		}
		found = append(found, h)
	}
	return found
}

// unescape undoes the octal escapes that the kernel writes for white space and backslashes.
func unescape(path string) string {
	escapes := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	return escapes.Replace(path)
}

func components(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// membership returns the cgroup path of a process in the hierarchy; empty if none is listed. raw
// is the text of /proc/PID/cgroup.
func (h hierarchy) membership(raw []byte) string {
	for line := range strings.Lines(string(raw)) {
		// number:controllers:path
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}

		number, controllers, path := parts[0], strings.Split(parts[1], ","), parts[2]
		switch {
		case h.memoryFiles == memoryFilesV2 && number == "0" && parts[1] == "":
			return path
		case h.memoryFiles == memoryFilesV1 && slices.Contains(controllers, h.controller):
			return path
		}
	}
	return ""
}

// folder returns the path components of a cgroup below the mount point. Cgroup paths count from
// the root of our cgroup namespace and may begin with "..". ok is false outside the mount.
func (h hierarchy) folder(cgroup string) (path []string, ok bool) {
	path = components(cgroup)
	if cgroup == "" || len(path) < len(h.root) || !slices.Equal(path[:len(h.root)], h.root) {
		return nil, false
	}
	path = path[len(h.root):]
	return path, !slices.Contains(path, "..")
}

// A cgroupMemory is the limit of a cgroup and its use, in bytes. used excludes the inactive page
// cache, which the kernel can drop. cache is all page cache of files, and shared and
// kernel are as in growth.SystemMemory; Unknown if not reported.
type cgroupMemory struct {
	of                 *Cgroup
	used, limit, cache int64
	shared, kernel     int64
	swapLeft           int64 // until the limit of swap; Unknown: it has none
	active             int64 // part of cache, on the active list; 0 if not reported
	throttles          bool  // the limit is memory.high
}

// nearest returns the one with less headroom. nil has no limit.
func (c *cgroupMemory) nearest(other *cgroupMemory) *cgroupMemory {
	if c == nil || other != nil && other.limit-other.used < c.limit-c.used {
		return other
	}
	return c
}

// describe sets the cgroup's part, unless it is nil.
func (c *cgroupMemory) describe(memory *growth.SystemMemory) {
	if c != nil {
		memory.CgroupUsed, memory.CgroupLimit = c.used, c.limit
		memory.CgroupCache, memory.CgroupThrottles = c.cache, c.throttles
		memory.Shared, memory.Kernel = c.shared, c.kernel
		memory.CgroupSwapFree = memory.SwapFree
		if c.swapLeft != Unknown {
			memory.CgroupSwapFree = min(memory.SwapFree, c.swapLeft)
		}
		memory.CgroupActive = c.active
	}
}

// cgroups are the cgroups of a process and their ancestors that our mounts show, its own first.
func (r *SystemMemoryReader) cgroups(membership []byte) (all []Cgroup) {
	for _, h := range r.hierarchies {
		path, ok := h.folder(h.membership(membership))
		if !ok {
			continue
		}

		for n := len(path); n >= 0; n-- {
			folder := filepath.Join(r.root, h.mountPoint, filepath.Join(path[:n]...))
			all = append(all, Cgroup{h, path[:n], func(name string) []byte {
				raw, err := ReadFile(filepath.Join(folder, name))
				if err != nil {
					return nil
				}
				return raw
			}})
		}
	}
	return all
}

// tightest returns the memory of the cgroup with the least headroom; nil: none has a limit.
func tightest(all []Cgroup) (nearest *cgroupMemory) {
	for i := range all {
		nearest = nearest.nearest(all[i].memory())
	}
	return nearest
}

// memory reads the memory of a cgroup; nil if it has no limit.
func (g *Cgroup) memory() *cgroupMemory {
	f := g.memoryFiles
	limit, throttles := g.limit()
	used := g.Charged()
	if limit == Unknown || used == Unknown {
		return nil
	}

	c := &cgroupMemory{
		of: g, used: used, limit: limit, throttles: throttles, swapLeft: g.swapLeft(used),
		cache: Unknown, shared: Unknown, kernel: Unknown,
	}
	stat := g.Stat()
	if inactive, ok := stat[f.inactiveFile]; ok {
		c.used = max(0, used-max(0, inactive))
	}

	c.active = max(0, stat[f.activeFile])

	// Shared memory is page cache to the kernel, but it cannot be dropped.
	cache, haveCache := stat[f.cache]
	shmem, haveShmem := stat[f.shmem]
	if haveShmem {
		c.shared = shmem
	}
	if kernel, ok := stat[f.kernel]; ok {
		c.kernel = kernel
	}
	if haveCache && haveShmem && cache >= shmem && shmem >= 0 {
		c.cache = cache - shmem
	}
	return c
}

// parseNumber parses a file that holds one number; Unknown for "max" and for a file that holds
// none.
func parseNumber(raw []byte) int64 { return number(strings.TrimSpace(string(raw))) }
