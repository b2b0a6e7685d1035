package estimate

import "github.com/allocscope/allocscope/growth"

// holdings are put together from the live map, the mappings and the pages.
type Holdings map[holder]*entry

// An entry is a holding and the evidence for it.
type entry struct {
	growth.Holding
	evidence burstEvidence
}

// A holder is a stack and the kind of memory it holds.
type holder struct {
	stack uint64
	pid   int
	kind  growth.Kind
	gpu   string
}

func (h Holdings) Get(stack *growth.Stack, kind growth.Kind) *growth.Holding {
	return &h.entry(stack, kind, "").Holding
}

func (h Holdings) entry(stack *growth.Stack, kind growth.Kind, gpu string) *entry {
	key := holder{stack.ID, stack.PID, kind, gpu}
	found, ok := h[key]
	if !ok {
		found = &entry{Holding: growth.Holding{Stack: stack, Kind: kind, GPU: gpu}}
		h[key] = found
	}
	return found
}

// add adds what a stack holds of a kind.
func (h Holdings) Add(stack *growth.Stack, kind growth.Kind, gpu string, sum *StackTotals) {
	to := h.entry(stack, kind, gpu)
	to.InuseObjects += sum.inuseObjects
	to.InuseBytes += sum.inuseBytes
	to.Samples += sum.samples
	to.Variance += sum.variance
	to.AllocObjects += sum.allocObjects
	to.AllocBytes += sum.allocBytes
	for _, b := range sum.births {
		to.AddBirth(b)
	}
	if sum.evidence != nil {
		to.evidence.merge(sum.evidence)
	}
}

// weigh makes the evidence of what was seen in windows.
func (h Holdings) AddEvidence(books *Estimator) {
	for _, entry := range h {
		if entry.evidence.bursts != nil {
			entry.evidence.apply(&entry.Holding, books)
		}
	}
}

func (h Holdings) List() []growth.Holding {
	list := make([]growth.Holding, 0, len(h))
	for _, entry := range h {
		list = append(list, entry.Holding)
	}
	return list
}
