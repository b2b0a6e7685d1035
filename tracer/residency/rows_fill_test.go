package residency

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

var allClasses = []region.Class{
	region.MainHeap, region.Arena, region.MmappedChunk, region.Allocator, region.PythonArena, region.ThreadStack, region.MainStack, region.JIT,
	region.Kernel, region.File, region.Shmem, region.Anonymous, region.DeviceFile, region.Hugetlb,
}

// randomLook is an address space up to the very last page, with runs that know nothing of the areas.
func randomLook(r *rand.Rand) *Scan {
	l := &Scan{Share: 1, Status: process.Status{RSS: r.Int64N(1 << 40)}}
	if r.IntN(10) == 0 {
		l.Status.RSS = growth.Unknown
	}
	end := ^uint64(0) &^ (process.PageSize - 1)
	at := end - 600*process.PageSize
	for at < end {
		size := min(end-at, process.PageSize*(1+r.Uint64N(40)))
		a := Segment{Region: region.Region{Start: at, End: at + size, Class: allClasses[r.IntN(len(allClasses))], Name: "x"}, factor: 1, fileFactor: 1}
		a.Offset, a.File.Inode = r.Uint64N(100)*process.PageSize, r.Uint64N(3)
		a.Known, a.Origin, a.Stack = r.IntN(2) == 0, addrspace.Origin(r.IntN(3)), r.Uint64N(5)
		a.Heap = slices.Contains(heapClasses, a.Class)
		if r.IntN(5) == 0 {
			a.factor, a.fileFactor, a.variance = 1+9*r.Float64(), 1+9*r.Float64(), 1e12*r.Float64()
		}
		if r.IntN(4) > 0 {
			l.Segments = append(l.Segments, a)
		}
		at += size
	}
	for at = end - 700*process.PageSize; at < end; {
		size := min(end-at, process.PageSize*(1+r.Uint64N(9)))
		if r.IntN(3) > 0 {
			l.runs = append(l.runs, pages.Run{
				Span: pages.Span{Start: at, End: at + size}, Origin: pages.Origin(r.IntN(int(pages.OriginCount))),
				Swapped: r.IntN(5) == 0, File: r.IntN(3) == 0, Huge: r.IntN(9) == 0,
			})
		}
		at += size
	}
	return l
}

// randomAddress is one among the areas, or anything.
func randomAddress(r *rand.Rand) uint64 {
	if r.IntN(10) == 0 {
		return r.Uint64()
	}
	return ^uint64(0) - r.Uint64N(700*process.PageSize)
}

func randomObjects(r *rand.Rand) (objects []estimate.LiveObject) {
	for range r.IntN(200) {
		size := r.Uint64N(100_000)
		if r.IntN(10) == 0 {
			size = ^uint64(0) - r.Uint64N(1<<20)
		}
		objects = append(objects, estimate.LiveObject{randomAddress(r), size, r.Uint64N(5), 1 + 99*r.Float64()})
	}
	return objects
}

func randomFaults(r *rand.Rand) (faults []source.Fault) {
	for range r.IntN(200) {
		faults = append(faults, source.Fault{
			Page: randomAddress(r) &^ (process.PageSize - 1), Stack: r.Uint64N(5), Weight: float64(1 + r.IntN(200)), Copied: r.IntN(2) == 0,
		})
	}
	return faults
}

func randomPins(r *rand.Rand) (pins []estimate.Pin) {
	for range r.IntN(50) {
		start := randomAddress(r) &^ (process.PageSize - 1)
		length := r.Uint64N(200) * process.PageSize
		if r.IntN(10) == 0 {
			length = ^uint64(0) - start
		}
		pins = append(pins, estimate.Pin{pages.Span{Start: start, End: start + length}, r.Uint64N(5)})
	}
	return pins
}

// namedStacks are what stack IDs below 5 stand for.
func namedStacks(pid int) func(uint64) *growth.Stack {
	return func(id uint64) *growth.Stack { return &growth.Stack{ID: id, PID: pid} }
}

// Whatever the pages, areas, objects and faults, which a process can make up as it likes.
func TestTheRowsOfAnythingAddUpAndShareNoMoreThanTheyHave(t *testing.T) {
	for seed := range uint64(3_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		files := make(CountedFiles)
		for range 2 { // the second shares with the first
			l := NewRows(randomLook(r), 7, nil, make(estimate.Holdings), files)
			var known Known
			if r.IntN(2) == 0 {
				l.stacks = namedStacks(7)
				l.KnowsHeap, l.KnowsAll = r.IntN(2) == 0, r.IntN(2) == 0
				l.Share = 0.5 // nothing is told to the kernel
				known = Known{randomObjects(r), randomFaults(r), randomPins(r)}
			}
			l.ParentCounts = r.IntN(2) == 0
			l.Fill(known)
			mustAddUp(t, seed, l)
		}
	}
}

func mustAddUp(t *testing.T, seed uint64, l *Rows) {
	t.Helper()
	var sum, swapped, swappedPages int64
	for i := range l.Segments {
		if a := &l.Segments[i]; a.Heap || a.isResidentKind() {
			swappedPages += l.Bytes(a).Swapped
		}
	}
	for _, h := range l.to {
		sum += h.ResidentBytes
		swapped += h.SwappedBytes
		if h.Kind != growth.KindUnexplained && (h.ResidentBytes < 0 || h.SwappedBytes < 0) ||
			h.SharedBytes < 0 || h.SharedBytes > max(0, h.ResidentBytes) || h.ResidentVariance < 0 {
			t.Fatalf("seed %d: %s %s: %d bytes resident, %d shared, %d swapped, variance %g", seed, h.Kind, h.Stack.Root,
				h.ResidentBytes, h.SharedBytes, h.SwappedBytes, h.ResidentVariance)
		}
	}
	if l.Status.RSS != growth.Unknown && sum != l.Status.RSS {
		t.Fatalf("seed %d: rows sum to %d bytes, RSS is %d", seed, sum, l.Status.RSS)
	}
	if swapped != swappedPages {
		t.Fatalf("seed %d: rows sum to %d bytes swapped out, the pages to %d", seed, swapped, swappedPages)
	}
}
