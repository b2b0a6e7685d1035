package tracer

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/region"
	"github.com/allocscope/allocscope/tracer/residency"
)

// A nature is what areas of one class are in a ledger.
type nature struct {
	kind growth.Kind
	root string
	// always: also what was there before the attach is of this kind.
	always bool
}

// nature of what is in an area. That of files and of shared memory is of what others can see.
func (a *area) nature() nature {
	switch a.Class {
	case region.Python:
		return nature{growth.KindPython, rootPython, false}
	case region.ThreadStack, region.MainStack:
		return nature{growth.KindStack, rootStacks, true}
	case region.JIT:
		return nature{growth.KindJIT, rootJIT, true}
	case region.Kernel:
		return nature{growth.KindKernel, rootKernel, true}
	case region.File:
		return nature{growth.KindFile, "[file: " + a.Name + "]", true}
	case region.Shmem:
		return nature{growth.KindShmem, "[shared memory: " + a.Name + "]", true}
	}
	if a.known && a.Origin == addrspace.Unseen {
		return nature{growth.KindMmap, rootUnseen, false}
	}
	return nature{growth.KindMmap, rootMapped, false}
}

// inLedger tells whether RSS counts an area: not mappings of devices, nor those of huge pages set aside.
func (a *area) inLedger() bool { return a.Class != region.Device && a.Class != region.Hugetlb }

// addArea adds what is mapped and not an allocator's.
func (l *ledger) addArea(a *area) {
	if !a.inLedger() {
		return
	}
	bytes := l.bytes(a)
	if bytes == (residency.Bytes{}) {
		return
	}
	of := a.nature()
	if bytes.File != 0 {
		l.addFile(a, of, bytes.File)
	}
	l.inherit(bytes.Resident[residency.Inherited], string(a.Class))
	l.touch(place{growth.KindCOW, rootCopied, string(a.Class)}, bytes.Resident[residency.Copied], 0)
	l.addPrivate(a, of, bytes)
}

// addFile adds what is of a file or of shared memory. It is held by who mapped it, or, if that was before the attach, by who
// touched it.
func (l *ledger) addFile(a *area, of nature, bytes int64) {
	shared := round(float64(a.shared) * a.fileFactor)
	if a.seen() && l.target != nil {
		l.hold(l.target.stacks.get(a.Stack).Under(of.root), of.kind, bytes, 0, a.variance).SharedBytes += shared
		return
	}
	l.touch(place{of.kind, of.root, ""}, bytes, a.variance)
	l.touched[place{of.kind, of.root, ""}].shared += shared
}

// addPrivate adds private memory.
func (l *ledger) addPrivate(a *area, of nature, bytes residency.Bytes) {
	fresh, old, swapped := bytes.Resident[residency.Fresh], bytes.Resident[residency.Old], bytes.Swapped
	if a.Class == region.File { // written to: no longer the file's
		of = nature{growth.KindCOW, "[copy-on-write: " + a.Name + "]", false}
	}
	switch {
	case fresh+old+swapped == 0:
		return
	case a.seen() && l.target != nil:
		stack := l.target.stacks.get(a.Stack)
		if a.Class == region.File || a.Class == region.Shmem {
			stack = stack.Under(of.root)
		}
		l.hold(stack, of.kind, fresh+old, swapped, a.variance)
		return
	case of.always || l.target == nil:
		l.name(of.kind, fresh+old, swapped, a.variance, of.root)
		return
	}
	l.name(growth.KindBefore, old, swapped, 0, rootBefore, string(a.Class))
	l.touch(place{of.kind, of.root, ""}, fresh, a.variance)
}

// A place is memory of which all that can be said is who touched it first.
type place struct {
	kind growth.Kind
	root string
	of   string // what sort of memory; empty: the root says it
}

// touches are what is in memory at a place.
type touches struct {
	bytes, shared int64
	variance      float64
}

// touch adds memory to a place.
func (l *ledger) touch(at place, bytes int64, variance float64) {
	t, ok := l.touched[at]
	if !ok {
		t = &touches{}
		l.touched[at] = t
	}
	t.bytes += bytes
	t.variance += variance
}

// placeOf is where the page at an address belongs; false: its holder is known otherwise, or it has gone.
func (l *ledger) placeOf(f fault) (at place, bytes float64, ok bool) {
	run, inMemory := l.runs.At(f.page)
	a := l.areaAt(f.page)
	if !inMemory || run.Swapped || a == nil || !a.inLedger() {
		return place{}, 0, false
	}
	bytes = pageSize
	if run.Huge {
		bytes = hugePage
	}
	of := a.nature()
	switch {
	case run.File && !a.seen():
		return place{of.kind, of.root, ""}, bytes, true
	case run.File, run.Tag == residency.Inherited, run.Tag == residency.Old:
		return place{}, 0, false
	case run.Tag == residency.Copied && a.heap:
		return place{growth.KindCOW, rootCopied, "heap"}, bytes, f.copied
	case run.Tag == residency.Copied:
		return place{growth.KindCOW, rootCopied, string(a.Class)}, bytes, f.copied
	case a.heap || a.seen() || of.always && a.Class != region.File:
		return place{}, 0, false
	case a.Class == region.File:
		return place{growth.KindCOW, "[copy-on-write: " + a.Name + "]", ""}, bytes, true
	}
	return place{of.kind, of.root, ""}, bytes, true
}

const hugePage = 2 << 20 // bytes, on amd64 and on arm64 with pages of 4 KiB
