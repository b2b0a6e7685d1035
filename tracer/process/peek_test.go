package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// peekMemory is pages of random bytes, but that every third one is of an empty file, and cannot be read.
func peekMemory(t testing.TB, pages int) []byte {
	t.Helper()
	memory := mapPages(t, pages)
	for i := range memory {
		memory[i] = byte(rand.Uint32())
	}
	empty, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(empty)
	for i := 2; i < pages; i += 3 {
		page := unsafe.Pointer(&memory[i*pageBytes])
		if _, err := unix.MmapPtr(empty, 0, page, uintptr(pageBytes), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
			t.Fatal(err)
		}
	}
	return memory
}

// readable reports whether size bytes at an offset lie in pages that can be read.
func readable(offset, size int) bool {
	for page := offset / pageBytes; page <= (offset+size-1)/pageBytes; page++ {
		if page%3 == 2 {
			return false
		}
	}
	return true
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
		if readable(offset, size) {
			want = memory[offset : offset+size]
		}
		if !bytes.Equal(got[i], want) || (got[i] == nil) != (want == nil) {
			t.Fatalf("%d bytes at %#x, number %d: %x, want %x", size, offset, i, got[i], want)
		}
	}
}

func TestManyAddressesAreReadAtOnce(t *testing.T) {
	const pages = 90
	memory := peekMemory(t, pages)
	for _, size := range []int{1, 8, 48, 4096} {
		for _, count := range []int{0, 1, 2, 1023, 1024, 1025, 5000} {
			offsets := make([]int, count)
			for i := range offsets {
				offsets[i] = rand.IntN(pages*pageBytes - size)
			}
			mustPeek(t, memory, offsets, size)
		}
	}
}

func TestAddressesThatCannotBeReadTakeNoOthersWithThem(t *testing.T) {
	memory := peekMemory(t, 6)
	good, bad, across := 8, 2*pageBytes+8, 2*pageBytes-8
	for _, offsets := range [][]int{
		{bad}, {across}, {bad, good}, {good, bad}, {good, across}, {across, good}, {bad, bad, good, bad, bad}, {good, across, across, good},
	} {
		mustPeek(t, memory, offsets, 48)
	}
	got, err := openSelf(t).Peek([]uint64{0, ^uint64(0), 1 << 63, addressOf(memory), 1<<47 - 4}, 8)
	if err != nil || !bytes.Equal(got[3], memory[:8]) {
		t.Fatalf("%x, %v", got, err)
	}
	for i, data := range got {
		if i != 3 && data != nil {
			t.Errorf("number %d: %x", i, data)
		}
	}
}

func TestWhatIsReadAtOneAddressCannotGrowIntoTheNext(t *testing.T) {
	memory := []byte("first second")
	got, err := openSelf(t).Peek([]uint64{addressOf(memory), addressOf(memory) + 6}, 5)
	if err != nil {
		t.Fatal(err)
	}
	if grown := append(got[0], '!'); string(grown) != "first!" || string(got[1]) != "secon" {
		t.Errorf("%q, %q", grown, got[1])
	}
}

// A process that has forked shares its pages with its child. What is read stays shared: nobody is given a copy.
func TestReadingGivesNobodyACopyOfWhatForksShare(t *testing.T) {
	const pages = 4096
	target := tracertest.Start(t, "/usr/bin/python3", "-c", fmt.Sprintf(`
import ctypes, mmap, os, sys
memory = mmap.mmap(-1, %[1]d, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for i in range(0, %[1]d, 4096): memory[i] = 1
pid = os.fork()
if pid == 0: sys.stdin.read(); os._exit(0)
print(pid, ctypes.addressof(ctypes.c_char.from_buffer(memory)))
print("ready", flush=True)
sys.stdin.read()
`, pages*4096))
	var child int
	var start uint64
	if _, err := fmt.Sscan(strings.Join(target.Await("ready"), " "), &child, &start); err != nil {
		t.Fatal(err)
	}
	addresses := make([]uint64, pages)
	for i := range addresses {
		addresses[i] = start + uint64(i)*4096
	}
	for _, pid := range []int{child, target.PID()} {
		p, before := open(t, pid), sharedPages(t, pid, start, pages)
		found, err := p.Peek(addresses, 48)
		if err != nil || slices.ContainsFunc(found, func(data []byte) bool { return len(data) != 48 || data[0] != 1 }) {
			t.Fatalf("%d of %d, %v", len(found), pages, err)
		}
		for _, a := range addresses {
			if err := p.ReadMemory(a, make([]byte, 48)); err != nil {
				t.Fatal(err)
			}
		}
		if after := sharedPages(t, pid, start, pages); before != pages || after != pages {
			t.Errorf("PID %d shares %d pages of %d, and %d after they were read", pid, before, pages, after)
		}
	}
}

// sharedPages is how many of so many pages a process has, and shares with another, as the kernel's pagemap has it.
func sharedPages(t testing.TB, pid int, start uint64, pages int) (shared int) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	entries := make([]byte, 8*pages)
	if _, err := file.ReadAt(entries, int64(start/4096*8)); err != nil {
		t.Fatal(err)
	}
	for entry := range slices.Chunk(entries, 8) {
		const present, alone = 1 << 63, 1 << 56 // Documentation/admin-guide/mm/pagemap.rst
		if binary.NativeEndian.Uint64(entry)&(present|alone) == present {
			shared++
		}
	}
	return shared
}

func TestNoMoreThanAPageIsReadAtEachAddress(t *testing.T) {
	for _, size := range []int{-1, 0, maxPeek + 1, 1 << 40} {
		if got, err := openSelf(t).Peek([]uint64{1 << 20}, size); err == nil {
			t.Errorf("%d bytes: %x", size, got)
		}
	}
}

func TestTheMemoryOfAnEndedProcessIsAnErrorThatSaysSo(t *testing.T) {
	child := stopped(t)
	if got, err := child.Peek([]uint64{0}, 8); err != nil || got[0] != nil {
		t.Fatalf("%x, %v of a living process", got, err)
	}
	if err := unix.Kill(child.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-child.Exited(nil)
	for _, addresses := range [][]uint64{nil, {0}} {
		if got, err := child.Peek(addresses, 8); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%x, %v", got, err)
		}
	}
}
