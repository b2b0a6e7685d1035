package residency

import (
	"cmp"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

// Rows attributes the resident memory of a process. The rows that it adds to holdings sum to RSS.
type Rows struct {
	*Scan

	// HeapTraced is set if the allocation sites of heap memory are known; HeapComplete if the sites
	// of all live objects are, up to sampling. It is unset if the heap is probed in bursts, or if
	// calls were lost: objects that were not seen, and young ones, are not known then.
	HeapTraced, HeapComplete bool

	// Older are blocks of malloc within its heaps that are older than the trace, and in use.
	Older mem.Spans

	// SizeClass returns how many bytes an object takes of a malloc that is not glibc's; nil: as many
	// as were requested, as far as it is known.
	SizeClass func(size uint64) uint64

	// FromStart is set if the process is traced from its first allocation on.
	FromStart bool

	// ParentInSnapshot is set if the parent is in the same snapshot, so that memory shared with the
	// parent is counted there.
	ParentInSnapshot bool

	// StaleFaults are the sampled pages whose faults Fill needs no more.
	StaleFaults []uint64

	// Touches are heap memory that came into RAM in a spike of RSS. It is part of other rows, too.
	Touches []Touch

	holdings estimate.Holdings
	pid      int
	stacks   func(id uint64) *growth.Stack // nil: the process is not traced
	sum      int64                         // bytes added so far

	// files are counted by earlier processes or by this one, ownFiles by this one.
	files, ownFiles CountedFiles

	heaps     []arenaBytes
	heapIndex map[string]int // index into heaps plus 1, by name

	live     map[uint64]*residentEstimate // of live objects, by stack ID
	metadata residentEstimate             // of the allocator, for live objects
	groups   int                          // page groups that were visited for live objects

	// firstTouch is memory that addFirstTouch divides.
	firstTouch map[firstTouchRow]*firstTouchMemory
}

// NewRows attributes the memory that a scan of a process has found. stacks returns the stack of an
// ID; nil: the process is not traced. files are counted by earlier processes of the snapshot; Fill
// adds the files of this process. Fill adds the rows to holdings.
func NewRows(
	scan *Scan, pid int, stacks func(id uint64) *growth.Stack, holdings estimate.Holdings,
	files CountedFiles,
) *Rows {
	return &Rows{
		Scan: scan, holdings: holdings, pid: pid, stacks: stacks,
		files: files, ownFiles: make(CountedFiles),
		heapIndex:  make(map[string]int),
		live:       make(map[uint64]*residentEstimate),
		firstTouch: make(map[firstTouchRow]*firstTouchMemory),
	}
}

// Samples are the tracer's data on the memory of a process: sampled live objects, sampled page
// faults, host memory that is pinned for a GPU, and the calls by which the main heap has grown.
type Samples struct {
	Extents []addrspace.Extent
	Objects []estimate.LiveObject
	Faults  []source.Fault
	Pins    []estimate.Pin
}

// Fill adds the rows of all memory of the process.
func (r *Rows) Fill(known Samples) {
	r.addPinned(known.Pins)
	r.addObjects(known.Objects)
	r.countFiles()

	for i := range r.Segments {
		if segment := &r.Segments[i]; segment.Heap {
			r.addHeap(segment)
		} else {
			r.addMapped(segment)
		}
	}

	r.addLive()
	r.addHeapRemainder()
	r.addFirstTouch(known.Faults)
	r.findTouches(known.Faults, known.Extents)

	if r.Status.RSS != growth.Unknown {
		unexplained := growth.NamedStack(r.pid, growth.RootUnexplained)
		r.add(unexplained, growth.KindUnexplained, r.Status.RSS-r.sum, 0, 0)
	}
}

// add adds memory to the row of a stack and a kind.
func (r *Rows) add(
	stack *growth.Stack, kind growth.Kind, resident, swapped int64, variance float64,
) *growth.Holding {
	row := r.holdings.Get(stack, kind)
	row.ResidentBytes += resident
	row.SwappedBytes += swapped
	row.ResidentVariance += variance
	r.sum += resident
	return row
}

// addNamed adds memory without an allocation site to the row of a root and of names below it. It
// returns nil if there is none.
func (r *Rows) addNamed(
	kind growth.Kind, resident, swapped int64, variance float64, root string, names ...string,
) *growth.Holding {
	if resident == 0 && swapped == 0 {
		return nil
	}
	return r.add(growth.NamedStack(r.pid, root, names...), kind, resident, swapped, variance)
}

// addPinned adds host memory that is pinned for a GPU to the stacks that have pinned it. It takes
// the memory out of all other rows: it may be the heap's, a mapping's or shared. A page that was
// pinned twice counts for the pin that begins first.
func (r *Rows) addPinned(pins []estimate.Pin) {
	slices.SortFunc(pins, func(a, b estimate.Pin) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})

	var pinned mem.Spans
	lastEnd := uint64(0)
	for _, pin := range pins {
		pin.Start = max(pin.Start, lastEnd)
		if pin.Start < pin.End {
			r.addPin(pin)
			lastEnd = pin.End
			pinned = append(pinned, pin.Span)
		}
	}
	r.runs = r.runs.WithoutResident(mem.MergeSpans(pinned))
}

// addPin adds the resident pages of a pin. These are all of them, unless the driver has not pinned
// them after all. In a sampled mapping all count: a pin between two scanned page groups would be
// missed.
func (r *Rows) addPin(pin estimate.Pin) {
	var resident int64
	for i := r.firstSegmentAfter(pin.Start); i < len(r.Segments); i++ {
		segment := &r.Segments[i]
		if segment.Region.Start >= pin.End {
			break
		}
		if !segment.countsInRSS() {
			continue
		}

		start, end := max(pin.Start, segment.Region.Start), min(pin.End, segment.Region.End)
		if segment.sampled {
			resident += int64(end - start)
		} else {
			bytes := r.runs.BytesIn(start, end).Scaled(segment.factor, segment.fileFactor)
			resident += bytes.InMemory()
		}
	}

	if resident != 0 {
		r.add(r.stacks(pin.Stack), growth.KindPinned, resident, 0, 0)
	}
}

// A rowKind is the kind and the root of the memory of a segment.
type rowKind struct {
	kind growth.Kind
	root string

	// anyAge is set if memory from before tracing counts for this kind as well. Otherwise it counts
	// as growth.RootBeforeTracing.
	anyAge bool
}

// rowKind returns the kind of a segment that belongs to no allocator. For files and shared memory
// it is the kind of the pages that other processes can see.
func (s *Segment) rowKind() rowKind {
	switch s.Class {
	case region.PythonArena:
		return rowKind{kind: growth.KindPython, root: growth.RootPython}
	case region.ThreadStack, region.MainStack:
		return rowKind{kind: growth.KindStack, root: growth.RootStacks, anyAge: true}
	case region.JIT:
		return rowKind{kind: growth.KindJIT, root: growth.RootJIT, anyAge: true}
	case region.Kernel:
		return rowKind{kind: growth.KindKernel, root: growth.RootKernel, anyAge: true}
	case region.File:
		return rowKind{kind: growth.KindFile, root: "[file: " + s.Name + "]", anyAge: true}
	case region.Shmem:
		root := "[shared memory: " + s.Name + "]"
		return rowKind{kind: growth.KindShmem, root: root, anyAge: true}
	}

	switch {
	case s.HasInterval && s.Origin == addrspace.Unobserved:
		return rowKind{kind: growth.KindMmap, root: growth.RootUnobserved}
	case s.HasInterval && s.Origin == addrspace.BeforeTracing:
		return rowKind{kind: growth.KindOlder, root: growth.RootOlder}
	}
	return rowKind{kind: growth.KindMmap, root: growth.RootMapped}
}

// privateRowKind returns the kind of the private pages of a segment. A page of a file that was
// written to is no longer the file's.
func (s *Segment) privateRowKind() rowKind {
	if s.Class == region.File {
		return rowKind{kind: growth.KindCOW, root: "[copy-on-write: " + s.Name + "]"}
	}
	return s.rowKind()
}

// stackUnderName returns the stack of a mapping as it is shown: below the name of the file or of
// the shared memory, if there is one.
func (s *Segment) stackUnderName(stack *growth.Stack) *growth.Stack {
	if s.Class == region.File || s.Class == region.Shmem {
		return stack.Under(s.rowKind().root)
	}
	return stack
}

// addMapped adds the memory of a segment that belongs to no allocator.
func (r *Rows) addMapped(segment *Segment) {
	if !segment.countsInRSS() {
		return
	}
	bytes := r.Bytes(segment)
	if bytes == (mem.Bytes{}) {
		return
	}

	if bytes.File != 0 {
		r.addFile(segment, bytes.File)
	}

	class := string(segment.Class)
	r.addInherited(bytes.Resident[mem.Inherited], class)
	copied := firstTouchRow{kind: growth.KindCOW, root: growth.RootCopied, class: class}
	r.addForFirstTouch(copied, bytes.Resident[mem.CopiedOnWrite], 0)

	r.addPrivate(segment, bytes)
}

// addFile adds memory of a file, or shared memory. It counts for the stack that has mapped it. If
// that was before tracing, it counts by first touch.
func (r *Rows) addFile(segment *Segment, bytes int64) {
	of := segment.rowKind()
	shared := round(float64(segment.sharedBytes) * segment.fileFactor)

	if segment.hasMapper() && r.stacks != nil {
		stack := r.stacks(segment.Stack).Under(of.root)
		r.add(stack, of.kind, bytes, 0, segment.variance).SharedBytes += shared
		return
	}
	r.addForFirstTouch(firstTouchRow{kind: of.kind, root: of.root}, bytes, segment.variance).shared += shared
}

// addPrivate adds the private memory of a segment, except for inherited pages and copies on write.
func (r *Rows) addPrivate(segment *Segment, bytes mem.Bytes) {
	since := bytes.Resident[mem.SinceTracing]
	before := bytes.Resident[mem.BeforeTracing]
	swapped := bytes.Swapped
	if since+before+swapped == 0 {
		return
	}

	of := segment.privateRowKind()
	switch {
	case segment.hasMapper() && r.stacks != nil:
		stack := r.stacks(segment.Stack)
		if segment.Class == region.File || segment.Class == region.Shmem {
			stack = stack.Under(of.root)
		}
		r.add(stack, of.kind, since+before, swapped, segment.variance)
	case of.anyAge || r.stacks == nil:
		r.addNamed(of.kind, since+before, swapped, segment.variance, of.root)
	default:
		class := string(segment.Class)
		if segment.isOldChunk() {
			class = heapClass
		}
		r.addNamed(growth.KindBeforeTracing, before, swapped, 0, r.rootBefore(), class)
		r.addForFirstTouch(firstTouchRow{kind: of.kind, root: of.root}, since, segment.variance)
	}
}

// rootBefore returns the root of memory that was resident when tracing started.
func (r *Rows) rootBefore() string {
	if r.FromStart {
		return growth.RootStart
	}
	return growth.RootBeforeTracing
}

// addInherited adds memory that is still shared with the parent.
func (r *Rows) addInherited(bytes int64, class string) {
	row := r.addNamed(growth.KindInherited, bytes, 0, 0, growth.RootInherited, class)
	if row != nil && r.ParentInSnapshot {
		row.SharedBytes += bytes
	}
}

// HasParent reports whether the parent from which a process has inherited memory is in a snapshot.
func HasParent(snapshot *growth.Snapshot, t *Tracker) bool {
	return slices.ContainsFunc(snapshot.Residents, func(r growth.Resident) bool {
		return r.PID == t.parent
	})
}

func round(x float64) int64 { return int64(math.Round(x)) }
