package tracer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/region"
	"github.com/allocscope/allocscope/tracer/residency"
)

var allClasses = []region.Class{
	region.MainHeap, region.Arena, region.Chunk, region.Allocator, region.Python, region.ThreadStack, region.MainStack, region.JIT,
	region.Kernel, region.File, region.Shmem, region.Anonymous, region.Device, region.Hugetlb,
}

// randomLook is an address space up to the very last page, with runs that know nothing of the areas.
func randomLook(r *rand.Rand) *look {
	l := &look{share: 1, status: process.Status{RSS: r.Int64N(1 << 40)}}
	if r.IntN(10) == 0 {
		l.status.RSS = growth.Unknown
	}
	end := ^uint64(0) &^ (pageSize - 1)
	at := end - 600*pageSize
	for at < end {
		size := min(end-at, pageSize*(1+r.Uint64N(40)))
		a := area{Region: region.Region{Start: at, End: at + size, Class: allClasses[r.IntN(len(allClasses))], Name: "x"}, factor: 1, fileFactor: 1}
		a.Offset, a.File.Inode = r.Uint64N(100)*pageSize, r.Uint64N(3)
		a.known, a.Origin, a.Stack = r.IntN(2) == 0, addrspace.Origin(r.IntN(3)), r.Uint64N(5)
		a.heap = slices.Contains(heapClasses, a.Class)
		if r.IntN(5) == 0 {
			a.factor, a.fileFactor, a.variance = 1+9*r.Float64(), 1+9*r.Float64(), 1e12*r.Float64()
		}
		if r.IntN(4) > 0 {
			l.areas = append(l.areas, a)
		}
		at += size
	}
	for at = end - 700*pageSize; at < end; {
		size := min(end-at, pageSize*(1+r.Uint64N(9)))
		if r.IntN(3) > 0 {
			l.runs = append(l.runs, residency.Run{
				Span: residency.Span{Start: at, End: at + size}, Tag: residency.Tag(r.IntN(int(residency.Tags))),
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
	return ^uint64(0) - r.Uint64N(700*pageSize)
}

func randomObjects(r *rand.Rand) (objects []object) {
	for range r.IntN(200) {
		size := r.Uint64N(100_000)
		if r.IntN(10) == 0 {
			size = ^uint64(0) - r.Uint64N(1<<20)
		}
		objects = append(objects, object{randomAddress(r), size, r.Uint64N(5), 1 + 99*r.Float64()})
	}
	return objects
}

func randomFaults(r *rand.Rand) (faults []fault) {
	for range r.IntN(200) {
		faults = append(faults, fault{
			page: randomAddress(r) &^ (pageSize - 1), stack: r.Uint64N(5), stands: float64(1 + r.IntN(200)), copied: r.IntN(2) == 0,
		})
	}
	return faults
}

func randomPins(r *rand.Rand) (pins []pin) {
	for range r.IntN(50) {
		start := randomAddress(r) &^ (pageSize - 1)
		length := r.Uint64N(200) * pageSize
		if r.IntN(10) == 0 {
			length = ^uint64(0) - start
		}
		pins = append(pins, pin{residency.Span{Start: start, End: start + length}, r.Uint64N(5)})
	}
	return pins
}

// namedStacks are what stack IDs below 5 stand for.
func namedStacks(pid int) *stackTable {
	stacks := make(map[uint64]*growth.Stack)
	for id := range uint64(5) {
		stacks[id] = &growth.Stack{ID: id, PID: pid}
	}
	return &stackTable{stacks: stacks}
}

// Whatever the pages, areas, objects and faults, which a process can make up as it likes.
func TestTheRowsOfAnythingAddUpAndShareNoMoreThanTheyHave(t *testing.T) {
	for seed := range uint64(3_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		files := make(countedFiles)
		for range 2 { // the second shares with the first
			l := newLedger(randomLook(r), 7, nil, make(holdings), files)
			var known contents
			if r.IntN(2) == 0 {
				l.target = &target{stacks: namedStacks(7)}
				l.knowsHeap, l.knowsAll = r.IntN(2) == 0, r.IntN(2) == 0
				l.share = 0.5 // nothing is told to the kernel
				known = contents{randomObjects(r), randomFaults(r), randomPins(r)}
			}
			l.parentCounts = r.IntN(2) == 0
			l.fill(known)
			mustAddUp(t, seed, l)
		}
	}
}

func mustAddUp(t *testing.T, seed uint64, l *ledger) {
	t.Helper()
	var sum, swapped, swappedPages int64
	for i := range l.areas {
		if a := &l.areas[i]; a.heap || a.inLedger() {
			swappedPages += l.bytes(a).Swapped
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
	if l.status.RSS != growth.Unknown && sum != l.status.RSS {
		t.Fatalf("seed %d: rows sum to %d bytes, RSS is %d", seed, sum, l.status.RSS)
	}
	if swapped != swappedPages {
		t.Fatalf("seed %d: rows sum to %d bytes swapped out, the pages to %d", seed, swapped, swappedPages)
	}
}
