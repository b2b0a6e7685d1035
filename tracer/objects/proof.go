package objects

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Bounds of a proof.
const (
	maxProofLevels = 24
	maxGroup       = 1024    // blocks that refer to a sample, by way of each other
	maxProofBlocks = 1 << 15 // of all groups
	maxReferers    = 64      // of a block: more are not followed
	maxAhead       = 1 << 13 // blocks of later levels that are searched for at once
	filterBits     = 1 << 18
	maxPageBits    = 1 << 16 // pages of targets that the filter is set for

	// A pass takes at most a sixteenth of the time that the program has been traced, by the clock.
	// The table of a list that has grown at one pace since then moves once in an eighth of its age:
	// of two passes that are shorter, one finds it. A table that moves more often may escape both,
	// and has to escape the searches and sweeps before, too.
	passPart                 = 16
	minPassTime, maxPassTime = 2 * time.Second, 10 * time.Second

	// An address has addressBits, and fewBits where x86-64 has room: the other bits of a word may
	// be a tag.
	addressBits, fewBits = 48, 47
	// lowEnd bounds the addresses that look like small numbers. A word counts for one of them only
	// where it is aligned as in struct epoll_event.
	lowEnd, packedSize = 1 << 32, 4
	// An int of Python has digits of 30 bits, each in a word of 32: id() of an object has two.
	digitBits, digitSize = 30, 32
	pageBits             = 12
)

// A proof finds which blocks nothing in the process refers to. It takes any word that leads into a
// block for a reference, whatever holds the word: so it may miss a lost block, and calls none lost
// that is not. A search, which names keepers, does the opposite.
type proof struct {
	heap    *Heap
	memory  *wholeMemory
	nodes   *nodeTable
	members map[*node]*member
	held    []uint64 // by registers and by the kernel
	// isHidden: the kernel or a device has pointers that cannot be read. They lead to buffers, and
	// to no object of Python itself.
	isHidden  bool
	hasNative bool // a lost group has memory without an object

	targets   []*member // of a level, in the order of their blocks
	low, high uint64
	mask      uint64             // leaves the bits of an address in a word with a tag
	freed     map[uint64]*member // to which a freed block leads, by its address
	filter    []uint64
	index     *index // of the first pass that went further than to the samples; nil: there was none
}

// A member is a block that is lost if all that refers to it is.
type member struct {
	*node
	searched, kept bool
	referers       []*member // that refer to it
	children       []*member // that it refers to
	// counted is how many words of members have the very address of the object.
	counted uint64
	// at and word are the first reference to it by a member. isCopied: freed memory has copies of a
	// table that leads to it.
	at, word uint64
	isCopied bool
}

// Sweep finds which objects of suspects nothing in the process refers to, within a limit of CPU
// time. It returns a result for each suspect, in order, that has the sweep alone.
func (h *Heap) Sweep(
	ctx context.Context, suspects []Suspect, limit time.Duration,
) ([]keeper.Search, error) {
	results := make([]keeper.Search, len(suspects))
	var sweeps []*keeper.Sweep
	now := h.wholeCollector()
	for i, s := range suspects {
		results[i] = keeper.Search{PID: h.process.PID, Stack: s.Stack, Type: s.Type}
		one := &results[i].Sweep
		if s.Collections > 0 && (now == nil || now.Collections < s.Collections) {
			one.IsEarly = true
			continue
		}
		one.Lost = s.Objects[:min(len(s.Objects), maxObjects)]
		sweeps = append(sweeps, one)
	}

	whole := newBudget(ctx, limit)
	if len(sweeps) > 0 {
		if err := h.refreshBy((*memory).findBlocks); err != nil {
			return nil, err
		}
		if err := h.sweep(whole, sweeps); err != nil {
			return nil, err
		}
	}

	for i := range results {
		results[i].Elapsed = process.Monotonic()
	}
	return results, whole.canceled()
}

// sweep finds the samples that nothing refers to, in the memory of the last refresh and of now: of
// each suspect the samples of its sweep. It sets the sweeps.
func (h *Heap) sweep(whole *budget, sweeps []*keeper.Sweep) error {
	var failed keeper.Sweep
	lost := make([][]uint64, len(sweeps))
	for i, l := range sweeps {
		lost[i] = l.Lost
	}

	if h.BeforeSweep != nil {
		h.BeforeSweep()
	}
	// The process goes on, and moves its containers: a second reading finds a reference that has
	// moved during the first.
	alive, cycles := make([]int, len(sweeps)), make([]int, len(sweeps))
	before := h.wholeCollector()
	var index *index
	for i := range 2 {
		if i > 0 {
			if err := h.refreshBy((*memory).findBlocks); err != nil {
				return err
			}
		}
		p, err := h.newProof(whole)
		if err != nil {
			return err
		}
		p.index = index
		if failed, err = p.run(lost, alive, cycles); err != nil {
			return err
		}
		index = p.index
		for k, l := range sweeps {
			if i == 0 && l.Samples == 0 {
				l.Samples = alive[k]
			}
		}
		isNone := !slices.ContainsFunc(lost, func(of []uint64) bool { return len(of) > 0 })
		if failed.Premise != keeper.PremiseHolds || isNone {
			break
		}
	}

	after := h.wholeCollector()
	for i, l := range sweeps {
		l.Premise, l.Bytes = failed.Premise, failed.Bytes
		l.Runtime = cmp.Or(failed.Runtime, l.Runtime)
		l.Before, l.After = before, after
		switch failed.Premise {
		case keeper.PremiseHolds:
			l.Lost, l.Cycles = lost[i], cycles[i]
		case keeper.PremiseBudget:
			l.Samples = max(l.Samples, len(l.Lost))
		default:
			l.Lost = nil
		}
	}
	return nil
}

// newProof returns a proof by the memory of the last refresh.
func (h *Heap) newProof(whole *budget) (*proof, error) {
	h.memory.budget = whole
	h.pages.forget()
	w, err := h.newWholeMemory(whole)
	if err != nil {
		return nil, err
	}
	return &proof{
		heap: h, memory: w, members: make(map[*node]*member), filter: make([]uint64, filterBits/64),
		nodes: &nodeTable{heap: h, byBlock: make(map[uint64]*node)},
		freed: make(map[uint64]*member),
	}, nil
}

// run leaves in lost the samples that nothing refers to. alive is set to how many of them are
// alive, and cycles to how many only a cycle refers to.
func (p *proof) run(lost [][]uint64, alive, cycles []int) (failed keeper.Sweep, err error) {
	samples := make([][]*member, len(lost))
	for i, addresses := range lost {
		for _, address := range addresses {
			samples[i] = append(samples[i], p.sample(address))
		}
	}
	if failed = p.readHeld(); failed.Premise == keeper.PremiseHolds {
		failed, err = p.climb(slices.Concat(samples...))
	}
	if err != nil || failed.Premise != keeper.PremiseHolds {
		return failed, err
	}

	for i := range lost {
		lost[i], alive[i], cycles[i] = p.lost(lost[i], samples[i])
	}
	if p.isHidden && p.hasNative {
		return keeper.Sweep{Premise: keeper.PremiseKernel}, nil
	}
	return failed, nil
}

// sample returns the member of a sample; nil: it is not alive.
func (p *proof) sample(address uint64) *member {
	n := p.nodes.at(address)
	if n == nil {
		return nil
	}
	n.sample = true
	return p.memberOf(n)
}

// memberOf returns the member of a node. An object that is immortal or free has no count that would
// show a lost reference: it counts as kept. So does a block whose address leaves no bits for a tag.
func (p *proof) memberOf(n *node) *member {
	m := p.members[n]
	if m == nil {
		isImmortal := n.typ != nil && n.refcnt == 0
		m = &member{node: n, kept: isImmortal || n.block.End >= 1<<addressBits}
		p.members[n] = m
	}
	return m
}

// climb searches all memory for references to the samples, and to the blocks that have these. It
// returns the premise that fails.
func (p *proof) climb(samples []*member) (keeper.Sweep, error) {
	for level := range maxProofLevels {
		p.heap.pages.forget()
		frontier := p.frontier(samples)
		if len(frontier) == 0 {
			break
		}
		if level > 0 && p.index == nil {
			if err := p.readIndex(); err != nil {
				return keeper.Sweep{}, err
			}
		}
		frontier = p.ahead(frontier)
		p.aim(frontier)
		for _, word := range p.held {
			p.matchWord(nil, 0, word)
		}

		began := time.Now()
		err := p.visit()
		isLate := errors.Is(err, errLate) || time.Since(began) > p.heap.passTime()
		switch {
		case isLate || err == nil && p.memory.budget.check():
			return keeper.Sweep{Premise: keeper.PremiseBudget}, nil
		case err != nil:
			return keeper.Sweep{}, err
		}
		for _, m := range frontier {
			m.searched = true
		}
	}
	return p.unread(), nil
}

// passTime is how long a pass may take by the clock.
func (h *Heap) passTime() time.Duration {
	return min(max(h.Traced/passPart, minPassTime), maxPassTime)
}

// visit reads all memory for references to the targets, and then the memory that has come
// meanwhile.
func (p *proof) visit() error {
	if err := p.memory.visitWhole(p.match); err != nil {
		return err
	}
	added, err := p.memory.added()
	if err != nil {
		return err
	}
	if err := added.visitWhole(p.match); err != nil {
		return err
	}

	p.memory.swapped = max(p.memory.swapped, added.swapped)
	p.memory.unread = max(p.memory.unread, added.unread)
	return nil
}

// frontier returns the members on which a sample depends that is not known to be kept, and that
// were not searched for.
func (p *proof) frontier(samples []*member) (next []*member) {
	seen := make(map[*member]bool)
	for _, s := range samples {
		group, ok := p.groupOf(s)
		if !ok {
			keep(s)
			continue
		}
		for _, m := range group {
			if !m.searched && !seen[m] {
				seen[m] = true
				next = append(next, m)
			}
		}
	}
	return next
}

// groupOf returns all that is known to refer to a sample, itself included; none if something is
// kept. ok is false if they are too many.
func (p *proof) groupOf(s *member) (group []*member, ok bool) {
	if s == nil || s.kept {
		return nil, true
	}
	group, seen := []*member{s}, map[*member]bool{s: true}
	for i := 0; i < len(group); i++ {
		for _, r := range group[i].referers {
			if !seen[r] {
				seen[r] = true
				group = append(group, r)
			}
		}
		if len(group) > maxGroup {
			return nil, false
		}
	}
	return group, true
}

// keep marks a member as kept, and all that it refers to.
func keep(m *member) {
	for queue := []*member{m}; len(queue) > 0; {
		m, queue = queue[0], queue[1:]
		if m == nil || m.kept && m.children == nil {
			continue
		}
		m.kept = true
		queue = append(queue, m.children...)
		m.children, m.referers = nil, nil
	}
}

// aim sets the blocks that words are compared with.
func (p *proof) aim(frontier []*member) {
	p.targets = frontier
	slices.SortFunc(p.targets, func(a, b *member) int {
		return cmp.Compare(a.block.Start, b.block.Start)
	})
	p.low, p.high = p.targets[0].block.Start, 0
	clear(p.filter)

	pages := uint64(0)
	for _, m := range p.targets {
		p.high = max(p.high, m.block.End)
		first, last := m.block.Start>>pageBits, m.block.End>>pageBits
		if pages += last - first + 1; pages > maxPageBits {
			for i := range p.filter {
				p.filter[i] = ^uint64(0)
			}
			continue
		}
		for page := first; page <= last; page++ {
			p.filter[page%filterBits/64] |= 1 << (page % 64)
		}
	}

	p.mask = 1<<fewBits - 1
	if p.high > p.mask {
		p.mask = 1<<addressBits - 1
	}
}

// match finds the words of a piece that lead into a target. They may begin at any byte: structures
// are packed, and a lock-free list has counters in the lowest 16 bits.
func (p *proof) match(piece *piece) {
	low, width, mask, hasInts := p.low, p.high-p.low, p.mask, p.heap.types != nil
	content := piece.Bytes
	for i := 0; i+2*wordSize <= len(content); i += wordSize {
		pair, at := content[i:i+2*wordSize], piece.Start+uint64(i)
		first := binary.LittleEndian.Uint64(pair)
		if first|binary.LittleEndian.Uint64(pair[wordSize:]) == 0 {
			continue
		}

		for k := range wordSize {
			w := binary.LittleEndian.Uint64(pair[k:])
			if w&mask-low <= width && p.isAimed(w&mask) {
				p.matchWord(piece, at+uint64(k), w)
			}
		}
		if high := first >> digitSize; hasInts && high-1 < 1<<(fewBits-digitBits)-1 {
			w := high<<digitBits | first&(1<<digitSize-1)
			if w-low <= width && p.isAimed(w) {
				p.matchWord(piece, at, w)
			}
		}
	}

	if n := len(content); n >= wordSize { // nothing follows the last word
		at := n - wordSize
		p.matchWord(piece, piece.Start+uint64(at), binary.LittleEndian.Uint64(content[at:]))
	}
}

// isAimed reports whether a target may have an address.
func (p *proof) isAimed(address uint64) bool {
	page := address >> pageBits
	return p.filter[page%filterBits/64]>>(page%64)&1 == 1
}

// matchWord keeps or links the target that a word leads into. piece is nil for a word of no memory.
// A pointer to the end of a chunk is one to it: that is within the header of the next one.
func (p *proof) matchWord(piece *piece, at, word uint64) {
	address := word & p.mask
	i := lastAt(p.targets, address, func(m *member) uint64 { return m.block.Start })
	if i < 0 || address > p.targets[i].block.End {
		return
	}
	m := p.targets[i]
	isLow := address < lowEnd && piece != nil && piece.region.kind != regionCode
	switch {
	case address == m.block.End && m.block.kind != blockChunk:
	case isLow && at%packedSize != 0:
	case m.kept:
	case m.block.Start <= at && at < m.block.End: // of its own: only the collector frees it
		m.count(word)
	case piece == nil:
		keep(m)
	case at >= piece.region.Start && at < piece.region.End:
		p.hit(piece, m, at, word)
	}
}

// hit takes a word of memory for a reference to a member, unless it is proven to be none.
func (p *proof) hit(piece *piece, m *member, at, word uint64) {
	b, state := p.holderAt(piece, at)
	if state == wordDead {
		if p.isInTable(piece, at, word) {
			p.addCopy(m, b.Start)
		}
		return
	}
	if p.isCollectorLink(m, at, word) || p.memory.isOwn(m.block, at) {
		return
	}
	if state == wordRoot || len(m.referers) >= maxReferers || len(p.members) >= maxProofBlocks {
		keep(m)
		return
	}

	n := p.nodeOf(piece, b)
	if n.typ != nil && n.typ.kind == kindWeakref && p.heap.objects.isWeak(n, at) {
		return
	}
	from := p.memberOf(n)
	if from.kept {
		keep(m)
		return
	}
	m.count(word)
	if len(m.referers) == 0 {
		m.at, m.word = at, word
	}
	if !slices.Contains(m.referers, from) {
		m.referers = append(m.referers, from)
		from.children = append(from.children, m)
	}
}

// count counts a word of a member that has the very address of the object.
func (m *member) count(word uint64) {
	if m.typ != nil && word == m.address {
		m.counted++
	}
}

// isInTable reports whether the word before or after a pointer may be one, too: to another address
// nearby.
func (p *proof) isInTable(piece *piece, at, word uint64) bool {
	for _, neighbour := range []uint64{at - wordSize, at + wordSize} {
		content := piece.At(neighbour, wordSize)
		if content == nil {
			continue
		}
		away := mem.Word(content, 0)&p.mask - word&p.mask
		if away != 0 && away+lowEnd < 2*lowEnd {
			return true
		}
	}
	return false
}

// addCopy notes that a freed table leads to a member. A table that moves all the time leaves copies
// in freed memory, of which each leads to several members.
func (p *proof) addCopy(m *member, freed uint64) {
	switch other := p.freed[freed]; {
	case other == nil && len(p.freed) < maxProofBlocks:
		p.freed[freed] = m
	case other != nil && other != m:
		m.isCopied, other.isCopied = true, true
	}
}

// nodeOf returns the node of a block that is in use.
func (p *proof) nodeOf(piece *piece, b block) *node {
	if n := p.nodes.byBlock[b.Start]; n != nil {
		return n
	}
	content := piece.At(b.Start, min(b.Len(), nodeContents))
	if content == nil {
		content = p.heap.pages.contentOf(b)
	}
	n := p.nodes.newNode(b, content)
	if n == nil { // a frame that has ended, and that its code object keeps
		n = &node{block: b, address: b.Start}
	}
	p.nodes.byBlock[b.Start] = n
	return n
}

// A wordState is where a word is.
type wordState uint8

const (
	wordRoot    wordState = iota // in memory that is not known to be a block
	wordInBlock                  // in a block that is in use
	wordDead                     // in memory that an allocator has for itself
)

// holderAt returns the block in use that an address is in.
func (p *proof) holderAt(piece *piece, at uint64) (b block, state wordState) {
	switch piece.region.kind {
	case regionHeap:
		return p.chunkAt(piece, at)
	case regionAnonymous:
		found, isChanging := piece.poolAt(at)
		if isChanging {
			return b, wordRoot
		}
		if found != nil {
			b, isLive := poolBlock(found, at)
			if isLive {
				return b, wordInBlock
			}
			return b, wordDead
		}
		if b, isLive := p.memory.mmappedAt(at); isLive {
			return b, wordInBlock
		}
		if p.memory.others != nil {
			if b, isFree := p.memory.others.FreeAt(at); isFree {
				return block{b, blockOther}, wordDead
			}
		}
	}
	return b, wordRoot
}

// chunkAt returns the chunk in use that an address of a heap is in. A chunk that was in a cache
// when the memory was listed may be in use again.
func (p *proof) chunkAt(piece *piece, at uint64) (b block, state wordState) {
	i := lastAt(piece.chunks, at, func(c glibc.Chunk) uint64 { return c.User().Start })
	if i < 0 || at >= piece.chunks[i].User().End {
		return b, wordRoot
	}

	switch c := piece.chunks[i]; {
	case c.InUse:
		return block{c.User(), blockChunk}, wordInBlock
	case p.memory.cached[c.Start]:
		return b, wordRoot
	case c.End() >= piece.region.End:
		return block{c.User(), blockChunk}, wordDead // the top chunk
	default:
		header, ok := p.heap.pages.peek(c.End(), glibc.HeaderSize)
		if ok && !glibc.IsPrevInUse(header) {
			return block{c.User(), blockChunk}, wordDead
		}
	}
	return b, wordRoot
}

// lost returns the samples that are lost, how many are alive, and how many of the lost ones are in
// cycles. It returns none where freed memory has copies of a table that leads to half of them: the
// table moves, and may have escaped the pass.
func (p *proof) lost(
	addresses []uint64, samples []*member,
) (lost []uint64, alive, cycles int) {
	copied := 0
	for i, s := range samples {
		if s == nil || !p.isSame(s) {
			continue
		}
		alive++
		group, ok := p.groupOf(s)
		isLost, isCycle := p.isLost(group)
		if ok && isLost && p.isStill(group) {
			lost = append(lost, addresses[i])
			if slices.ContainsFunc(group, func(m *member) bool { return m.isCopied }) {
				copied++
			}
			if isCycle {
				cycles++
			}
		}
	}
	if 2*copied >= max(1, len(lost)) {
		return nil, alive, 0
	}
	return lost, alive, cycles
}

// isStill reports whether the blocks of a group are alive, and refer to each other as before: a
// block that was freed meanwhile may have handed its references over.
func (p *proof) isStill(group []*member) bool {
	return !slices.ContainsFunc(group, func(m *member) bool {
		p.heap.pages.forget()
		word, ok := p.heap.pages.word(m.at)
		return len(m.referers) > 0 && (!ok || word != m.word) || !p.isSame(m)
	})
}

// isLost reports whether a group is lost: all of it was searched for, and nothing else refers to
// it. Objects whose counts the group itself accounts for are a cycle: the garbage collector frees
// it, if it sees all of its references.
func (p *proof) isLost(group []*member) (isLost, isCycle bool) {
	hasObject, hasNative, isUncounted := false, false, false
	for _, m := range group {
		if m.kept || !m.searched {
			return false, false
		}
		hasObject, hasNative = hasObject || m.typ != nil, hasNative || m.typ == nil
		isUncounted = isUncounted || m.typ != nil && m.refcnt > m.counted ||
			m.typ == nil && len(m.referers) == 0
	}
	isLost = len(group) > 0
	p.hasNative = p.hasNative || isLost && hasNative
	return isLost, isLost && hasObject && !isUncounted
}

// isSame reports whether a sample is alive, and the same object as before.
func (p *proof) isSame(s *member) bool {
	rep := &reporter{heap: p.heap}
	if s.typ == nil {
		return rep.isAlive(s.node)
	}
	p.heap.pages.forget()
	head, ok := p.heap.pages.peek(s.address, cpython.ObjectHead)
	return ok && p.heap.version.Refcnt(mem.Word(head, cpython.ObRefcnt)) != 0 &&
		mem.Word(head, cpython.ObType) == s.typ.address
}
