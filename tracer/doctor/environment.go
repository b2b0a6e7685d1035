package doctor

import (
	"cmp"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	// minFreeBytes is room for the files of a trace of some hours.
	minFreeBytes = 256 << 20
	// minOpenFiles is the number of files that the largest tree that is followed takes.
	minOpenFiles = 2048
)

// checkFolder checks whether a trace can write its files into a folder.
func checkFolder(path string) Result {
	r := Result{Name: "current folder"}
	const remedy = "change to another folder, or name one with --output"
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		r.Finding, r.Remedy = fmt.Sprintf("not writable: %v", err), remedy
		return r
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		r.Finding, r.Remedy = fmt.Sprintf("read its free space: %v", err), remedy
		return r
	}

	free := int64(fs.Bavail) * fs.Bsize
	r.Finding = "writable, " + gibibytes(free) + " free"
	if free < minFreeBytes {
		r.Remedy = remedy
	}
	return r
}

// checkProgram checks that root alone can replace the program of this process, which sudo starts.
func checkProgram() Result {
	r := Result{Name: "program"}
	path, err := os.Executable()
	if err != nil {
		r.Finding, r.Remedy = fmt.Sprintf("find its path: %v", err), "mount /proc"
		return r
	}
	part, why, err := hostile.Replaceable(path)
	switch {
	case err != nil:
		r.Finding, r.Remedy = fmt.Sprintf("read its owners: %v", err), "install it again, as root"
	case part != "":
		r.Finding = fmt.Sprintf("others than root can replace %s: %s %s", growth.Printable(path),
			growth.Printable(part), why)
		r.Remedy = "install it as root before you call it by sudo: docs/guides/privileges.md"
	default:
		r.Finding = growth.Printable(path) + ", which root alone can replace"
	}

	return r
}

// checkOpenFiles checks how many files may be open: some for each process of a tree.
func checkOpenFiles() Result {
	r := Result{Name: "open files"}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		r.Finding, r.Remedy = fmt.Sprintf("read their limit: %v", err), "check with ulimit -n"
		return r
	}
	r.Finding = fmt.Sprintf("up to %d", limit.Max)
	if limit.Max < minOpenFiles {
		r.Finding += ": too few for trees of hundreds of processes"
		r.Remedy = fmt.Sprintf("raise the limit if the job is so large: ulimit -n %d", minOpenFiles)
	}
	return r
}

// checkLimit finds the memory limit that a process will meet first.
func checkLimit(p *process.Process) Result {
	r := Result{Name: "memory limit"}
	reader := process.NewSystemMemoryReader()
	defer reader.Close()
	memory := reader.Read(p)
	if memory.CgroupHidden {
		r.Finding = "that of the process's container cannot be seen from here"
		r.Remedy = "name it: allocscope trace --limit SIZE; or run allocscope on the host"
		return r
	}

	first := memory.Headroom().Nearest(p.Headroom())
	switch first.Of {
	case "":
		r.Finding, r.Remedy = "unknown", "mount /proc"
	case growth.LimitMachine:
		r.Finding = "the machine's memory, " + gibibytes(first.Left) + " available"
	default:
		r.Finding = fmt.Sprintf("%s of the %s, %s left", gibibytes(first.Bytes), first.Of,
			gibibytes(first.Left))
	}

	return r
}

// checkMalloc checks whether the objects of a process can be followed where its heap is sampled in
// bursts.
func checkMalloc(p *process.Process, maps []process.Mapping) []Result {
	m, err := liveness.Identify(p, maps)
	if err != nil {
		return nil // source heap has the reason
	}

	r := Result{Name: "malloc", Remedy: "trace with --overhead off, which slows the job more"}
	r.Finding = fmt.Sprintf("%s (%s)", cmp.Or(m.Name, "an unknown one"), path.Base(m.Path))
	if m.Limit == growth.HeapUnlimited {
		r.Remedy = ""
		return []Result{r}
	}
	r.Finding += ": where the budget allows bursts only, " + heapLimits[m.Limit]
	if m.Limit == growth.HeapFreeUnmeasured {
		r.Remedy = "where fragmentation matters, " + r.Remedy
	}
	return []Result{r}
}

var heapLimits = map[growth.HeapLimit]string{
	growth.HeapUnchecked: "call sites of the heap stay undecided",
	growth.HeapUnknownVersion: "call sites of the heap stay undecided, as its version is not known (" +
		"jemalloc 5.3 and 5.4, and mimalloc 2.0 are)",
	growth.HeapFreedLooksAlive: "call sites of the heap may stay unnamed for long",
	growth.HeapFreeUnmeasured:  "free memory inside it is not measured",
}

func gibibytes(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }
