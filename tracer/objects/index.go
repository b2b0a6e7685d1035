package objects

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
)

const (
	// Words have numbers in the order in which they are read: of a page of indexPage bytes, and
	// within it. Pages are numbered from 1.
	indexPageBits = 12
	indexPage     = 1 << indexPageBits
	wordsOfPage   = indexPage / wordSize
	maxIndexPages = 1 << 23 // 32 GiB: their words have numbers of 32 bits
	granule       = 16      // bytes between blocks

	// Page numbers are looked up by area.
	areaBits, maxAreas = 27, 512
	pagesOfArea        = 1 << (areaBits - indexPageBits)

	// maxIndexed bounds the references, in eight bytes each: 192 MiB.
	maxIndexed = 24 << 20
	// maxWhole is the memory of which an index has all references, if these fit: 2.5 GiB.
	maxWhole = 5 << 29
	// likelyBytes is the memory in which a reference is to be expected.
	likelyBytes = 64
	onlyBits    = 1 << 16
	bucketBits  = 12
	maxWords    = 1 << 12 // words that lead to a block and are read
	// maxGrown is how much a heap is expected to grow while its index is made, and maxGrowing
	// bounds the heaps that do.
	maxGrown, maxGrowing = 16 << 20, 16
)

// errIndexFull ends the pass of an index with too many references.
var errIndexFull = errors.New("too many references")

// An index has the words of the searched memory that lead to blocks in it, by where they lead. One
// pass over the memory makes it, or two where a table of data is large: then a search follows
// references without reading all memory again.
//
// It leaves out words that keep nothing: the types of objects, the lists of the garbage collector,
// and all words of objects that are data, such as text. Nor has it references to such objects, but
// to the samples: most objects are of this kind, and lead nowhere.
type index struct {
	heap    *Heap
	memory  *memory
	samples []uint64 // addresses, in order

	first []uint32   // number of the first page of each part of the memory
	areas []uint16   // by address: index in pages, from 1
	pages [][]uint32 // numbers of the pages of an area; 0: nothing leads there
	high  uint64     // the largest address that has a page number

	most     int // references that are remembered
	repeated [repeatedTargets]repetition
	edges    []uint64 // the number of the word that is led to, and of the word that leads there
	leaves   bitmap   // objects that are data, by granules
	// isMarked: one pass has found all of these.
	isMarked bool
	starts   bitmap // chunks of malloc, by granules
	// growing has the containers whose table moves when they grow, the largest first.
	growing []sizedContainer

	bounds []int // of the buckets of edges
	sorted bitmap
	shift  int // of an edge, to its bucket

	// only is set where the memory has too many references: then the index is made for some targets
	// alone, and again for others.
	only   map[uint64]bool
	filter bitmap // of these, by the last bits of their addresses
	// isCut: the time was used up before all memory was read. isPart: pools were left out.
	// isUnmarked: pools were not marked, and no container in them is known.
	isCut, isPart, isUnmarked bool
}

// A repetition counts the references to a target, most of which lie near each other where they are
// many.
type repetition struct{ target, count uint64 }

const repeatedTargets = 1 << 10

// A sizedContainer is a list, dict or set, with the number of its entries, and the word that leads
// to its table.
type sizedContainer struct{ address, entries, field, table uint64 }

// Containers with fewer entries than minGrowing are many, and grow by little; maxContainers bounds
// the others.
const minGrowing, maxContainers = 64, 1 << 14

// A bitmap is a set of small numbers.
type bitmap []uint64

func (b bitmap) add(i uint64)      { b[i/64] |= 1 << (i % 64) }
func (b bitmap) has(i uint64) bool { return b[i/64]>>(i%64)&1 == 1 }

// newIndex numbers the words of a memory.
func (h *Heap) newIndex(m *memory, samples []uint64) *index {
	x := &index{
		heap: h, memory: m, most: maxIndexed, filter: make(bitmap, onlyBits/64),
		areas: make([]uint16, maxAddress>>areaBits),
	}
	x.samples = slices.Sorted(slices.Values(samples))

	next := uint64(1)
	for _, p := range m.parts {
		kind := m.regions[p.region].kind
		pages := (p.Len() + indexPage - 1) / indexPage
		if x.isCut = next+pages > maxIndexPages || p.End > maxAddress; x.isCut {
			break
		}
		x.first = append(x.first, uint32(next))
		if kind == regionAnonymous || kind == regionHeap {
			x.number(p.Start, next, pages)
		}
		next += pages
	}

	// Nothing is read of bulk data, and words may lead to its start all the same. Nor is memory
	// read by which a heap grows meanwhile.
	led := slices.Clone(x.samples)
	for _, b := range m.mmapped {
		led = append(led, b.Start)
	}
	numberTo := func(start, end uint64) {
		for at := start &^ (indexPage - 1); at < end; at += indexPage {
			if x.wordOf(at) == 0 && at < maxAddress && next < maxIndexPages {
				x.number(at, next, 1)
				next++
			}
		}
	}
	for _, start := range led {
		numberTo(start, start+maxInterior*wordSize)
	}
	for _, s := range x.growingHeaps() {
		numberTo(s.Start, s.End)
	}

	granules := next * indexPage / granule
	x.leaves, x.starts = make(bitmap, granules/64+1), make(bitmap, granules/64+1)
	x.shift = max(0, bits.Len64(next*wordsOfPage)-bucketBits)
	return x
}

// number sets the numbers of pages to which words may lead.
func (x *index) number(start, first, count uint64) {
	for i := range count {
		at := start + i*indexPage
		area := &x.areas[at>>areaBits]
		if *area == 0 {
			if len(x.pages) >= maxAreas {
				x.isCut = true
				return
			}
			x.pages = append(x.pages, make([]uint32, pagesOfArea))
			*area = uint16(len(x.pages))
		}
		x.pages[*area-1][at>>indexPageBits%pagesOfArea] = uint32(first + i)
		x.high = max(x.high, at+indexPage-1)
	}
}

// wordOf returns the number of the word at an address; 0: nothing leads there.
func (x *index) wordOf(address uint64) uint64 {
	if address > x.high {
		return 0
	}
	area := x.areas[address>>areaBits]
	if area == 0 {
		return 0
	}
	page := uint64(x.pages[area-1][address>>indexPageBits%pagesOfArea])
	return page*wordsOfPage + address/wordSize%wordsOfPage*min(page, 1)
}

// addressOf returns the address of a word by its number.
func (x *index) addressOf(word uint64) uint64 {
	page := uint32(word / wordsOfPage)
	i, found := slices.BinarySearch(x.first, page)
	if !found {
		i--
	}
	return x.memory.parts[i].Start + word*wordSize - uint64(x.first[i])*indexPage
}

// read reads all memory, and takes the words that lead to some targets alone; nil: all. Where these
// are too many, the error is errIndexFull, and the index has those that lead to the samples alone.
func (x *index) read(targets []uint64) error {
	x.edges = x.edges[:0]
	x.only = nil
	if targets != nil {
		x.take(targets)
	}
	clear(x.repeated[:])

	prepare, wasMarked := x.memory.prepare, x.isMarked
	if targets != nil && wasMarked { // the marks of all pieces are known
		x.memory.prepare = nil
	}
	defer func() { x.memory.prepare = prepare }()

	var first []uint64 // references to anything, of a part of the memory
	before, part := x.memory.read, uint64(0)
	err := x.memory.each(nil, func(p *piece) error {
		page := x.numberOf(p)
		if page == 0 {
			return errLate
		}
		if targets == nil || !wasMarked {
			x.erase(p, page)
		}
		err := x.scan(p, page*wordsOfPage)
		if errors.Is(err, errIndexFull) && x.only == nil {
			first, part = x.edges, x.memory.read-before
			x.edges = nil
			x.take(x.samples)
			err = x.scan(p, page*wordsOfPage)
		}
		return err
	})

	x.isMarked = true
	x.sortGrowing()
	x.isCut = x.isCut || errors.Is(err, errLate) || errors.Is(err, errIndexFull)
	if err != nil && !x.isCut {
		return err
	}

	err = nil
	if part > 0 {
		// Most references may be to data that came later.
		first = x.withoutLeaves(first)
		all := float64(len(first)) * float64(x.memory.read-before) / float64(part)
		if all < float64(x.most) && !x.isCut && !wasMarked {
			return x.read(nil)
		}
		for _, e := range first {
			if x.only[e>>32] {
				x.edges = append(x.edges, e)
			}
		}

		slices.Sort(x.edges) // a piece was scanned twice
		x.edges, err = slices.Compact(x.edges), errIndexFull
	}

	x.edges = x.withoutLeaves(x.edges)
	x.divide()
	return err
}

// readForSamples reads the words that lead to the samples alone, and marks no data in pools: all
// references would not fit. isPart leaves pools out, which have most of the memory.
func (x *index) readForSamples(isPart bool) error {
	m := x.memory
	x.take(x.samples)
	x.isPart, x.isMarked, x.isUnmarked = isPart, true, true

	prepare := m.prepare
	m.prepare = func(pieces []*piece) {
		if pieces[0].region.kind == regionHeap && prepare != nil {
			prepare(pieces)
		}
	}
	defer func() { m.prepare = prepare }()

	err := m.each(func(w mem.Span) bool {
		return !isPart || m.pools[w.Start/windowBytes] < probesOf(windowBytes)
	}, func(p *piece) error {
		page := x.numberOf(p)
		if page == 0 {
			return errLate
		}
		if p.region.kind == regionHeap {
			x.erase(p, page)
		}
		return x.scan(p, page*wordsOfPage)
	})

	x.isCut = x.isCut || errors.Is(err, errLate) || errors.Is(err, errIndexFull)
	if err != nil && !x.isCut {
		return err
	}
	x.divide()
	return nil
}

func (x *index) sortGrowing() {
	slices.SortFunc(x.growing, func(a, b sizedContainer) int {
		return cmp.Compare(b.entries, a.entries)
	})
}

// take makes the index take the words that lead to some targets alone.
func (x *index) take(targets []uint64) {
	x.only = make(map[uint64]bool)
	clear(x.filter)
	for _, address := range targets {
		x.only[x.wordOf(address)] = true
		x.filter.add(address / wordSize % onlyBits)
	}
}

// numberOf returns the number of the first page of a piece; 0: it is behind all that are numbered.
func (x *index) numberOf(p *piece) uint64 {
	m := x.memory
	i := lastAt(m.parts, p.Start+1, func(p part) uint64 { return p.Start })
	for i >= 0 && m.regions[m.parts[i].region] != p.region { // two of them may share a page
		i--
	}
	if i < 0 || i >= len(x.first) {
		return 0
	}
	return uint64(x.first[i]) + (p.Start-m.parts[i].Start)/indexPage
}

// scan takes the words of a piece that lead to blocks. first is the number of its first word.
func (x *index) scan(p *piece, first uint64) error {
	from, to := max(p.Start, p.region.Start)-p.Start, min(p.End(), p.region.End)-p.Start
	from = mem.AlignUp(from, wordSize)
	content, high := p.Bytes, x.high
	for i := from; i+wordSize <= to; i += wordSize {
		w := binary.LittleEndian.Uint64(content[i:])
		if w-indexPage > high || (w+1)%wordSize > 2 { // a tag changes the lowest bit
			continue
		}
		if x.only != nil && !x.filter.has(w/wordSize%onlyBits) {
			continue
		}
		target := x.wordOf(w)
		if target == 0 || x.leaves.has(target/2) || x.only != nil && !x.only[target] {
			continue
		}
		few := &x.repeated[target%repeatedTargets]
		if few.target != target {
			*few = repetition{target: target}
		}
		if few.count++; few.count > maxWords+1 { // no more of them are read
			continue
		}
		if len(x.edges) == cap(x.edges) && !x.makeRoom() {
			return errIndexFull
		}
		x.edges = append(x.edges, target<<32|(first+i/wordSize))
	}
	return nil
}

// makeRoom makes room for more references; false: there are too many.
func (x *index) makeRoom() bool {
	const step, rest = 1 << 17, 8 // one of so many
	x.edges = x.withoutLeaves(x.edges)
	if len(x.edges) <= cap(x.edges)/rest*(rest-1) && len(x.edges) > 0 {
		return true
	}
	if len(x.edges) >= x.most/rest*(rest-1) {
		return false
	}
	// Memory that is not written takes no place, and to move references takes longer.
	likely := max(len(x.edges)*3/2+step, int(x.memory.spans.Len())/likelyBytes)
	grown := make([]uint64, len(x.edges), min(x.most, likely))
	copy(grown, x.edges)
	x.edges = grown
	return true
}

// withoutLeaves drops references to objects that are data: some were read before their target.
func (x *index) withoutLeaves(edges []uint64) []uint64 {
	return slices.DeleteFunc(edges, func(e uint64) bool { return x.leaves.has(e >> 32 / 2) })
}

// erase marks the chunks and the data of a piece, and erases the words that keep nothing.
func (x *index) erase(p *piece, first uint64) {
	granuleOf := func(address uint64) uint64 {
		return first*(indexPage/granule) + (address-p.Start)/granule
	}
	i, _ := slices.BinarySearch(x.samples, p.Start)
	hasSample := i < len(x.samples) && x.samples[i] < p.End()

	visit := func(b block) {
		content := p.At(b.Start, min(b.Len(), p.End()-min(b.Start, p.End())))
		if content == nil {
			return
		}
		object, t := x.heap.types.objectIn(b, content)
		switch {
		case t == nil:
		case t.isLeaf():
			clear(content)
			if !hasSample || !slices.Contains(x.samples[i:], object) {
				x.leaves.add(granuleOf(object))
			}
		default:
			at := object - b.Start
			x.note(object, t, content[at:])
			if t.flags&cpython.FlagHaveGC != 0 {
				at -= x.heap.version.GCHead
			}
			clear(content[at:min(object-b.Start+cpython.ObjectHead, uint64(len(content)))])
		}
	}

	switch {
	case p.region.kind == regionHeap:
		for _, c := range p.chunks {
			if c.Start >= p.Start && c.Start < p.End() {
				x.starts.add(granuleOf(c.Start))
			}
			if x.heap.types != nil && c.InUse {
				visit(block{c.User(), blockChunk})
			}
		}
	case p.region.kind == regionAnonymous && x.heap.types != nil:
		size := x.memory.poolSize
		for at := mem.AlignUp(p.Start, size); at+size <= p.End(); at += size {
			for b := range pymalloc.Used(p.At(at, size), at) {
				visit(block{b, blockPool})
			}
		}
	}
}

// note notes an object if it is a container whose table may move.
func (x *index) note(object uint64, t *typeInfo, content []byte) {
	offset, isSized := x.heap.objects.entriesAt(t)
	hasTable := t.kind == kindList || t.kind == kindDict || t.kind == kindSet
	if !isSized || !hasTable || offset+wordSize > uint64(len(content)) || x.isMarked {
		return
	}
	entries := mem.Word(content, offset)
	if entries >= minGrowing && entries <= maxItems && len(x.growing) < maxContainers {
		c := sizedContainer{address: object, entries: entries}
		if field := x.heap.objects.tableAt(t); field+wordSize <= uint64(len(content)) {
			c.field, c.table = object+field, mem.Word(content, field)
		}
		x.growing = append(x.growing, c)
	}
}

// divide divides the edges into buckets by their targets, in place. A bucket is sorted when
// something is looked up in it (American flag sort, McIlroy, Bostic and McIlroy 1993).
func (x *index) divide() {
	bucketOf := func(e uint64) uint64 { return e >> 32 >> x.shift }
	x.bounds, x.sorted = make([]int, 1<<bucketBits+1), make(bitmap, 1<<bucketBits/64)
	for _, e := range x.edges {
		x.bounds[bucketOf(e)+1]++
	}
	for i := range x.bounds[1:] {
		x.bounds[i+1] += x.bounds[i]
	}

	next := slices.Clone(x.bounds)
	for b := range uint64(1 << bucketBits) {
		for next[b] < x.bounds[b+1] {
			e := x.edges[next[b]]
			for to := bucketOf(e); to != b; to = bucketOf(e) {
				x.edges[next[to]], e = e, x.edges[next[to]]
				next[to]++
			}
			x.edges[next[b]] = e
			next[b]++
		}
	}
}

// referers returns the addresses of words that lead to an address, in order, and whether these are
// all of them.
func (x *index) referers(address uint64) (words []uint64, areAll bool) {
	target := x.wordOf(address)
	if target == 0 {
		return nil, true
	}
	bucket := x.bucket(target >> x.shift)
	i, _ := slices.BinarySearch(bucket, target<<32)
	for ; i < len(bucket) && bucket[i]>>32 == target; i++ {
		if len(words) >= maxWords {
			return words, false
		}
		words = append(words, x.addressOf(bucket[i]&(1<<32-1)))
	}
	return words, true
}

// bucket returns the edges of a bucket, in order.
func (x *index) bucket(b uint64) []uint64 {
	bucket := x.edges[x.bounds[b]:x.bounds[b+1]]
	if !x.sorted.has(b) {
		slices.Sort(bucket)
		x.sorted.add(b)
	}
	return bucket
}

// toGrown returns the addresses of words that lead to chunks of malloc which a heap did not have
// yet when its memory was read.
func (x *index) toGrown() (words []uint64) {
	for _, s := range x.growingHeaps() {
		from := x.chunkStart(s.Start)
		if from == 0 || s.Start-from > maxGrown {
			from = s.Start
		}
		for at := from; at < s.End; at = at&^(indexPage-1) + indexPage {
			first := x.wordOf(at)
			last := first | (wordsOfPage - 1)
			for b := first >> x.shift; first != 0 && b <= last>>x.shift; b++ {
				for _, e := range x.bucket(b) {
					if to := e >> 32; to >= first && to <= last && len(words) < maxWords {
						words = append(words, x.addressOf(e&(1<<32-1)))
					}
				}
			}
		}
	}
	return words
}

// growingHeaps returns where heaps may grow while they are read: behind the last memory of each
// that is read.
func (x *index) growingHeaps() (spans []mem.Span) {
	heaps, parts := x.heap.heaps.Spans, x.memory.parts
	for _, s := range heaps[:min(len(heaps), maxGrowing)] {
		i := lastAt(parts, s.End-1, func(p part) uint64 { return p.Start })
		if i >= 0 && parts[i].End > s.Start {
			spans = append(spans, mem.Span{Start: min(s.End, parts[i].End), End: s.End + maxGrown})
		}
	}
	return spans
}

// chunkStart returns the chunk of malloc that an address may be in; 0: there is none. The first
// word of a chunk belongs to the memory of the chunk before.
func (x *index) chunkStart(address uint64) uint64 {
	at := x.wordOf(address-wordSize) / 2
	for word := at / 64; ; word-- {
		found := x.starts[word]
		if word == at/64 {
			found &= ^uint64(0) >> (63 - at%64)
		}
		if found != 0 {
			return x.addressOf((word*64 + uint64(bits.Len64(found)) - 1) * 2)
		}
		if word == 0 {
			return 0
		}
	}
}
