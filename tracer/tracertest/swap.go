package tracertest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// swapKeeper has the kernel swap to a file until the end of its input. Keepers take turns (flock):
// the kernel chooses the file to which it swaps, and swapoff reads it back.
const swapKeeper = `exec 9</proc/swaps && flock 9 && mkswap "$0" >&2 && swapon "$0" && { echo on; cat >/dev/null; swapoff "$0"; }`

// Swap has the kernel swap to a file until the test or this program ends, even if it is killed.
//
// The kernel may then swap any process, also one whose memory another test counts. So make test runs
// the tests that call Swap before all others. Their names begin with TestSwapped.
func Swap(t testing.TB) {
	t.Helper()
	NeedsRoot(t)
	path := filepath.Join(t.TempDir(), "swap")
	must(t, os.WriteFile(path, make([]byte, 64<<20), 0o600))

	keeper := exec.Command("sh", "-c", swapKeeper, path)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it
	input, err := keeper.StdinPipe()
	must(t, err)

	output, err := keeper.StdoutPipe()
	must(t, err)
	must(t, keeper.Start())
	t.Cleanup(func() {
		input.Close()
		if err := keeper.Wait(); err != nil {
			t.Errorf("swapoff: %v", err)
		}
	})

	if line, _ := bufio.NewReader(output).ReadString('\n'); line != "on\n" {
		t.Fatalf("the kernel takes no swap file in %s (set TMPDIR to a folder on a disk)",
			filepath.Dir(path))
	}
}
