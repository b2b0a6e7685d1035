package summary

import (
	"math"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// A Course is what led to what has grown.
type Period struct {
	// Elapsed between the two moments of the growth.
	Elapsed time.Duration
	// Snapshots of the trace, in order; End is the one at which the growth ended.
	Snapshots []*growth.Snapshot
	End       *growth.Snapshot
	// Owners tell whose memory a stack holds; nil: the built-in ones.
	Components *growth.Owners
}

// Accumulating ranks what growth.Between gave: the holdings that grew, largest first, no more than limit of them. Shares
// are of all that grew. Stacks that read the same count as one.
func Accumulating(grown []growth.Holding, course Period, limit int) []Accumulation {
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
			top = append(top, accumulationOf(h, course))
		}
	}
	for i := range top {
		top[i].Rank, top[i].Share = i+1, float64(top[i].Bytes)/sum
	}
	course.addHistory(top, merged.holdings, merged.members)
	return top
}

func accumulationOf(h growth.Holding, course Period) Accumulation {
	leaf := growth.WithoutAllocator(profile.Frames(h.Stack))[0]
	entry := Accumulation{
		Function: leaf.Function, Kind: h.Kind, Objects: units.Round(h.InuseObjects), Bytes: h.InuseBytes, Trend: h.Trend,
		Component: course.Components.Of(h.Stack), HistoryBytes: make([]int64, len(course.Snapshots)), Stack: profile.StackText(h.Stack),
		BytesPerMin: BytesPerMin(h.InuseBytes, course.Elapsed),
		RateLow:     BytesPerMin(units.Round(math.Floor(float64(h.InuseBytes)-h.Margin())), course.Elapsed),
		RateHigh:    BytesPerMin(units.Round(math.Ceil(float64(h.InuseBytes)+h.Margin())), course.Elapsed),
	}
	if leaf.Module != nil {
		entry.Module = leaf.Module.Path
	}
	entry.setUndecided(h, course.End)
	return entry
}

// doubt says why the trend is undecided, if it is.
func (a *Accumulation) setUndecided(h growth.Holding, end *growth.Snapshot) {
	a.UndecidedReason = h.Doubt
	if h.Longer > 0 {
		seconds := Seconds(h.Longer)
		a.LongerS = &seconds
	}
	if h.Doubt == growth.DoubtBlind && end != nil {
		a.Untrackable = end.Watch.Blind
	}
}

// A holder is one stack in one kind of memory.
type site struct {
	stack uint64
	pid   int
	kind  growth.Kind
}

func siteOf(h *growth.Holding) site { return site{h.Stack.ID, h.Stack.PID, h.Kind} }

// alike are holdings, one of all whose stacks read the same, and the one to which each of these belongs, by its first.
type mergedHoldings struct {
	holdings []growth.Holding
	members  map[site]site
}

// mergeAlike sums holdings whose stacks read the same: they differ in addresses within functions alone, which tells a person
// nothing.
func mergeAlike(holdings []growth.Holding) mergedHoldings {
	type look struct {
		kind growth.Kind
		text string
	}
	at := make(map[look]int)
	merged := mergedHoldings{members: make(map[site]site)}
	for _, h := range holdings {
		key := look{h.Kind, strings.Join(profile.StackText(h.Stack), "\n")}
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
		merged.members[siteOf(&h)] = siteOf(&merged.holdings[i])
	}
	return merged
}

// tell fills in what the entries, which are the first of the holdings, held at each snapshot, and how old it is at the end.
func (c Period) addHistory(entries []Accumulation, holdings []growth.Holding, members map[site]site) {
	at := make(map[site]int, len(entries))
	for i := range entries {
		at[siteOf(&holdings[i])] = i
	}
	for k, s := range c.Snapshots {
		for i := range s.Holdings {
			if e, ok := at[members[siteOf(&s.Holdings[i])]]; ok {
				entries[e].HistoryBytes[k] += s.Holdings[i].InuseBytes
			}
		}
	}
	if c.End == nil {
		return
	}
	ages := make([]growth.Age, len(entries))
	for i := range c.End.Holdings {
		h := &c.End.Holdings[i]
		if e, ok := at[members[siteOf(h)]]; ok {
			ages[e].Add(c.End, h)
		}
	}
	for i := range entries {
		if mean, ok := ages[i].Mean(); ok {
			seconds := Seconds(mean)
			entries[i].AgeS = &seconds
		}
	}
}

// A Culprit is the deepest code that explains most of what one owner accumulates.
type Suspect struct {
	// Owner of the memory: a Python package or a library.
	Component string `json:"component"`
	// Function where all its stacks meet, as StackText writes it.
	Function string `json:"function"`
	// Bytes gained since the boundary by all stacks of the owner, and how fast.
	Bytes       int64 `json:"bytes"`
	BytesPerMin int64 `json:"bytes_per_min"`
	// Share of the resident growth; absent where nothing resident grew.
	Share *float64 `json:"share,omitempty"`
	// Explains is the part of Bytes whose stacks lead through Function; Stacks is the number of different ones of the owner.
	Explains float64      `json:"explains"`
	Stacks   int          `json:"stacks"`
	Trend    growth.Trend `json:"trend"`
	// Path leads from Function to the allocation that holds most, Callers from it outwards.
	Path    []string `json:"path"`
	Callers []string `json:"callers"`
}

// CulpritOf is a culprit in the form of the summary.
func SuspectOf(c growth.Culprit) Suspect {
	out := Suspect{
		Component: c.Owner, Function: profile.FrameText(c.Frame), Bytes: units.Round(c.Growth), BytesPerMin: units.Round(c.Rate * 60),
		Explains: c.Inclusive, Stacks: c.Stacks, Trend: c.Trend, Path: frameTexts(c.Path), Callers: frameTexts(c.Above),
	}
	if !math.IsNaN(c.Share) {
		out.Share = &c.Share
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
