package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// pageBytes is PageSize for slices.
var pageBytes = int(PageSize)

// mapPages maps private memory that no huge page can fill, until the end of the test.
func mapPages(t testing.TB, pages int) []byte {
	t.Helper()
	memory := must(unix.Mmap(-1, 0, pages*pageBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE))
	t.Cleanup(func() { unix.Munmap(memory) })
	err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	if err != nil && err != unix.EINVAL { // EINVAL: the kernel has no huge pages
		t.Fatal(err)
	}
	return memory
}

// mapWithGaps maps pages of random bytes. Every third page belongs to an empty file and cannot be
// read.
func mapWithGaps(t testing.TB, pages int) []byte {
	t.Helper()
	memory := mapPages(t, pages)
	for i := range memory {
		memory[i] = byte(rand.Uint32())
	}

	empty := must(unix.MemfdCreate("empty", unix.MFD_CLOEXEC))
	defer unix.Close(empty)
	for i := 2; i < pages; i += 3 {
		page := unsafe.Pointer(&memory[i*pageBytes])
		must(unix.MmapPtr(empty, 0, page, uintptr(pageBytes), unix.PROT_READ,
			unix.MAP_SHARED|unix.MAP_FIXED))
	}
	return memory
}

// isReadable reports whether bytes at an offset lie in pages that can be read.
func isReadable(offset, size int) bool {
	for page := offset / pageBytes; page <= (offset+size-1)/pageBytes; page++ {
		if page%3 == 2 {
			return false
		}
	}
	return true
}

func TestReadMemory(t *testing.T) {
	memory := mapWithGaps(t, 3)[pageBytes:]
	p, start := openSelf(t), addressOf(memory)
	got := make([]byte, 11)
	if err := p.ReadMemory(start+5, got); err != nil || !bytes.Equal(got, memory[5:16]) {
		t.Errorf("%x, %v, want %x", got, err, memory[5:16])
	}

	end := start + PageSize
	for name, c := range map[string]struct {
		address uint64
		size    int
		want    error
	}{
		"no bytes":         {0, 0, nil},
		"last bytes":       {end - 8, 8, nil},
		"end not readable": {end - 8, 9, errNotReadable},
		"not readable":     {end, 8, errNotReadable},
		"null pointer":     {0, 8, errNotReadable},
		"kernel address":   {^uint64(0) - 7, 8, errNotReadable},
		"not canonical":    {1 << 62, 8, errNotReadable},
	} {
		if err := p.ReadMemory(c.address, make([]byte, c.size)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Memory that the process has not touched is read without touching it for the process.
func TestReadMemoryOfUntouchedPages(t *testing.T) {
	const pages = 4
	path := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("0123456789abcdef"), pages*pageBytes/16)
	tracertest.NoError(t, os.WriteFile(path, content, 0o600))
	file := must(os.Open(path))
	defer file.Close()
	mapped := must(unix.Mmap(int(file.Fd()), 0, len(content), unix.PROT_READ, unix.MAP_PRIVATE))
	defer unix.Munmap(mapped)
	anonymous := mapPages(t, pages)
	anonymous[0] = 1

	p := openSelf(t)
	for name, c := range map[string]struct{ memory, want []byte }{
		"file":      {mapped, content},
		"anonymous": {anonymous, append([]byte{1}, make([]byte, len(content)-1)...)},
	} {
		before := presentPages(t, c.memory)
		got := make([]byte, len(c.memory)-100)
		if err := p.ReadMemory(addressOf(c.memory)+50, got); err != nil ||
			!bytes.Equal(got, c.want[50:len(c.want)-50]) {
			t.Errorf("%s: %v, or other bytes", name, err)
		}
		peeked := must(p.Peek([]uint64{addressOf(c.memory) + 3*PageSize}, 8))
		if peeked[0] != nil {
			t.Errorf("%s: Peek has read %x of an untouched page", name, peeked[0])
		}
		if after := presentPages(t, c.memory); after != before || before == pages {
			t.Errorf("%s: %d pages are in the page table, and %d after reading", name, before,
				after)
		}
	}
}

// presentPages counts the pages of our own memory that are in the page table, by /proc/self/pagemap.
func presentPages(t *testing.T, memory []byte) (present int) {
	t.Helper()
	file := must(os.Open("/proc/self/pagemap"))
	defer file.Close()
	entries := make([]byte, 8*len(memory)/pageBytes)
	must(file.ReadAt(entries, int64(addressOf(memory)/PageSize*8)))
	for entry := range slices.Chunk(entries, 8) {
		present += int(binary.NativeEndian.Uint64(entry) >> 63)
	}
	return present
}

func mustPeek(t *testing.T, memory []byte, offsets []int, size int) {
	t.Helper()
	addresses := make([]uint64, len(offsets))
	for i, offset := range offsets {
		addresses[i] = addressOf(memory) + uint64(offset)
	}
	got, err := openSelf(t).Peek(addresses, size)
	if err != nil || len(got) != len(offsets) {
		t.Fatalf("%d of %d, %v", len(got), len(offsets), err)
	}

	for i, offset := range offsets {
		var want []byte
		if isReadable(offset, size) {
			want = memory[offset : offset+size]
		}
		if !bytes.Equal(got[i], want) || (got[i] == nil) != (want == nil) {
			t.Fatalf("%d bytes at %#x, number %d: %x, want %x", size, offset, i, got[i], want)
		}
	}
}

func TestPeek(t *testing.T) {
	t.Run("sizes and counts", func(t *testing.T) {
		const pages = 90
		memory := mapWithGaps(t, pages)
		for _, size := range []int{1, 8, 48, maxPeekBytes} {
			for _, count := range []int{0, 1, 2, 1023, 1024, 1025, 5000} {
				offsets := make([]int, count)
				for i := range offsets {
					offsets[i] = rand.IntN(pages*pageBytes - size)
				}
				mustPeek(t, memory, offsets, size)
			}
		}
	})

	t.Run("addresses that follow each other", func(t *testing.T) {
		const pages = 90
		memory := mapWithGaps(t, pages)
		for _, size := range []int{48, maxPeekBytes} {
			for _, from := range []int{0, 7, pageBytes} {
				var offsets []int
				for offset := from; offset+size <= pages*pageBytes; offset += size {
					offsets = append(offsets, offset)
				}
				mustPeek(t, memory, offsets, size)
			}
		}
	})

	t.Run("unreadable addresses", func(t *testing.T) {
		memory := mapWithGaps(t, 1)
		addresses := []uint64{0, ^uint64(0), 1 << 63, addressOf(memory), 1<<47 - 4}
		got := must(openSelf(t).Peek(addresses, 8))
		for i, data := range got {
			if (i == 3) != bytes.Equal(data, memory[:8]) || (i == 3) != (data != nil) {
				t.Errorf("%#x holds %x", addresses[i], data)
			}
		}
	})

	t.Run("results do not overlap", func(t *testing.T) {
		memory := []byte("first second")
		got := must(openSelf(t).Peek([]uint64{addressOf(memory), addressOf(memory) + 6}, 5))
		if grown := append(got[0], '!'); string(grown) != "first!" || string(got[1]) != "secon" {
			t.Errorf("%q, %q", grown, got[1])
		}
	})

	t.Run("into a buffer", func(t *testing.T) {
		memory, buffer := []byte("first second"), make([]byte, 10)
		addresses := []uint64{addressOf(memory), addressOf(memory) + 6, addressOf(memory) + 1}
		got := must(openSelf(t).PeekInto(buffer, addresses[:2], 5))
		if string(buffer) != "firstsecon" || &got[1][0] != &buffer[5] {
			t.Errorf("%q, %q", buffer, got)
		}
		if got := must(openSelf(t).PeekInto(buffer, addresses, 4)); string(got[2]) != "irst" {
			t.Errorf("more than the buffer has room for: %q", got)
		}
	})

	t.Run("invalid size", func(t *testing.T) {
		for _, size := range []int{-1, 0, maxPeekBytes + 1, 1 << 40} {
			if got, err := openSelf(t).Peek([]uint64{1 << 20}, size); err == nil {
				t.Errorf("%d bytes: %x", size, got)
			}
		}
	})

	t.Run("ended process", func(t *testing.T) {
		p := startStopped(t)
		if got, err := p.Peek([]uint64{0}, 8); err != nil || got[0] != nil {
			t.Fatalf("%x, %v of a living process", got, err)
		}
		kill(t, p)
		for _, addresses := range [][]uint64{nil, {0}} {
			if got, err := p.Peek(addresses, 8); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%x, %v", got, err)
			}
		}
	})
}

// TestPeekBlocks reads the pages of blocks that follow each other, and passes over the inside of
// long ones.
func TestPeekBlocks(t *testing.T) {
	const pages, long = 64, 4
	memory := mapPages(t, pages)
	start := uint64(uintptr(unsafe.Pointer(&memory[0])))
	header := func(offset, size uint64) {
		binary.NativeEndian.PutUint64(memory[offset+8:], size|1)
	}
	p := open(t, os.Getpid())
	m := must(p.OpenMemory())
	defer m.Close()
	read := func(from, size uint64) (indices []uint64) {
		t.Helper()
		buffer := make([]byte, size*PageSize)
		found := must(m.PeekBlocks(hostile.Blocks{
			At: start + from, End: start + pages*PageSize, Long: long * PageSize, First: 512,
		}, buffer))
		for i, page := range found {
			offset := page - start
			if !bytes.Equal(buffer[uint64(i)*PageSize:][:PageSize], memory[offset:][:PageSize]) {
				t.Errorf("page %d is another", offset/PageSize)
			}
			indices = append(indices, offset/PageSize)
		}
		return indices
	}

	for i := range memory {
		memory[i] = byte(i / 7)
	}
	header(16, 5*PageSize)                            // long
	header(16+5*PageSize, PageSize-272)               // short, up to 6 pages less 256
	header(6*PageSize-256, 8*PageSize)                // long, and its first bytes are in two pages
	header(14*PageSize-256, 2*PageSize)               // not long
	header(16*PageSize-256, 48*PageSize+256-PageSize) // long, up to the last page
	header(63*PageSize, 2*PageSize)                   // behind the end
	for _, c := range []struct {
		from, size uint64
		want       []uint64
	}{
		{16, pages, []uint64{0, 5, 6, 13, 14, 15, 16, 63}},
		{16, 4, []uint64{0, 5, 6, 13}},
		{6*PageSize - 256, pages, []uint64{5, 6, 13, 14, 15, 16, 63}},
		{64 * PageSize, pages, nil},
		{17*PageSize - 8, pages, []uint64{16}}, // a header in two pages
	} {
		if got := read(c.from, c.size); !slices.Equal(got, c.want) {
			t.Errorf("from %d, %d pages: %d, want %d", c.from, c.size, got, c.want)
		}
	}

	for at := uint64(0); at < pages*PageSize; at += 64 {
		header(at, 64)
	}
	if got := read(0, pages); len(got) == 0 || len(got) == pages {
		t.Errorf("%d pages of short blocks", len(got))
	}
	header(0, 0)
	if got := read(0, pages); !slices.Equal(got, []uint64{0}) {
		t.Errorf("no block: %d", got)
	}
	tracertest.NoError(t, unix.Madvise(memory[5*PageSize:6*PageSize], unix.MADV_DONTNEED))
	header(0, 5*PageSize)
	if got := read(0, pages); !slices.Equal(got, []uint64{0}) {
		t.Errorf("a page that is not in RAM: %d", got)
	}
}

// A process that has forked shares its pages with its child. Reading must not unshare them, as
// process_vm_readv(2) does.
func TestReadingKeepsForkedPagesShared(t *testing.T) {
	const pages = 4096
	target := tracertest.Start(t, python, "-c", fmt.Sprintf(`
import ctypes, mmap, os, sys
memory = mmap.mmap(-1, %[1]d, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for i in range(0, %[1]d, %[2]d): memory[i] = 1
pid = os.fork()
if pid == 0: sys.stdin.read(); os._exit(0)
print(pid, ctypes.addressof(ctypes.c_char.from_buffer(memory)))
print("ready", flush=True)
sys.stdin.read()
`, pages*PageSize, PageSize))
	var child int
	var start uint64
	tracertest.Must(fmt.Sscan(strings.Join(target.Await("ready"), " "), &child, &start))(t)

	addresses := make([]uint64, pages)
	for i := range addresses {
		addresses[i] = start + uint64(i)*PageSize
	}
	for _, pid := range []int{child, target.PID()} {
		p, before := open(t, pid), sharedPages(t, pid, start, pages)
		found := must(p.Peek(addresses, 48))
		isWrong := func(data []byte) bool { return len(data) != 48 || data[0] != 1 }
		if slices.ContainsFunc(found, isWrong) {
			t.Fatal("not all pages were read")
		}
		for _, a := range addresses {
			tracertest.NoError(t, p.ReadMemory(a, make([]byte, 48)))
		}
		if after := sharedPages(t, pid, start, pages); before != pages || after != pages {
			t.Errorf("PID %d shares %d pages of %d, and %d after they were read", pid, before,
				pages, after)
		}
	}
}

// sharedPages counts the pages that a process shares with another, from the kernel's pagemap.
func sharedPages(t testing.TB, pid int, start uint64, pages int) (shared int) {
	t.Helper()
	file := must(os.Open(fmt.Sprintf("/proc/%d/pagemap", pid)))
	defer file.Close()
	entries := make([]byte, 8*pages)
	must(file.ReadAt(entries, int64(start/PageSize*8)))

	for entry := range slices.Chunk(entries, 8) {
		const present, exclusive = 1 << 63, 1 << 56 // Documentation/admin-guide/mm/pagemap.rst
		if binary.NativeEndian.Uint64(entry)&(present|exclusive) == present {
			shared++
		}
	}
	return shared
}

// TestPeekExecuted reads a process before and after it executes another program: the files that were
// open for the first one show no memory any more.
func TestPeekExecuted(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("sh", "-c", "echo ready; read line; exec cat"))
	target.Await("ready")
	p := open(t, target.PID())
	KeepMemory(p)
	mustPeekELF(t, p)

	target.Say("go")
	target.Say("executed")
	target.Await("executed")
	mustPeekELF(t, p)
}

// mustPeekELF reads the begin of the program's file in memory.
func mustPeekELF(t *testing.T, p *Process) {
	t.Helper()
	program := must(os.Readlink(p.path("exe")))
	for _, m := range must(p.Maps()) {
		if m.Path == program && m.Offset == 0 {
			if got := must(p.Peek([]uint64{m.Start}, 4)); string(got[0]) != "\x7fELF" {
				t.Errorf("%q at the begin of %s", got[0], program)
			}
			return
		}
	}
	t.Errorf("%s is not mapped", program)
}
