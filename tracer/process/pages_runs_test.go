package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ways are the two ways to look at pages.
var ways = map[string]bool{"by scanning": true, "by reading": false}

// runs is what Runs gives, by scanning or by reading.
func runs(t testing.TB, pages *Pages, scan bool, start, end uint64) []PageRun {
	t.Helper()
	pages.scan = scan
	found, err := pages.Runs(nil, start, end)
	if err != nil {
		t.Fatal(err)
	}
	if pages.scan != scan {
		t.Fatal("the kernel has no PAGEMAP_SCAN: Linux 6.7 has")
	}
	return found
}

// An area is one VMA of smaps.
type area struct {
	start, end, inode uint64
	fields            map[string]string
}

// bytes sums the fields of these names.
func (a area) bytes(names ...string) (sum uint64) {
	for _, name := range names {
		sum += uint64(kibibytes(a.fields, name))
	}
	return sum
}

// device reports whether the kernel does not count the pages of the mapping (VM_PFNMAP).
func (a area) device() bool { return slices.Contains(strings.Fields(a.fields["VmFlags"]), "pf") }

// areas reads smaps.
func areas(t testing.TB, pid int) (all []area) {
	t.Helper()
	for line := range strings.Lines(string(readFile(t, fmt.Sprintf("/proc/%d/smaps", pid)))) {
		var a area
		var device string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %d", &a.start, &a.end, new(string), new(string), &device, &a.inode); n == 6 {
			a.fields = make(map[string]string)
			all = append(all, a)
		} else if name, value, ok := strings.Cut(line, ":"); ok {
			all[len(all)-1].fields[name] = strings.TrimSpace(value)
		}
	}
	return all
}

// areaOf is the VMA that holds the start of memory of this process.
func areaOf(t testing.TB, memory []byte) area {
	t.Helper()
	all := areas(t, os.Getpid())
	i := slices.IndexFunc(all, func(a area) bool { return a.start <= addressOf(memory) && addressOf(memory) < a.end })
	return all[i]
}

// sum adds up runs of which is true.
func sum(found []PageRun, is func(PageRun) bool) (bytes uint64) {
	for _, r := range found {
		if is(r) {
			bytes += r.Len()
		}
	}
	return bytes
}

func present(r PageRun) bool { return !r.Swapped }
func swapped(r PageRun) bool { return r.Swapped }
func huge(r PageRun) bool    { return r.Huge }
func every(PageRun) bool     { return true }

const madviseGuard = 102 // MADV_GUARD_INSTALL

// What a page of the model is.
const (
	untouched = iota
	zero      // only read
	private
	ofFile
	guard
)

// A model is memory of which it is known what each page is.
type model struct {
	t      *testing.T
	file   *os.File
	memory []byte
	pages  []int
}

func newModel(t *testing.T, pages int) *model {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "file")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if _, err := file.Write(make([]byte, pages*pageBytes)); err != nil {
		t.Fatal(err)
	}
	return &model{t, file, mapPages(t, pages), make([]int, pages)}
}

// change makes a random change to a random stretch.
func (m *model) change() {
	first := rand.IntN(len(m.pages))
	last := min(len(m.pages), first+1+rand.IntN(1+rand.IntN(200)))
	memory := m.memory[first*pageBytes : last*pageBytes]
	switch rand.IntN(7) {
	case 0:
		m.replace(memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS, -1, 0)
		m.set(first, last, func(int) int { return untouched })
	case 1:
		m.replace(memory, unix.PROT_READ, unix.MAP_POPULATE, int(m.file.Fd()), int64(first*pageBytes))
		m.protect(memory) // writable, which would have been populated with copies
		m.set(first, last, func(int) int { return ofFile })
	case 2:
		if unix.Madvise(memory, madviseGuard) == nil { // Linux 6.13, of files 6.15
			m.set(first, last, func(int) int { return guard })
		}
	case 3:
		m.protect(memory)
	case 4:
		m.read(first, last)
	default:
		m.write(first, last, 1+rand.IntN(3))
	}
}

// replace maps something else there.
func (m *model) replace(memory []byte, protection, flags, fd int, offset int64) {
	m.t.Helper()
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(addressOf(memory)), uintptr(len(memory)), uintptr(protection),
		uintptr(unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE|flags), uintptr(fd), uintptr(offset))
	if errno != 0 {
		m.t.Fatal(errno)
	}
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		m.t.Fatal(err)
	}
}

// protect changes nothing of what is in memory.
func (m *model) protect(memory []byte) {
	m.t.Helper()
	for _, protection := range []int{unix.PROT_NONE, unix.PROT_READ | unix.PROT_WRITE} {
		if err := unix.Mprotect(memory, protection); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *model) read(first, last int) {
	m.set(first, last, func(page int) int {
		if m.pages[page] == untouched && m.memory[page*pageBytes] == 0 {
			return zero
		}
		return m.pages[page]
	})
}

func (m *model) write(first, last, every int) {
	m.set(first, last, func(page int) int {
		if m.pages[page] == guard || (page-first)%every != 0 {
			return m.pages[page]
		}
		m.memory[page*pageBytes] = 1
		return private
	})
}

func (m *model) set(first, last int, of func(page int) int) {
	for i := first; i < last; i++ {
		m.pages[i] = of(i)
	}
}

// runs is what Runs must give of start to end, or AnonymousRuns, which does not tell files.
func (m *model) runs(scan, files bool, start, end uint64) (want []PageRun) {
	base := addressOf(m.memory)
	for i, page := range m.pages {
		r := PageRun{Start: max(start, base+uint64(i*pageBytes)), End: min(end, base+uint64((i+1)*pageBytes)), File: files && page == ofFile}
		if page == untouched || page == guard || (page == zero && scan) || r.Start >= r.End {
			continue
		}
		if n := len(want); n > 0 && want[n-1].End == r.Start && want[n-1].File == r.File {
			want[n-1].End = r.End
		} else {
			want = append(want, r)
		}
	}
	return want
}

func TestRunsAreWhatHasBeenDoneToThePages(t *testing.T) {
	pages := pagesOf(t, openSelf(t))
	for range 20 {
		m := newModel(t, 3000)
		base := addressOf(m.memory)
		for range 100 {
			for range 1 + rand.IntN(20) {
				m.change()
			}
			a, b := base+rand.Uint64N(uint64(len(m.memory))), base+rand.Uint64N(uint64(len(m.memory)))
			start, end := min(a, b), max(a, b)
			for way, scan := range ways {
				if got, want := runs(t, pages, scan, start, end), m.runs(scan, true, start, end); !slices.Equal(got, want) {
					t.Fatalf("%s, %#x to %#x:\n%+v, want\n%+v", way, start, end, got, want)
				}
				got, err := pages.AnonymousRuns(nil, start, end)
				if want := m.runs(scan, false, start, end); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%s, %#x to %#x, whether of a file or not: %v\n%+v, want\n%+v", way, start, end, err, got, want)
				}
			}
		}
	}
}

// The kernel gives 512 regions at a time, and 1 GiB: 17 times the same 64 MiB are more.
func TestNeighboursAreOneRunAcrossTheCallsThatFoundThem(t *testing.T) {
	const times, size = 17, 64 << 20
	memory := mapPages(t, times*size/pageBytes)
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	for i := range times {
		if _, err := unix.MmapPtr(fd, 0, unsafe.Pointer(&memory[i*size]), size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE); err != nil {
			t.Fatal(err)
		}
	}
	start := addressOf(memory)
	want := []PageRun{{Start: start, End: start + times*size, File: true}}
	pages := pagesOf(t, openSelf(t))
	for way, scan := range ways {
		if got := runs(t, pages, scan, start, start+times*size); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", way, got, want)
		}
		if got, err := pages.Shared(nil, start, start+times*size); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v is mapped more than once, want %+v, %v", way, got, want, err)
		}
	}
}
