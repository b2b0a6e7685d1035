package tracer

import (
	"math"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// Roots under which memory without a holder stands.
const (
	rootRetained  = "[heap: free but resident]"
	rootUntold    = "[heap: free or not told yet]"
	rootMetadata  = "[heap: allocator metadata]"
	rootNoHolder  = "[heap: holder not known]"
	rootBefore    = "[before attach]"
	rootMapped    = "[mapped before the attach]"
	rootUnseen    = "[mapped without a system call being seen]"
	rootPython    = "[python arenas]"
	rootStacks    = "[thread stacks]"
	rootJIT       = "[generated code]"
	rootKernel    = "[mapped by the kernel]"
	rootCopied    = "[copy-on-write]"
	rootInherited = "[inherited]"
	rootRest      = "[unexplained]"
)

// A ledger says who holds what a process has in memory: what it adds to the holdings sums to the kernel's count.
type ledger struct {
	*look
	to     holdings
	pid    int
	target *target      // nil: the process is not traced, and no stacks are known
	files  countedFiles // of the processes before, and of this one
	own    countedFiles // of this one
	sum    int64        // added so far
	heaps  []pages.Heap
	heapAt map[string]int // place in heaps by name, from 1
	// what touched memory has no better holder than those who touched it first
	touched map[place]*touches
	living  map[uint64]*living // by stack
	headers living             // the allocator's own, of them
	// knowsHeap: the holders of heap memory are known; knowsAll: all of them, as far as sampled, and not those alone that were
	// seen in windows and are old enough.
	knowsHeap, knowsAll bool
	// parentCounts: the parent is in the same snapshot, so that what is shared with it is counted there.
	parentCounts bool
}

func newLedger(l *look, pid int, t *target, to holdings, files countedFiles) *ledger {
	return &ledger{
		look: l, to: to, pid: pid, target: t, files: files, own: make(countedFiles), heapAt: make(map[string]int), touched: make(map[place]*touches),
		living: make(map[uint64]*living),
	}
}

// hold adds what a stack holds.
func (l *ledger) hold(stack *growth.Stack, kind growth.Kind, resident, swapped int64, variance float64) *growth.Holding {
	h := l.to.of(stack, kind)
	h.ResidentBytes += resident
	h.SwappedBytes += swapped
	h.ResidentVariance += variance
	l.sum += resident
	return h
}

// name adds what has no holder.
func (l *ledger) name(kind growth.Kind, resident, swapped int64, variance float64, root string, names ...string) *growth.Holding {
	if resident == 0 && swapped == 0 {
		return nil
	}
	return l.hold(growth.NamedStack(l.pid, root, names...), kind, resident, swapped, variance)
}

// contents are what is known of a process's memory besides its pages: the sampled objects that are alive, page faults, and what is pinned.
type contents struct {
	objects []object
	faults  []fault
	pins    []pin
}

// fill adds all that the process has in memory.
func (l *ledger) fill(known contents) {
	l.addPinned(known.pins)
	l.addObjects(known.objects)
	l.countFiles()
	for i := range l.areas {
		if a := &l.areas[i]; a.heap {
			l.addHeap(a)
		} else {
			l.addArea(a)
		}
	}
	l.addLiving()
	l.addRest()
	l.addTouched(known.faults)
	if l.status.RSS != growth.Unknown {
		l.hold(growth.NamedStack(l.pid, rootRest), growth.KindUnexplained, l.status.RSS-l.sum, 0, 0)
	}
}

// addObjects adds what living objects hold. An area in which there are any belongs to an allocator, whatever it looks like.
func (l *ledger) addObjects(objects []object) {
	sums := l.runs.Sums()
	for _, o := range objects {
		if a := l.areaAt(o.address); a != nil { // else it is not mapped any more
			a.heap = true
			l.addObject(a, o, sums)
		}
	}
}

func (l *ledger) addObject(a *area, o object, sums pages.Sums) {
	own := sums.In(o.address, o.address+o.size)
	start, end := o.chunk(a.Class)
	chunk := sums.In(start, end)
	heap := l.heapOf(a)
	by := l.living[o.stack]
	if by == nil {
		by = &living{}
		l.living[o.stack] = by
	}
	for tag, resident := range chunk.Resident {
		if resident == 0 {
			continue
		}
		size := float64(resident) * a.factor
		known := size * o.weight
		heap.Known[tag] += round(known)
		heap.Variance[tag] += known * max(0, known-size)
		by.add(pages.Tag(tag), float64(own.Resident[tag])*a.factor, o.weight)
		l.headers.add(pages.Tag(tag), float64(resident-own.Resident[tag])*a.factor, o.weight)
	}
	if a.sampled {
		by.spread(a, l.runs.Between(o.address, o.address+o.size), o.weight)
	}
}

// chunk is the memory that the allocator has taken for an object: of the C library with a header of 8 bytes, rounded up to 16
// and at least 32, or to pages where it has a mapping of its own (malloc/malloc.c); of others nothing more is known.
func (o object) chunk(class region.Class) (start, end uint64) {
	switch class {
	case region.MainHeap, region.Arena: // the 8 bytes before that belong to the chunk before
		start = o.address - 8
		return start, start + max(32, (o.size+8+15)&^15)
	case region.Chunk:
		start = o.address - 16
		return start, (o.address + o.size + pageSize - 1) &^ (pageSize - 1)
	}
	return o.address, o.address + o.size
}

const pageSize = 4096 // bytes, the least there are

// heapOf is the arena that an area belongs to.
func (l *ledger) heapOf(a *area) *pages.Heap {
	if a.heapIn == 0 {
		name := a.heapName()
		if _, ok := l.heapAt[name]; !ok {
			l.heaps = append(l.heaps, pages.Heap{Name: name})
			l.heapAt[name] = len(l.heaps)
		}
		a.heapIn = l.heapAt[name]
	}
	return &l.heaps[a.heapIn-1]
}

// heapName names an arena.
func (a *area) heapName() string {
	switch a.Class {
	case region.MainHeap, region.Arena:
		return a.Name
	case region.Chunk:
		return "mmapped chunks"
	case region.Allocator:
		return a.Name
	}
	return "other areas of the allocator"
}

// addHeap takes in the memory of an arena.
func (l *ledger) addHeap(a *area) {
	heap := l.heapOf(a)
	bytes := l.bytes(a)
	for tag, resident := range bytes.Resident {
		heap.Resident[tag] += resident
	}
	heap.Variance[pages.Fresh] += a.variance
	// What is swapped out of a heap is not split; files have no part in it.
	kind, root := l.restOfHeaps()
	l.name(kind, bytes.File, bytes.Swapped, 0, root, heap.Name)
}

// restOfHeaps is what no known object takes of them: kept by the allocator, if all are known; anybody's if none is.
func (l *ledger) restOfHeaps() (growth.Kind, string) {
	switch {
	case !l.knowsHeap:
		return growth.KindHeap, rootNoHolder
	case !l.knowsAll:
		return growth.KindUntold, rootUntold
	}
	return growth.KindRetained, rootRetained
}

// addRest adds what the allocator keeps, and what it kept when the trace began.
func (l *ledger) addRest() {
	kind, root := l.restOfHeaps()
	for i, bytes := range pages.Rest(l.heaps, pages.Fresh) {
		l.name(kind, bytes, 0, l.heaps[i].Variance[pages.Fresh], root, l.heaps[i].Name)
	}
	for i, bytes := range pages.Rest(l.heaps, pages.Old) {
		if l.target == nil { // nothing is known of it, then as now
			l.name(kind, bytes, 0, 0, root, l.heaps[i].Name)
			continue
		}
		l.name(growth.KindBefore, bytes, 0, l.heaps[i].Variance[pages.Old], rootBefore, "heap")
	}
	for _, bytes := range pages.Rest(l.heaps, pages.Copied) {
		l.touch(place{growth.KindCOW, rootCopied, "heap"}, bytes, 0)
	}
	for _, bytes := range pages.Rest(l.heaps, pages.Inherited) {
		l.inherit(bytes, "heap")
	}
}

// inherit adds what is still shared with the parent.
func (l *ledger) inherit(bytes int64, of string) {
	if h := l.name(growth.KindInherited, bytes, 0, 0, rootInherited, of); h != nil && l.parentCounts {
		h.SharedBytes += bytes
	}
}

func round(x float64) int64 { return int64(math.Round(x)) }
