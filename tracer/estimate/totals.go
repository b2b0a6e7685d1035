package estimate

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// StackTotals are the memory of one stack, and the evidence for it. Stack, Kind and GPU are empty
// until the frames of the stack are named.
type StackTotals struct {
	growth.Holding
	evidence *burstEvidence // nil: no object was born in a burst
}

// Holds is true of a stack that holds sampled memory.
func (t *StackTotals) Holds() bool { return t.Samples > 0 }

// TotalsOf returns the totals of a key, new ones if there were none.
func TotalsOf[K comparable](sums map[K]*StackTotals, key K) *StackTotals {
	to, ok := sums[key]
	if !ok {
		to = &StackTotals{}
		sums[key] = to
	}
	return to
}

// AddLive adds the bytes that a sampled allocation of a size represents. The Horvitz-Thompson
// estimator of w bytes by one sample of s bytes has the variance w(w − s).
func (t *StackTotals) AddLive(size uint64, estimate Estimate, bin int) {
	allocated := math.Round(estimate.Weight * float64(size))
	bytes := math.Round(allocated * estimate.Alive)
	variance := estimate.Alive * estimate.Alive * allocated * max(0, allocated-float64(size))

	t.InuseObjects += estimate.Weight * estimate.Alive
	t.InuseBytes += int64(bytes)
	t.Variance += variance
	t.Samples++
	t.AddBirth(growth.Birth{Bin: bin, InuseBytes: bytes, Variance: variance})

	if estimate.Burst >= 0 {
		t.burstEvidence().add(size, estimate, bytes, variance)
	}
}

// burstEvidence returns the evidence, a new one if there was none.
func (t *StackTotals) burstEvidence() *burstEvidence {
	if t.evidence == nil {
		t.evidence = &burstEvidence{}
	}
	return t.evidence
}

// AddTally adds the kernel's count of sampled allocations, times a factor.
func (t *StackTotals) AddTally(key *bpf.TallyKey, tally *bpf.Tally, factor float64) {
	if tally.Objects == 0 {
		return
	}
	weight := factor * growth.Weight(tally.Bytes/tally.Objects, uint64(key.Interval))
	if tally.Weight != 0 { // of a producer, which sees all the time
		weight = float64(tally.Weight) / float64(max(tally.Bytes, tally.Objects)) // malloc(0)
	}
	t.AllocObjects += weight * float64(tally.Objects)
	t.AllocBytes += weight * float64(tally.Bytes)
}

// AddAllocated adds the allocated bytes and objects of other totals, but not the live ones.
func (t *StackTotals) AddAllocated(other *StackTotals) {
	t.AllocObjects += other.AllocObjects
	t.AllocBytes += other.AllocBytes
}

// TakeTallies moves the kernel's tallies, each times its factor, into the totals that to returns.
func TakeTallies(
	tallies *ebpf.Map,
	to func(*bpf.TallyKey) *StackTotals, factor func(*bpf.TallyKey) float64,
) error {
	keys := make([]bpf.TallyKey, kernel.BatchEntries)
	values := make([]bpf.Tally, kernel.BatchEntries)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := tallies.BatchLookupAndDelete(&cursor, keys, values, nil)
		for i := range n {
			to(&keys[i]).AddTally(&keys[i], &values[i], factor(&keys[i]))
		}

		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fold tallies: %w", err)
		}
	}
}

// Holdings has the memory of each stack by kind.
type Holdings map[growth.Key]*StackTotals

// Get returns the holding of a stack and kind of the host's memory, a new one if there was none.
func (h Holdings) Get(stack *growth.Stack, kind growth.Kind) *growth.Holding {
	return &h.totals(stack, kind, "").Holding
}

func (h Holdings) totals(stack *growth.Stack, kind growth.Kind, gpu string) *StackTotals {
	totals := TotalsOf(h, growth.KeyOf(stack, kind, gpu))
	totals.Stack, totals.Kind, totals.GPU = stack, kind, gpu
	return totals
}

// Add adds the memory of a stack and a kind. gpu is empty for the host's memory.
func (h Holdings) Add(stack *growth.Stack, kind growth.Kind, gpu string, totals *StackTotals) {
	to := h.totals(stack, kind, gpu)
	to.InuseObjects += totals.InuseObjects
	to.InuseBytes += totals.InuseBytes
	to.Samples += totals.Samples
	to.Variance += totals.Variance
	to.AddAllocated(totals)

	for _, b := range totals.Births {
		to.AddBirth(b)
	}
	if totals.evidence != nil {
		to.burstEvidence().merge(totals.evidence)
	}
}

// AddEvidence sets the evidence of each holding with objects that were born in bursts, and widens
// its variances by their overdispersion. It is called once, after all heap memory was added.
func (h Holdings) AddEvidence(estimator *Estimator) {
	for _, totals := range h {
		if totals.evidence != nil {
			totals.evidence.apply(&totals.Holding, estimator.burstSeconds)
		}
	}
}

// List returns the holdings in no particular order.
func (h Holdings) List() []growth.Holding {
	list := make([]growth.Holding, 0, len(h))
	for _, totals := range h {
		list = append(list, totals.Holding)
	}
	return list
}
