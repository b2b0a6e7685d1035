package spike

import (
	"math"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/trend"
)

// Contents returns the memory that is in RAM in the spike, and neither before nor after it, by
// stack and kind, the largest first. InuseBytes are ResidentBytes here. Without a change of other
// memory they sum to Height.
//
// Heap memory that no known object takes is divided among the stacks that made the heap grow.
func (c *Capture) Contents() []growth.Holding {
	before, after := residentOf(c.Before), residentOf(c.After)
	var contents, rest []growth.Holding
	var unattributed int64
	for _, h := range c.At.Holdings {
		usual := max(before[h.Key()].bytes, after[h.Key()].bytes)
		objects := h.InuseObjects - max(before[h.Key()].objects, after[h.Key()].objects)
		grown := growth.Holding{
			Stack: h.Stack, Kind: h.Kind, InuseObjects: max(0, objects),
			InuseBytes: h.ResidentBytes - usual, ResidentBytes: h.ResidentBytes - usual,
		}
		switch {
		case grown.ResidentBytes <= 0:
		case isUnattributed(&h):
			rest = append(rest, grown)
			unattributed += grown.ResidentBytes
		default:
			contents = append(contents, grown)
		}
	}

	contents = append(contents, c.attribute(rest, unattributed)...)
	growth.SortByInuse(contents)
	return contents
}

// attribute divides heap memory without an allocation site among the stacks that touched it. Memory
// that they have not touched stays.
func (c *Capture) attribute(rest []growth.Holding, bytes int64) (all []growth.Holding) {
	var touched int64
	for _, h := range c.At.Touched {
		touched += h.ResidentBytes
	}
	if touched == 0 || bytes == 0 {
		return rest
	}

	part := min(1, float64(bytes)/float64(touched))
	for _, h := range c.At.Touched {
		if own := int64(math.Round(part * float64(h.ResidentBytes))); own > 0 {
			all = append(all, growth.Holding{
				Stack: h.Stack.Under(growth.RootGrowth), Kind: growth.KindHeap,
				InuseBytes: own, ResidentBytes: own,
			})
		}
	}

	untouched := max(0, 1-float64(touched)/float64(bytes))
	for _, h := range rest {
		h.ResidentBytes = int64(math.Round(untouched * float64(h.ResidentBytes)))
		h.InuseBytes = h.ResidentBytes
		if h.ResidentBytes > 0 {
			all = append(all, h)
		}
	}
	return all
}

// isUnattributed is true of heap memory whose allocation site is unknown.
func isUnattributed(h *growth.Holding) bool {
	switch h.Kind {
	case growth.KindRetained, growth.KindUnclassified:
		return true
	}
	return h.Kind == growth.KindHeap && h.Stack.Root != ""
}

type resident struct {
	bytes   int64
	objects float64
}

// residentOf returns the memory in RAM at a snapshot, by stack and kind; nil: no snapshot.
func residentOf(s *growth.Snapshot) map[growth.Key]resident {
	if s == nil {
		return nil
	}
	all := make(map[growth.Key]resident, len(s.Holdings))
	for _, h := range s.Holdings {
		all[h.Key()] = resident{h.ResidentBytes, h.InuseObjects}
	}
	return all
}

// Suspects returns the code behind the contents of a spike, the largest first. Growth is the bytes
// in the spike, and Share their part of all. Memory without a stack has no suspect.
func Suspects(contents []growth.Holding, rules *component.Rules) []trend.Suspect {
	var sum int64
	for _, h := range contents {
		sum += h.ResidentBytes
	}

	var stacks []trend.StackTrend
	for _, h := range contents {
		hasStack := len(h.Stack.Frames) > 0 && h.Stack.ID != 0
		if hasStack && h.Kind != growth.KindUnexplained && !isNamedOnly(h.Stack) {
			bytes := float64(h.ResidentBytes)
			stacks = append(stacks, trend.StackTrend{
				Stack: h.Stack, Kind: h.Kind, Growth: bytes, Low: bytes, High: bytes,
				Share: bytes / float64(sum),
			})
		}
	}

	return trend.Suspects(stacks, rules)
}

// isNamedOnly is true of the stack of growth.NamedStack, whose frames are names and no code.
func isNamedOnly(s *growth.Stack) bool {
	for _, f := range s.Frames {
		if f.Module != nil || f.Python || f.Address != 0 {
			return false
		}
	}
	return true
}
