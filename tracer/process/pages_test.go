package process

import (
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

var pageBytes = os.Getpagesize()

// mapPages maps private memory that no huge page can fill, until the end of the test.
func mapPages(t testing.TB, pages int) []byte {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, pages*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL { // EINVAL: the kernel has none
		t.Fatal(err)
	}
	return memory
}

// inCore is what mincore(2) says is in memory, in pages.
func inCore(t *testing.T, memory []byte) (pages int) {
	t.Helper()
	vector := make([]byte, len(memory)/pageBytes)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(addressOf(memory)), uintptr(len(memory)), uintptr(unsafe.Pointer(&vector[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, v := range vector {
		pages += int(v & 1)
	}
	return pages
}

func pagesOf(t testing.TB, p *Process) *Pages {
	t.Helper()
	pages, err := p.Pages()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pages.Close() })
	return pages
}

// bothWays counts by PAGEMAP_SCAN and by reading, in pages.
func bothWays(t *testing.T, start, end uint64) (scanned, read int) {
	t.Helper()
	pages := pagesOf(t, openSelf(t))
	byScan, byReading := runs(t, pages, true, start, end), runs(t, pages, false, start, end)
	return int(sum(byScan, every)) / pageBytes, int(sum(byReading, every)) / pageBytes
}

func mustCount(t *testing.T, memory []byte, want int) {
	t.Helper()
	start := addressOf(memory)
	scanned, read := bothWays(t, start, start+uint64(len(memory)))
	if scanned != want || read != want {
		t.Errorf("%d pages by scanning and %d by reading, want %d", scanned, read, want)
	}
	if got := inCore(t, memory); got != want {
		t.Errorf("mincore counts %d pages, want %d: the test is wrong", got, want)
	}
}

func TestTouchedPagesAreCountedExactly(t *testing.T) {
	const pages = 100_000 // more than one buffer of the reader
	for name, touched := range map[string][]int{
		"none": nil, "first": {0}, "last": {pages - 1}, "run": {5, 6, 7, 8}, "scattered": {0, 1, 77, 32767, 32768, 99_998},
	} {
		t.Run(name, func(t *testing.T) {
			memory := mapPages(t, pages)
			for _, i := range touched {
				memory[i*pageBytes] = 1
			}
			mustCount(t, memory, len(touched))
		})
	}
}

func TestMoreRegionsThanTheKernelGivesAtATimeAreCounted(t *testing.T) {
	const pages = 5000
	memory := mapPages(t, pages)
	for i := 0; i < pages; i += 2 { // 2500 regions; the kernel fills 512
		memory[i*pageBytes] = 1
	}
	mustCount(t, memory, pages/2)
	for i := range pages {
		memory[i*pageBytes] = 1
	}
	mustCount(t, memory, pages)
}

func TestPagesThatAreGivenBackAreNotCounted(t *testing.T) {
	memory := mapPages(t, 100)
	for i := range 100 {
		memory[i*pageBytes] = 1
	}
	if err := unix.Madvise(memory[10*pageBytes:40*pageBytes], unix.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	mustCount(t, memory, 70)
}

// The kernel maps one page of zeros wherever memory is only read.
func TestPagesThatWereOnlyReadAreNotCountedByTheScan(t *testing.T) {
	memory := mapPages(t, 1000)
	var sum byte
	for i := range 300 {
		sum += memory[i*pageBytes]
	}
	for i := 500; i < 550; i++ {
		memory[i*pageBytes] = sum + 1
	}
	start := addressOf(memory)
	if scanned, read := bothWays(t, start, start+uint64(len(memory))); scanned != 50 || read != 350 {
		t.Errorf("%d pages by scanning, want 50; %d by reading, want 350, where zeros cannot be told apart", scanned, read)
	}
}

func TestTheScanPassesHolesOfTerabytes(t *testing.T) {
	memory := mapPages(t, 2)
	memory[0], memory[pageBytes] = 1, 1
	start := addressOf(memory)
	pages := pagesOf(t, openSelf(t))
	whole := sum(runs(t, pages, true, 0, 1<<47-uint64(pageBytes)), every)
	part := sum(runs(t, pages, true, start, start+uint64(len(memory))), every)
	if part != uint64(2*pageBytes) || whole < part {
		t.Errorf("%d bytes in the mapping, %d in the whole address space", part, whole)
	}
}

// The page map of a process that has ended is empty.
func TestThePagesOfAnEndedProcessAreAnErrorOrNone(t *testing.T) {
	child := stopped(t)
	maps, err := child.Maps()
	if err != nil {
		t.Fatal(err)
	}
	heap := slices.IndexFunc(maps, func(m Mapping) bool { return m.Path == "[heap]" })
	pages := pagesOf(t, child)
	if len(runs(t, pages, true, maps[heap].Start, maps[heap].End)) == 0 {
		t.Fatal("a living process has no heap: the test is wrong")
	}
	if err := unix.Kill(child.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-child.Exited(nil)
	for _, scan := range []bool{true, false} {
		pages.scan = scan
		if found, err := pages.Runs(nil, maps[heap].Start, maps[heap].End); err == nil && len(found) > 0 {
			t.Errorf("scan %v: %+v of a dead process", scan, found)
		}
	}
}
