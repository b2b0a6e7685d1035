package residency

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// heapClass names heap memory below roots that it shares with other memory.
const heapClass = "heap"

// maxGroupVisits bounds the page groups that are visited for the objects of a process. Objects of a
// real heap do not overlap, so that they have fewer in all. Beyond it, variances are too small.
const maxGroupVisits = 4 << 20

// addObjects adds the resident memory of live objects. A segment with an object belongs to an
// allocator, whatever its class.
func (r *Rows) addObjects(objects []estimate.LiveObject) {
	sums := r.runs.PrefixSums()
	for _, o := range objects {
		if segment := r.segmentAt(o.Address); segment != nil { // else it was unmapped meanwhile
			segment.Heap = true
			r.addObject(segment, o, sums)
		}
	}
}

// addObject adds a sampled object. It represents o.Weight objects, the inverse of the probability
// with which it was sampled.
func (r *Rows) addObject(segment *Segment, o estimate.LiveObject, sums mem.PrefixSums) {
	span := chunkOf(o, segment.Class, r.SizeClass)
	chunk := sums.BytesIn(span.Start, span.End)
	requested := sums.BytesIn(o.Address, o.Address+o.Size)

	heap := r.heapOf(segment)
	live := r.live[o.Stack]
	if live == nil {
		live = &residentEstimate{}
		r.live[o.Stack] = live
	}

	for i, resident := range chunk.Resident {
		if resident == 0 {
			continue
		}
		origin := mem.Origin(i)

		size := float64(resident) * segment.factor
		heap.Attributed[origin] += round(size * o.Weight)
		heap.Variance[origin] += weightedVariance(size, o.Weight)

		requestedSize := float64(requested.Resident[origin]) * segment.factor
		live.add(origin, requestedSize, o.Weight)
		overhead := float64(resident-requested.Resident[origin]) * segment.factor
		r.metadata.add(origin, overhead, o.Weight)
	}

	if segment.sampled && r.groups < maxGroupVisits {
		r.groups += live.addGroups(segment, r.runs.Clip(o.Address, o.Address+o.Size), o.Weight)
	}
}

// chunkOf returns the chunk that the allocator has taken for an object. sizeClass is the one of Rows.
func chunkOf(
	o estimate.LiveObject, class region.Class, sizeClass func(size uint64) uint64,
) mem.Span {
	object := heap.Object{Address: o.Address, Size: o.Size}
	switch {
	case sizeClass != nil: // it may have its blocks in the main heap, too: tcmalloc
		object.Size = max(object.Size, sizeClass(object.Size))
	case class == region.MainHeap, class == region.Arena:
		return glibc.ChunkOf(object)
	case class == region.MmappedChunk:
		return glibc.MmappedChunkOf(object)
	}
	return mem.Span{Start: object.Address, End: object.Address + object.Size}
}

// weightedVariance returns the variance that an object of size x, sampled with probability p = 1/w,
// adds to an estimate: x²·(1−p)/p² = x²·w·(w−1).
func weightedVariance(size, weight float64) float64 {
	bytes := size * weight
	return bytes * max(0, bytes-size)
}

// A residentEstimate estimates the resident memory of live objects from sampled ones.
type residentEstimate struct {
	bytes    [mem.OriginCount]float64
	variance float64

	// sampledBytes is the part of bytes in sampled mappings, and factorRelVar the relative variance
	// of the factor by which it was extrapolated.
	sampledBytes, factorRelVar float64

	// groupBytes has the bytes found in each page group of sampled mappings, by its address.
	groupBytes map[uint64]float64
}

// add adds so many objects of a size.
func (e *residentEstimate) add(origin mem.Origin, size, objects float64) {
	e.bytes[origin] += size * objects
	e.variance += weightedVariance(size, objects)
}

// addGroups adds the variance that is due to the sampling of page groups (cluster sampling: pages
// of one group were scanned together, or not at all). runs are the runs of an object. groupVariance
// is linear in the square of a group's bytes, so that addGroups adds the difference of the squares.
// It returns how many groups it has visited.
func (e *residentEstimate) addGroups(
	segment *Segment, runs mem.Runs, objects float64,
) (visited int) {
	if e.groupBytes == nil {
		e.groupBytes = make(map[uint64]float64)
	}
	e.factorRelVar = segment.factorRelVar

	for _, run := range runs {
		if run.Swapped {
			continue
		}
		e.sampledBytes += float64(run.Len()) * objects * segment.factor

		for start := run.Start; start < run.End; {
			group := start &^ (segment.groupBytes - 1)
			end := start + min(run.End-start, group+segment.groupBytes-start)

			visited++
			before := e.groupBytes[group]
			after := before + float64(end-start)*objects
			e.groupBytes[group] = after
			e.variance += segment.groupVariance(after*after - before*before)
			start = end
		}
	}
	return visited
}

// scaled returns the sum over all origins, each multiplied by its factor.
func (e *residentEstimate) scaled(factors [mem.OriginCount]float64) int64 {
	var sum float64
	for origin, bytes := range e.bytes {
		sum += bytes * factors[origin]
	}
	return round(sum)
}

// totalVariance returns the variance, with the variance of the extrapolation factor.
func (e *residentEstimate) totalVariance() float64 {
	return e.variance + e.sampledBytes*e.sampledBytes*e.factorRelVar
}

// addLive adds the rows of live objects. Estimates that exceed the resident memory of all heaps
// together are scaled down to it.
func (r *Rows) addLive() {
	factors := fitFactors(r.heaps)
	for stack, live := range r.live {
		bytes, variance := live.scaled(factors), live.totalVariance()
		r.add(r.stacks(stack), growth.KindHeap, bytes, 0, variance)
	}

	metadata := r.metadata.scaled(factors)
	r.addNamed(growth.KindMetadata, metadata, 0, r.metadata.variance, growth.RootMetadata)
}

// heapOf returns the heap that a segment belongs to.
func (r *Rows) heapOf(segment *Segment) *arenaBytes {
	if segment.heapIndex == 0 {
		name := segment.heapName()
		if r.heapIndex[name] == 0 {
			r.heaps = append(r.heaps, arenaBytes{Name: name})
			r.heapIndex[name] = len(r.heaps)
		}
		segment.heapIndex = r.heapIndex[name]
	}
	return &r.heaps[segment.heapIndex-1]
}

// heapName returns the name of the heap that a segment belongs to. The name of an arena of glibc's
// malloc is the name of its region.
func (s *Segment) heapName() string {
	switch s.Class {
	case region.MainHeap, region.Arena, region.Allocator:
		return s.Name
	case region.MmappedChunk:
		return "mmapped chunks"
	}
	return "other areas of the allocator"
}

// addHeap adds the memory of a segment to its heap. It adds rows only for memory that cannot be
// attributed to objects: swapped-out memory, and file pages, which a heap does not have.
func (r *Rows) addHeap(segment *Segment) {
	heap := r.heapOf(segment)
	bytes := r.Bytes(segment)
	for origin, resident := range bytes.Resident {
		heap.Resident[origin] += resident
	}
	if older := olderBytes(r, segment); older > 0 {
		heap.Resident[mem.SinceTracing] -= older
		of := firstTouchRow{kind: growth.KindOlder, root: growth.RootOlder}
		r.addForFirstTouch(of, older, 0)
	}
	heap.Variance[mem.SinceTracing] += segment.variance

	kind, root := r.heapRemainder()
	r.addNamed(kind, bytes.File, bytes.Swapped, 0, root, heap.Name)
}

// olderBytes is the memory of a segment of a heap that was first touched since tracing started, in
// blocks that are older and in use.
func olderBytes(r *Rows, segment *Segment) (bytes int64) {
	for _, block := range r.Older.Intersect(mem.Spans{segment.Span()}) {
		found := r.runs.BytesIn(block.Start, block.End)
		bytes += found.Scaled(segment.factor, segment.fileFactor).Resident[mem.SinceTracing]
	}
	return bytes
}

// heapRemainder returns the kind and the root of heap memory that no known object takes.
func (r *Rows) heapRemainder() (growth.Kind, string) {
	switch {
	case !r.HeapTraced:
		return growth.KindHeap, growth.RootUnknownSite
	case !r.HeapComplete:
		return growth.KindUnclassified, growth.RootUnclassified
	}
	return growth.KindRetained, growth.RootRetained
}

// addHeapRemainder adds heap memory that no known object takes.
func (r *Rows) addHeapRemainder() {
	kind, root := r.heapRemainder()
	for i, bytes := range unattributed(r.heaps, mem.SinceTracing) {
		heap := &r.heaps[i]
		r.addNamed(kind, bytes, 0, heap.Variance[mem.SinceTracing], root, heap.Name)
	}

	for i, bytes := range unattributed(r.heaps, mem.BeforeTracing) {
		heap := &r.heaps[i]
		if r.stacks == nil { // no site is known, of old memory or new
			r.addNamed(kind, bytes, 0, 0, root, heap.Name)
			continue
		}
		variance := heap.Variance[mem.BeforeTracing]
		r.addNamed(growth.KindBeforeTracing, bytes, 0, variance, r.rootBefore(), heapClass)
	}

	copied := firstTouchRow{kind: growth.KindCOW, root: growth.RootCopied, class: heapClass}
	for _, bytes := range unattributed(r.heaps, mem.CopiedOnWrite) {
		r.addForFirstTouch(copied, bytes, 0)
	}
	for _, bytes := range unattributed(r.heaps, mem.Inherited) {
		r.addInherited(bytes, heapClass)
	}
}
