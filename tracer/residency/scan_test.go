package residency

import (
	"math"
	"os"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

func ownOccupancy(t *testing.T) *Tracker {
	t.Helper()
	p, err := process.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	pages, err := p.OpenPagemap()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pages.Close() })
	return &Tracker{process: p, Pages: pages, maxShare: 1, hasFirst: true}
}

// mapAt maps a part of a file and gives what /proc/PID/maps would say.
func mapAt(t *testing.T, file *os.File, offset, size int64) process.Mapping {
	t.Helper()
	memory, err := unix.Mmap(int(file.Fd()), offset, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	start := uint64(uintptr(unsafe.Pointer(&memory[0])))
	return process.Mapping{Start: start, End: start + uint64(size), Offset: uint64(offset), Inode: 7, Path: "/data"}
}

// Of one file the same blocks, or what another process shares would not be found.
func TestOfAFileTheSameBlocksAreSampledWhereverItIsMapped(t *testing.T) {
	const size, offset, odd = 512 << 20, 100 << 20, 36 << 10
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	o := ownOccupancy(t)
	places := func(m process.Mapping) pages.Spans {
		s, err := o.readPages([]process.Mapping{m}, 0.3)
		if err != nil {
			t.Fatal(err)
		}
		spans := slices.Clone(s.scanned)
		for i := range spans {
			spans[i].Start, spans[i].End = spans[i].Start-m.Start+m.Offset, spans[i].End-m.Start+m.Offset
		}
		return spans.Intersect(pages.Spans{{Start: offset + odd, End: size}})
	}
	whole, part := places(mapAt(t, file, 0, size)), places(mapAt(t, file, offset+odd, size-offset-odd))
	if !slices.Equal(whole, part) || len(whole) < 20 {
		t.Errorf("%d stretches of the file, %d where it is mapped from %d on", len(whole), len(part), offset+odd)
	}
}

func TestWhereTheKernelCannotScanTheShortestMappingsGoFirst(t *testing.T) {
	var maps []process.Mapping
	at := uint64(1 << 30)
	for _, gib := range []uint64{1 << 10, 40, 1, 20, 4} {
		maps = append(maps, process.Mapping{Start: at, End: at + gib<<30})
		at += gib << 30
	}
	device := process.Mapping{Start: at, End: at + 1<<30, Path: "/dev/nvidia0"}
	o := ownOccupancy(t)
	if longest := o.longest(maps); longest != math.MaxUint64 {
		t.Errorf("mappings of up to %d bytes are looked at, want all", longest)
	}
	withoutPagemapScan(o.Pages)
	for n, want := range map[int]uint64{len(maps): 40<<30 - 1, 1: 1<<40 - 1} {
		if longest := o.longest(append(slices.Clone(maps[:n]), device)); longest != want {
			t.Errorf("of %d mappings those of up to %d bytes are looked at, want %d", n, longest, want)
		}
	}
	if longest := o.longest(maps[1:4]); longest != math.MaxUint64 { // 61 GiB
		t.Errorf("mappings of up to %d bytes are looked at, want all", longest)
	}
}

func TestMappingsOfDevicesAreNotLookedAt(t *testing.T) {
	for path, want := range map[string]bool{"/dev/nvidia0": false, "[vvar]": false, "/dev/shm/x": true, "": true, "[vdso]": true} {
		if got := isCounted(process.Mapping{Path: path, Inode: 1}); got != want {
			t.Errorf("%q is counted: %v, want %v", path, got, want)
		}
	}
}

// RSS has none of them, so that they say nothing of the rest of it.
func TestHugePagesThatWereSetAsideAreNoneOfWhatIsExtrapolated(t *testing.T) {
	const mib = 1 << 20
	s := &pageScan{
		runs: pages.Runs{
			{Span: pages.Span{Start: 0, End: 30 * mib}},
			{Span: pages.Span{Start: 100 * mib, End: 120 * mib}},
		},
		sampled: []sampled{{Span: pages.Span{Start: 100 * mib, End: 200 * mib}, block: 2 * mib, share: 0.25}},
	}
	areas := []Segment{
		{Region: region.Region{End: 30 * mib, Class: region.Hugetlb}},
		{Region: region.Region{Start: 100 * mib, End: 200 * mib}},
	}
	share := s.extrapolate(areas, process.Status{RSS: 80 * mib, Anonymous: 80 * mib})
	if areas[1].factor != 4 || share != 0.25 {
		t.Errorf("a factor of %v and a share of %v, want 4 and 0.25", areas[1].factor, share)
	}
	// That of the blocks, and as much of the factor: all that is sampled is in this area.
	if want := 2 * 12.0 * 10 * (2 * mib) * (2 * mib); math.Abs(areas[1].variance-want) > 1 {
		t.Errorf("a variance of %v, want %v", areas[1].variance, want)
	}
}

func TestRegionsThatAreCutInPiecesKeepTheirPlaceInTheFile(t *testing.T) {
	whole := region.Region{Start: 100, End: 200, Class: region.File, Offset: 1000}
	intervals := []addrspace.Interval{{Start: 50, End: 90}, {Start: 120, End: 140, Stack: 1}, {Start: 140, End: 300, Stack: 2}}
	areas := segmentsOf([]region.Region{whole, {Start: 250, End: 400}}, intervals)
	type piece struct{ start, end, offset, stack uint64 }
	want := []piece{{100, 120, 1000, 0}, {120, 140, 1020, 1}, {140, 200, 1040, 2}, {250, 300, 0, 2}, {300, 400, 50, 0}}
	var got []piece
	for _, a := range areas {
		got = append(got, piece{a.Region.Start, a.Region.End, a.Offset, a.Stack})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What a fault tells depends on the page that it was on.
func TestAFaultTellsOfItsPage(t *testing.T) {
	at := func(start, end uint64, class region.Class) Segment {
		return Segment{Region: region.Region{Start: start, End: end, Class: class}}
	}
	heap := at(20<<20, 30<<20, region.Anonymous)
	heap.Heap = true
	l := &Rows{Scan: &Scan{
		Segments: []Segment{at(0, 10<<20, region.Anonymous), at(10<<20, 20<<20, region.File), heap},
		runs: pages.Runs{
			{Span: pages.Span{Start: 0, End: 2 << 20}, Huge: true},
			{Span: pages.Span{Start: 2 << 20, End: 3 << 20}},
			{Span: pages.Span{Start: 3 << 20, End: 4 << 20}, Origin: pages.BeforeTracing},
			{Span: pages.Span{Start: 4 << 20, End: 5 << 20}, Origin: pages.Inherited},
			{Span: pages.Span{Start: 5 << 20, End: 6 << 20}, Origin: pages.CopiedOnWrite},
			{Span: pages.Span{Start: 6 << 20, End: 7 << 20}, Swapped: true},
			{Span: pages.Span{Start: 10 << 20, End: 11 << 20}, File: true},
			{Span: pages.Span{Start: 20 << 20, End: 21 << 20}},
			{Span: pages.Span{Start: 21 << 20, End: 22 << 20}, Origin: pages.CopiedOnWrite},
		},
	}}
	for page, want := range map[uint64]float64{
		0: 2 << 20, 2 << 20: 4096, 3 << 20: 0, 4 << 20: 0, 5 << 20: 0, 6 << 20: 0, 8 << 20: 0, 10 << 20: 4096, 12 << 20: 0,
		20 << 20: 0, 21 << 20: 0, 30 << 20: 0,
	} {
		if _, bytes, ok := l.placeOf(source.Fault{Page: page}); ok != (want != 0) || ok && bytes != want {
			t.Errorf("a fault at %d MiB tells of %v bytes (%v), want %v", page>>20, bytes, ok, want)
		}
	}
	for _, page := range []uint64{5 << 20, 21 << 20} {
		if _, _, ok := l.placeOf(source.Fault{Page: page, Copied: true}); !ok {
			t.Errorf("a fault that copied the page at %d MiB tells nothing", page>>20)
		}
	}
}

// What the kernel counts would be of the other program.
func TestALookAtAProgramThatHasBecomeAnotherIsNone(t *testing.T) {
	o := ownOccupancy(t)
	maps, err := o.process.Maps()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Scan(maps, nil, 1, nil); err == nil {
		t.Error("a look at a program of another image")
	}
	stat, err := o.process.Stat()
	if err != nil {
		t.Fatal(err)
	}
	o.image = stat.Image
	if l, err := o.Scan(maps, nil, 1, nil); err != nil || l.Status.RSS <= 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// What was mapped since the attach is no older, even if all of it is in memory at both looks.
func TestWhatWasMappedSinceTheFirstLookIsNotOld(t *testing.T) {
	all := pages.Spans{{Start: 0, End: 100 << 20}}
	o := &Tracker{old: all, inherited: all}
	found := &pageScan{runs: pages.Runs{{Span: pages.Span{Start: 0, End: 90 << 20}}}, scanned: all}
	o.remember(found, []addrspace.Interval{
		{Start: 20 << 20, End: 40 << 20}, {Start: 50 << 20, End: 60 << 20, Origin: addrspace.BeforeTracing},
	}, false)
	want := pages.Spans{{Start: 0, End: 20 << 20}, {Start: 40 << 20, End: 90 << 20}}
	if !slices.Equal(o.old, want) || !slices.Equal(o.inherited, want) {
		t.Errorf("%v is old and %v inherited, want %v", o.old, o.inherited, want)
	}
	if o.remember(found, nil, true); o.inherited != nil {
		t.Errorf("%v is inherited of nobody", o.inherited)
	}
}

// withoutPagemapScan makes the page map forget that the kernel can scan.
func withoutPagemapScan(pages *process.Pagemap) {
	field := reflect.ValueOf(pages).Elem().FieldByName("canScan")
	*(*bool)(unsafe.Pointer(field.UnsafeAddr())) = false
}
