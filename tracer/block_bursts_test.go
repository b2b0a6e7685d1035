package tracer_test

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// TestBlockBursts traces blocks of PyTorch's caching allocator in bursts of time.
func TestBlockBursts(t *testing.T) {
	t.Parallel()
	t.Run("what came back unseen holds nothing", testBlockBurstsUnseenFrees)
	t.Run("blocks go on after probes are attached again", testBlockBurstsReattached)
}

// blockBurst is the length of the bursts here. Blocks count that were a quarter of it in use when a
// burst ended.
const blockBurst = 20 * time.Millisecond

func pauseBlocks(t *testing.T, s *tracer.Session) {
	t.Helper()
	time.Sleep(2 * blockBurst)
	must(t, tracer.Probing(s).PauseBlocks(blockBurst))
}

func followBlocks(t *testing.T, s *tracer.Session) {
	t.Helper()
	must(t, tracer.Probing(s).FollowBlocks(true, 1))
}

// mustHoldBlocks waits until so many blocks count.
func mustHoldBlocks(t *testing.T, s *tracer.Session, what string, blocks int64) *growth.Snapshot {
	t.Helper()
	var taken *growth.Snapshot
	eventually(t, what, func() bool {
		taken = snapshot(t, s)
		return sumOfKind(taken, growth.KindCudaBlock)[0] == blocks
	})
	return taken
}

func testBlockBurstsUnseenFrees(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	g := startBlocks(t, realLibC10(t))
	s := traceBlocks(t, g, exact)
	g.Do("hold weights 5 1048576 0")

	// The allocator hands out the address that came back last.
	pauseBlocks(t, s)
	g.Do("free weights 3 0", "hold activations 3 1048576 0")
	followBlocks(t, s)
	if said := sourceOf(t, s, "cuda"); !said.Attached || said.Gap != growth.GapBlockBursts {
		t.Errorf("%+v", said)
	}
	taken := snapshot(t, s)
	if m := taken.GPUMemory; len(m) != 1 || !m[0].BlocksProbed || !m[0].BlockBursts {
		t.Errorf("%+v", m)
	}

	g.Do("free activations 3 0")
	taken = mustHoldBlocks(t, s, "addresses that come back in a later burst hold nothing", 2)
	mustAmount(t, "two of five weights", heldByBlocks(taken), amounts{"0 hold_weights": {2, 2 * size}})

	g.Do("hold weights 3 1048576 0")
	pauseBlocks(t, s)
	g.Do("free weights 4 0")
	followBlocks(t, s)
	g.Do("hold activations 4 1048576 0")
	eventually(t, "addresses that are handed out in a later burst have their new stack", func() bool {
		held := heldByBlocks(snapshot(t, s))
		return held["0 hold_activations"] == [2]int64{4, 4 * size} &&
			held["0 hold_weights"][0] >= 1 // it represents others of the pause, too
	})
	mustLoseNothing(t, s)

	pauseBlocks(t, s)
	g.Do("hold weights 7 1048576 0")
	followBlocks(t, s)
	g.Do("churn 1 512 0")
	var untraced int64
	taken = snapshot(t, s)
	for _, h := range taken.GPUHoldings {
		switch {
		case h.Kind == growth.KindCudaBeforeTracing:
			t.Errorf("%d bytes are said to be older than the trace", h.GPUBytes)
		case h.Stack.Root == growth.RootCudaUntraced:
			untraced += h.GPUBytes
		}
	}
	if known := sumOfKind(taken, growth.KindCudaBlock)[1]; known < 12*size && known+untraced != 12*size {
		t.Errorf("%d bytes have stacks and %d have none, of %d", known, untraced, 12*size)
	}
	mustReportTotals(t, g, s, "in bursts")

	must(t, tracer.Probing(s).FollowBlocks(false, 0))
	taken = snapshot(t, s)
	if got := sumOfKind(taken, growth.KindCudaBlock); got != [2]int64{} || taken.GPUMemory[0].BlocksProbed {
		t.Errorf("given up: %d blocks, %+v", got, taken.GPUMemory)
	}
}

func testBlockBurstsReattached(t *testing.T) {
	t.Parallel()
	g := startBlocks(t, realLibC10(t))
	s := traceBlocks(t, g, exact)
	tracer.Reattach(s, g.PID())
	mustFollowBlocks(t, g, s)
	if said := sourceOf(t, s, "cuda"); !said.Attached || said.Gap != "" {
		t.Errorf("%+v", said)
	}
}
