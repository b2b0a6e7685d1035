package export

import (
	"math"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A Course is what led to what has grown.
type Course struct {
	// Elapsed between the two moments of the growth.
	Elapsed time.Duration
	// Snapshots of the trace, in order; End is the one at which the growth ended.
	Snapshots []*growth.Snapshot
	End       *growth.Snapshot
	// Owners tell whose memory a stack holds; nil: the built-in ones.
	Owners *growth.Owners
}

// Accumulating ranks what growth.Between gave: the holdings that grew, largest first, no more than limit of them. Shares
// are of all that grew. Stacks that read the same count as one.
func Accumulating(grown []growth.Holding, course Course, limit int) []Accumulation {
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
	course.tell(top, merged.holdings, merged.members)
	return top
}

func accumulationOf(h growth.Holding, course Course) Accumulation {
	leaf := growth.WithoutAllocator(framesOf(h.Stack))[0]
	entry := Accumulation{
		Function: leaf.Function, Kind: h.Kind, Objects: nearest(h.InuseObjects), Bytes: h.InuseBytes, Trend: h.Trend,
		Owner: course.Owners.Of(h.Stack), HistoryBytes: make([]int64, len(course.Snapshots)), Stack: StackText(h.Stack),
		BytesPerMin: BytesPerMin(h.InuseBytes, course.Elapsed),
		RateLow:     BytesPerMin(nearest(math.Floor(float64(h.InuseBytes)-h.Margin())), course.Elapsed),
		RateHigh:    BytesPerMin(nearest(math.Ceil(float64(h.InuseBytes)+h.Margin())), course.Elapsed),
	}
	if leaf.Module != nil {
		entry.Module = leaf.Module.Path
	}
	entry.doubt(h, course.End)
	return entry
}

// doubt says why the trend is undecided, if it is.
func (a *Accumulation) doubt(h growth.Holding, end *growth.Snapshot) {
	a.Doubt = h.Doubt
	if h.Longer > 0 {
		seconds := Seconds(h.Longer)
		a.LongerS = &seconds
	}
	if h.Doubt == growth.DoubtBlind && end != nil {
		a.Blind = end.Watch.Blind
	}
}

// A holder is one stack in one kind of memory.
type holder struct {
	stack uint64
	pid   int
	kind  growth.Kind
}

func holderOf(h *growth.Holding) holder { return holder{h.Stack.ID, h.Stack.PID, h.Kind} }

// alike are holdings, one of all whose stacks read the same, and the one to which each of these belongs, by its first.
type alike struct {
	holdings []growth.Holding
	members  map[holder]holder
}

// mergeAlike sums holdings whose stacks read the same: they differ in addresses within functions alone, which tells a person
// nothing.
func mergeAlike(holdings []growth.Holding) alike {
	type look struct {
		kind growth.Kind
		text string
	}
	at := make(map[look]int)
	merged := alike{members: make(map[holder]holder)}
	for _, h := range holdings {
		key := look{h.Kind, strings.Join(StackText(h.Stack), "\n")}
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
		merged.members[holderOf(&h)] = holderOf(&merged.holdings[i])
	}
	return merged
}

// tell fills in what the entries, which are the first of the holdings, held at each snapshot, and how old it is at the end.
func (c Course) tell(entries []Accumulation, holdings []growth.Holding, members map[holder]holder) {
	at := make(map[holder]int, len(entries))
	for i := range entries {
		at[holderOf(&holdings[i])] = i
	}
	for k, s := range c.Snapshots {
		for i := range s.Holdings {
			if e, ok := at[members[holderOf(&s.Holdings[i])]]; ok {
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
		if e, ok := at[members[holderOf(h)]]; ok {
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
