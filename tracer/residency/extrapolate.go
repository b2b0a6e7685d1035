package residency

import (
	"iter"
	"math"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	// minSampledBytes is the size from which on a mapping is sampled. Smaller ones are scanned as a
	// whole.
	minSampledBytes = 64 << 20

	// minGroupBytes is the size of a page group: the bytes that one page table maps on amd64, and
	// on arm64 with pages of 4 KiB. With larger pages a group is a part of that.
	minGroupBytes = 2 << 20

	// maxGroups bounds the page groups of a mapping. Larger mappings have larger groups.
	maxGroups = 4096

	// minScannedGroups of a sampled mapping are scanned on average, however small the share. Where
	// none is, nothing explains the mapping's memory.
	minScannedGroups = 12
)

// A mappingSample is a mapping of which some page groups were scanned. All groups have one size,
// and each was scanned with the same probability.
type mappingSample struct {
	mem.Span

	// shift is the difference of position and address. The position is the offset in the file for a
	// file, otherwise the address itself. Groups begin at positions that are multiples of groupBytes.
	shift uint64

	groupBytes uint64
	share      float64 // the probability
}

// sample scans some page groups of a mapping.
func (s *pageScan) sample(m process.Mapping, share float64) error {
	groupBytes := uint64(minGroupBytes)
	for m.Len()/groupBytes > maxGroups {
		groupBytes *= 2
	}

	share = max(share, minScannedGroups*float64(groupBytes)/float64(m.Len()))

	if err := s.flush(); err != nil {
		return err
	}

	mapping := mappingSample{
		Span: mem.Span{Start: m.Start, End: m.End}, groupBytes: groupBytes, share: share,
	}
	if m.IsFile() {
		mapping.shift = m.Offset - m.Start
	}
	s.samples = append(s.samples, mapping)

	for group, position := range mapping.groups(mapping.Span) {
		if !isSelected(m, position, share) {
			continue
		}
		if err := s.add(pendingSpan{Span: group, file: m.IsFile()}); err != nil {
			return err
		}
	}
	return s.flush()
}

// groups returns the page groups of a part of the mapping, cut to fit, and their positions.
func (m *mappingSample) groups(part mem.Span) iter.Seq2[mem.Span, uint64] {
	return func(yield func(mem.Span, uint64) bool) {
		for start := part.Start; start < part.End; {
			position := (start + m.shift) &^ (m.groupBytes - 1)
			end := min(part.End, start+(position+m.groupBytes-(start+m.shift)))
			if !yield(mem.Span{Start: start, End: end}, position) {
				return
			}
			start = end
		}
	}
}

// isSelected selects page groups by a hash. All processes scan the same groups of a file, so that
// pages which they share are found.
func isSelected(m process.Mapping, position uint64, share float64) bool {
	if m.IsFile() {
		position ^= mix(m.Inode)
	}
	return float64(mix(position))/math.MaxUint64 < share
}

// mix is the finalizer of splitmix64, a hash (https://prng.di.unimi.it/splitmix64.c).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// extrapolate scales sampled mappings so that their totals match RssAnon and RssFile + RssShmem of
// /proc/PID/status, and returns the share of resident memory that was actually scanned. The totals
// are exact; how segments divide them is estimated.
//
// A truncated scan is not extrapolated: memory above its last run stays unexplained.
func (s *pageScan) extrapolate(segments []Segment, status process.Status) (share float64) {
	if s.truncated {
		return min(1, float64(s.runs.InMemory())/float64(max(status.RSS, 1)))
	}

	// Sum the memory found in mappings that were scanned as a whole, and in sampled mappings.
	var whole, sampled mem.Bytes
	var variance float64
	next := 0
	for i := range segments {
		segment := &segments[i]
		for next < len(s.samples) && s.samples[next].End <= segment.Region.Start {
			next++
		}
		if !segment.countsInRSS() {
			continue
		}

		bytes := s.runs.BytesIn(segment.Region.Start, segment.Region.End)
		segment.sampled = next < len(s.samples) && s.samples[next].Start <= segment.Region.Start
		if !segment.sampled {
			whole.Add(bytes)
			continue
		}

		sampled.Add(bytes)
		mapping := &s.samples[next]
		segment.groupBytes, segment.groupShare = mapping.groupBytes, mapping.share
		segment.variance = segment.groupVariance(s.sumSquares(segment.Span(), mapping))
		variance += segment.variance
	}

	private := scale(status.Anonymous, whole.Private(), sampled.Private())
	file := scale(status.File+status.Shared, whole.File, sampled.File)
	scaled := private*float64(sampled.Private()) + file*float64(sampled.File)

	for i := range segments {
		segment := &segments[i]
		if !segment.sampled {
			continue
		}
		segment.factor, segment.fileFactor = private, file
		segment.factorRelVar = variance / max(1, scaled*scaled)

		found := s.runs.BytesIn(segment.Region.Start, segment.Region.End)
		bytes := float64(found.Scaled(private, file).InMemory())
		segment.variance += bytes * bytes * segment.factorRelVar
	}

	total := whole.InMemory() + int64(scaled)
	if len(s.unread) > 0 {
		total = max(total, status.RSS)
	}
	if total > 0 {
		return float64(whole.InMemory()+sampled.InMemory()) / float64(total)
	}
	return 1
}

// scale returns (total − unsampled)/sampled, at least 1; 1 if sampled is 0.
func scale(total, unsampled, sampled int64) float64 {
	if sampled == 0 {
		return 1
	}
	return max(1, float64(total-unsampled)/float64(sampled))
}

// groupVariance returns the variance of a total that is estimated from a sample of page groups. If
// each group is scanned with probability p and group i holds yᵢ, the total is estimated by Σyᵢ/p,
// and the variance of that by Σyᵢ²·(1−p)/p² (Horvitz-Thompson estimator, Poisson sampling).
// sumSquares is Σyᵢ² over the groups that were scanned.
func (s *Segment) groupVariance(sumSquares float64) float64 {
	return (1/s.groupShare - 1) / s.groupShare * sumSquares
}

// sumSquares returns Σyᵢ² over the page groups i of a part of a mapping, where yᵢ are the bytes
// found in the group.
func (s *pageScan) sumSquares(part mem.Span, mapping *mappingSample) (sum float64) {
	for group := range mapping.groups(part) {
		bytes := float64(s.runs.BytesIn(group.Start, group.End).InMemory())
		sum += bytes * bytes
	}
	return sum
}
