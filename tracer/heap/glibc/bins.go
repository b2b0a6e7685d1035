package glibc

import (
	"cmp"
	"errors"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
)

// Bounds of following the lists of free chunks.
const (
	maxFreeReads = 1 << 17 // of chunks, in all
	maxGrown     = 1 << 30 // bytes by which a heap grows meanwhile
	maxPasses    = 4       // over all bins
	maxChanged   = 100     // one byte in so many may be in use again after a pass
	maxBinTries  = 256     // of a bin that changes while it is followed
)

// linksSize is the size of the header of a free chunk, with its links fd and bk.
const linksSize = HeaderSize + 2*wordSize

// Where the links of a free chunk are: to the next one in its bin, and to the one before.
const (
	fdAt = HeaderSize
	bkAt = HeaderSize + wordSize
)

// A bin is a list of free chunks of an arena: a ring through its head, followed by fd and by bk.
type bin struct {
	head       uint64
	ways       [2]binWay
	isComplete bool
}

// A binWay is how far a bin was followed in one direction.
type binWay struct {
	chunk    uint64    // the next one
	found    mem.Spans // the chunks that led to it
	isBroken bool      // the next one does not link back
}

// A binReader has the free chunks of heaps by the bins in which malloc has them. That takes time by
// their number, and not by the size of the heaps.
type binReader struct {
	memory mem.Reader
	heaps  []heapSpan      // by address
	heads  map[uint64]bool // of all bins; true: its chunks have been found
	found  map[uint64]bool // where these begin
	free   mem.Spans
	left   int // reads
}

// sumBins returns the sums over the chunks of heaps by the bins, without Large. A walk of heaps above a
// GiB would take seconds. The error wraps ErrLargeHeap where there are too many free chunks, or where
// the bins change faster than they can be followed, or is one of readTop or comes from memory. So many
// chunks are read at most, but for a few.
func (a *Malloc) sumBins(
	memory mem.Reader, arenas []arena, heaps []heapSpan, resident func(start, end uint64) uint64,
	most int,
) (sum HeapChunks, err error) {
	l := &binReader{memory: memory, heaps: slices.Clone(heaps), left: most}
	for i := range l.heaps {
		switch h := &l.heaps[i]; { // it grows meanwhile
		case h.topAt == a.mainArena+a.layout.top:
			h.end += maxGrown
		case h.topAt != 0:
			h.end = h.start + heapMaxSize
		}
	}
	slices.SortFunc(l.heaps, func(a, b heapSpan) int { return cmp.Compare(a.start, b.start) })
	for isSteady, tries := false, 0; !isSteady; tries++ {
		if tries == maxPasses {
			return HeapChunks{}, ErrLargeHeap
		}
		if err := l.followAll(a.binsOf(arenas)); err != nil {
			return HeapChunks{}, err
		}
		if isSteady, err = l.verify(); err != nil {
			return HeapChunks{}, err
		}
	}

	sum.ByBins = true
	for _, h := range l.heaps {
		if h.topAt != 0 {
			if err := h.readTop(memory); err != nil || h.grown {
				return HeapChunks{}, errors.Join(err, ErrBrokenChain)
			}
			h.end = h.top.End
			l.free = append(l.free, h.top)
		}
		sum.InUse += h.end - h.start
	}
	for _, s := range mem.MergeSpans(l.free) {
		sum.InUse -= s.Len()
		sum.Free += s.Len()
		sum.FreeResident += resident(s.Start, s.End)
	}
	return sum, nil
}

// binsOf returns where the bins of arenas are.
func (a *Malloc) binsOf(arenas []arena) (addresses []uint64) {
	for _, r := range arenas {
		addresses = append(addresses, r.address+a.layout.bins)
	}
	return addresses
}

// followAll follows all bins until each was followed to its end.
func (l *binReader) followAll(addresses []uint64) error {
	l.heads, l.found, l.free = make(map[uint64]bool), make(map[uint64]bool), nil
	for range maxBinTries {
		open, err := l.open(addresses)
		if err != nil || len(open) == 0 {
			return err
		}
		if err := l.follow(open); err != nil {
			return err
		}
	}
	return ErrLargeHeap
}

// verify leaves the chunks that are still free: the chunk behind each says so. It adds those that have
// come between them since: at one end of a bin, say, while the other one was followed. It returns false
// where many are in use again: then as many others may have become free meanwhile, and were not found.
func (l *binReader) verify() (isSteady bool, err error) {
	all, lost, found := l.free.Len(), uint64(0), l.free
	l.free = nil
	for pass := 0; pass < maxPasses && len(found) > 0; pass++ {
		chunks, behind := make([]uint64, len(found)), make([]uint64, len(found))
		for i, s := range found {
			chunks[i], behind[i] = s.Start, s.End
		}
		own, err := l.memory.Peek(chunks, linksSize)
		if err != nil {
			return false, err
		}
		next, err := l.memory.Peek(behind, HeaderSize)
		if err != nil {
			return false, err
		}

		var links []link
		for i, s := range found {
			isFree := own[i] != nil && next[i] != nil && chunkSize(own[i]) == s.Len() &&
				mchunkSize(next[i])&prevInUse == 0 && mchunkPrevSize(next[i]) == s.Len()
			if !isFree {
				lost += s.Len()
				continue
			}
			l.free = append(l.free, s)
			for _, on := range []int{fdAt, bkAt} {
				links = append(links, link{on: on, from: s.Start, to: mem.Word(own[i], on)})
			}
		}
		if found, err = l.followLinks(links); err != nil {
			return false, err
		}
	}
	return lost <= all/maxChanged, nil
}

// A link leads from a free chunk to the next one in one of two directions, fdAt or bkAt.
type link struct {
	on       int
	from, to uint64
}

// followLinks follows links as long as they lead to chunks that are not known and link back, and
// returns these.
func (l *binReader) followLinks(links []link) (found mem.Spans, err error) {
	for {
		links = slices.DeleteFunc(links, func(k link) bool {
			_, isHead := l.heads[k.to]
			return isHead || l.found[k.to]
		})
		if len(links) == 0 {
			return found, nil
		}
		if l.left -= len(links); l.left < 0 {
			return nil, ErrLargeHeap
		}
		chunks := make([]uint64, len(links))
		for i, k := range links {
			chunks[i] = k.to
		}
		contents, err := l.memory.Peek(chunks, linksSize)
		if err != nil {
			return nil, err
		}

		var more []link
		for i, k := range links {
			back := fdAt + bkAt - k.on
			s, ok := l.chunkIn(k.to, contents[i])
			if !ok || mem.Word(contents[i], back) != k.from || l.found[k.to] {
				continue
			}
			l.found[k.to] = true
			found = append(found, s)
			more = append(more, link{on: k.on, from: k.to, to: mem.Word(contents[i], k.on)})
		}
		links = more
	}
}

// open returns the bins that have to be followed, as they are now: a bin that was not followed to its
// end, or has got its chunks from another one meanwhile.
func (l *binReader) open(addresses []uint64) (open []*bin, err error) {
	if l.left -= len(addresses); l.left < 0 {
		return nil, ErrLargeHeap
	}
	contents, err := l.memory.Peek(addresses, binSize*nBins)
	if err != nil {
		return nil, err
	}
	for i, content := range contents {
		if content == nil {
			return nil, ErrBrokenChain
		}
		for b := range nBins {
			head := binAt(addresses[i], b)
			fd, bk := mem.Word(content, binSize*b), mem.Word(content, binSize*b+wordSize)
			isKnown := l.found[fd] || l.found[bk]
			if isDone := fd == head || l.heads[head] && isKnown; !isDone {
				open = append(open, &bin{head: head, ways: [2]binWay{{chunk: fd}, {chunk: bk}}})
			}
			l.heads[head] = l.heads[head] && fd != head
		}
	}
	return open, nil
}

// follow follows bins in both directions at once. A bin that changed meanwhile in both is still open:
// chunks go from one end to the other all the time, so that a way that goes on would miss some.
func (l *binReader) follow(bins []*bin) error {
	for {
		var chunks []uint64
		var of []*bin
		var ways []*binWay
		for _, list := range bins {
			for i := range list.ways {
				if way := &list.ways[i]; !list.isComplete && !way.isBroken {
					chunks, of, ways = append(chunks, way.chunk), append(of, list), append(ways, way)
				}
			}
		}
		if len(chunks) == 0 {
			break
		}
		contents, err := l.memory.Peek(chunks, linksSize)
		if err != nil {
			return err
		}
		for i, content := range contents {
			l.step(of[i], ways[i], content)
		}
		if l.left -= len(chunks); l.left < 0 {
			return ErrLargeHeap
		}
	}
	for _, list := range bins {
		if l.heads[list.head] = list.isComplete; !list.isComplete {
			continue
		}
		for _, way := range list.ways {
			for _, chunk := range way.found {
				l.found[chunk.Start] = true
			}
			l.free = append(l.free, way.found...)
		}
	}
	return nil
}

// step goes one chunk on, which has some content, unless it does not link back to the chunk before:
// malloc has changed the bin meanwhile. The bin is complete where a way comes back to its head, or meets
// the other one.
func (l *binReader) step(list *bin, way *binWay, content []byte) {
	other, on, back := &list.ways[1], fdAt, bkAt
	if way == other {
		other, on, back = &list.ways[0], back, on
	}
	chunk := way.chunk
	next, isLinked := uint64(0), false
	if content != nil {
		next = mem.Word(content, on)
		isLinked = mem.Word(content, back) == way.last(1, list.head)
	}
	s, ok := l.chunkIn(chunk, content)
	switch {
	case list.isComplete:
	case chunk == list.head,
		isLinked && chunk == other.last(1, 0) && next == other.last(2, list.head):
		list.isComplete = true
	case !ok, !isLinked:
		way.isBroken = true
	default:
		way.found = append(way.found, s)
		way.chunk = next
	}
}

// chunkIn returns the chunk at an address, with its header and links, if there can be one.
func (l *binReader) chunkIn(address uint64, content []byte) (s mem.Span, ok bool) {
	if _, isHead := l.heads[address]; isHead || content == nil || l.heapAt(address) == nil {
		return s, false
	}
	size := chunkSize(content)
	ok = isAligned(address) && size >= minSize && isAligned(size)
	return mem.Span{Start: address, End: address + size}, ok
}

// last returns the last chunk but some that a way has found; first: there is none.
func (w *binWay) last(i int, first uint64) uint64 {
	if n := len(w.found); n >= i {
		return w.found[n-i].Start
	}
	return first
}

// heapAt returns the heap that an address lies in; nil: in none.
func (l *binReader) heapAt(address uint64) *heapSpan {
	i, found := slices.BinarySearchFunc(l.heaps, address, func(h heapSpan, address uint64) int {
		switch {
		case h.end <= address:
			return -1
		case h.first > address:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &l.heaps[i]
}
