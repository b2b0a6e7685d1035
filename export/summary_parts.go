package export

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// Seconds is a time as the summary gives it, in milliseconds' steps.
func Seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// LiveOf sums holdings.
func LiveOf(holdings []growth.Holding) Live {
	live := Live{Bytes: make(map[growth.Kind]int64)}
	var objects float64
	for _, h := range holdings {
		objects += h.InuseObjects
		live.Bytes[h.Kind] += h.InuseBytes
	}
	for kind, bytes := range live.Bytes {
		if bytes == 0 {
			delete(live.Bytes, kind)
		}
	}
	live.Objects = nearest(objects)
	return live
}

// MappingsOf is the totals in the form of the summary.
func MappingsOf(t growth.MappingTotals) Mappings {
	return Mappings{
		ReservedBytes:   t.Reserved,
		TouchedBytes:    t.Touched,
		AllocatorBytes:  t.Allocator,
		UnknownBytes:    t.Unknown,
		VanishedBytes:   t.Vanished,
		UnmeasuredBytes: t.Unmeasured,
		ReleasedBytes:   t.Released,
		UnmappedBytes:   t.Unmapped,
	}
}

// BytesPerMin is a rate in whole bytes, for the pointers of a Summary; nil if no time passed.
func BytesPerMin(bytes int64, elapsed time.Duration) *int64 {
	if elapsed <= 0 {
		return nil
	}
	rate := int64(math.Round(float64(bytes) / elapsed.Minutes()))
	return &rate
}

// Accumulating ranks what growth.Between gave: the holdings that grew, largest first, no more than limit of them. Shares
// are of all that grew. Stacks that read the same count as one. elapsed is the time between the two snapshots.
func Accumulating(grown []growth.Holding, elapsed time.Duration, limit int) []Accumulation {
	positive := slices.DeleteFunc(mergeAlike(grown), func(h growth.Holding) bool { return h.InuseBytes <= 0 })
	growth.SortByInuse(positive)
	var sum float64
	for _, h := range positive {
		sum += float64(h.InuseBytes)
	}
	top := []Accumulation{}
	for i, h := range positive[:min(limit, len(positive))] {
		leaf := growth.WithoutAllocator(framesOf(h.Stack))[0]
		entry := Accumulation{
			Rank:        i + 1,
			Function:    leaf.Function,
			Kind:        h.Kind,
			Objects:     nearest(h.InuseObjects),
			Bytes:       h.InuseBytes,
			BytesPerMin: BytesPerMin(h.InuseBytes, elapsed),
			Share:       float64(h.InuseBytes) / sum,
			Trend:       h.Trend,
			Stack:       StackText(h.Stack),
		}
		if leaf.Module != nil {
			entry.Module = leaf.Module.Path
		}
		top = append(top, entry)
	}
	return top
}

// mergeAlike sums holdings whose stacks read the same: they differ in addresses within functions alone, which tells a person
// nothing.
func mergeAlike(holdings []growth.Holding) []growth.Holding {
	type look struct {
		kind growth.Kind
		text string
	}
	at := make(map[look]int)
	var merged []growth.Holding
	for _, h := range holdings {
		key := look{h.Kind, strings.Join(StackText(h.Stack), "\n")}
		i, ok := at[key]
		if !ok {
			at[key] = len(merged)
			merged = append(merged, h)
			continue
		}
		merged[i].InuseObjects += h.InuseObjects
		merged[i].InuseBytes += h.InuseBytes
	}
	return merged
}

// Releases are those that gave most memory back, no more than limit of them; nil if nothing was.
func Releases(releases []growth.Release, limit int) []Release {
	sorted := slices.Clone(releases)
	slices.SortFunc(sorted, func(a, b growth.Release) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Stack.ID, b.Stack.ID), cmp.Compare(a.Call, b.Call))
	})
	var top []Release
	for _, r := range sorted[:min(limit, len(sorted))] {
		top = append(top, Release{Call: r.Call, Bytes: r.Bytes, Stack: StackText(r.Stack)})
	}
	return top
}
