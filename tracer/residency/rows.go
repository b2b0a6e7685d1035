package residency

import (
	"math"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

// Roots under which memory without a holder stands.
const (
	rootRetained      = "[heap: free but resident]"
	rootUnclassified  = "[heap: free or not told yet]"
	rootMetadata      = "[heap: allocator metadata]"
	rootUnknownSite   = "[heap: holder not known]"
	rootBeforeTracing = "[before attach]"
	rootMapped        = "[mapped before the attach]"
	rootPython        = "[python arenas]"
	rootStacks        = "[thread stacks]"
	rootJIT           = "[generated code]"
	rootKernel        = "[mapped by the kernel]"
	rootCopied        = "[copy-on-write]"
	rootInherited     = "[inherited]"
	rootRest          = "[unexplained]"
)

// A ledger says who holds what a process has in memory: what it adds to the holdings sums to the kernel's count.
type Rows struct {
	*Scan
	to     estimate.Holdings
	pid    int
	stacks func(id uint64) *growth.Stack // nil: the process is not traced, and no stacks are known
	files  CountedFiles                  // of the processes before, and of this one
	own    CountedFiles                  // of this one
	sum    int64                         // added so far
	heaps  []pages.Heap
	heapAt map[string]int // place in heaps by name, from 1
	// what touched memory has no better holder than those who touched it first
	touched map[unownedRow]*firstTouch
	live    map[uint64]*stackResident // by stack
	headers stackResident             // the allocator's own, of them
	// knowsHeap: the holders of heap memory are known; knowsAll: all of them, as far as sampled, and not those alone that were
	// seen in windows and are old enough.
	KnowsHeap, KnowsAll bool
	// forgotten are sampled pages whose faults are not needed any more.
	Forgotten []uint64
	// parentCounts: the parent is in the same snapshot, so that what is shared with it is counted there.
	ParentCounts bool
}

func NewRows(l *Scan, pid int, stacks func(uint64) *growth.Stack, to estimate.Holdings, files CountedFiles) *Rows {
	return &Rows{
		Scan: l, to: to, pid: pid, stacks: stacks, files: files, own: make(CountedFiles), heapAt: make(map[string]int), touched: make(map[unownedRow]*firstTouch),
		live: make(map[uint64]*stackResident),
	}
}

// hold adds what a stack holds.
func (l *Rows) hold(stack *growth.Stack, kind growth.Kind, resident, swapped int64, variance float64) *growth.Holding {
	h := l.to.Get(stack, kind)
	h.ResidentBytes += resident
	h.SwappedBytes += swapped
	h.ResidentVariance += variance
	l.sum += resident
	return h
}

// name adds what has no holder.
func (l *Rows) name(kind growth.Kind, resident, swapped int64, variance float64, root string, names ...string) *growth.Holding {
	if resident == 0 && swapped == 0 {
		return nil
	}
	return l.hold(growth.NamedStack(l.pid, root, names...), kind, resident, swapped, variance)
}

// contents are what is known of a process's memory besides its pages: the sampled objects that are alive, page faults, and what is pinned.
type Known struct {
	Objects []estimate.LiveObject
	Faults  []source.Fault
	Pins    []estimate.Pin
}

// fill adds all that the process has in memory.
func (l *Rows) Fill(known Known) {
	l.addPinned(known.Pins)
	l.addObjects(known.Objects)
	l.countFiles()
	for i := range l.Segments {
		if a := &l.Segments[i]; a.Heap {
			l.addHeap(a)
		} else {
			l.addArea(a)
		}
	}
	l.addLive()
	l.addRest()
	l.addTouched(known.Faults)
	if l.Status.RSS != growth.Unknown {
		l.hold(growth.NamedStack(l.pid, rootRest), growth.KindUnexplained, l.Status.RSS-l.sum, 0, 0)
	}
}

// addObjects adds what living objects hold. An area in which there are any belongs to an allocator, whatever it looks like.
func (l *Rows) addObjects(objects []estimate.LiveObject) {
	sums := l.runs.PrefixSums()
	for _, o := range objects {
		if a := l.areaAt(o.Address); a != nil { // else it is not mapped any more
			a.Heap = true
			l.addObject(a, o, sums)
		}
	}
}

func (l *Rows) addObject(a *Segment, o estimate.LiveObject, sums pages.PrefixSums) {
	own := sums.BytesIn(o.Address, o.Address+o.Size)
	start, end := chunkOf(o, a.Class)
	chunk := sums.BytesIn(start, end)
	heap := l.heapOf(a)
	by := l.live[o.Stack]
	if by == nil {
		by = &stackResident{}
		l.live[o.Stack] = by
	}
	for tag, resident := range chunk.Resident {
		if resident == 0 {
			continue
		}
		size := float64(resident) * a.factor
		known := size * o.Weight
		heap.Attributed[tag] += round(known)
		heap.Variance[tag] += known * max(0, known-size)
		by.add(pages.Origin(tag), float64(own.Resident[tag])*a.factor, o.Weight)
		l.headers.add(pages.Origin(tag), float64(resident-own.Resident[tag])*a.factor, o.Weight)
	}
	if a.sampled {
		by.spread(a, l.runs.Clip(o.Address, o.Address+o.Size), o.Weight)
	}
}

// chunkOf is the memory that the allocator has taken for an object: of the C library with a header of 8 bytes, rounded up to 16
// and at least 32, or to pages where it has a mapping of its own (malloc/malloc.c); of others nothing more is known.
func chunkOf(o estimate.LiveObject, class region.Class) (start, end uint64) {
	switch class {
	case region.MainHeap, region.Arena: // the 8 bytes before that belong to the chunk before
		start = o.Address - 8
		return start, start + max(32, (o.Size+8+15)&^15)
	case region.MmappedChunk:
		start = o.Address - 16
		return start, (o.Address + o.Size + process.PageSize - 1) &^ (process.PageSize - 1)
	}
	return o.Address, o.Address + o.Size
}

// heapOf is the arena that an area belongs to.
func (l *Rows) heapOf(a *Segment) *pages.Heap {
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
func (a *Segment) heapName() string {
	switch a.Class {
	case region.MainHeap, region.Arena:
		return a.Name
	case region.MmappedChunk:
		return "mmapped chunks"
	case region.Allocator:
		return a.Name
	}
	return "other areas of the allocator"
}

// addHeap takes in the memory of an arena.
func (l *Rows) addHeap(a *Segment) {
	heap := l.heapOf(a)
	bytes := l.Bytes(a)
	for tag, resident := range bytes.Resident {
		heap.Resident[tag] += resident
	}
	heap.Variance[pages.SinceTracing] += a.variance
	// What is swapped out of a heap is not split; files have no part in it.
	kind, root := l.restOfHeaps()
	l.name(kind, bytes.File, bytes.Swapped, 0, root, heap.Name)
}

// restOfHeaps is what no known object takes of them: kept by the allocator, if all are known; anybody's if none is.
func (l *Rows) restOfHeaps() (growth.Kind, string) {
	switch {
	case !l.KnowsHeap:
		return growth.KindHeap, rootUnknownSite
	case !l.KnowsAll:
		return growth.KindUnclassified, rootUnclassified
	}
	return growth.KindRetained, rootRetained
}

// addRest adds what the allocator keeps, and what it kept when the trace began.
func (l *Rows) addRest() {
	kind, root := l.restOfHeaps()
	for i, bytes := range pages.Unattributed(l.heaps, pages.SinceTracing) {
		l.name(kind, bytes, 0, l.heaps[i].Variance[pages.SinceTracing], root, l.heaps[i].Name)
	}
	for i, bytes := range pages.Unattributed(l.heaps, pages.BeforeTracing) {
		if l.stacks == nil { // nothing is known of it, then as now
			l.name(kind, bytes, 0, 0, root, l.heaps[i].Name)
			continue
		}
		l.name(growth.KindBeforeTracing, bytes, 0, l.heaps[i].Variance[pages.BeforeTracing], rootBeforeTracing, "heap")
	}
	for _, bytes := range pages.Unattributed(l.heaps, pages.CopiedOnWrite) {
		l.touch(unownedRow{growth.KindCOW, rootCopied, "heap"}, bytes, 0)
	}
	for _, bytes := range pages.Unattributed(l.heaps, pages.Inherited) {
		l.inherit(bytes, "heap")
	}
}

// inherit adds what is still shared with the parent.
func (l *Rows) inherit(bytes int64, of string) {
	if h := l.name(growth.KindInherited, bytes, 0, 0, rootInherited, of); h != nil && l.ParentCounts {
		h.SharedBytes += bytes
	}
}

func round(x float64) int64 { return int64(math.Round(x)) }
