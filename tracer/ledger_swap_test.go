package tracer_test

// The ledger of a process of which a part is swapped out.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/tracer"
)

// addSwap makes room for what the test swaps out. Where there can be none, nothing is swapped out, and that has to show.
func addSwap(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "swap")
	if err := os.WriteFile(path, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"mkswap", "swapon"} {
		if out, err := exec.Command(command, path).CombinedOutput(); err != nil {
			t.Logf("no swap here: %s: %v: %s", command, err, out)
			return
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("swapoff", path).CombinedOutput(); err != nil {
			t.Errorf("swapoff: %v: %s", err, out)
		}
	})
}

func TestWhatIsSwappedOutIsNotResidentAndHasItsHolder(t *testing.T) {
	addSwap(t)
	target := startLedger(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	facts := do(t, target, "map_touched")
	mustTell(t, balanced(t, s), target.PID(), facts)
	facts = do(t, target, "page_out")
	got := balanced(t, s)
	mustTell(t, got, target.PID(), facts)
	want := kilobytes(t, fmt.Sprintf("/proc/%d/status", target.PID()))["VmSwap"]
	var all, here int64
	for _, h := range holdingsOf(got, target.PID()) {
		all += h.SwappedBytes
		if facts[0].of(h) {
			here += h.SwappedBytes
		}
	}
	mustBeNear(t, "swapped out", all, want)
	mustBeNear(t, "swapped out of the mapping", here, 32<<20-facts[0].bytes)
	if r := residentOf(t, got, target.PID()); r.Swap != want {
		t.Errorf("%d bytes swapped out, want %d", r.Swap, want)
	}
}
