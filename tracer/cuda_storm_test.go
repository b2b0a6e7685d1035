package tracer_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// A blockStorm has blocks.py do the same again and again, and other orders in between.
type blockStorm struct {
	program gpuProgram
	orders  chan string // what is to be done once, or after "again " what is done again and again from then on; closed: it ends
	working sync.WaitGroup
}

func startStorm(g gpuProgram) *blockStorm {
	b := &blockStorm{program: g, orders: make(chan string)}
	b.working.Go(func() {
		again := "cpu 1 64"
		for {
			select {
			case order, ok := <-b.orders:
				if !ok {
					return
				}
				if storm, lasts := strings.CutPrefix(order, "again "); lasts {
					again = storm
					continue
				}
				g.do(order)
			default:
				g.do(again)
			}
		}
	})
	return b
}

func (b *blockStorm) end() {
	close(b.orders)
	b.working.Wait()
}

// until waits three minutes for what the governor takes its time for.
func until(t *testing.T, s *tracer.Session, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in three minutes: %s; %+v", what, s.Overhead())
		}
	}
}

// Large blocks, each of which is sampled at first, and then small ones, which take too much without that.
func TestAStormOfBlocksIsSampledMoreCoarselyAndThenLeftToItsTotals(t *testing.T) {
	t.Parallel()
	g := startBlocks(t, realLibC10(t))
	g.do("hold weights 5 5000 0")
	s := traceBlocks(t, g, tracer.Options{Overhead: 0.01, Sources: []string{"cuda", "mapping"}})
	if interval := s.BlockInterval(); interval != kernel.DefaultInterval {
		t.Fatalf("at first one block in %d bytes is sampled", interval)
	}
	storm := startStorm(g)
	storm.orders <- "again churn 2000 1048576 0"
	until(t, s, "blocks are sampled more coarsely", func() bool { return s.BlockInterval() > kernel.DefaultInterval })
	storm.orders <- "hold weights 60 100000000 0"
	storm.orders <- "again churn 5000 512 0"
	until(t, s, "blocks are followed no more", func() bool { return s.BlockInterval() == 0 })

	var told []string
	for _, c := range s.Overhead().Changes {
		told = append(told, c.Text)
	}
	all := strings.Join(told, "\n")
	if !strings.Contains(all, ": one sample in 2 MiB") || !strings.Contains(all, ": their totals alone are read from now on") {
		t.Errorf("%q", told)
	}
	want := "blocks of torch's allocator are not followed: that takes too much; their totals are read now and then"
	if said := sourceOf(t, s, "cuda"); !said.Attached || said.Reason != want {
		t.Errorf("%+v", said)
	}
	until(t, s, "nothing is probed", func() bool {
		before := s.Counted(bpf.CountBlocks)
		storm.orders <- "churn 1000 512 0"
		return s.Counted(bpf.CountBlocks) == before
	})
	taken := snapshot(t, s)
	if got := sumOfKind(taken, growth.KindCudaBlock); got != [2]int64{} || taken.GPUMemory[0].BlocksProbed {
		t.Errorf("%d blocks are alive, whose frees nobody sees: %+v", got, taken.GPUMemory)
	}

	storm.orders <- "hold weights 10 3000000 0"
	const block, held = 512, 5*5120 + 60*100_000_256 + 10*3_000_320
	until(t, s, "the totals follow", func() bool {
		allocated := s.Sample().Processes[0].CudaAllocated
		return allocated == held || allocated == held+block
	})
	storm.end()
	if a := g.allocators()[0]; a.Allocated != held {
		t.Errorf("%+v: the test is wrong", a)
	}
}

// What is given up is not opened again by itself, nor for those that come later; the totals of both follow.
func TestWhereBlocksAreGivenUpTheTotalsOfAllTargetsFollow(t *testing.T) {
	t.Parallel()
	one, two := startBlocks(t, realLibC10(t)), startBlocks(t, realLibC10(t))
	s := traceBlocks(t, one, tracer.Options{Interval: 1})
	one.do("hold weights 5 5000 0")
	if err := s.FollowBlocks(false, 1); err != nil {
		t.Fatal(err)
	}
	two.do("driver " + libcuda(t))
	if err := s.Attach(two.PID()); err != nil {
		t.Fatal(err)
	}
	for _, g := range []gpuProgram{one, two} {
		storm := startStorm(g)
		storm.orders <- "again churn 1 512 1"
		storm.orders <- "hold weights 3 3000000 1"
		until(t, s, "the totals follow", func() bool {
			s.Sample()
			for _, d := range snapshot(t, s).GPUMemory {
				for _, of := range d.Totals {
					if d.PID == g.PID() && of.GPU == "1" && (of.Allocated == 3*3_000_320 || of.Allocated == 3*3_000_320+512) {
						return !d.BlocksProbed
					}
				}
			}
			return false
		})
		storm.end()
	}
	for _, said := range s.Sources() {
		if said.Name == "cuda" && !strings.HasPrefix(said.Reason, "blocks of torch's allocator are not followed") {
			t.Errorf("%+v", said)
		}
	}
	if got := sumOfKind(snapshot(t, s), growth.KindCudaBlock); got != [2]int64{} {
		t.Errorf("%d blocks are alive, whose frees nobody sees", got)
	}
}
