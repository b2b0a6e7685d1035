package process

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestPagesThatAreSwappedOutAreTold(t *testing.T) {
	tracertest.Swap(t)
	memory := mapPages(t, 3000)
	for i := range memory {
		memory[i] = byte(i*i>>8 + i)
	}
	pages := pagesOf(t, openSelf(t))
	if err := unix.Madvise(memory[1000*pageBytes:2000*pageBytes], unix.MADV_PAGEOUT); err != nil {
		t.Fatal(err)
	}
	a := areaOf(t, memory)
	if a.bytes("Swap") == 0 {
		t.Fatal("nothing has been swapped out: the test is wrong")
	}
	for way, scan := range ways {
		found := runs(t, pages, scan, a.start, a.end)
		if out, in := sum(found, swapped), sum(found, present); out != a.bytes("Swap") || in != a.bytes("Rss") {
			t.Errorf("%s: %d bytes swapped and %d in memory, smaps says %d and %d", way, out, in, a.bytes("Swap"), a.bytes("Rss"))
		}
		if shared, err := pages.Shared(nil, a.start, a.end); len(shared) > 0 || err != nil {
			t.Errorf("%s: %+v is shared, %v", way, shared, err)
		}
	}
}
