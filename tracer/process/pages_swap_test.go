package process

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// swapFile has the kernel swap to a file until the end of the test, or of this program, however it ends.
func swapFile(t *testing.T) {
	t.Helper()
	tracertest.NeedsRoot(t)
	path := filepath.Join(t.TempDir(), "swap")
	if err := os.WriteFile(path, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	keeper := exec.Command("sh", "-c", `mkswap "$0" >&2 && swapon "$0" && { echo on; cat >/dev/null; swapoff "$0"; }`, path)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the tests is not for it
	input, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := keeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := keeper.Wait(); err != nil {
			t.Errorf("swapoff: %v", err)
		}
	})
	if line, _ := bufio.NewReader(output).ReadString('\n'); line != "on\n" {
		t.Fatalf("the kernel takes no swap file in %s (set TMPDIR to a folder on a disk)", filepath.Dir(path))
	}
}

func TestPagesThatAreSwappedOutAreTold(t *testing.T) {
	swapFile(t)
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
