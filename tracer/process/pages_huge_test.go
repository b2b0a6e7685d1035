package process

import (
	"testing"

	"golang.org/x/sys/unix"
)

const hugeBytes = 2 << 20

// mapHuge maps aligned memory that huge pages may fill, and fills it with those.
func mapHuge(t testing.TB, count int) []byte {
	t.Helper()
	whole, err := unix.Mmap(-1, 0, (count+1)*hugeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(whole) })
	skip := (hugeBytes - addressOf(whole)%hugeBytes) % hugeBytes
	memory := whole[skip : skip+uint64(count*hugeBytes)]
	if err := unix.Madvise(memory, unix.MADV_HUGEPAGE); err != nil {
		t.Fatal(err)
	}
	return memory
}

// fillHuge has memory in huge pages, even where the kernel had none at hand.
func fillHuge(t testing.TB, memory []byte) {
	t.Helper()
	for i := 0; i < len(memory); i += pageBytes {
		memory[i] = 1
	}
	if err := unix.Madvise(memory, unix.MADV_COLLAPSE); err != nil {
		t.Fatal(err)
	}
}

// mustBeHuge compares with what smaps says of the VMA.
func mustBeHuge(t *testing.T, memory []byte, want int) {
	t.Helper()
	a := areaOf(t, memory)
	found := runs(t, pagesOf(t, openSelf(t)), true, a.start, a.end)
	if got := sum(found, huge); got != a.bytes("AnonHugePages") || got != uint64(want)*hugeBytes {
		t.Errorf("%d bytes in huge pages, smaps says %d, want %d", got, a.bytes("AnonHugePages"), want*hugeBytes)
	}
	if got := sum(found, every); got != a.bytes("Rss") {
		t.Errorf("%d bytes in memory, smaps says %d", got, a.bytes("Rss"))
	}
}

func TestHugePagesAreToldFromSmallOnesThatLieAsTheyDo(t *testing.T) {
	memory := mapHuge(t, 8)
	fillHuge(t, memory[hugeBytes:6*hugeBytes])
	mustBeHuge(t, memory, 5)
	if err := unix.Madvise(memory[3*hugeBytes:3*hugeBytes+pageBytes], unix.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	mustBeHuge(t, memory, 4) // one is no longer mapped as a whole
}

// The kernel maps one huge page of zeros where memory that may be huge is only read.
func TestHugePagesThatWereOnlyReadAreLeftOut(t *testing.T) {
	memory := mapHuge(t, 4)
	var bits byte
	for i := range 4 {
		bits |= memory[i*hugeBytes]
	}
	memory[2*hugeBytes] = bits + 1
	found := runs(t, pagesOf(t, openSelf(t)), true, addressOf(memory), addressOf(memory)+uint64(len(memory)))
	for _, r := range found {
		if at := addressOf(memory) + 2*hugeBytes; r.Start < at || r.End > at+hugeBytes {
			t.Errorf("%+v holds memory: only %#x was written to", r, at)
		}
	}
	if a := areaOf(t, memory); sum(found, every) != a.bytes("Rss") {
		t.Errorf("%d bytes in memory, smaps says %d", sum(found, every), a.bytes("Rss"))
	}
}
