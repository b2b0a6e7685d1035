package process

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// peekMemory is pages of random bytes of which every third cannot be read.
func peekMemory(t testing.TB, pages int) []byte {
	t.Helper()
	memory := mapPages(t, pages)
	for i := range memory {
		memory[i] = byte(rand.Uint32())
	}
	for i := 2; i < pages; i += 3 {
		if err := unix.Mprotect(memory[i*pageBytes:(i+1)*pageBytes], unix.PROT_NONE); err != nil {
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
