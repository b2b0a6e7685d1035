package kernel

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// Needs of a trace of one process, at least.
const (
	// minOpenFiles are the maps, programs, links and files in /proc, beside the files that are open;
	// filesPerCPU are perf events.
	minOpenFiles, filesPerCPU = 100, 2
	// usualOpenFiles is enough for a tree of many processes.
	usualOpenFiles = 4096
	// minAddressSpace is most of all Go's heap, which reserves more than it uses.
	minAddressSpace = 2 << 30 // bytes
	// minCgroupMemory is for the kernel's maps and our own heap.
	minCgroupMemory = 192 << 20 // bytes
)

// limits are the limits of this process. The Go runtime has raised the soft limit of open files to the
// hard one. A locked memory limit does not count for BPF maps since Linux 5.11.
type limits struct {
	openFiles, addressSpace uint64
	areOpen                 int   // files
	cgroup                  int64 // bytes; growth.Unknown: none
	cpus                    int
}

func ownLimits() limits {
	l := limits{
		openFiles: unix.RLIM_INFINITY, addressSpace: unix.RLIM_INFINITY, cgroup: growth.Unknown,
		cpus: runtime.NumCPU(),
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		l.openFiles = limit.Cur
	}
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) == nil {
		l.addressSpace = limit.Cur
	}

	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.areOpen = len(open)
	}

	reader := process.NewSystemMemoryReader()
	defer reader.Close()
	if p, err := process.OpenAny(os.Getpid()); err == nil {
		l.cgroup = reader.Read(p).CgroupLimit
		_ = p.Close() // has been read
	}
	return l
}

// check returns which limit is too low for a trace, and the number that it takes: the kernel's own
// errors name something else.
func (l limits) check() error {
	files := uint64(l.areOpen + minOpenFiles + filesPerCPU*l.cpus)
	switch {
	case l.openFiles < files:
		return fmt.Errorf("the limit of open files is %d: allocscope needs %d for one process, and more "+
			"for others (raise it: ulimit -n %d; or LimitNOFILE= of its service)",
			l.openFiles, files, usualOpenFiles)
	case l.addressSpace < minAddressSpace:
		return fmt.Errorf("the limit of address space is %d MiB: allocscope needs %d MiB "+
			"(lift it: ulimit -v unlimited)", l.addressSpace>>20, minAddressSpace>>20)
	case l.cgroup != growth.Unknown && l.cgroup < minCgroupMemory:
		return fmt.Errorf("the memory limit of allocscope's own cgroup is %d MiB: it needs %d MiB "+
			"(raise the limit, or run it in another cgroup)", l.cgroup>>20, minCgroupMemory>>20)
	}
	return nil
}
