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

// bothWays counts by PAGEMAP_SCAN and by reading.
func bothWays(t *testing.T, start, end uint64) (scanned, read int) {
	t.Helper()
	pages := pagesOf(t, openSelf(t))
	byScan, err := pages.Touched(start, end)
	if err != nil {
		t.Fatal(err)
	}
	if !pages.Scans() {
		t.Fatal("the kernel has no PAGEMAP_SCAN: Linux 6.7 has")
	}
	pages.scan = false
	byReading, err := pages.Touched(start, end)
	if err != nil {
		t.Fatal(err)
	}
	return int(byScan) / pageBytes, int(byReading) / pageBytes
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

func TestARangeIsWidenedToWholePages(t *testing.T) {
	memory := mapPages(t, 8)
	for i := range 8 {
		memory[i*pageBytes] = 1
	}
	start := addressOf(memory)
	for _, c := range [][3]uint64{{0, 1, 1}, {1, 2, 1}, {4095, 4097, 2}, {4096, 4096, 0}, {5, 5, 1}, {1, 8*4096 - 1, 8}} {
		if scanned, read := bothWays(t, start+c[0], start+c[1]); scanned != int(c[2]) || read != int(c[2]) {
			t.Errorf("from %d to %d: %d and %d pages, want %d", c[0], c[1], scanned, read, c[2])
		}
	}
}

func TestTheScanPassesHolesOfTerabytes(t *testing.T) {
	memory := mapPages(t, 2)
	memory[0], memory[pageBytes] = 1, 1
	start := addressOf(memory)
	pages := pagesOf(t, openSelf(t))
	whole, err := pages.Touched(0, 1<<47-uint64(pageBytes))
	if err != nil {
		t.Fatal(err)
	}
	part, err := pages.Touched(start, start+uint64(len(memory)))
	if err != nil {
		t.Fatal(err)
	}
	if part != uint64(2*pageBytes) || whole < part {
		t.Errorf("%d bytes in the mapping, %d in the whole address space", part, whole)
	}
}

func TestAddressesThatNoProcessHasAreAnError(t *testing.T) {
	pages := pagesOf(t, openSelf(t))
	for _, scan := range []bool{true, false} {
		pages.scan = scan
		if bytes, err := pages.Touched(1<<63, 1<<63+1<<20); err == nil {
			t.Errorf("scan %v: %d bytes", scan, bytes)
		}
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
	if before, err := pages.Touched(maps[heap].Start, maps[heap].End); err != nil || before == 0 {
		t.Fatalf("%d bytes, %v of a living process", before, err)
	}
	if err := unix.Kill(child.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-child.Exited(nil)
	for _, scan := range []bool{true, false} {
		pages.scan = scan
		if bytes, err := pages.Touched(maps[heap].Start, maps[heap].End); err == nil && bytes != 0 {
			t.Errorf("scan %v: %d bytes of a dead process", scan, bytes)
		}
	}
}
