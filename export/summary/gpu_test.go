package summary

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/verdict"
)

// onGPU is the memory that a function of train.py holds on a GPU, in bytes.
func onGPU(function string, kind growth.Kind, gpu string, bytes int64) growth.Holding {
	stack := growth.NamedStack(4242, "", "cuMemAlloc_v2", function, "main")
	return growth.Holding{
		Stack: stack, Kind: kind, GPU: gpu, InuseBytes: bytes, InuseObjects: float64(bytes / 100),
		AllocObjects: 9, AllocBytes: 9000,
	}
}

// gpuSnapshot is a snapshot in which the driver counts 10,000 bytes: a leak in blocks, a cache,
// NCCL, and a rest.
func gpuSnapshot(at time.Duration, leak int64) *growth.Snapshot {
	s := &growth.Snapshot{
		Elapsed: at, Alive: []int{4242},
		GPUMemory: []growth.ProcessGPUMemory{
			{PID: 4242, Used: 10_000, Reserved: 6000, Allocated: 5000, BlocksProbed: true},
		},
		GPUHoldings: []growth.Holding{
			onGPU("keep", growth.KindCudaBlock, "0", leak),
			onGPU("batch", growth.KindCudaBlock, "1", 700),
			onGPU("c10::cuda::CUDACachingAllocator::raw_alloc", growth.KindCudaSegment, "0", 6000),
			onGPU("ncclInit", growth.KindCudaSegment, "0", 1200),
		},
	}
	gpu.Attribute(s)
	return s
}

// gpuInput is a process whose blocks grow by 1000 bytes in a minute.
func gpuInput() GPUInput {
	track := &growth.ProcessHistory{
		Member: growth.Member{
			Process: growth.Process{PID: 4242, Command: "trainer", Born: -time.Hour}, Traced: true,
		},
		Last: time.Minute,
	}
	for second := range 61 {
		s := growth.UnknownSample()
		s.Elapsed, s.CudaAllocated, s.CudaReserved = time.Duration(second)*time.Second,
			4000+1000*int64(second)/60, 6000
		track.Timeline = append(track.Timeline, s)
	}
	snapshots := []*growth.Snapshot{
		gpuSnapshot(0, 1000), gpuSnapshot(30*time.Second, 1500), gpuSnapshot(time.Minute, 2000),
	}
	j, _ := gpu.Judge(judge.Case{
		Process: track, GPUHeadroom: growth.Unknown, Headroom: growth.Unknown, Snapshots: snapshots,
		Criteria: verdict.InSeconds().Faster(20),
	})
	return GPUInput{
		Track: track, Judgement: j, Start: snapshots[0], End: snapshots[2], Snapshots: snapshots,
		Headroom: 1 << 30, Rows: 10, Suspects: 10, Stacks: 10,
	}
}

// The known data of a process are in the golden summary.
func TestGPUMemoryOf(t *testing.T) {
	c := gpuInput()
	c.Judgement.Curves[0].Rate = math.NaN()
	curves := GPUMemoryOf(c).Curves
	if curves[0].BytesPerMin != nil || curves[1].BytesPerMin == nil {
		t.Errorf("an unknown rate: %+v", curves)
	}
}

func TestGPUBreakdownOf(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 9))
		var rows []breakdown.Row
		var start, end int64
		kinds := make(map[growth.Kind]int)
		for i := range random.IntN(60) {
			kind := []growth.Kind{growth.KindCudaBlock, growth.KindCudaSegment}[random.IntN(2)]
			r := breakdown.Row{
				PID: 1, Kind: kind, GPU: fmt.Sprint(random.IntN(2)), Start: random.Int64N(1 << 30),
				End:   random.Int64N(1<<30) - 1<<28,
				Stack: growth.NamedStack(1, "", fmt.Sprintf("f%d", i/2)),
			}
			rows = append(rows, r)
			start, end = start+r.Start, end+r.End
		}
		limit := 1 + random.IntN(12)
		for _, r := range GPUBreakdownOf(rows, nil, limit) {
			start, end = start-r.StartBytes, end-r.EndBytes
			kinds[r.Kind]++
		}
		if start != 0 || end != 0 {
			t.Fatalf("seed %d: %d and %d bytes are missing", seed, start, end)
		}
		for kind, n := range kinds {
			if n > limit+1 {
				t.Fatalf("seed %d: %d rows of %s, limit %d", seed, n, kind, limit)
			}
		}
	}
}
