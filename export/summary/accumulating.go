package summary

import (
	"math"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/trend"
)

// A Period is the time over which stacks accumulated.
type Period struct {
	// Elapsed from the baseline to the end.
	Elapsed time.Duration
	// Snapshots of the trace, in order. End is the one at the end of the period.
	Snapshots []*growth.Snapshot
	End       *growth.Snapshot
	// Components classify stacks; nil: the built-in rules.
	Components *component.Rules
}

// Accumulating ranks the holdings of growth.Between that grew, the largest first, up to limit of
// them. Shares are of everything that grew. Stacks with the same text count as one.
func Accumulating(grown []growth.Holding, period Period, limit int) []Accumulation {
	merged := mergeAlike(grown)
	growth.SortByInuse(merged.holdings)

	top := []Accumulation{}
	var sum float64
	for _, h := range merged.holdings {
		if h.InuseBytes <= 0 {
			break
		}
		sum += float64(h.InuseBytes)
		if len(top) < limit {
			top = append(top, accumulationOf(h, period))
		}
	}

	for i := range top {
		top[i].Rank, top[i].Share = i+1, float64(top[i].Bytes)/sum
		top[i].StackIDs = stackIDs(merged.ids[keyOf(&merged.holdings[i])])
	}

	period.addHistory(top, merged.holdings, merged.members)
	return top
}

func accumulationOf(h growth.Holding, period Period) Accumulation {
	leaf := growth.WithoutAllocator(profile.Frames(h.Stack))[0]
	entry := Accumulation{
		Function: leaf.Function, Kind: h.Kind, Objects: units.Round(h.InuseObjects),
		Bytes: h.InuseBytes, Trend: h.Trend,
		Component:    period.Components.Of(h.Stack),
		HistoryBytes: make([]int64, len(period.Snapshots)), Stack: profile.StackText(h.Stack),
		BytesPerMin: BytesPerMin(h.InuseBytes, period.Elapsed),
	}

	if h.Margin() > 0 || !h.Kind.IsSampled() || period.isExact(h.Stack.PID) {
		bytes, margin := float64(h.InuseBytes), h.Margin()
		entry.RateLow = BytesPerMin(units.Round(math.Floor(bytes-margin)), period.Elapsed)
		entry.RateHigh = BytesPerMin(units.Round(math.Ceil(bytes+margin)), period.Elapsed)
	}

	if leaf.Module != nil {
		entry.Module = leaf.Module.Path
	}

	entry.setUndecided(h, period.End)
	return entry
}

// isExact reports whether counts of a process without a sampling error are exact.
func (p *Period) isExact(pid int) bool {
	if p.End == nil {
		return true
	}

	_, ok := claim.May(claim.ExactCounts, pid, p.End.Losses)
	return ok
}

// setUndecided sets why the trend is undecided, if it is.
func (a *Accumulation) setUndecided(h growth.Holding, end *growth.Snapshot) {
	a.UndecidedReason = h.Undecided
	if h.Longer > 0 {
		a.LongerS = new(Seconds(h.Longer))
	}

	if h.Undecided == growth.UndecidedUntrackable && end != nil {
		a.Untrackable = end.Heap.Untrackable
	}
}

// keyOf is the key of a stack's memory of one kind on all GPUs.
func keyOf(h *growth.Holding) growth.Key { return growth.KeyOf(h.Stack, h.Kind, "") }

// mergedHoldings has one holding for all stacks with the same text, and maps the key of each stack
// to the key of its merged holding, which is the first one. ids are the IDs of each one's stacks.
type mergedHoldings struct {
	holdings []growth.Holding
	members  map[growth.Key]growth.Key
	ids      map[growth.Key][]uint64
}

// mergeAlike sums holdings whose stacks have the same text. These differ only in addresses within
// functions, which mean nothing to a reader.
func mergeAlike(holdings []growth.Holding) mergedHoldings {
	type stackText struct {
		kind growth.Kind
		text string
	}
	at := make(map[stackText]int)
	merged := mergedHoldings{
		members: make(map[growth.Key]growth.Key), ids: make(map[growth.Key][]uint64),
	}
	for _, h := range holdings {
		key := stackText{h.Kind, strings.Join(profile.StackText(h.Stack), "\n")}
		i, ok := at[key]
		if !ok {
			i = len(merged.holdings)
			at[key] = i
			merged.holdings = append(merged.holdings, h)
		} else {
			merged.holdings[i].InuseObjects += h.InuseObjects
			merged.holdings[i].InuseBytes += h.InuseBytes
			merged.holdings[i].Variance += h.Variance
		}

		own := keyOf(&merged.holdings[i])
		merged.members[keyOf(&h)] = own
		if h.Stack != nil {
			merged.ids[own] = append(merged.ids[own], h.Stack.ID)
		}
	}

	return merged
}

// bytesOf returns the bytes that a stack held at a snapshot, by the slowdown in bursts as it is
// known at the end.
func (c Period) bytesOf(h *growth.Holding, s *growth.Snapshot) int64 {
	if c.End == nil {
		return h.InuseBytes
	}
	return h.RescaledInuse(&s.Heap, &c.End.Heap)
}

// addHistory sets the entries' bytes at each snapshot, and how old they are at the end. The entries
// are the first of the holdings.
func (c Period) addHistory(entries []Accumulation, holdings []growth.Holding,
	members map[growth.Key]growth.Key,
) {
	at := make(map[growth.Key]int, len(entries))
	for i := range entries {
		at[keyOf(&holdings[i])] = i
	}

	for k, s := range c.Snapshots {
		for i := range s.Holdings {
			h := &s.Holdings[i]
			if e, ok := at[members[keyOf(h)]]; ok {
				entries[e].HistoryBytes[k] += c.bytesOf(h, s)
			}
		}
	}

	if c.End == nil {
		return
	}

	ages := make([]growth.Age, len(entries))
	for i := range c.End.Holdings {
		h := &c.End.Holdings[i]
		if e, ok := at[members[keyOf(h)]]; ok {
			ages[e].Add(c.End, h)
		}
	}

	for i := range entries {
		if mean, ok := ages[i].Mean(); ok {
			entries[i].AgeS = new(Seconds(mean))
		}
	}
}

// A Suspect is the deepest code that explains most of the memory that one component, or a branch of
// it, accumulates.
type Suspect struct {
	// Component whose memory it is: a Python package or a library.
	Component string `json:"component"`
	// Function is the lowest common function of its stacks, with its line, as profile.StackText
	// writes it. Lines are in the function that most of its growth passes through.
	Function string            `json:"function"`
	Lines    []trend.LineShare `json:"lines"`
	// Bytes that all stacks of the component or branch gained since the baseline, and their rate.
	Bytes       int64 `json:"bytes"`
	BytesPerMin int64 `json:"bytes_per_min"`
	// Share of the growth of RSS; absent where RSS did not grow.
	Share *float64 `json:"share,omitempty"`
	// Explains is the part of Bytes whose stacks lead through Function. Stacks is the number of
	// different stacks.
	Explains float64 `json:"explained_share"`
	Stacks   int     `json:"stacks"`
	// Trend is absent if it was not judged.
	Trend growth.Trend `json:"trend,omitempty"`
	// Sites are how many call sites Bytes are spread over, where none has 10% of them; absent
	// elsewhere. Function is then the one of the largest. CommonCaller is the user's own function
	// that most of Bytes leads through; absent where there is none.
	Sites        int    `json:"sites,omitempty"`
	CommonCaller string `json:"common_caller,omitempty"`
	// Replaced are the objects that are replaced by larger ones, where Trend is TrendReplaced;
	// absent elsewhere.
	Replaced *Replaced `json:"replaced,omitempty"`
	// Path leads from Function to the allocation site that holds most, and Callers outwards.
	Path    []string `json:"path"`
	Callers []string `json:"callers"`
	// StackIDs are the IDs of its stacks, those that grew most first: the first 64; absent where
	// they have none.
	StackIDs []string `json:"stack_ids,omitempty"`
	// NewCodePerMin is how many executable files the process maps newly, per minute, where Path
	// leads through PyTorch's compiler: kernels of recompilations. Absent elsewhere.
	NewCodePerMin float64 `json:"new_code_per_min,omitempty"`
}

// Replaced are objects, one or a few, that are replaced by larger ones.
type Replaced struct {
	Objects int64 `json:"objects"`
	// Bytes of all of them at the end.
	Bytes int64 `json:"bytes"`
}

// SuspectOf converts a suspect.
func SuspectOf(c trend.Suspect) Suspect {
	out := Suspect{
		Component: c.Component, Function: profile.FrameText(c.Frame), Bytes: units.Round(c.Growth),
		BytesPerMin: units.Round(c.Rate * 60),
		Explains:    c.Inclusive, Stacks: c.Stacks, Trend: c.Trend, Path: frameTexts(c.Path),
		Callers: frameTexts(c.Above), Lines: list(c.Lines), NewCodePerMin: c.NewCode * 60,
		StackIDs: stackIDs(c.StackIDs), Sites: c.Sites,
	}
	if !math.IsNaN(c.Share) {
		out.Share = &c.Share
	}
	if c.Common.Function != "" {
		out.CommonCaller = profile.FrameText(c.Common)
	}
	if c.Objects > 0 {
		out.Replaced = &Replaced{units.Round(c.Objects), units.Round(c.Now)}
	}

	return out
}

func frameTexts(frames []growth.Frame) []string {
	texts := []string{}
	for _, f := range frames {
		texts = append(texts, profile.FrameText(f))
	}
	return texts
}
