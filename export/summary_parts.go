package export

import (
	"cmp"
	"math"
	"slices"
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
