package estimate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// StackTotals are the live and the allocated memory of one stack, before its frames are named.
type StackTotals struct {
	inuseObjects, allocObjects, allocBytes float64
	inuseBytes, samples                    int64
	variance                               float64 // of inuseBytes, in bytes²
	births                                 []growth.Birth
	evidence                               *burstEvidence // nil: no object was born in a burst
}

// Holds is true of a stack that holds sampled memory.
func (t *StackTotals) Holds() bool { return t.samples > 0 }

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

	t.inuseObjects += estimate.Weight * estimate.Alive
	t.inuseBytes += int64(bytes)
	t.variance += variance
	t.samples++

	if estimate.Burst >= 0 {
		if t.evidence == nil {
			t.evidence = &burstEvidence{}
		}
		t.evidence.add(size, estimate, bytes, variance)
	}

	i := slices.IndexFunc(t.births, func(b growth.Birth) bool { return b.Bin == bin })
	if i < 0 {
		i = len(t.births)
		t.births = append(t.births, growth.Birth{Bin: bin})
	}
	t.births[i].InuseBytes += bytes
	t.births[i].Variance += variance
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
	t.allocObjects += weight * float64(tally.Objects)
	t.allocBytes += weight * float64(tally.Bytes)
}

// AddAllocated adds the allocated bytes and objects of other totals, but not the live ones.
func (t *StackTotals) AddAllocated(other *StackTotals) {
	t.allocObjects += other.allocObjects
	t.allocBytes += other.allocBytes
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
type Holdings map[growth.Key]*entry

// entry is a holding and the evidence for it.
type entry struct {
	growth.Holding
	evidence burstEvidence
}

// Get returns the holding of a stack and kind of the host's memory, a new one if there was none.
func (h Holdings) Get(stack *growth.Stack, kind growth.Kind) *growth.Holding {
	return &h.entry(stack, kind, "").Holding
}

func (h Holdings) entry(stack *growth.Stack, kind growth.Kind, gpu string) *entry {
	key := growth.KeyOf(stack, kind, gpu)
	found, ok := h[key]
	if !ok {
		found = &entry{Holding: growth.Holding{Stack: stack, Kind: kind, GPU: gpu}}
		h[key] = found
	}
	return found
}

// Add adds the memory of a stack and a kind. gpu is empty for the host's memory.
func (h Holdings) Add(stack *growth.Stack, kind growth.Kind, gpu string, totals *StackTotals) {
	to := h.entry(stack, kind, gpu)
	to.InuseObjects += totals.inuseObjects
	to.InuseBytes += totals.inuseBytes
	to.Samples += totals.samples
	to.Variance += totals.variance
	to.AllocObjects += totals.allocObjects
	to.AllocBytes += totals.allocBytes

	for _, b := range totals.births {
		to.AddBirth(b)
	}
	if totals.evidence != nil {
		to.evidence.merge(totals.evidence)
	}
}

// AddEvidence sets the evidence of each holding with objects that were born in bursts, and widens
// its variances by their overdispersion. It is called once, after all heap memory was added.
func (h Holdings) AddEvidence(estimator *Estimator) {
	for _, entry := range h {
		if entry.evidence.bursts != nil {
			entry.evidence.apply(&entry.Holding, estimator.burstSeconds)
		}
	}
}

// List returns the holdings in no particular order.
func (h Holdings) List() []growth.Holding {
	list := make([]growth.Holding, 0, len(h))
	for _, entry := range h {
		list = append(list, entry.Holding)
	}
	return list
}
