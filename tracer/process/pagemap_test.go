package process

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func openPagemap(t testing.TB, p *Process) *Pagemap {
	t.Helper()
	pagemap := tracertest.Must(p.OpenPagemap())(t)
	t.Cleanup(func() { pagemap.Close() })
	return pagemap
}

// ways are the two ways to find pages: with PAGEMAP_SCAN and without.
var ways = map[string]bool{"by scanning": true, "by reading": false}

// runs calls Runs, with PAGEMAP_SCAN or without.
func runs(t testing.TB, pagemap *Pagemap, scan bool, start, end uint64) []mem.Run {
	t.Helper()
	pagemap.canScan = scan
	found := must(pagemap.Runs(nil, start, end))
	if pagemap.canScan != scan {
		t.Fatal("the kernel has no PAGEMAP_SCAN: Linux 6.7 has")
	}
	return found
}

// queries are all methods that find pages.
var queries = map[string]func(*Pagemap, []mem.Run, uint64, uint64) ([]mem.Run, error){
	"Runs": (*Pagemap).Runs, "AnonymousRuns": (*Pagemap).AnonymousRuns, "SharedRuns": (*Pagemap).SharedRuns,
}

// eachQuery makes every query in both ways.
func eachQuery(pagemap *Pagemap, start, end uint64, check func(query string, n int, err error)) {
	for way, scan := range ways {
		for name, query := range queries {
			pagemap.canScan = scan
			found, err := query(pagemap, nil, start, end)
			check(name+" "+way, len(found), err)
		}
	}
}

// sumRuns adds up the sizes of some runs.
func sumRuns(found []mem.Run, is func(mem.Run) bool) (bytes uint64) {
	for _, r := range found {
		if is(r) {
			bytes += r.Len()
		}
	}
	return bytes
}

func isPresent(r mem.Run) bool { return !r.Swapped }
func isSwapped(r mem.Run) bool { return r.Swapped }
func isHuge(r mem.Run) bool    { return r.Huge }
func isAny(mem.Run) bool       { return true }

const madvGuardInstall = 102 // MADV_GUARD_INSTALL

// States of a page of the model.
const (
	untouched = iota
	zero      // only read
	private
	ofFile
	guard
)

// A model is memory and the state of each of its pages.
type model struct {
	t      *testing.T
	file   *os.File
	memory []byte
	pages  []int
}

func newModel(t *testing.T, pages int) *model {
	t.Helper()
	file := must(os.CreateTemp(t.TempDir(), "file"))
	t.Cleanup(func() { file.Close() })
	must(file.Write(make([]byte, pages*pageBytes)))
	return &model{t, file, mapPages(t, pages), make([]int, pages)}
}

// change makes a random change to a random range.
func (m *model) change() {
	first := rand.IntN(len(m.pages))
	last := min(len(m.pages), first+1+rand.IntN(1+rand.IntN(200)))
	memory := m.memory[first*pageBytes : last*pageBytes]
	switch rand.IntN(7) {
	case 0:
		m.remap(memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS, -1, 0)
		m.set(first, last, func(int) int { return untouched })
	case 1:
		m.remap(memory, unix.PROT_READ, unix.MAP_POPULATE, int(m.file.Fd()), int64(first*pageBytes))
		m.protect(memory) // writable from now on; populating writable pages would have copied them
		m.set(first, last, func(int) int { return ofFile })
	case 2:
		if unix.Madvise(memory, madvGuardInstall) == nil { // Linux 6.13, for files 6.15
			m.set(first, last, func(int) int { return guard })
		}
	case 3:
		m.protect(memory)
	case 4:
		m.set(first, last, func(page int) int {
			if m.pages[page] == untouched && m.memory[page*pageBytes] == 0 { // reads it
				return zero
			}
			return m.pages[page]
		})
	default:
		m.write(first, last, 1+rand.IntN(3))
	}
}

// remap maps something else over memory.
func (m *model) remap(memory []byte, protection, flags, fd int, offset int64) {
	m.t.Helper()
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(addressOf(memory)), uintptr(len(memory)),
		uintptr(protection), uintptr(unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE|flags),
		uintptr(fd), uintptr(offset))
	if errno != 0 {
		m.t.Fatal(errno)
	}
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		m.t.Fatal(err)
	}
}

// protect makes memory inaccessible and accessible again, which changes no page.
func (m *model) protect(memory []byte) {
	m.t.Helper()
	for _, protection := range []int{unix.PROT_NONE, unix.PROT_READ | unix.PROT_WRITE} {
		tracertest.NoError(m.t, unix.Mprotect(memory, protection))
	}
}

func (m *model) write(first, last, step int) {
	m.set(first, last, func(page int) int {
		if m.pages[page] == guard || (page-first)%step != 0 {
			return m.pages[page]
		}
		m.memory[page*pageBytes] = 1
		return private
	})
}

func (m *model) set(first, last int, state func(page int) int) {
	for i := first; i < last; i++ {
		m.pages[i] = state(i)
	}
}

// runs are the runs that Runs must return from start to end, or AnonymousRuns without files.
func (m *model) runs(scan, files bool, start, end uint64) (want []mem.Run) {
	base := addressOf(m.memory)
	for i, state := range m.pages {
		page := base + uint64(i)*PageSize
		r := mem.Run{Span: mem.Span{Start: max(start, page), End: min(end, page+PageSize)}}
		r.File = files && state == ofFile
		isEmpty := state == untouched || state == guard || state == zero && scan
		if isEmpty || r.Start >= r.End {
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

func TestRuns(t *testing.T) {
	t.Run("random changes", func(t *testing.T) {
		pagemap := openPagemap(t, openSelf(t))
		for range 20 {
			m := newModel(t, 3000)
			base, size := addressOf(m.memory), uint64(len(m.memory))
			for range 100 {
				for range 1 + rand.IntN(20) {
					m.change()
				}
				a, b := base+rand.Uint64N(size), base+rand.Uint64N(size)
				start, end := min(a, b), max(a, b)
				for way, scan := range ways {
					got, want := runs(t, pagemap, scan, start, end), m.runs(scan, true, start, end)
					if !slices.Equal(got, want) {
						t.Fatalf("%s, %#x to %#x:\n%+v, want\n%+v", way, start, end, got, want)
					}
					got = must(pagemap.AnonymousRuns(nil, start, end))
					if want := m.runs(scan, false, start, end); !slices.Equal(got, want) {
						t.Fatalf("%s, without files, %#x to %#x:\n%+v, want\n%+v", way, start, end,
							got, want)
					}
				}
			}
		}
	})

	// mincore(2) is the oracle. The kernel fills 512 regions a call; we read 32 Ki entries a call.
	t.Run("more pages than one call finds", func(t *testing.T) {
		const pages = 100_000
		memory := mapPages(t, pages)
		for i := 0; i < 5000; i += 2 {
			memory[i*pageBytes] = 1
		}
		for _, i := range []int{32767, 32768, 99_998, pages - 1} {
			memory[i*pageBytes] = 1
		}

		vector := make([]byte, pages)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(addressOf(memory)), uintptr(len(memory)),
			uintptr(unsafe.Pointer(&vector[0])))
		var want uint64
		for _, v := range vector {
			want += uint64(v&1) * PageSize
		}
		if errno != 0 || want != 2504*PageSize {
			t.Fatalf("mincore counts %d bytes, %v: the test is wrong", want, errno)
		}

		pagemap, start := openPagemap(t, openSelf(t)), addressOf(memory)
		for way, scan := range ways {
			found := runs(t, pagemap, scan, start, start+uint64(len(memory)))
			if got := sumRuns(found, isAny); got != want {
				t.Errorf("%s: %d bytes, mincore counts %d", way, got, want)
			}
		}
	})

	// The kernel scans up to 1 GiB a call: 17 mappings of the same 64 MiB are more.
	t.Run("run across calls", func(t *testing.T) {
		const times, size = 17, 64 << 20
		memory := mapPages(t, times*size/pageBytes)
		fd := must(unix.MemfdCreate("test", unix.MFD_CLOEXEC))
		defer unix.Close(fd)
		tracertest.NoError(t, unix.Ftruncate(fd, size))
		for i := range times {
			must(unix.MmapPtr(fd, 0, unsafe.Pointer(&memory[i*size]), size, unix.PROT_READ,
				unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE))
		}

		start := addressOf(memory)
		want := []mem.Run{{Span: mem.Span{Start: start, End: start + times*size}, File: true}}
		pagemap := openPagemap(t, openSelf(t))
		for way, scan := range ways {
			if got := runs(t, pagemap, scan, start, start+times*size); !slices.Equal(got, want) {
				t.Errorf("%s: %+v, want %+v", way, got, want)
			}
			got, err := pagemap.SharedRuns(nil, start, start+times*size)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: shared %+v, %v, want %+v", way, got, err, want)
			}
		}
	})

	t.Run("appended", func(t *testing.T) {
		memory := mapPages(t, 3)
		memory[pageBytes] = 1
		start := addressOf(memory)
		// It is alike, and ends where the next begins.
		before := mem.Run{Span: mem.Span{Start: 1, End: start + PageSize}}
		found := must(openPagemap(t, openSelf(t)).Runs([]mem.Run{before}, start, start+3*PageSize))
		if len(found) != 2 || found[0] != before || found[1].Start != before.End {
			t.Errorf("%+v", found)
		}
	})
}

func TestPagemapRanges(t *testing.T) {
	memory := mapPages(t, 2)
	memory[0], memory[pageBytes] = 1, 1
	start := addressOf(memory)
	for beyond, ranges := range map[bool][][2]uint64{ // beyond the address space, or empty
		true: {{1 << 63, 1<<63 + 4096}, {^uint64(0) - 1<<20, ^uint64(0)}, {1 << 56, 1<<56 + 1}},
		false: {
			{start, start},
			{start + 9, start + 9},
			{start + PageSize, start},
			{^uint64(0), 0},
			{1 << 63, 1 << 62},
		},
	} {
		pagemap := openPagemap(t, openSelf(t))
		for _, c := range ranges {
			eachQuery(pagemap, c[0], c[1], func(query string, n int, err error) {
				if n != 0 || (err != nil) != beyond || errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s of %#x to %#x: %d, %v", query, c[0], c[1], n, err)
				}
			})
		}
	}

	t.Run("reservation of terabytes", func(t *testing.T) {
		const size = 4 << 40
		memory := must(unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE))
		defer unix.MunmapPtr(memory, size)

		start, pagemap := uint64(uintptr(memory)), openPagemap(t, openSelf(t))
		eachQuery(pagemap, start, start+size, func(query string, n int, err error) {
			isScan := pagemap.canScan
			if isScan && (n != 0 || err != nil) || !isScan && !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s: %d, %v", query, n, err)
			}
		})
		if found := runs(t, pagemap, false, start, start+MaxReadBytes/16); len(found) != 0 {
			t.Errorf("%+v", found)
		}
	})

	t.Run("too many runs", func(t *testing.T) {
		var to []mem.Run
		add := appendClipped(&to, 0, 1<<40)
		for i := range uint64(maxRuns) {
			tracertest.NoError(t, add(mem.Run{Span: mem.Span{Start: i << 12, End: i<<12 + 4096}}))
		}
		err := add(mem.Run{Span: mem.Span{Start: 1 << 39, End: 1<<39 + 4096}})
		if !errors.Is(err, ErrTooManyRuns) || len(to) != maxRuns {
			t.Errorf("%v, %d runs", err, len(to))
		}
	})
}

func TestExecution(t *testing.T) {
	mustBeGone := func(pagemap *Pagemap) {
		t.Helper()
		eachQuery(pagemap, 0x10000, 1<<30, func(query string, n int, err error) {
			if n != 0 || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %d, %v", query, n, err)
			}
		})
	}
	target := tracertest.StartCommand(t, exec.Command("sh", "-c", "echo ready; read line; exec cat"))
	target.Await("ready")
	p := open(t, target.PID())
	beforeExec, before := openPagemap(t, p), must(p.Stat())
	target.Say("go")
	target.Say("executed")
	target.Await("executed")
	mustBeGone(beforeExec)

	if after := must(p.Stat()); after.Image == before.Image || after.Start != before.Start {
		t.Errorf("%+v before execve, %+v after it", before, after)
	}
	executable := must(os.Readlink(p.path("exe")))
	if err := p.Refresh(); err != nil || p.Command() != "cat" || p.Executable != executable {
		t.Errorf("%+v, %v", p, err)
	}

	afterExec := openPagemap(t, p)
	target.Hangup()
	mustBeGone(afterExec)
	if late, err := p.OpenPagemap(); err == nil {
		mustBeGone(late)
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// smaps is the oracle.
func TestSwappedPages(t *testing.T) {
	tracertest.Swap(t)
	memory := mapPages(t, 3000)
	for i := range memory {
		memory[i] = byte(i*i>>8 + i)
	}
	tracertest.NoError(t, unix.Madvise(memory[1000*pageBytes:2000*pageBytes], unix.MADV_PAGEOUT))
	v := vmaOf(t, memory)
	if v.bytes("Swap") == 0 {
		t.Fatal("nothing has been swapped out: the test is wrong")
	}

	pagemap := openPagemap(t, openSelf(t))
	for way, scan := range ways {
		found := runs(t, pagemap, scan, v.start, v.end)
		out, in := sumRuns(found, isSwapped), sumRuns(found, isPresent)
		if out != v.bytes("Swap") || in != v.bytes("Rss") {
			t.Errorf("%s: %d bytes swapped and %d in memory, smaps shows %d and %d",
				way, out, in, v.bytes("Swap"), v.bytes("Rss"))
		}
		if shared := must(pagemap.SharedRuns(nil, v.start, v.end)); len(shared) > 0 {
			t.Errorf("%s: %+v is shared", way, shared)
		}
	}
}

const hugeBytes = 2 << 20

// mapHuge maps aligned memory that may consist of huge pages.
func mapHuge(t testing.TB, count int) []byte {
	t.Helper()
	all := must(unix.Mmap(-1, 0, (count+1)*hugeBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))
	t.Cleanup(func() { unix.Munmap(all) })
	skip := (hugeBytes - addressOf(all)%hugeBytes) % hugeBytes
	memory := all[skip : skip+uint64(count*hugeBytes)]
	tracertest.NoError(t, unix.Madvise(memory, unix.MADV_HUGEPAGE))
	return memory
}

// vmaOf returns the mapping of our own process that contains the start of memory.
func vmaOf(t testing.TB, memory []byte) vma {
	t.Helper()
	all, at := readSmaps(t, os.Getpid()), addressOf(memory)
	return all[slices.IndexFunc(all, func(v vma) bool { return v.start <= at && at < v.end })]
}

// smaps is the oracle.
func TestHugePages(t *testing.T) {
	mustHave := func(memory []byte, want int) {
		t.Helper()
		v := vmaOf(t, memory)
		found := runs(t, openPagemap(t, openSelf(t)), true, v.start, v.end)
		got, shown := sumRuns(found, isHuge), v.bytes("AnonHugePages")
		if got != shown || got != uint64(want)*hugeBytes {
			t.Errorf("%d bytes in huge pages, smaps shows %d, want %d", got, shown, want*hugeBytes)
		}
		if got := sumRuns(found, isAny); got != v.bytes("Rss") {
			t.Errorf("%d bytes in memory, smaps shows %d", got, v.bytes("Rss"))
		}
	}

	t.Run("split", func(t *testing.T) {
		memory := mapHuge(t, 8)
		touch(memory[hugeBytes:6*hugeBytes], pageBytes)
		// The kernel may have had no huge pages at hand.
		tracertest.NoError(t, unix.Madvise(memory[hugeBytes:6*hugeBytes], unix.MADV_COLLAPSE))
		mustHave(memory, 5)

		page := memory[3*hugeBytes : 3*hugeBytes+pageBytes]
		tracertest.NoError(t, unix.Madvise(page, unix.MADV_DONTNEED))
		mustHave(memory, 4) // one is no longer mapped as a whole
	})

	// The kernel maps the huge zero page where memory that may be huge is only read.
	t.Run("only read", func(t *testing.T) {
		memory := mapHuge(t, 4)
		var bits byte
		for i := range 4 {
			bits |= memory[i*hugeBytes]
		}
		memory[2*hugeBytes] = bits + 1

		start, written := addressOf(memory), addressOf(memory)+2*hugeBytes
		found := runs(t, openPagemap(t, openSelf(t)), true, start, start+uint64(len(memory)))
		for _, r := range found {
			if r.Start < written || r.End > written+hugeBytes {
				t.Errorf("%+v holds memory: only %#x was written to", r, written)
			}
		}
		if v := vmaOf(t, memory); sumRuns(found, isAny) != v.bytes("Rss") {
			t.Errorf("%d bytes in memory, smaps shows %d", sumRuns(found, isAny), v.bytes("Rss"))
		}
	})
}

// touch writes to memory in steps of some bytes.
func touch(memory []byte, step int) []byte {
	for i := 0; i < len(memory); i += step {
		memory[i] = 1
	}
	return memory
}
