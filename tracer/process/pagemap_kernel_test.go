package process

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The oracle of these tests is the kernel's count of other processes.

const python = "/usr/bin/python3"

// awaitRead waits until a process waits for input, so that it touches no more memory.
func awaitRead(t *testing.T, pid int) {
	t.Helper()
	path, reading := fmt.Sprintf("/proc/%d/syscall", pid), fmt.Sprintf("%d ", unix.SYS_READ)
	for !strings.HasPrefix(string(readFile(t, path)), reading) {
		runtime.Gosched()
	}
}

// isCounted reports whether the kernel counts the pages of a mapping: not mappings of devices
// (VM_PFNMAP) and the vsyscall page.
func (v vma) isCounted() bool {
	return v.end <= 1<<63 && !slices.Contains(strings.Fields(v.fields["VmFlags"]), "pf")
}

// forkScript is a process with 4000 private and 10 shared pages, and a child that writes to the
// private pages from 1000 on.
const forkScript = `
import mmap, os
page = mmap.PAGESIZE
def memory(pages, flags):
    m = mmap.mmap(-1, pages * page, flags=flags)
    m.madvise(mmap.MADV_NOHUGEPAGE)
    for i in range(pages): m[i * page] = 1
    return m
huge = mmap.mmap(-1, 6 << 20, flags=mmap.MAP_PRIVATE)
huge.madvise(mmap.MADV_HUGEPAGE); huge.write(bytes(6 << 20))
zeros = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE)
zeros.madvise(mmap.MADV_NOHUGEPAGE); sum(zeros[:])
private, shared = memory(4000, mmap.MAP_PRIVATE), memory(10, mmap.MAP_SHARED)
def write(first, last, step):
    for i in range(first, last, step): private[i * page] = 2
order, reply = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(order[1])
    for i in range(10): shared[i * page] = 1
    os.write(reply[1], b".")
    while os.read(order[0], 1):
        write(1000, 4000, 3)
        os.write(reply[1], b".")
    os._exit(0)
def answer(line):
    if line == "child writes": os.write(order[1], b"."); os.read(reply[0], 1)
    if line == "child ends": os.close(order[1]); os.waitpid(child, 0)
    if line == "parent writes": write(0, 500, 1)
os.read(reply[0], 1)
print(child, flush=True)
print("ready", flush=True)
while True:
    answer(input())
    print("done", flush=True)
`

// mustRunAsSmaps compares the pages found in a mapping.
func mustRunAsSmaps(t *testing.T, v vma, found []mem.Run) {
	t.Helper()
	isPrivate := func(r mem.Run) bool { return isPresent(r) && !r.File }
	for name, c := range map[string][2]uint64{
		"in memory": {sumRuns(found, isPresent), v.bytes("Rss")},
		"in huge pages": {
			sumRuns(found, isHuge), v.bytes("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"),
		},
		"anonymous": {sumRuns(found, isPrivate), v.bytes("Anonymous")},
		"swapped":   {sumRuns(found, isSwapped), v.bytes("Swap")},
	} {
		if c[0] != c[1] {
			t.Errorf("%x-%x: %d bytes %s, smaps shows %d", v.start, v.end, c[0], name, c[1])
		}
	}
}

// mustShareAsSmaps compares the anonymous memory, which only parent and child share, in both ways.
// It returns the shared bytes.
func mustShareAsSmaps(t *testing.T, pid int) (shared uint64) {
	t.Helper()
	awaitRead(t, pid)
	pagemap := openPagemap(t, open(t, pid))
	for _, v := range readSmaps(t, pid) {
		if !v.isCounted() {
			continue
		}

		mustRunAsSmaps(t, v, runs(t, pagemap, true, v.start, v.end))
		if v.inode != 0 && v.bytes("Anonymous") != v.bytes("Rss") {
			continue // a library, shared with any process
		}

		for way, scan := range ways {
			pagemap.canScan = scan
			found := must(pagemap.SharedRuns(nil, v.start, v.end))
			got, want := sumRuns(found, isAny), v.bytes("Shared_Clean", "Shared_Dirty")
			if !scan { // zero pages read as shared
				want += sumRuns(runs(t, pagemap, false, v.start, v.end), isAny) -
					sumRuns(runs(t, pagemap, true, v.start, v.end), isAny)
			}
			if got != want {
				t.Errorf("%s: %d bytes of %x-%x are shared, smaps shows %d",
					way, got, v.start, v.end, want)
			}

			if !scan {
				continue
			}
			shared += got
			inHuge, all := sumRuns(found, isHuge), v.bytes("AnonHugePages")
			if want == v.bytes("Rss") && inHuge != all {
				t.Errorf("%d bytes of %x-%x are shared in huge pages, smaps shows %d",
					inHuge, v.start, v.end, all)
			}
		}
	}
	return shared
}

func TestSharedRunsOfAFork(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command(python, "-c", forkScript))
	var child int
	tracertest.Must(fmt.Sscan(strings.Join(target.Await("ready"), " "), &child))(t)

	// Each order unshares at least so many pages; Python itself unshares some more.
	var before, after uint64
	for _, c := range []struct {
		order string
		pages uint64
	}{{"nothing", 0}, {"child writes", 1000}, {"parent writes", 500}, {"child ends", 2500}} {
		target.Say(c.order)
		target.Await("done")
		awaitRead(t, target.PID())
		if c.order != "child ends" {
			mustShareAsSmaps(t, child)
		}

		after = mustShareAsSmaps(t, target.PID())
		if c.order == "nothing" && after < 4000*PageSize {
			t.Errorf("%d bytes are shared after the fork", after)
		}
		if c.order != "nothing" && int64(before-after) < int64(c.pages*PageSize) {
			t.Errorf("%s: %d bytes are shared, %d were", c.order, after, before)
		}
		before = after
	}
}
