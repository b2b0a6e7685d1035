package objects

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

// CensusOptions limit a census.
type CensusOptions struct {
	// Share is the part of pymalloc's memory that is read, from 0 to 1; 0: all of it.
	Share float64
	// Limit is the CPU time that a census should take; 0: there is none. It lowers the share.
	Limit time.Duration
	// Samples is how many addresses of each type are kept, at random.
	Samples int
	// Before is an earlier census, made without one: samples are only of objects that it has not
	// seen, if it read where they are.
	Before *Census
}

// A Census is a count of objects, with samples of them.
type Census struct {
	census.Result
	// Samples are addresses of objects of each type, by name.
	Samples map[string][]uint64
	// Storages are the storages of Tensors.Groups, of the CPU and of CUDA devices, one by one.
	Storages []torch.Storage

	seen *seenSet // all objects; nil: the census was made with CensusOptions.Before
	// seed draws the windows that are read: the same ones as in the census before. history has
	// their counts in all censuses of the program.
	seed    maphash.Seed
	history *census.History
}

// draw returns the number, from 0 to 1, that decides whether the window of an address is read: if
// the share is larger. It is the same in a census and in the censuses after it, so that their
// counts differ by objects that are new, and not by the memory that was drawn.
func (c *Census) draw(address uint64) float64 {
	var window [8]byte
	binary.LittleEndian.PutUint64(window[:], address&^(windowBytes-1))
	return float64(maphash.Bytes(c.seed, window[:])) / math.MaxUint64
}

const (
	// censusSecondsPerByte is the expected cost of a census: see docs/internals/objects.md.
	censusSecondsPerByte = 2.5 / (1 << 30)
	// minCensusShare is the least share that is read, whatever the limit.
	minCensusShare = 0.02

	maxSamples    = 64
	maxCensusType = 1 << 14 // types that are listed
)

// A typeTotal has a census's counts of one type.
type typeTotal struct {
	info         *typeInfo
	count, bytes float64 // of the part that was read
	// inGroup is the count in the group of pools that is being read, squares the sum of the squares
	// of all groups before.
	inGroup, squares float64
	groups           int     // that have any
	bytesBefore      float64 // all bytes before the group
	windows          []census.WindowCount
	exact            float64 // counted outside of the pools, or in pools beside the share
	exactBytes       float64
	seen             int // objects that samples may be of
	samples          []uint64
}

// A counter counts the objects of a process.
type counter struct {
	heap    *Heap
	options CensusOptions
	result  *Census
	totals  []*typeTotal
	group   uint64 // window that is being read, in regions with pools
	touched []*typeTotal
	windows []uint32 // numbers of windows that small objects may be in, read or not
	// windowCounts is the number of counts by window: from census.MaxWindowCounts on, none is kept.
	windowCounts int
	share        float64
	owned        float64  // bytes of tables in pools that were counted with their containers
	tensors      []uint64 // addresses of Python objects, at most one more than maxTensors
	// tensorsKnown is set if all tensors were noted.
	tensorsKnown bool
}

// Census counts the objects of the process. At the deadline of ctx it returns the counts so far:
// see census.Result.Cut. The error wraps ErrNoPython or context.Canceled, or comes from reading.
func (h *Heap) Census(ctx context.Context, options CensusOptions) (*Census, error) {
	if h.python == nil {
		return nil, h.NoPython
	}
	if err := h.refresh(); err != nil {
		return nil, err
	}
	return h.count(ctx, options)
}

// count counts the objects in the memory of the last refresh.
func (h *Heap) count(ctx context.Context, options CensusOptions) (*Census, error) {
	c := &counter{heap: h, options: options, result: &Census{}}
	c.options.Samples = min(options.Samples, maxSamples)
	c.share = c.shareWithin(options)
	h.memory.budget = newBudget(ctx, noLimit)

	// A census with one before it reads the same windows, and samples new objects only.
	if options.Before != nil {
		c.result.seed = options.Before.seed
		c.result.history = options.Before.history
	} else {
		c.result.seed = maphash.MakeSeed()
		c.result.seen = newSeenSet()
		c.result.history = &census.History{}
	}
	c.noteWindows()
	for _, t := range h.types.known {
		t.counted = 0
	}

	choose := func(s mem.Span) bool { return c.result.draw(s.Start) < c.share }
	if c.share == 1 {
		choose = nil
	}
	var err error
	took := process.MeasureCPUTime(func() {
		for _, count := range []func() error{
			func() error { return h.memory.each(choose, c.visit) },
			func() error { return c.others(choose) },
			c.alone,
			func() error { return c.findTensors(choose) },
			func() error { return c.readTensors(ctx) },
		} {
			if err = count(); err != nil {
				return
			}
			c.endGroup()
		}
	})

	if errors.Is(err, errLate) {
		c.result.Cut, err = true, h.memory.budget.canceled()
	}
	if err != nil {
		return nil, err
	}

	c.endGroup()
	c.fill()
	c.pair()
	c.result.Took, c.result.ReadBytes = took, int64(h.memory.read)
	return c.result, nil
}

// shareWithin returns the share of memory that a census reads by its options.
func (c *counter) shareWithin(options CensusOptions) float64 {
	share := options.Share
	if share <= 0 || share > 1 {
		share = 1
	}
	if options.Limit > 0 {
		expected := censusSecondsPerByte * float64(c.heap.memory.spans.Len())
		share = min(share, max(minCensusShare, options.Limit.Seconds()/expected))
	}
	return share
}

// visit counts the objects of a piece.
func (c *counter) visit(p *piece) error {
	switch p.region.kind {
	case regionAnonymous:
		return c.visitPools(p)
	case regionHeap:
		return c.visitChunks(p)
	}
	return nil
}

// visitPools counts the objects in the pools of a piece.
func (c *counter) visitPools(p *piece) error {
	size := p.memory.poolSize
	for at := mem.AlignUp(p.Start, size); at < p.End(); at += size {
		c.beginGroup(at)
		found, isChanging := p.poolAt(at)
		if isChanging {
			c.result.Inconsistent++
		}
		if found != nil {
			c.pool(p, found)
		}

		if c.heap.memory.budget.isOver {
			return errLate
		}
	}
	return nil
}

// visitChunks counts the objects in the chunks of a piece.
func (c *counter) visitChunks(p *piece) error {
	for _, k := range p.chunks {
		b := block{k.User(), blockChunk}
		if !k.InUse || b.Start < p.Start || b.Start >= p.End() {
			continue
		}

		if content := p.At(b.Start, min(b.Len(), chunkContents)); content != nil {
			c.chunk(b, content, false)
		} else { // it goes on behind the piece
			c.chunkAlone(b)
		}
		if c.heap.memory.budget.isOver {
			return errLate
		}
	}
	return nil
}

// alone counts the objects of chunks with a mapping of their own.
func (c *counter) alone() error {
	for _, s := range c.heap.heaps.Mapped {
		if c.chunkAlone(block{glibc.UserOf(s), blockMmapped}); c.heap.memory.budget.isSpent() {
			return errLate
		}
	}
	return nil
}

// beginGroup ends the group of pools before, if an address is in another one.
//
// The memory is drawn by groups (cluster sampling). Objects of one type lie together, so that the
// variance of an estimate follows from the counts in the groups, and not from the objects.
func (c *counter) beginGroup(address uint64) {
	if group := address / windowBytes; group != c.group {
		c.endGroup()
		c.group = group
	}
}

// endGroup adds the counts in a group of pools to the squares.
func (c *counter) endGroup() {
	for _, t := range c.touched {
		if c.windowCounts++; c.windowCounts <= census.MaxWindowCounts {
			t.windows = append(t.windows, census.WindowCount{
				Window: uint32(c.group), Count: float32(t.inGroup),
				Bytes: float32(t.bytes - t.bytesBefore),
			})
		}
		t.squares += t.inGroup * t.inGroup
		t.inGroup, t.bytesBefore = 0, t.bytes
		t.groups++
	}
	c.touched = c.touched[:0]
}

// noteWindow notes a window that small objects may be in, by an address in it.
func (c *counter) noteWindow(address uint64) {
	window := uint32(address / windowBytes)
	if n := len(c.windows); n == 0 || c.windows[n-1] != window {
		c.windows = append(c.windows, window)
	}
}

// noteWindows notes all windows that have pools.
func (c *counter) noteWindows() {
	for _, p := range c.heap.memory.parts {
		if c.heap.memory.regions[p.region].kind == regionAnonymous {
			c.noteWindow(p.Start)
		}
	}
}

// pair sets the growth since the earlier censuses of the program, and keeps the counts by window
// for later ones, unless they are too many.
func (c *counter) pair() {
	r := c.result
	r.ID = rand.Uint64() | 1 // not 0
	if r.Cut || r.history == nil || c.windowCounts > census.MaxWindowCounts {
		return
	}

	windows := census.NewWindows(c.share, c.windows, func(window uint32) bool {
		return c.share == 1 || r.draw(uint64(window)*windowBytes) < c.share
	})
	for _, t := range c.totals {
		name := nameOf(t.info)
		if t.info.isTensor && c.tensorsKnown && c.share < 1 {
			windows.LeaveOut(name)
			continue
		}
		windows.Add(name, t.windows, t.exact, t.exactBytes)
	}

	r.Paired = r.history.Paired(windows)
	r.history.Add(r.ID, time.Now(), windows)
}

// pool counts the objects in the live blocks of a pool.
func (c *counter) pool(p *piece, found *pymalloc.Pool) {
	c.result.Blocks += float64(found.Count)
	for span := range found.Live {
		b := block{span, blockPool}
		object, t := c.heap.types.objectIn(b, p.At(b.Start, found.BlockSize))
		if t == nil {
			c.result.Untyped++
			c.result.UntypedBytes += float64(found.BlockSize)
			continue
		}

		c.noteTensor(object, t)
		total := c.total(t)
		c.addToGroup(total)
		tables := c.tables(t, p.At(object, b.End-object))
		total.bytes += float64(b.Len() + tables)
		if tables <= pymalloc.MaxBlockSize { // it is a block of a pool, which has no type itself
			c.owned += float64(tables)
		}
		c.sample(total, object, true)
	}
}

// blocksAtOnce is how many blocks of another malloc are read together.
const blocksAtOnce = 4096

// others counts the objects in blocks of another malloc than glibc's. Small ones are sampled by
// window, as pools are; nil for choose: all are counted.
func (c *counter) others(choose func(mem.Span) bool) error {
	m := c.heap.memory
	if m.others == nil {
		return nil
	}

	var blocks []block
	for _, r := range m.regions {
		if r.kind != regionAnonymous {
			continue
		}
		for b, ok := m.others.Next(r.Start, r.End); ok; b, ok = m.others.Next(b.End, r.End) {
			isSmall := b.Len() < windowBytes
			if isSmall {
				c.noteWindow(b.Start)
			}
			if isSmall && choose != nil && !choose(b) {
				continue
			}
			if blocks = append(blocks, block{b, blockOther}); len(blocks) < blocksAtOnce {
				continue
			}
			if err := c.countBlocks(blocks); err != nil {
				return err
			}
			blocks = blocks[:0]
		}
	}
	return c.countBlocks(blocks)
}

// countBlocks counts the objects of blocks in the order of their addresses.
func (c *counter) countBlocks(blocks []block) error {
	if c.heap.memory.budget.check() {
		return errLate
	}

	addresses := make([]uint64, len(blocks))
	for i, b := range blocks {
		addresses[i] = b.Start
	}
	contents, err := c.heap.memory.reader.Peek(addresses, chunkContents)
	if err != nil {
		return err
	}

	c.heap.types.learn(contents)
	for i, b := range blocks {
		content := contents[i]
		if content == nil { // it ends before that
			content, _ = c.heap.pages.peek(b.Start, int(min(b.Len(), chunkContents)))
		}
		content = content[:min(uint64(len(content)), b.Len())]
		c.beginGroup(b.Start)
		if c.chunk(b, content, b.Len() < windowBytes); c.heap.memory.budget.isOver {
			return errLate
		}
	}
	return nil
}

// chunkAlone counts the object of a chunk that no piece has.
func (c *counter) chunkAlone(b block) {
	if content, ok := c.heap.pages.peek(b.Start, int(min(b.Len(), chunkContents))); ok {
		c.chunk(b, content, false)
	}
}

// chunkContents is how many bytes of a chunk are read to count its object.
const chunkContents = 256

// chunk counts the object of a block that is no pool's. isSampled is set if only a share of such
// blocks is counted.
func (c *counter) chunk(b block, content []byte, isSampled bool) {
	object, t := c.heap.types.objectIn(b, content)
	if t == nil {
		return
	}

	c.noteTensor(object, t)
	total := c.total(t)
	bytes := float64(b.Len() + c.tables(t, content[object-b.Start:]))
	if isSampled {
		c.addToGroup(total)
		total.bytes += bytes
	} else {
		total.exact++
		total.exactBytes += bytes
	}

	c.sample(total, object, isSampled)
}

// addToGroup counts an object in the group of pools that is being read.
func (c *counter) addToGroup(t *typeTotal) {
	if t.inGroup == 0 {
		c.touched = append(c.touched, t)
	}
	t.inGroup++
	t.count++
}

// total returns the counts of a type.
func (c *counter) total(t *typeInfo) *typeTotal {
	if t.counted == 0 {
		c.totals = append(c.totals, &typeTotal{info: t})
		t.counted = len(c.totals)
	}
	return c.totals[t.counted-1]
}

// sample keeps an object with the probability that makes all of them as likely (reservoir
// sampling). isSampled is set if it lies in a window that is read for a share.
func (c *counter) sample(t *typeTotal, object uint64, isSampled bool) {
	switch before := c.options.Before; {
	case before == nil:
		c.result.seen.add(object)
	case before.seen.has(object) || isSampled && before.draw(object) >= before.Share:
		return // an old one, or one of memory that the census before has not read
	}

	if c.options.Samples == 0 {
		return
	}
	t.seen++
	if len(t.samples) < c.options.Samples {
		t.samples = append(t.samples, object)
	} else if i := rand.IntN(t.seen); i < len(t.samples) {
		t.samples[i] = object
	}
}

// tables returns the bytes of the tables that a container has outside of its block. A dict's table
// follows from the number of its entries: CPython makes it as large as these need.
func (c *counter) tables(t *typeInfo, object []byte) uint64 {
	s := c.heap.version
	switch {
	case t.kind == kindList && len(object) >= int(s.ListItem)+2*wordSize:
		return min(mem.Word(object, s.ListItem+wordSize), maxItems) * wordSize // allocated
	case t.kind == kindDict && len(object) >= int(s.DictUsed)+wordSize:
		if used := mem.Word(object, s.DictUsed); used <= maxItems {
			return cpython.DictSize(used)
		}
	case t.kind == kindSet && len(object) >= int(s.SetMask)+wordSize:
		return s.SetSize(min(mem.Word(object, s.SetMask), maxItems))
	case t.kind == kindDeque && len(object) >= cpython.ObSize+wordSize:
		return cpython.DequeSize(min(mem.Word(object, cpython.ObSize), maxItems))
	}

	return 0
}

// fill sets the result from the counts.
func (c *counter) fill() {
	r := c.result
	r.PID, r.Python, r.Share, r.Missing = c.heap.process.PID, c.heap.Python, c.share, c.missing()
	r.Collections = c.heap.collections()

	// Only pools, and small blocks of another malloc, were read for a share. Tables of containers
	// are blocks of pools without a type, and are counted with their containers.
	r.Blocks /= c.share
	r.Untyped /= c.share
	r.UntypedBytes = max(0, r.UntypedBytes-c.owned) / c.share
	byName := make(map[string]*census.TypeCount)
	r.Samples = make(map[string][]uint64)
	for _, t := range c.totals {
		name := nameOf(t.info)
		one := byName[name]
		if one == nil {
			one = &census.TypeCount{Type: name}
			byName[name] = one
		}
		share, groups := c.share, t.groups
		if t.info.isTensor && c.tensorsKnown { // all of them were counted
			share, groups = 1, 0
		}
		one.Count += t.count/share + t.exact
		one.Bytes += t.bytes/share + t.exactBytes

		// Horvitz and Thompson, for groups that are drawn with probability p: Σx²·(1−p)/p².
		variance := t.squares * (1 - share) / (share * share)
		one.Margin = math.Hypot(one.Margin, growth.ZScore95*math.Sqrt(variance))
		one.Windows = max(one.Windows, groups)
		r.Samples[name] = append(r.Samples[name], t.samples...)
	}

	for _, one := range byName {
		r.Types = append(r.Types, *one)
	}
	slices.SortFunc(r.Types, func(a, b census.TypeCount) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type))
	})
	r.Types = r.Types[:min(len(r.Types), maxCensusType)]
}

// nameOf returns the name by which a census counts the objects of a type.
func nameOf(t *typeInfo) string { return growth.Truncate(t.name, maxTypeName) }

// missing is the part of the objects that the census has not seen; empty: none.
func (c *counter) missing() census.Missing {
	if c.result.Cut {
		return census.MissingForTime
	}
	if len(c.heap.heaps.Spans) == 0 && c.heap.memory.others == nil {
		return census.MissingLarge
	}
	return ""
}

// A seenSet remembers addresses of objects in a bit each, by windows. It is exact as long as it has
// room for each window; from then on it may have some that were not added. Those cost samples
// alone.
type seenSet struct {
	windows map[uint64]int // where the bits of a window are, by its number
	bits    bitmap

	last   uint64 // the window that was looked up last
	lastAt int
}

const (
	bitsOfWindow   = windowBytes / granule
	maxSeenWindows = 1 << 14 // 32 MiB of bits
)

func newSeenSet() *seenSet { return &seenSet{windows: make(map[uint64]int), lastAt: -1} }

// place returns the bit of an address; false: its window has none.
func (s *seenSet) place(address uint64) (bit uint64, ok bool) {
	window := address / windowBytes
	if window != s.last || s.lastAt < 0 {
		at, isKnown := s.windows[window]
		if isFull := len(s.windows) == maxSeenWindows; !isKnown && isFull {
			at = int(window % maxSeenWindows)
		} else if !isKnown {
			return 0, false
		}
		s.last, s.lastAt = window, at
	}
	return uint64(s.lastAt)*bitsOfWindow + address%windowBytes/granule, true
}

func (s *seenSet) add(address uint64) {
	bit, ok := s.place(address)
	if !ok {
		s.windows[address/windowBytes] = len(s.windows)
		s.bits = append(s.bits, make(bitmap, bitsOfWindow/64)...)
		bit, _ = s.place(address)
	}
	s.bits.add(bit)
}

// has reports whether an address may have been added. A nil set has none.
func (s *seenSet) has(address uint64) bool {
	if s == nil {
		return false
	}
	bit, ok := s.place(address)
	return ok && s.bits.has(bit)
}
