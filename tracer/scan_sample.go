package tracer

import (
	"iter"
	"math"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// sampled is a mapping of which blocks of one size were looked at, each with the same probability.
type sampled struct {
	pages.Span
	// shift makes an address a place: for files where it is in the file, else the address itself.
	shift uint64
	block uint64 // bytes; its places are multiples
	share float64
}

// sample looks at some blocks of a mapping.
func (s *scan) sample(o *occupancy, m process.Mapping, share float64) error {
	block := uint64(smallestBlock)
	for m.Len()/block > mostBlocks {
		block *= 2
	}
	if err := s.flush(o); err != nil {
		return err
	}
	from := sampled{pages.Span{Start: m.Start, End: m.End}, 0, block, share}
	if m.IsFile() {
		from.shift = m.Offset - m.Start
	}
	s.sampled = append(s.sampled, from)
	for piece, place := range from.pieces(from.Span) {
		if !isTaken(m, place, share) {
			continue
		}
		if err := s.add(o, stretch{piece, m.IsFile()}); err != nil {
			return err
		}
	}
	return s.flush(o)
}

// pieces gives what lies in each block of a part of the mapping, and the block's place.
func (s *sampled) pieces(of pages.Span) iter.Seq2[pages.Span, uint64] {
	return func(yield func(pages.Span, uint64) bool) {
		for at := of.Start; at < of.End; {
			place := (at + s.shift) &^ (s.block - 1)
			end := min(of.End, at+(place+s.block-(at+s.shift)))
			if !yield(pages.Span{Start: at, End: end}, place) {
				return
			}
			at = end
		}
	}
}

// isTaken tells by a hash whether a block is looked at: of a file the same one in all processes.
func isTaken(m process.Mapping, place uint64, share float64) bool {
	if m.IsFile() {
		place ^= mix(m.Inode)
	}
	return float64(mix(place))/math.MaxUint64 < share
}

// mix spreads a number over all of its range (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// weigh gives areas of sampled mappings their factors, and tells what share of the memory found was looked at. As the kernel
// tells how much there is of private memory and of files, what was not looked at is known in sum: that is exact, and what it
// is made of is estimated.
//
// What lies beyond a cut is in no row: it is left unexplained.
func (s *scan) weigh(areas []area, status process.Status) (share float64) {
	if s.cut {
		return min(1, float64(s.runs.InMemory())/float64(max(status.RSS, 1)))
	}
	var whole, part pages.Bytes // what was found in mappings of both sorts
	var variance float64
	next := 0
	for i := range areas {
		a := &areas[i]
		for next < len(s.sampled) && s.sampled[next].End <= a.Region.Start {
			next++
		}
		bytes := s.runs.In(a.Region.Start, a.Region.End)
		if !a.inLedger() { // RSS has none of it
			continue
		}
		if a.sampled = next < len(s.sampled) && s.sampled[next].Start <= a.Region.Start; !a.sampled {
			whole.Add(bytes)
			continue
		}
		part.Add(bytes)
		from := s.sampled[next]
		a.block, a.share = from.block, from.share
		a.variance = a.blockVariance(s.squares(a.span(), from))
		variance += a.variance
	}
	private := factor(status.Anonymous, whole.Private(), part.Private())
	file := factor(status.File+status.Shared, whole.File, part.File)
	scaled := private*float64(part.Private()) + file*float64(part.File)
	for i := range areas {
		if a := &areas[i]; a.sampled {
			a.factor, a.fileFactor, a.doubt = private, file, variance/max(1, scaled*scaled)
			bytes := float64(s.runs.In(a.Region.Start, a.Region.End).Scaled(private, file).InMemory())
			a.variance += bytes * bytes * a.doubt
		}
	}
	all := whole.InMemory() + int64(scaled)
	if len(s.unread) > 0 {
		all = max(all, status.RSS)
	}
	if all > 0 {
		return float64(whole.InMemory()+part.InMemory()) / float64(all)
	}
	return 1
}

// blockVariance is the variance of an estimate from the blocks of an area, of what they hold; squares sums the squares of
// that over the blocks that were looked at.
func (a *area) blockVariance(squares float64) float64 { return (1/a.share - 1) / a.share * squares }

// factor makes of what was seen of some mappings what there is, which is all but the rest.
func factor(all, rest, seen int64) float64 {
	if seen == 0 {
		return 1
	}
	return max(1, float64(all-rest)/float64(seen))
}

// squares sums the squares of what blocks hold.
func (s *scan) squares(of pages.Span, from sampled) (sum float64) {
	for piece := range from.pieces(of) {
		bytes := float64(s.runs.In(piece.Start, piece.End).InMemory())
		sum += bytes * bytes
	}
	return sum
}
