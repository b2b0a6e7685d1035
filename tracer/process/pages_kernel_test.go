package process

// What the pages of other processes are, against what the kernel counts.

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

const python = "/usr/bin/python3"

func startPython(t *testing.T, code string) *tracertest.Target {
	t.Helper()
	target := tracertest.StartCommand(t, exec.Command(python, "-c", code))
	target.Await("ready")
	return target
}

// awaitReading waits until a process waits for input, so that it touches no more memory.
func awaitReading(t *testing.T, pid int) {
	t.Helper()
	for !strings.HasPrefix(string(readFile(t, fmt.Sprintf("/proc/%d/syscall", pid))), fmt.Sprintf("%d ", unix.SYS_READ)) {
		runtime.Gosched()
	}
}

func TestPagesInMemorySumToTheKernelsNumberToThePage(t *testing.T) {
	target := startPython(t, `
import mmap, os, torch
layer = torch.nn.Linear(2000, 2000)
layer(torch.ones(8, 2000)).sum().backward()
shared = mmap.mmap(-1, 1 << 20); shared.write(bytes(1 << 19))
huge = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE); huge.madvise(mmap.MADV_HUGEPAGE); huge.write(bytes(9 << 20))
zeros = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE); zeros.madvise(mmap.MADV_NOHUGEPAGE); sum(zeros[:4 << 20])
print("ready", flush=True)
input()
`)
	awaitReading(t, target.PID())
	pages, rss := pagesOf(t, open(t, target.PID())), uint64(0)
	for _, a := range areas(t, target.PID()) {
		if a.device() || a.end > 1<<63 {
			continue
		}
		found := runs(t, pages, true, a.start, a.end)
		for name, c := range map[string]struct {
			got, want uint64
		}{
			"in memory":      {sum(found, present), a.bytes("Rss")},
			"in huge pages":  {sum(found, huge), a.bytes("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")},
			"of private use": {sum(found, func(r PageRun) bool { return present(r) && !r.File }), a.bytes("Anonymous")},
			"swapped":        {sum(found, swapped), a.bytes("Swap")},
		} {
			if c.got != c.want {
				t.Errorf("%x-%x: %d bytes %s, smaps says %d", a.start, a.end, c.got, name, c.want)
			}
		}
		rss += sum(found, present)
	}
	rollup := parseFields(readFile(t, fmt.Sprintf("/proc/%d/smaps_rollup", target.PID())))
	if want := uint64(kibibytes(rollup, "Rss")); rss != want || rss < 100<<20 {
		t.Errorf("%d bytes in memory, smaps_rollup says %d", rss, want)
	}
}

// family is a process of 4000 private pages with a child that writes to those from 1000 on, and 10 shared ones.
const family = `
import mmap, os
page = mmap.PAGESIZE
def memory(pages, flags):
    m = mmap.mmap(-1, pages * page, flags=flags)
    m.madvise(mmap.MADV_NOHUGEPAGE)
    for i in range(pages): m[i * page] = 1
    return m
huge = mmap.mmap(-1, 6 << 20, flags=mmap.MAP_PRIVATE); huge.madvise(mmap.MADV_HUGEPAGE); huge.write(bytes(6 << 20))
private, shared = memory(4000, mmap.MAP_PRIVATE), memory(10, mmap.MAP_SHARED)
def write(first, last, step):
    for i in range(first, last, step): private[i * page] = 2
wish, tell = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(wish[1])
    for i in range(10): shared[i * page] = 1
    os.write(tell[1], b".")
    while os.read(wish[0], 1):
        write(1000, 4000, 3)
        os.write(tell[1], b".")
    os._exit(0)
def answer(line):
    if line == "child writes": os.write(wish[1], b"."); os.read(tell[0], 1)
    if line == "child ends": os.close(wish[1]); os.waitpid(child, 0)
    if line == "parent writes": write(0, 500, 1)
os.read(tell[0], 1)
print(child, flush=True)
print("ready", flush=True)
while True:
    answer(input())
    print("done", flush=True)
`

// mustShareAsTheKernelSays compares the memory that is of no file, which nobody but the family has, by both ways.
func mustShareAsTheKernelSays(t *testing.T, pid int) (shared uint64) {
	t.Helper()
	awaitReading(t, pid)
	pages := pagesOf(t, open(t, pid))
	for _, a := range areas(t, pid) {
		if a.device() || a.end > 1<<63 || (a.inode != 0 && a.bytes("Anonymous") != a.bytes("Rss")) {
			continue // libraries are shared with whatever else runs
		}
		for way, scan := range ways {
			pages.scan = scan
			found, err := pages.Shared(nil, a.start, a.end)
			if err != nil {
				t.Fatal(err)
			}
			got, want := sum(found, every), a.bytes("Shared_Clean", "Shared_Dirty")
			if !scan { // takes pages of zeros for shared
				want += sum(runs(t, pages, false, a.start, a.end), every) - sum(runs(t, pages, true, a.start, a.end), every)
			}
			if got != want {
				t.Errorf("%s: %d bytes of %x-%x are shared, smaps says %d", way, got, a.start, a.end, want)
			}
			if all := a.bytes("AnonHugePages"); scan && want == a.bytes("Rss") && sum(found, huge) != all {
				t.Errorf("%d bytes of %x-%x are shared in huge pages, smaps says %d", sum(found, huge), a.start, a.end, all)
			}
			if scan {
				shared += got
			}
		}
	}
	return shared
}

func TestWhatIsSharedWithAForkedProcessIsTold(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command(python, "-c", family))
	var child int
	if _, err := fmt.Sscan(strings.Join(target.Await("ready"), " "), &child); err != nil {
		t.Fatal(err)
	}
	const page = 4096
	var before, after uint64
	for i, c := range []struct {
		order  string
		shared int64 // at least so many pages are, or less than before by so many, give or take what Python itself writes
	}{{"nothing", 4000}, {"child writes", -1000}, {"parent writes", -500}, {"child ends", -2500}} {
		target.Say(c.order)
		target.Await("done")
		awaitReading(t, target.PID())
		if c.order != "child ends" {
			mustShareAsTheKernelSays(t, child)
		}
		after = mustShareAsTheKernelSays(t, target.PID())
		if i > 0 && int64(before-after) < -c.shared*page || i == 0 && after < uint64(c.shared)*page {
			t.Errorf("%s: %d bytes are shared, %d were", c.order, after, before)
		}
		before = after
	}
}
