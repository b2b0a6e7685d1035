package gpu

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/trend"
)

var (
	keeps  = &growth.Stack{ID: 7}
	others = &growth.Stack{ID: 8}
)

// pinnedBy returns a segment of 20 MiB with blocks in use of these sizes in MiB, by a stack.
func pinnedBy(stack *growth.Stack, sizes ...int64) growth.GPUSegment {
	s := growth.GPUSegment{GPU: "0", Address: 1 << 44, Size: 20 * mib}
	left := s.Size
	for _, size := range append(sizes, 0) {
		b := growth.GPUBlock{
			Address: s.Address + uint64(s.Size-left), Size: size * mib, Stack: stack,
			State: growth.GPUBlockAllocated,
		}
		if size == 0 {
			b.Size, b.State, b.Stack = left, growth.GPUBlockFree, nil
		}
		s.Blocks, left = append(s.Blocks, b), left-b.Size
	}
	return s
}

func TestPinners(t *testing.T) {
	t.Parallel()
	mixed := pinnedBy(keeps, 2, 3)
	mixed.Blocks[1].Stack = others
	graph := pinnedBy(keeps, 2)
	graph.Pool.Kind = growth.GPUPoolGraph
	expandable := pinnedBy(keeps, 2)
	expandable.Expandable, expandable.Size = true, 40*mib
	expandable.Blocks[1].Size += 20 * mib // its second page is free
	tensor := pinnedBy(nil, 2)
	tensor.Blocks[0].Tensor = &growth.GPUTensor{DType: "float32", Shape: []int64{512}}

	got := PinnersOf(&growth.GPUCache{Segments: []growth.GPUSegment{
		pinnedBy(keeps, 2), pinnedBy(others, 2, 2), pinnedBy(nil, 2), mixed, graph, expandable, tensor,
		pinnedBy(others, 1), pinnedBy(others, 1), pinnedBy(keeps, 20), pinnedBy(nil),
	}})
	want := []Pinner{
		{GPU: "0", Stack: keeps, Sampled: 2, Blocks: 5, Bytes: 10 * mib, Segments: 4, Gain: 80 * mib},
		{GPU: "0", Stack: others, Sampled: 2, Blocks: 2, Bytes: 2 * mib, Segments: 2, Gain: 40 * mib},
		{
			GPU: "0", Tensor: tensor.Blocks[0].Tensor, Blocks: 1, Bytes: 2 * mib, Segments: 1,
			Gain: 20 * mib,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	temporary := pinnedBy(keeps, 2, 4)
	temporary.Blocks[0].Lists, temporary.Blocks[1].Lists = 3, 2
	returned := pinnedBy(others, 2)
	returned.Blocks[0].Lists = 1
	got = PinnersOf(&growth.GPUCache{
		Lists: 5, Segments: []growth.GPUSegment{temporary, returned},
	})
	want = []Pinner{
		{GPU: "0", Stack: keeps, Sampled: 1, Blocks: 1, Bytes: 2 * mib, Segments: 1, Gain: 20 * mib},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("beside temporary blocks: %+v\nwant %+v", got, want)
	}

	if got := PinnersOf(nil); got != nil {
		t.Errorf("of no list: %+v", got)
	}
}

// TestPinnersOfSites has blocks that are younger than the census, beside known tensors of their
// site.
func TestPinnersOfSites(t *testing.T) {
	t.Parallel()
	known := func(stack *growth.Stack, size int64, shape ...int64) growth.GPUSegment {
		s := pinnedBy(stack, size)
		s.Blocks[0].Tensor = &growth.GPUTensor{DType: "uint8", Shape: shape}
		return s
	}
	pages := pinnedBy(keeps, 2)
	pages.Expandable = true

	got := PinnersOf(&growth.GPUCache{Segments: []growth.GPUSegment{
		known(keeps, 2, 7), known(keeps, 2, 7), pinnedBy(keeps, 2), pages, // all are of that kind
		known(others, 3, 8), known(others, 3, 9), pinnedBy(others, 3), // any of two kinds
		pinnedBy(others, 4), pages, // another site
	}})
	texts := make([]string, 0, len(got))
	for _, p := range got {
		text := fmt.Sprint(p.Blocks, " of ", p.Bytes/int64(p.Blocks)/mib, " MiB keep ", p.Gain/mib)
		if p.Tensor != nil {
			text += fmt.Sprint(" ", p.Tensor.Shape)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	want := []string{
		"1 of 3 MiB keep 20", "1 of 3 MiB keep 20 [8]", "1 of 3 MiB keep 20 [9]", "1 of 4 MiB keep 20",
		"5 of 2 MiB keep 100 [7]",
	}
	if !slices.Equal(texts, want) {
		t.Errorf("%q\nwant %q", texts, want)
	}

	whole := PinnersOf(&growth.GPUCache{Segments: []growth.GPUSegment{pages, pages}})
	if len(whole) != 1 || !whole[0].Expandable || got[0].Expandable {
		t.Errorf("expandable: %+v, %+v", whole, got[0])
	}
}

func TestDiagnosisOfCache(t *testing.T) {
	t.Parallel()
	at := func(second time.Duration, sums ...growth.GPUCacheSum) *growth.Snapshot {
		m := growth.ProcessGPUMemory{PID: 1}
		if sums != nil {
			m.Cache = &growth.GPUCache{Sums: sums}
		}
		return &growth.Snapshot{
			Elapsed: second * time.Second, GPUMemory: []growth.ProcessGPUMemory{m},
		}
	}
	sum := func(pinned, returnable int64) growth.GPUCacheSum {
		return growth.GPUCacheSum{GPU: "0", Pinned: pinned, Returnable: returnable}
	}
	pool := func(kind growth.GPUPoolKind, free int64) growth.GPUCacheSum {
		return growth.GPUCacheSum{GPU: "0", Kind: kind, Reserved: free + 5, Allocated: 5}
	}
	for name, c := range map[string]struct {
		snapshots []*growth.Snapshot
		want      Diagnosis
	}{
		"what blocks pin": {
			[]*growth.Snapshot{at(20, sum(10, 50)), at(30, sum(100, 60))}, DiagnosisFragmentation,
		},
		"what empty_cache() returns": {
			[]*growth.Snapshot{at(20, sum(10, 50)), at(30, sum(10, 60))}, DiagnosisCache,
		},
		"private pools": {[]*growth.Snapshot{
			at(20, sum(10, 50)), at(30, sum(11, 50), pool(growth.GPUPoolGraph, 2), pool(growth.GPUPoolUser, 3)),
		}, DiagnosisPools},
		"before the window": {
			[]*growth.Snapshot{at(0, sum(0, 0)), at(20, sum(90, 50)), at(30, sum(90, 60))}, DiagnosisCache,
		},
		"one list amid a step": {
			[]*growth.Snapshot{
				at(10, sum(10, 5)), at(20, sum(20, 5)), at(30, sum(30, 5)), at(40, sum(40, 5)), at(50, sum(1, 5)),
			},
			DiagnosisFragmentation,
		},
		"one list in the window": {
			[]*growth.Snapshot{at(0, sum(0, 0)), at(5, sum(80, 59)), at(30, sum(90, 60))},
			DiagnosisFragmentation,
		},
		"no list in the window": {
			[]*growth.Snapshot{at(0, sum(0, 0)), at(5, sum(90, 60)), at(30)}, DiagnosisCacheGrows,
		},
		"one list alone":    {[]*growth.Snapshot{at(20), at(30, sum(90, 60))}, DiagnosisCacheGrows},
		"no list":           {[]*growth.Snapshot{at(20), at(30)}, DiagnosisCacheGrows},
		"lists that shrink": {[]*growth.Snapshot{at(20, sum(9, 9)), at(30, sum(8, 8))}, DiagnosisCacheGrows},
	} {
		j := Judgement{Diagnosis: DiagnosisCacheGrows, Window: trend.Window{From: 10 * time.Second}}
		if j.diagnoseCache(c.snapshots, 1); j.Diagnosis != c.want {
			t.Errorf("%s: %s, want %s", name, j.Diagnosis, c.want)
		}
	}
	j := Judgement{Diagnosis: DiagnosisTensors}
	j.diagnoseCache([]*growth.Snapshot{at(0, sum(0, 0)), at(1, sum(9, 9))}, 1)
	if j.Diagnosis != DiagnosisTensors {
		t.Errorf("of tensors: %s", j.Diagnosis)
	}
}
