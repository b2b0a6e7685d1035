package objects

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

// A Suspect is a set of objects whose keeper is searched for: the objects of a stack or of a type.
type Suspect struct {
	Stack   uint64 // ID; 0: they are the objects of a type
	Type    string
	Objects []uint64 // addresses: as malloc returned them, or of Python objects
	// Collections of the whole heap must have ended for another sweep to be of use.
	Collections int64
}

// Bounds of a search.
const (
	maxObjects   = 64      // of a suspect
	maxLevels    = 192     // levels of references
	levelsAfter  = 6       // levels that are searched after every sample has a root
	levelsNamed  = 2       // the same, where a reader can look up each of the roots
	maxNodes     = 1 << 17 // in all
	maxFrontier  = 1 << 14 // nodes that are searched for at once
	levelsAtOnce = 16      // levels of C memory that are climbed before ways are followed again
	maxEdges     = 512     // references to a node that are remembered
	maxAllEdges  = 1 << 19 // of all nodes
	maxTargets   = 1 << 19 // addresses that are searched for at once
	maxHits      = 1 << 19 // words that are read in a level
	maxAlike     = 8       // of those from the same place in objects of one type
	maxInterior  = 64      // words of a block that references may point into
	rareSamples  = 4       // one of so many without a keeper is not searched for once more
	nodeContents = 64      // bytes of a block that are read to find its object
)

// A search finds references backwards, a level at a time.
//
// A garbage collector goes forwards, by the traverse function of each type, which cannot be called
// from outside; and it visits all objects to find the way to one. Backwards, one pass over the
// memory indexes its references, whatever the types are. But a word may look like a reference and
// be none: reference counts, the tables of containers and a second reading show which words count.
type search struct {
	heap  *Heap
	nodes *nodeTable
	index *index
	lists *linkedLists
	ways  *wayFinder
	edges int  // of all nodes
	late  bool // the time is used up
	moved bool // findMoved has read tables
	// owners has words that lead to objects in variables, and to tables of containers, by the
	// address of the object or table; nil: they are not known yet, as the index has all references.
	owners map[uint64]uint64
	// done has the samples of which all ways were followed, and whether they lead to a root.
	done map[*node]bool
	// chains has the ways from variables to the ends of ways.
	chains map[*node]headChain
}

// movedTime is the most CPU time for which a search looks for tables that have moved, and
// movedHeadsTime for heads of lists.
const movedTime, movedHeadsTime = 250 * time.Millisecond, time.Second

// errLate ends a pass when the time is used up.
var errLate = errors.New("the time for the search is used up")

// Search finds who keeps the objects of the suspects, within a limit of CPU time. It returns a
// result for each suspect, in order. At the limit, and at the deadline of ctx, it returns the
// findings so far. Containers move while they grow: a suspect without a keeper is searched once
// more.
func (h *Heap) Search(
	ctx context.Context, suspects []Suspect, limit time.Duration,
) ([]keeper.Search, error) {
	began := process.OwnCPUTime()
	whole := newBudget(ctx, limit)
	results, err := h.searchOnce(whole, suspects, began)
	if err != nil {
		return nil, err
	}

	// Words lead to samples whose container has moved meanwhile. A sweep takes longer than to
	// search once more. Garbage, and samples for which there was no time, are not searched again.
	mayBeFound := func(r keeper.Search) bool {
		isRare := unexplained(r) <= r.Samples/rareSamples
		return !isRare && r.Garbage < r.Samples && r.Reason != keeper.ReasonBudget
	}
	isNew := func(r keeper.Search) bool {
		return mayBeFound(r) && r.Reason != keeper.ReasonUnreferenced
	}
	isRest := func(r keeper.Search) bool {
		return mayBeFound(r) && r.Reason == keeper.ReasonUnreferenced && len(r.Sweep.Lost) == 0
	}
	if err := h.searchAgain(whole, suspects, results, began, isNew); err != nil {
		return results, whole.canceled() // the first ones stand
	}
	if err := h.sweepFor(whole, results); err != nil {
		return results, whole.canceled()
	}
	_ = h.searchAgain(whole, suspects, results, began, isRest)
	for i := range results { // a sweep reads more than a search
		r := &results[i]
		isSwept := r.Reason == keeper.ReasonUnreferenced && r.Sweep.Samples > 0
		switch {
		case isSwept && r.Sweep.Premise == keeper.PremiseBudget:
			r.Reason = keeper.ReasonBudget
		case isSwept && r.Sweep.Premise == keeper.PremiseHolds && len(r.Sweep.Lost) == 0 && r.Type == "":
			r.Reason = keeper.ReasonNative
		}
	}
	return results, whole.canceled()
}

// searchAgain searches for some suspects once more, and takes the results that explain more.
func (h *Heap) searchAgain(
	whole *budget, suspects []Suspect, results []keeper.Search, began time.Duration,
	choose func(keeper.Search) bool,
) error {
	var again []Suspect
	var indices []int // in results
	for i, r := range results {
		if choose(r) {
			again, indices = append(again, suspects[i]), append(indices, i)
		}
	}
	if len(again) == 0 || whole.check() {
		return nil
	}

	second, err := h.searchOnce(whole, again, began)
	if err != nil {
		return err
	}
	for k, r := range second {
		first := &results[indices[k]]
		if first.Took = r.Took; explained(r) > explained(*first) {
			if first.Sweep.Premise != keeper.PremiseHolds || len(first.Sweep.Lost) == 0 {
				r.Sweep = first.Sweep
			}
			*first = r
		}
	}
	return nil
}

// sweepFor sweeps for the samples of results of which nearly none has a path.
// The samples of an object without a path are in the sweep already.
func (h *Heap) sweepFor(whole *budget, results []keeper.Search) error {
	var sweeps []*keeper.Sweep
	for i := range results {
		if l := &results[i].Sweep; l.AreMany() && h.isStopped {
			*l = keeper.Sweep{Samples: l.Samples, Premise: keeper.PremiseBudget, Runtime: l.Runtime}
		} else if l.AreMany() {
			sweeps = append(sweeps, l)
		} else if l.Premise == keeper.PremiseHolds { // else the search knows that it fails
			*l = keeper.Sweep{Runtime: l.Runtime}
		}
	}
	if len(sweeps) == 0 {
		return nil
	}
	if err := h.sweep(whole, sweeps); err != nil {
		return err
	}
	for i := range results {
		if r := &results[i]; r.Sweep.Cycles > 0 {
			r.Garbage, r.Reason = r.Sweep.Cycles, keeper.ReasonGarbage
		}
	}
	return nil
}

// explained is the number of samples that a path leads to, or that are garbage.
func explained(r keeper.Search) int { return r.Samples - unexplained(r) + r.Garbage }

// unexplained is the number of samples that no path leads to.
func unexplained(r keeper.Search) int {
	rest := r.Samples
	for _, p := range r.Paths {
		rest -= p.Samples
	}
	return max(0, rest)
}

// searchOnce reads the memory of now, and searches it.
func (h *Heap) searchOnce(
	whole *budget, suspects []Suspect, began time.Duration,
) ([]keeper.Search, error) {
	if err := h.refresh(); err != nil {
		return nil, err
	}
	return h.searchIn(whole, suspects, began)
}

// searchIn searches the memory of the last refresh.
func (h *Heap) searchIn(
	whole *budget, suspects []Suspect, began time.Duration,
) ([]keeper.Search, error) {
	h.isStopped, h.memory.budget = false, whole.most() // the rest is for the results
	s, isLarge := newSearch(h), h.memory.spans.Len() > h.maxWhole
	samples, err := s.find(suspects, isLarge)
	if err == nil && s.index.isPart && !s.isOneRooted(samples) {
		s = newSearch(h)
		samples, err = s.find(suspects, false)
	}
	if err != nil {
		return nil, err
	}

	s.findHeads(samples)
	h.memory.budget = whole
	rep := &reporter{heap: h, ways: s.ways, chains: s.chains, began: began, late: s.late}
	results := make([]keeper.Search, len(suspects))
	for i, suspect := range suspects {
		results[i] = rep.result(suspect, samples[i])
	}
	return results, nil
}

// find finds the samples of suspects, and the ways that lead to them. isPart reads large blocks
// alone: the tables of the containers with most entries are in these.
func (s *search) find(suspects []Suspect, isPart bool) (samples [][]*node, err error) {
	samples = make([][]*node, len(suspects))
	var addresses []uint64
	for i, suspect := range suspects {
		samples[i] = s.findSamples(suspect)
		for _, n := range samples[i] {
			n.sample = true
			addresses = append(addresses, n.address)
		}
	}
	if err := s.readIndex(addresses, isPart); err != nil {
		return nil, err
	}
	return samples, s.climb(samples)
}

func newSearch(h *Heap) *search {
	lists := &linkedLists{
		heap: h, heads: make(map[*node]*way), passed: make(map[listPlace]uint64),
		newest: make(map[listPlace]uint64),
	}
	s := &search{
		heap: h, lists: lists, ways: newWayFinder(h, lists), done: make(map[*node]bool),
		chains: make(map[*node]headChain),
		nodes:  &nodeTable{heap: h, byBlock: make(map[uint64]*node)},
	}
	lists.search = s
	return s
}

// readIndex reads all memory, in most of the time. The rest is for the levels, also where the index
// was cut short.
func (s *search) readIndex(samples []uint64, isPart bool) error {
	whole := s.heap.memory.budget
	s.heap.memory.budget = whole.most()
	defer func() { s.heap.memory.budget = whole }()

	s.index = s.heap.newIndex(s.heap.memory, samples)
	if isPart || s.heap.memory.spans.Len() > s.heap.maxWhole {
		err := s.index.readForSamples(isPart)
		s.late = s.index.isCut
		return err
	}
	err := s.index.read(nil)
	if errors.Is(err, errIndexFull) {
		err = nil // each level makes an index of its own
	}
	s.late = s.index.isCut
	return err
}

// findSamples returns the objects of a suspect that are alive.
func (s *search) findSamples(suspect Suspect) (found []*node) {
	for _, address := range suspect.Objects[:min(len(suspect.Objects), maxObjects)] {
		if n := s.nodes.at(address); n != nil && !slices.Contains(found, n) {
			n.asked = address
			found = append(found, n)
		}
	}
	return found
}

// climb searches level by level until each sample has a root and the levels behind it are searched
// too, or until nothing is left that could lead further.
func (s *search) climb(samples [][]*node) error {
	after := 0
	for range maxLevels {
		frontier, most, isRooted := s.frontier(samples)
		if s.heap.memory.budget.check() || s.index.only != nil && s.isOneRooted(samples) {
			s.late = !isRooted // each level would read all memory for the others
			s.heap.isStopped = s.late
			return nil
		}

		// The first root is the nearest, and often a local variable or the stack of a thread: some
		// levels more may lead to a variable that a reader can look up.
		if isRooted {
			after++
		}
		if len(frontier) == 0 && !isRooted && s.findMoved() {
			continue
		}
		if len(frontier) == 0 || after > most {
			return nil
		}

		for range levelsAtOnce {
			if err := s.level(frontier); errors.Is(err, errLate) {
				s.late = true
				return nil
			} else if err != nil {
				return err
			}
			if frontier = s.above(frontier); len(frontier) == 0 {
				break
			}
		}
	}
	return nil
}

// rootsOf returns the roots of a sample, and the ways to nodes that references have not been searched
// for yet. A node that one pass has found, and the next has not completed, may have no root after all.
func (s *search) rootsOf(n *node) (found []rootPath, open []*way) {
	found, open, _ = s.ways.rootsOf(n)
	return slices.DeleteFunc(found, func(f rootPath) bool { return !f.way.isSearched() }), open
}

// isOneRooted reports whether all samples of a suspect have a root.
func (s *search) isOneRooted(samples [][]*node) bool {
	return slices.ContainsFunc(samples, func(some []*node) bool {
		isRootless := func(n *node) bool {
			found, _ := s.rootsOf(n)
			return len(found) == 0
		}
		return len(some) > 0 && !slices.ContainsFunc(some, isRootless)
	})
}

// above returns the memory of C that refers to memory of C of a level: a graph of C++ objects is
// deep, and no reference in it has to be read to know which of them count.
func (s *search) above(level []*node) (next []*node) {
	if s.index.only != nil {
		return nil
	}
	seen := make(map[*node]bool)
	for _, n := range level {
		for _, e := range n.edges {
			f := e.from
			if f != nil && f.typ == nil && !f.isFollowed && !seen[f] && n.typ == nil &&
				len(next) < maxFrontier {
				seen[f] = true
				next = append(next, f)
			}
		}
	}
	return next
}

// frontier returns the nodes that references are to be searched for next. isRooted is set if each
// sample has a root, and after is how many levels are worth a search from then on.
func (s *search) frontier(samples [][]*node) (next []*node, after int, isRooted bool) {
	s.heap.pages.forget()
	isRooted, after = true, levelsNamed
	seen := make(map[*node]bool)
	targets := uint64(0)
	for _, n := range slices.Concat(samples...) {
		if isKnown, isDone := s.done[n]; isDone {
			isRooted = isRooted && isKnown
			continue
		}
		found, open := s.rootsOf(n)
		isRooted = isRooted && len(found) > 0
		if len(open) == 0 {
			s.done[n] = len(found) > 0
		}
		if len(found) > 0 && rankOf(found[0].root) > 0 {
			after = levelsAfter
		}
		for _, w := range open {
			if len(found) == 0 {
				s.lists.note(w)
			}
			if !seen[w.node] && len(next) < maxFrontier && targets < maxTargets {
				seen[w.node] = true
				next = append(next, w.node)
				targets += s.nodes.eachTarget(w.node, func(uint64) {})
			}
		}
	}
	return next, after, isRooted
}

// A hit is a word that an index has for a node.
type hit struct {
	at, value uint64
	node      *node
}

// level finds the references to nodes.
func (s *search) level(frontier []*node) error {
	var hits []hit
	if s.index.only != nil { // all references do not fit
		frontier, hits = s.owned(frontier)
		if len(hits) > 0 { // they come first
			frontier = nil
		}
		targets, isRead := make([]uint64, 0, len(frontier)), true
		for _, n := range frontier {
			s.nodes.eachTarget(n, func(address uint64) {
				targets = append(targets, address)
				isRead = isRead && s.index.only[s.index.wordOf(address)]
			})
		}
		if !isRead && !s.index.isPart {
			if err := s.index.read(targets); err != nil {
				return err
			}
		}
	}

	for _, n := range frontier {
		n.isFollowed, n.searched = true, !s.index.isCut
		n.more = n.more || s.index.isPart
		s.nodes.eachTarget(n, func(address uint64) {
			words, areAll := s.index.referers(address)
			n.more = n.more || !areAll || len(hits) > maxHits
			for _, at := range words {
				if len(hits) <= maxHits {
					hits = append(hits, hit{at, address, n})
				}
			}
		})
	}

	// Words that lie near each other are read at once.
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Compare(a.at, b.at) })
	for len(hits) > 0 {
		n := s.keep(hits)
		for _, found := range hits[:n] {
			if s.heap.memory.budget.isSpent() {
				return errLate
			}
			s.hit(found)
		}
		hits = hits[n:]
	}
	return nil
}

// keep reads the blocks around the first hits, and returns how many of them it has read.
func (s *search) keep(hits []hit) (n int) {
	s.heap.pages.forget()
	var pages []uint64
	size := max(s.heap.memory.poolSize, process.PageSize)
	for n < len(hits) && uint64(len(pages))*process.PageSize < bytesAtOnce {
		first := hits[n].at &^ (size - 1)
		for at := first; at < first+size; at += process.PageSize {
			pages = append(pages, at)
		}
		for n < len(hits) && hits[n].at&^(size-1) == first {
			n++
		}
	}
	s.heap.pages.keep(pages)
	return n
}

// eachTarget calls add with each address that refers to a node, and returns how many there are.
func (nodes *nodeTable) eachTarget(n *node, add func(address uint64)) (count uint64) {
	version := nodes.heap.version
	if n.typ != nil {
		add(n.address)
		switch { // both tags are the lowest bit
		case n.typ.isTensor:
			add(n.address | torch.OwnsObject)
		case version.StackRefTags&cpython.StackRefTag != 0:
			add(n.address | cpython.StackRefTag)
		default:
			return 1
		}
		return 2
	}

	isTagged := version != nil && version.TagsManagedDict
	// Pointers may lead into a structure of C: to a member of it.
	size := n.block.Len()
	if n.block.kind == blockChunk {
		size -= glibc.SharedSize // the lists of malloc refer to the next chunk
	}
	for i := uint64(0); i < min(maxInterior*wordSize, size); i += wordSize {
		add(n.address + i)
		count++
		if isTagged {
			add(n.address + i - cpython.ManagedValuesTag)
			count++
		}
	}
	return count
}

// hit adds a word that refers to a node, if it still does.
func (s *search) hit(found hit) {
	n, at := found.node, found.at
	if now, isRead := s.heap.pages.word(at); !isRead || now != found.value {
		n.isMoving = !s.follow(found) || n.isMoving
		return
	}
	if len(n.edges) >= maxEdges || s.edges >= maxAllEdges {
		n.more = true
		return
	}

	e := edge{at: at, value: found.value}
	e.from, e.root = s.source(at)
	if s.isErased(e) {
		return
	}
	if e.typ() == nil && n.typ == nil && s.isStreamPointer(at) {
		n.isBuffer = true
	}
	// An object may refer to itself and counts that, in contrast to memory of C.
	if e.from != nil && (e.from == n && n.typ == nil || s.heap.objects.isWeak(e.from, at)) {
		return
	}
	if e.from == nil && e.root == nil {
		r, _ := s.heap.memory.regionAt(at)
		isDead := s.heap.memory.isOwn(n.block, at) ||
			r.kind == regionHeap && s.nodes.isFree(s.index.chunkStart(at), r)
		if !isDead && !s.follow(found) {
			n.foreign++
		}
		return
	}
	s.add(n, e)
}

// isStreamPointer reports whether a word leads from a FILE to its buffer, which is data.
func (s *search) isStreamPointer(at uint64) bool {
	content, ok := s.heap.pages.peek(at-glibc.StreamBytes, glibc.StreamBytes)
	return ok && glibc.IsStreamPointer(content)
}

// source returns the place of a word: memory with a name, which ends the way, or elsewhere the
// object or block, which is the next node; neither: it is not known.
func (s *search) source(at uint64) (from *node, root *keeper.Root) {
	r, ok := s.heap.memory.regionAt(at)
	switch {
	case !ok:
	case r.kind == regionStatic:
		root = s.heap.roots.staticRoot(at)
	case r.kind == regionStack:
		root = s.heap.roots.stackRoot(at)
	default:
		if root = s.heap.roots.frameRoot(at); root == nil {
			from = s.nodes.holder(s.index, at, r)
		}
	}
	return from, root
}

// add adds a reference to a node.
func (s *search) add(n *node, e edge) {
	if n.countAlike(e) >= maxAlike || e.from != nil && !s.nodes.keep(e.from) {
		n.more = true
		return
	}
	n.edges = append(n.edges, e)
	s.edges++
}

// follow looks for a word in the table of a container that has moved since the index was made, and
// adds it from there: a list that grows moves all the time. It returns false if it has found none.
func (s *search) follow(found hit) bool {
	h := s.heap
	start := s.blockStart(found.at)
	if start == 0 || h.objects == nil || len(found.node.edges) >= maxEdges {
		return false
	}

	words, _ := s.index.referers(start)
	for _, at := range words[:min(len(words), maxAlike)] {
		in, _ := h.memory.regionAt(at)
		owner := s.nodes.holder(s.index, at, in)
		if owner == nil || owner.typ == nil {
			continue
		}
		table := h.objects.table(owner)
		if table.field != at || table.start == start || table.entries.Len() == 0 {
			continue
		}
		isAdded := false
		h.memory.eachWord(table.entries, func(place, word uint64) bool {
			isAdded = word == found.value && s.addMoved(hit{place, word, found.node}, owner, table)
			return word != found.value
		})
		if isAdded {
			return true
		}
	}
	return false
}

// addMoved adds a reference to a node from a table that was found by its container.
func (s *search) addMoved(found hit, owner *node, t table) bool {
	if !s.nodes.keep(owner) {
		return false
	}
	n := s.nodes.byBlock[t.start]
	if n == nil {
		b := block{mem.Span{Start: t.start, End: t.entries.End}, blockMmapped}
		n = &node{block: b, address: t.start, isFollowed: true, searched: !s.index.isCut}
		if !s.nodes.keep(n) {
			return false
		}
	}
	if !slices.ContainsFunc(n.edges, func(e edge) bool { return e.at == t.field }) {
		n.edges = append(n.edges, edge{from: owner, at: t.field, value: t.start})
		n.isKnown = false
	}
	found.node.isKnown = false
	s.add(found.node, edge{from: n, at: found.at, value: found.value})
	return true
}

// findMoved looks for the objects on ways that lead to no root in the tables of containers as these
// are now, and reports whether it has found any. A table that moved while the index was made may
// not be in it, neither at its old place nor at the new one; its container is.
func (s *search) findMoved() (found bool) {
	h, lost := s.heap, make(map[uint64]*node)
	if h.objects == nil || s.moved {
		return false
	}
	for n, isRooted := range s.done {
		if isRooted {
			continue
		}
		delete(s.done, n)
		_, _, in := s.ways.rootsOf(n)
		for _, end := range append(in.ends, &way{node: n}) {
			_, areAll := s.ways.references(end.node)
			if end.node.typ != nil && !areAll {
				lost[end.node.address] = end.node
			}
		}
	}

	s.moved = true
	left, part := uint64(maxTable), h.memory.budget.part(movedTime)
	for _, c := range s.index.growing {
		r, ok := h.memory.regionAt(c.address)
		owner := s.nodes.holder(s.index, c.address, r)
		if !ok || owner == nil || owner.address != c.address {
			continue
		}
		table := h.objects.table(owner)
		size := table.entries.Len()
		if len(lost) == 0 || part.check() {
			break
		}
		if size > left {
			continue
		}
		left -= size
		h.memory.eachWord(table.entries, func(at, word uint64) bool {
			if n := lost[word]; n != nil && s.addMoved(hit{at, word, n}, owner, table) {
				delete(lost, word)
				found = true
			}
			return len(lost) > 0
		})
	}
	return found
}

// blockStart returns where the block of a word began when the index was made; 0: it is not known.
func (s *search) blockStart(at uint64) uint64 {
	h := s.heap
	r, ok := h.memory.regionAt(at)
	if !ok {
		return 0
	}
	switch size := h.memory.poolSize; r.kind {
	case regionHeap:
		if start := s.index.chunkStart(at); start != 0 {
			return start + glibc.HeaderSize
		}
	case regionAnonymous:
		if p, _ := h.pages.pool(at&^(size-1), size); h.types != nil && p != nil {
			b, _ := p.Find(at)
			return b.Start
		}
		b, _ := h.memory.mmappedAt(at)
		return b.Start
	}
	return 0
}
