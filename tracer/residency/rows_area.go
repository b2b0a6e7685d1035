package residency

import (
	"cmp"
	"slices"
	"sort"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
)

// addPinned adds the memory of the host that is pinned for a GPU, to whoever pinned it, and takes it out of what is told otherwise: such
// memory may be the heap's, a mapping's or shared. Where several have pinned a page it is the first one's.
func (l *Rows) addPinned(pins []estimate.Pin) {
	slices.SortFunc(pins, func(a, b estimate.Pin) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End)) })
	var taken pages.Spans
	last := uint64(0)
	for _, p := range pins {
		p.Start = max(p.Start, last)
		if p.Start < p.End {
			l.addPin(p)
			last = p.End
			taken = append(taken, p.Span)
		}
	}
	l.runs = l.runs.WithoutResident(pages.MergeSpans(taken))
}

// addPin adds what is in memory of pinned pages: all, unless the driver has not pinned them after all. Of mappings of which only some blocks
// were looked at it is taken at its word: an estimate by those blocks would know nothing of a pin between two of them.
func (l *Rows) addPin(p estimate.Pin) {
	var resident int64
	first := sort.Search(len(l.Segments), func(i int) bool { return l.Segments[i].Region.End > p.Start })
	for i := first; i < len(l.Segments) && l.Segments[i].Region.Start < p.End; i++ {
		a := &l.Segments[i]
		if !a.isResidentKind() {
			continue
		}
		start, end := max(p.Start, a.Region.Start), min(p.End, a.Region.End)
		if a.sampled {
			resident += int64(end - start)
		} else {
			resident += l.runs.BytesIn(start, end).Scaled(a.factor, a.fileFactor).InMemory()
		}
	}
	if resident != 0 {
		l.hold(l.stacks(p.Stack), growth.KindPinned, resident, 0, 0)
	}
}

// CountedFiles are the parts of files, in memory, of the processes of the tree that come earlier.
type CountedFiles map[process.FileID]pages.Spans

// A filePart is a part of a file that an area has in memory.
type filePart struct {
	pages.Span
	area *Segment
}

// countFiles finds what of the files in each area is counted already: for an earlier process, or another area of this one.
func (l *Rows) countFiles() {
	parts := make(map[process.FileID][]filePart)
	for i := range l.Segments {
		a := &l.Segments[i]
		if a.Heap || !a.isResidentKind() {
			continue
		}
		shift := a.Offset - a.Region.Start
		for _, run := range l.runs.Clip(a.Region.Start, a.Region.End) {
			if run.File && !run.Swapped {
				span := pages.Span{Start: run.Start + shift, End: run.End + shift}
				parts[a.File] = append(parts[a.File], filePart{span, a})
			}
		}
	}
	for file, of := range parts {
		l.own[file] = countParts(of, l.files[file])
		l.files[file] = l.files[file].Union(l.own[file])
	}
}

// countParts adds to areas what of one file is counted before or twice, and gives all that there is of it.
func countParts(parts []filePart, before pages.Spans) pages.Spans {
	slices.SortStableFunc(parts, func(a, b filePart) int { return cmp.Compare(a.Start, b.Start) })
	all := make([]pages.Span, 0, len(parts))
	var end uint64 // of what is in all
	for _, p := range parts {
		fresh := pages.Span{Start: min(max(p.Start, end), p.End), End: p.End}
		for len(before) > 0 && before[0].End <= fresh.Start {
			before = before[1:]
		}
		p.area.shared += p.Len() - fresh.Len() + pages.Spans{fresh}.Intersect(before).Len()
		all, end = append(all, fresh), max(end, p.End)
	}
	return pages.MergeSpans(all)
}

// A nature is what areas of one class are in a ledger.
type rowKind struct {
	kind growth.Kind
	root string
	// always: also what was there before the attach is of this kind.
	always bool
}

// nature of what is in an area. That of files and of shared memory is of what others can see.
func (a *Segment) rowKind() rowKind {
	switch a.Class {
	case region.PythonArena:
		return rowKind{growth.KindPython, rootPython, false}
	case region.ThreadStack, region.MainStack:
		return rowKind{growth.KindStack, rootStacks, true}
	case region.JIT:
		return rowKind{growth.KindJIT, rootJIT, true}
	case region.Kernel:
		return rowKind{growth.KindKernel, rootKernel, true}
	case region.File:
		return rowKind{growth.KindFile, "[file: " + a.Name + "]", true}
	case region.Shmem:
		return rowKind{growth.KindShmem, "[shared memory: " + a.Name + "]", true}
	}
	if a.Known && a.Origin == addrspace.Unobserved {
		return rowKind{growth.KindMmap, stack.UnobservedRoot, false}
	}
	return rowKind{growth.KindMmap, rootMapped, false}
}

// inLedger tells whether RSS counts an area: not mappings of devices, nor those of huge pages set aside.
func (a *Segment) isResidentKind() bool {
	return a.Class != region.DeviceFile && a.Class != region.Hugetlb
}

// addArea adds what is mapped and not an allocator's.
func (l *Rows) addArea(a *Segment) {
	if !a.isResidentKind() {
		return
	}
	bytes := l.Bytes(a)
	if bytes == (pages.Bytes{}) {
		return
	}
	of := a.rowKind()
	if bytes.File != 0 {
		l.addFile(a, of, bytes.File)
	}
	l.inherit(bytes.Resident[pages.Inherited], string(a.Class))
	l.touch(unownedRow{growth.KindCOW, rootCopied, string(a.Class)}, bytes.Resident[pages.CopiedOnWrite], 0)
	l.addPrivate(a, of, bytes)
}

// addFile adds what is of a file or of shared memory. It is held by who mapped it, or, if that was before the attach, by who
// touched it.
func (l *Rows) addFile(a *Segment, of rowKind, bytes int64) {
	shared := round(float64(a.shared) * a.fileFactor)
	if a.seen() && l.stacks != nil {
		l.hold(l.stacks(a.Stack).Under(of.root), of.kind, bytes, 0, a.variance).SharedBytes += shared
		return
	}
	l.touch(unownedRow{of.kind, of.root, ""}, bytes, a.variance)
	l.touched[unownedRow{of.kind, of.root, ""}].shared += shared
}

// addPrivate adds private memory.
func (l *Rows) addPrivate(a *Segment, of rowKind, bytes pages.Bytes) {
	fresh, old, swapped := bytes.Resident[pages.SinceTracing], bytes.Resident[pages.BeforeTracing], bytes.Swapped
	if a.Class == region.File { // written to: no longer the file's
		of = rowKind{growth.KindCOW, "[copy-on-write: " + a.Name + "]", false}
	}
	switch {
	case fresh+old+swapped == 0:
		return
	case a.seen() && l.stacks != nil:
		stack := l.stacks(a.Stack)
		if a.Class == region.File || a.Class == region.Shmem {
			stack = stack.Under(of.root)
		}
		l.hold(stack, of.kind, fresh+old, swapped, a.variance)
		return
	case of.always || l.stacks == nil:
		l.name(of.kind, fresh+old, swapped, a.variance, of.root)
		return
	}
	l.name(growth.KindBeforeTracing, old, swapped, 0, rootBeforeTracing, string(a.Class))
	l.touch(unownedRow{of.kind, of.root, ""}, fresh, a.variance)
}

// A place is memory of which all that can be said is who touched it first.
type unownedRow struct {
	kind growth.Kind
	root string
	of   string // what sort of memory; empty: the root says it
}

// touches are what is in memory at a place.
type firstTouch struct {
	bytes, shared int64
	variance      float64
}

// touch adds memory to a place.
func (l *Rows) touch(at unownedRow, bytes int64, variance float64) {
	t, ok := l.touched[at]
	if !ok {
		t = &firstTouch{}
		l.touched[at] = t
	}
	t.bytes += bytes
	t.variance += variance
}

// placeOf is where the page at an address belongs; false: its holder is known otherwise, or it has gone.
func (l *Rows) placeOf(f source.Fault) (at unownedRow, bytes float64, ok bool) {
	run, inMemory := l.runs.Find(f.Page)
	a := l.areaAt(f.Page)
	if !inMemory || run.Swapped || a == nil || !a.isResidentKind() {
		return unownedRow{}, 0, false
	}
	bytes = float64(process.PageSize)
	if run.Huge {
		bytes = hugePage
	}
	of := a.rowKind()
	switch {
	case run.File && !a.seen():
		return unownedRow{of.kind, of.root, ""}, bytes, true
	case run.File, run.Origin == pages.Inherited, run.Origin == pages.BeforeTracing:
		return unownedRow{}, 0, false
	case run.Origin == pages.CopiedOnWrite && a.Heap:
		return unownedRow{growth.KindCOW, rootCopied, "heap"}, bytes, f.Copied
	case run.Origin == pages.CopiedOnWrite:
		return unownedRow{growth.KindCOW, rootCopied, string(a.Class)}, bytes, f.Copied
	case a.Heap || a.seen() || of.always && a.Class != region.File:
		return unownedRow{}, 0, false
	case a.Class == region.File:
		return unownedRow{growth.KindCOW, "[copy-on-write: " + a.Name + "]", ""}, bytes, true
	}
	return unownedRow{of.kind, of.root, ""}, bytes, true
}

const hugePage = 2 << 20 // bytes, on amd64 and on arm64 with pages of 4 KiB
