package residency

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

var allClasses = []region.Class{
	region.MainHeap, region.Arena, region.MmappedChunk, region.Allocator, region.PythonArena,
	region.ThreadStack, region.MainStack, region.JIT, region.Kernel, region.File, region.Shmem,
	region.Anonymous, region.DeviceFile, region.Hugetlb,
}

// pid is the process of the tests, and stackOf the stack of an ID in it.
const pid = 7

func stackOf(id uint64) *growth.Stack {
	return &growth.Stack{ID: id, PID: pid, Frames: []growth.Frame{{Line: int(id)}}}
}

func newRows(scan *Scan) *Rows {
	return NewRows(scan, pid, stackOf, make(estimate.Holdings), make(CountedFiles))
}

var lastPage = ^uint64(0) &^ (process.PageSize - 1)

// randomScan returns segments up to the highest page, and runs that are independent of them.
func randomScan(r *rand.Rand) *Scan {
	s := &Scan{Share: 1, Status: process.Status{RSS: r.Int64N(1 << 40)}}
	if r.IntN(10) == 0 {
		s.Status.RSS = growth.Unknown
	}

	for start := lastPage - 600*process.PageSize; start < lastPage; {
		end := start + min(lastPage-start, process.PageSize*(1+r.Uint64N(40)))
		if r.IntN(4) > 0 {
			s.Segments = append(s.Segments, randomSegment(r, start, end))
		}
		start = end
	}

	for start := lastPage - 700*process.PageSize; start < lastPage; {
		end := start + min(lastPage-start, process.PageSize*(1+r.Uint64N(9)))
		if r.IntN(3) > 0 {
			s.runs = append(s.runs, mem.Run{
				Span:    mem.Span{Start: start, End: end},
				Origin:  mem.Origin(r.IntN(int(mem.OriginCount))),
				Swapped: r.IntN(5) == 0, File: r.IntN(3) == 0, Huge: r.IntN(9) == 0,
			})
		}
		start = end
	}
	return s
}

func randomSegment(r *rand.Rand, start, end uint64) Segment {
	s := Segment{
		Region: region.Region{
			Start: start, End: end, Class: allClasses[r.IntN(len(allClasses))], Name: "x",
			Offset: r.Uint64N(100) * process.PageSize, File: process.FileID{Inode: r.Uint64N(3)},
		},
		Interval:    addrspace.Interval{Origin: addrspace.Origin(r.IntN(3)), Stack: r.Uint64N(5)},
		HasInterval: r.IntN(2) == 0,
		factor:      1, fileFactor: 1,
	}
	s.Heap = slices.Contains(heapClasses, s.Class)

	if r.IntN(5) == 0 {
		s.sampled, s.groupBytes, s.groupShare = true, minGroupBytes, 0.01+0.99*r.Float64()
		s.factor, s.fileFactor = 1+9*r.Float64(), 1+9*r.Float64()
		s.variance, s.factorRelVar = 1e12*r.Float64(), r.Float64()
	}
	return s
}

// randomAddress returns an address near the segments, or any.
func randomAddress(r *rand.Rand) uint64 {
	if r.IntN(10) == 0 {
		return r.Uint64()
	}
	return ^uint64(0) - r.Uint64N(700*process.PageSize)
}

func randomPage(r *rand.Rand) uint64 { return randomAddress(r) &^ (process.PageSize - 1) }

func randomSamples(r *rand.Rand) (samples Samples) {
	for range r.IntN(200) {
		size := r.Uint64N(100_000)
		if r.IntN(10) == 0 {
			size = ^uint64(0) - r.Uint64N(1<<20)
		}
		samples.Objects = append(samples.Objects, estimate.LiveObject{
			Address: randomAddress(r), Size: size, Stack: r.Uint64N(5), Weight: 1 + 99*r.Float64(),
		})
	}

	for range r.IntN(200) {
		samples.Faults = append(samples.Faults, source.Fault{
			Page: randomPage(r), Stack: r.Uint64N(5), Weight: float64(1 + r.IntN(200)),
			Copied: r.IntN(2) == 0,
		})
	}

	for range r.IntN(50) {
		start := randomPage(r)
		length := r.Uint64N(200) * process.PageSize
		if r.IntN(10) == 0 {
			length = ^uint64(0) - start
		}
		span := mem.Span{Start: start, End: start + length}
		samples.Pins = append(samples.Pins, estimate.Pin{Span: span, Stack: r.Uint64N(5)})
	}
	return samples
}

// TestRows attributes random pages, segments, objects, faults and pins. A traced process can make
// them up as it likes.
func TestRows(t *testing.T) {
	for seed := range uint64(3_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		files := make(CountedFiles)
		for range 2 { // the second process shares files with the first
			rows := NewRows(randomScan(r), pid, nil, make(estimate.Holdings), files)
			rows.ParentInSnapshot = r.IntN(2) == 0
			rows.inSpike = r.IntN(2) == 0
			rows.usual = rows.runs[:len(rows.runs)/2].PrivateSpans()

			var samples Samples
			if r.IntN(2) == 0 {
				rows.stacks = stackOf
				rows.HeapTraced, rows.HeapComplete = r.IntN(2) == 0, r.IntN(2) == 0
				samples = randomSamples(r)
			}
			rows.Fill(samples)
			checkRows(t, seed, rows)
		}
	}
}

// checkRows checks that rows sum to RSS and to the swapped pages, and that none is negative or
// shares more than it has.
func checkRows(t *testing.T, seed uint64, rows *Rows) {
	t.Helper()
	var sum, swapped, swappedPages int64
	for i := range rows.Segments {
		if segment := &rows.Segments[i]; segment.Heap || segment.countsInRSS() {
			swappedPages += rows.Bytes(segment).Swapped
		}
	}

	for _, row := range rows.holdings {
		sum += row.ResidentBytes
		swapped += row.SwappedBytes
		isNegative := row.ResidentBytes < 0 || row.SwappedBytes < 0
		if row.Kind != growth.KindUnexplained && isNegative || row.ResidentVariance < 0 ||
			row.SharedBytes < 0 || row.SharedBytes > max(0, row.ResidentBytes) {
			t.Fatalf("seed %d: %s %s: %d bytes resident, %d shared, %d swapped, variance %g",
				seed, row.Kind, row.Stack.Root, row.ResidentBytes, row.SharedBytes,
				row.SwappedBytes, row.ResidentVariance)
		}
	}

	for _, touch := range rows.Touches {
		if touch.Bytes < 0 {
			t.Fatalf("seed %d: stack %d has touched %d bytes", seed, touch.Stack, touch.Bytes)
		}
	}

	if rows.Status.RSS != growth.Unknown && sum != rows.Status.RSS {
		t.Fatalf("seed %d: rows sum to %d bytes, RSS is %d", seed, sum, rows.Status.RSS)
	}
	if swapped != swappedPages {
		t.Fatalf("seed %d: %d bytes swapped, want %d", seed, swapped, swappedPages)
	}
}

func TestFirstTouchRowAt(t *testing.T) {
	memory := Segment{Region: region.Region{End: 10 * mib, Class: region.Anonymous}}
	file := Segment{Region: region.Region{End: 10 * mib, Class: region.File}}
	heap := Segment{Region: memory.Region, Heap: true}
	copiedRun := mem.Run{Origin: mem.CopiedOnWrite}
	touched, copied := source.Fault{}, source.Fault{Copied: true}

	for _, c := range []struct {
		name    string
		segment Segment
		run     mem.Run // the first MiB of the segment
		fault   source.Fault
		want    bool
	}{
		{"page", memory, mem.Run{}, touched, true},
		{"before tracing", memory, mem.Run{Origin: mem.BeforeTracing}, touched, false},
		{"inherited", memory, mem.Run{Origin: mem.Inherited}, touched, false},
		{"copied on write, by another fault", memory, copiedRun, touched, false},
		{"copied on write", memory, copiedRun, copied, true},
		{"swapped out", memory, mem.Run{Swapped: true}, touched, false},
		{"not in memory", memory, mem.Run{}, source.Fault{Page: 5 * mib}, false},
		{"file", file, mem.Run{File: true}, touched, true},
		{"file, not in memory", file, mem.Run{File: true}, source.Fault{Page: 5 * mib}, false},
		{"heap", heap, mem.Run{}, touched, false},
		{"heap, copied on write, by another fault", heap, copiedRun, touched, false},
		{"heap, copied on write", heap, copiedRun, copied, true},
		{"outside of segments", Segment{}, mem.Run{}, touched, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run.Span = mem.Span{End: mib}
			rows := &Rows{Scan: &Scan{Segments: []Segment{c.segment}, runs: mem.Runs{c.run}}}
			if _, _, _, ok := rows.firstTouchRowAt(c.fault); ok != c.want {
				t.Errorf("%v, want %v", ok, c.want)
			}
		})
	}
}

// A fault that is of no use now may be of use at a later scan, if its page was not scanned, or if it
// is a recent one of the heap: a spike may just have begun.
func TestStaleFaults(t *testing.T) {
	const scannedEnd, old, recent = mib, 99, 100
	memory := Segment{Region: region.Region{End: 10 * mib, Class: region.Anonymous}}
	heap := Segment{Region: region.Region{Start: 10 * mib, End: 20 * mib}, Heap: true}
	mapped := Segment{
		Region:      region.Region{Start: 20 * mib, End: 30 * mib, Class: region.Anonymous},
		HasInterval: true,
	}

	for _, c := range []struct {
		name   string
		page   uint64
		time   uint64
		copied bool
		want   bool
	}{
		{"scanned, in memory", 0, old, false, false},
		{"scanned, not in memory", scannedEnd - 4096, recent, false, true},
		{"not scanned", scannedEnd, old, false, false},
		{"heap, not scanned", 10 * mib, old, false, true},
		{"heap, not scanned, recent", 10 * mib, recent, false, false},
		{"heap, not scanned, copied on write", 10 * mib, old, true, false},
		{"heap, scanned", 19 * mib, old, false, true},
		{"heap, scanned, recent", 19 * mib, recent, false, false},
		{"heap, scanned, recent, not in memory", 18 * mib, recent, false, true},
		{"mapped since, not scanned", 20 * mib, recent, false, true},
		{"not mapped", 30 * mib, recent, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := newRows(&Scan{
				Share:    0.1,
				Segments: []Segment{memory, heap, mapped},
				runs: mem.Runs{
					{Span: mem.Span{End: mib / 2}},
					{Span: mem.Span{Start: 19 * mib, End: 20 * mib}},
				},
				scanned:        mem.Spans{{Start: 0, End: scannedEnd}, {Start: 18 * mib, End: 20 * mib}},
				keepFaultsFrom: recent,
			})
			rows.Fill(Samples{Faults: []source.Fault{{
				Page: c.page, Time: c.time, Weight: 1, Copied: c.copied,
			}}})
			if got := slices.Equal(rows.StaleFaults, []uint64{c.page}); got != c.want {
				t.Errorf("stale: %v, want %v (%d)", got, c.want, rows.StaleFaults)
			}
		})
	}
}

// A process can make up objects that overlap. Objects of a real heap do not overlap.
func TestRowsOfForgedObjects(t *testing.T) {
	const (
		runs, objects = 200_000, 200_000
		watchdog      = time.Minute // without a bound it takes hours
	)
	s := &Scan{Share: 0.5, Status: process.Status{RSS: runs * int64(process.PageSize)}}
	for i := range uint64(runs) {
		start := 2 * i * process.PageSize
		span := mem.Span{Start: start, End: start + process.PageSize}
		s.runs = append(s.runs, mem.Run{Span: span, Origin: mem.SinceTracing})
	}
	s.Segments = []Segment{{
		Region: region.Region{End: 2 * runs * process.PageSize, Class: region.MainHeap, Name: "[heap]"},
		Heap:   true, factor: 1, fileFactor: 1,
		sampled: true, groupBytes: minGroupBytes, groupShare: 0.5,
	}}

	var samples Samples
	for i := range uint64(objects) {
		samples.Objects = append(samples.Objects, estimate.LiveObject{
			Address: i, Size: 2 * runs * process.PageSize, Stack: 1, Weight: 1,
		})
	}

	done := make(chan *Rows)
	go func() {
		rows := newRows(s)
		rows.HeapTraced, rows.HeapComplete = true, true
		rows.Fill(samples)
		done <- rows
	}()
	select {
	case rows := <-done:
		checkRows(t, 0, rows)
	case <-time.After(watchdog):
		t.Fatal("a snapshot does not end")
	}
}

// TestOldChunk: a chunk of malloc with a mapping of its own is in use, however old it is.
func TestOldChunk(t *testing.T) {
	const code = 3
	span := mem.Span{Start: 16 * mib, End: 32 * mib}
	regions := []region.Region{{
		Start: span.Start, End: span.End, Class: region.MmappedChunk, Private: true,
	}}
	for origin, want := range map[addrspace.Origin]growth.Kind{
		addrspace.BeforeTracing: growth.KindOlder, addrspace.FromCall: growth.KindRetained,
	} {
		scan := &Scan{Segments: segmentsOf(regions, []addrspace.Interval{{
			Start: span.Start, End: span.End, Origin: origin,
		}})}
		before := mem.Span{Start: span.Start, End: 20 * mib}
		scan.runs = mem.Runs{
			{Span: before, Origin: mem.BeforeTracing},
			{Span: mem.Span{Start: before.End, End: span.End}, Origin: mem.SinceTracing},
		}
		scan.Status.RSS = int64(span.Len())

		rows := newRows(scan)
		rows.HeapTraced, rows.HeapComplete = true, true
		rows.Fill(Samples{Faults: []source.Fault{{Page: before.End, Stack: code, Weight: 1}}})

		sums := sumsOf(rows)
		if sums[want] != 12*mib || sums[growth.KindBeforeTracing] != 4*mib {
			t.Errorf("mapped %v: %v, want 12 MiB of %s", origin, sums, want)
		}
	}
}
