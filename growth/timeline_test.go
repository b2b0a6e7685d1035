package growth

import (
	"slices"
	"testing"
	"time"
)

func TestRSSAt(t *testing.T) {
	t.Run("without samples", func(t *testing.T) {
		for _, timeline := range []Timeline{nil, {{RSS: Unknown}}} {
			if got := timeline.RSSAt(time.Second); got != Unknown {
				t.Errorf("RSSAt of %v = %d, want Unknown", timeline, got)
			}
		}
	})

	// A process that exits has no memory in its last sample.
	t.Run("gaps are skipped", func(t *testing.T) {
		timeline := Timeline{
			{Elapsed: 0, RSS: Unknown},
			{Elapsed: 1, RSS: 10},
			{Elapsed: 2, RSS: Unknown},
			{Elapsed: 3, RSS: 0},
			{Elapsed: 9, RSS: 90},
			{Elapsed: 10, RSS: Unknown},
		}
		// Before the first known sample it is that, then the last sample up to the moment.
		for at, want := range []int64{10, 10, 10, 0, 0, 0, 0, 0, 0, 90, 90, 90} {
			if got := timeline.RSSAt(time.Duration(at)); got != want {
				t.Errorf("RSSAt(%d) = %d, want %d", at, got, want)
			}
		}
	})
}

func TestSumSamples(t *testing.T) {
	worker := UnknownSample()
	worker.RSS = 100
	trainer := Sample{
		RSS: 1000, GPUUsed: 70, CudaAllocated: Unknown, CudaReserved: 50, CudaDriver: 0, Pinned: 3,
	}
	second := Sample{
		RSS: 1000, GPUUsed: 7, CudaAllocated: Unknown, CudaReserved: Unknown, CudaDriver: 4,
		Pinned: 3,
	}
	for _, samples := range [][]Sample{
		{worker, trainer, second}, {second, worker, trainer}, {trainer, second, worker},
	} {
		sum := sumSamples(samples)
		if sum.RSS != 2100 || sum.GPUUsed != 77 || sum.CudaAllocated != Unknown ||
			sum.CudaReserved != 50 || sum.CudaDriver != 4 || sum.Pinned != 6 {
			t.Errorf("%+v", sum)
		}
		if sum.PSS != Unknown {
			t.Errorf("what is unknown of one on the host is unknown of all: %d", sum.PSS)
		}
	}
}

// A process whose pages are swapped out has freed none of them.
func TestMemoryCountsSwap(t *testing.T) {
	timeline := Timeline{{RSS: 50, Swap: Unknown}, {RSS: 40, Swap: 30}, {RSS: Unknown, Swap: 40}}
	if got := timeline.Series().Y; !slices.Equal(got, []float64{50, 70}) {
		t.Errorf("%v, want 50 and 70", got)
	}
}
