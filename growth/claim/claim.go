// Package claim decides which claims a trace may make of a process. A claim rests on data, and a
// loss of these data takes the claim away. It holds no sentences: export/words has them.
package claim

import (
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// A Claim is a statement about the memory of a process that is true only where nothing that it
// rests on was lost.
type Claim string

// The claims.
const (
	// FreeMemory: heap memory that no known object takes is free. Rows of growth.KindRetained say
	// so.
	FreeMemory Claim = "free-memory"
	// Fragmentation: RSS grows by that free memory. Without this claim, walks of malloc's heaps may
	// still show it.
	Fragmentation Claim = "fragmentation"
	// NoLeak: the growth is no leak of objects.
	NoLeak Claim = "no-leak"
	// LiveObjects: the stacks hold all memory that was allocated and not freed, up to sampling.
	LiveObjects Claim = "live-objects"
	// ExactCounts: counts and bytes without a sampling error are exact.
	ExactCounts Claim = "exact-counts"
	// EveryCall: every malloc and free was traced.
	EveryCall Claim = "every-call"
)

// Claims are all claims.
var Claims = []Claim{FreeMemory, Fragmentation, NoLeak, LiveObjects, ExactCounts, EveryCall}

// Data that a trace leaves out on purpose take claims away as losses do. They have no count, and
// are not among the losses of a result.
const (
	Bursts  growth.LossKind = "bursts"  // calls between bursts
	Sampled growth.LossKind = "sampled" // objects between two samples
)

// taken are the claims that each loss takes away. A kind that is missing here takes all of them.
var taken = map[growth.LossKind][]Claim{
	// Calls of the allocator: an object is missing, or one that is counted is free.
	growth.LossLiveFull:     Claims,
	growth.LossThreadState:  Claims,
	growth.LossOutPointer:   Claims,
	growth.LossMissedReturn: Claims,
	growth.LossMissedFree:   Claims,
	// Events are calls that change the address space: other memory may pass for the heap's.
	growth.LossEvents: {FreeMemory, Fragmentation, NoLeak, ExactCounts, EveryCall},

	// Walks of malloc's heaps show no leak even where calls between bursts were not seen.
	Bursts:  {FreeMemory, Fragmentation, LiveObjects, ExactCounts, EveryCall},
	Sampled: {ExactCounts, EveryCall},

	// Objects that are live are known, but not all counts of calls, pages or blocks.
	growth.LossTallyFull:    {ExactCounts},
	growth.LossNoMemory:     {ExactCounts},
	growth.LossFaultsFull:   {ExactCounts},
	growth.LossGPUFull:      {ExactCounts},
	growth.LossIdleHoldings: {ExactCounts},

	// All memory counts, if under another stack.
	growth.LossMappingStacks:   nil,
	growth.LossSiteStacks:      nil,
	growth.LossTruncatedStacks: nil,
	growth.LossPythonFrames:    nil,
	growth.LossUnknownStacks:   nil,
	growth.LossForgottenStacks: nil,
	growth.LossUnwindTables:    nil,
	growth.LossUnwindMappings:  nil,

	// Other processes: nothing is claimed of them.
	growth.LossProcesses: nil,
}

// Takes reports whether a loss takes a claim away.
func Takes(loss growth.LossKind, claim Claim) bool {
	claims, known := taken[loss]
	return !known || slices.Contains(claims, claim)
}

// May reports whether a claim may be made of a process, beside the losses of its trace. Where it
// may not, loss is the reason: the most frequent loss that takes the claim away. All losses count
// for PID 0, the process tree.
func May(claim Claim, pid int, losses growth.Losses) (loss growth.Loss, ok bool) {
	ok = true
	for _, l := range losses.Of(pid) {
		if Takes(l.Kind, claim) && (ok || l.Count > loss.Count) {
			loss, ok = l, false
		}
	}

	return loss, ok
}

// rowClaims are the claims that rows of a kind of memory rest on. All other kinds are counted by
// the kernel.
var rowClaims = map[growth.Kind]Claim{
	growth.KindHeap: LiveObjects, growth.KindMetadata: LiveObjects,
	growth.KindRetained: FreeMemory, growth.KindUnclassified: FreeMemory,
}

// MayRow is May for the claim that rows of a kind of memory rest on.
func MayRow(kind growth.Kind, pid int, losses growth.Losses) (loss growth.Loss, ok bool) {
	if claim, found := rowClaims[kind]; found {
		return May(claim, pid, losses)
	}
	return growth.Loss{}, true
}

// Missing returns the losses of a trace until a snapshot, with the data that it has left out on
// purpose.
func Missing(s *growth.Snapshot) growth.Losses {
	return With(s.Losses, s.Heap.Bursts > 0, s.Interval)
}

// With returns losses, with the data that a trace has left out on purpose. interval is the mean
// number of bytes between samples.
func With(losses growth.Losses, bursts bool, interval uint64) growth.Losses {
	all := slices.Clone(losses)
	if bursts {
		all = append(all, growth.Loss{Kind: Bursts})
	}
	if interval > 1 {
		all = append(all, growth.Loss{Kind: Sampled})
	}

	return all
}
