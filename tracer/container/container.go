// Package container attributes the memory that the cgroup of a job is charged with: to the
// processes in it, to files in RAM, to cached files, and to the kernel. It reads files of /proc
// and of the cgroup, and stops no process.
package container

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Reader reads the memory of the container of one process. It is not safe for concurrent use.
type Reader struct {
	named  *process.Process
	memory *process.SystemMemoryReader
	ram    uint64          // the device of memfd, of SysV's and of anonymous shared memory; 0: not known
	last   *process.Cgroup // as of Read; nil: there was none
}

// NewReader returns a reader of the container of a process, which the caller closes after it.
func NewReader(named *process.Process) *Reader {
	return &Reader{named: named, memory: process.NewSystemMemoryReader(), ram: ramDevice()}
}

// Close closes the files of the cgroup.
func (r *Reader) Close() { r.memory.Close() }

// ramDevice is the device of all files in RAM that have no mount.
func ramDevice() uint64 {
	fd, err := unix.MemfdCreate("allocscope", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil {
		return 0
	}
	return uint64(stat.Dev)
}

// Read returns the memory of the container; nil: the process is in none, it has ended, or the memory
// cannot be read.
func (r *Reader) Read(elapsed time.Duration) *growth.Container {
	cgroup, ok := r.memory.ContainerOf(r.named)
	if r.last = nil; !ok {
		return nil
	}
	r.last = &cgroup
	members := membersOf(&cgroup)
	files := r.filesOf(members)

	stat, charged := cgroup.Stat(), cgroup.Charged()
	if charged == process.Unknown || len(stat) == 0 {
		return nil
	}
	if status, err := r.named.Status(); err != nil || status.RSS == process.Unknown {
		return nil // it ended meanwhile, and its memory is free
	}

	c := &growth.Container{
		Elapsed: elapsed, Cgroup: cgroup.Path(), Charged: charged, Limit: cgroup.Limit(),
	}
	charge := chargeOf(&cgroup, stat, members)
	c.Rows = append(c.Rows, anonymousRows(members, charge.anonymous)...)
	c.Rows = append(c.Rows, fileRows(growth.ContainerShared, files.shared, charge.shared)...)
	files.readCache()
	c.Rows = append(c.Rows, fileRows(growth.ContainerCache, files.cached, charge.cache)...)
	c.Rows = append(c.Rows, charge.kernel...)

	rest := charged
	for _, row := range c.Rows {
		rest -= row.Bytes
	}
	kind := growth.ContainerRest
	if charge.hasUnlisted {
		kind = growth.ContainerKernel
	}
	c.Rows = append(c.Rows, growth.ContainerRow{Kind: kind, Bytes: rest})
	return c
}

// Has reports whether the memory of a process counts against the limit of the container that was
// read last.
func (r *Reader) Has(pid int) bool {
	return r.last != nil && isMember(r.last, strconv.Itoa(pid))
}

// A charge is the memory of a cgroup by kind, in bytes.
type charge struct {
	anonymous, shared, cache int64
	kernel                   []growth.ContainerRow
	// hasUnlisted: pages of the kernel, such as buffers of sockets, are in no line of memory.stat.
	hasUnlisted bool
}

// kernelStack is the size of the kernel's stack of a thread, THREAD_SIZE of x86-64 and arm64 in
// Linux.
const kernelStack = 16 << 10

func chargeOf(g *process.Cgroup, stat map[string]int64, members []member) (c charge) {
	add := func(kind growth.ContainerKind, bytes int64) {
		c.kernel = append(c.kernel, growth.ContainerRow{Kind: kind, Bytes: bytes})
	}

	if !g.IsV2() {
		c.anonymous, c.shared = stat["total_rss"], stat["total_shmem"]
		c.cache = stat["total_cache"] - c.shared
		rest := max(0, g.Kernel())
		var tables, threads int64
		for i := range members {
			tables += max(0, members[i].status.PageTables)
			threads += max(0, members[i].status.Threads)
		}
		tables = min(tables, rest)
		stacks := min(threads*kernelStack, rest-tables)
		add(growth.ContainerPageTables, tables)
		add(growth.ContainerStacks, stacks)
		add(growth.ContainerKernel, rest-tables-stacks)
		return c
	}

	c.anonymous, c.shared = stat["anon"], stat["shmem"]
	c.cache = stat["file"] - c.shared
	rest, ok := stat["kernel"] // since Linux 5.18
	if !ok {
		rest = stat["slab"] + stat["kernel_stack"] + stat["pagetables"] + stat["percpu"]
		c.hasUnlisted = true
	}

	for _, row := range []struct {
		kind  growth.ContainerKind
		lines []string
	}{
		{growth.ContainerReclaimable, []string{"slab_reclaimable"}},
		{growth.ContainerSlab, []string{"slab_unreclaimable"}},
		{growth.ContainerPageTables, []string{"pagetables", "sec_pagetables"}},
		{growth.ContainerStacks, []string{"kernel_stack"}},
	} {
		var bytes int64
		for _, line := range row.lines {
			bytes += stat[line]
		}
		add(row.kind, bytes)
		rest -= bytes
	}
	add(growth.ContainerSockets, stat["sock"])
	add(growth.ContainerKernel, rest)
	return c
}

// anonymousRows has a row for each process. The kernel counts pages of a fork for each of the
// processes that share them, and the cgroup is charged once.
func anonymousRows(members []member, charged int64) (rows []growth.ContainerRow) {
	var sum int64
	for i := range members {
		m := &members[i]
		bytes := max(0, m.status.Anonymous)
		sum += bytes
		rows = append(rows, growth.ContainerRow{
			Kind: growth.ContainerAnonymous, Key: fmt.Sprintf("%d %d", m.pid, m.start),
			PID: m.pid, Name: m.status.Name, Bytes: bytes,
		})
	}

	rest := growth.ContainerRow{Kind: growth.ContainerAnonymous, Bytes: charged - sum}
	if rest.Bytes < 0 {
		rest.Kind = growth.ContainerForked
	}
	return append(rows, rest)
}

// fileRows has a row for each file, as far as the cgroup is charged: others may be charged with a
// part of a file that is larger.
func fileRows(kind growth.ContainerKind, files []file, charged int64) (rows []growth.ContainerRow) {
	for _, f := range files {
		bytes := min(f.bytes, charged)
		if bytes <= 0 {
			continue
		}
		charged -= bytes
		row := growth.ContainerRow{
			Kind: kind, Key: fmt.Sprintf("%d %d", f.device, f.inode), PID: f.pid, Name: f.name,
			File: growth.Printable(f.path), Count: f.count, Bytes: bytes,
		}
		if f.count > 0 {
			row.Key = fmt.Sprintf("small %d %d", f.pid, f.inode)
		}
		rows = append(rows, row)
	}
	return append(rows, growth.ContainerRow{Kind: kind, Bytes: charged})
}
