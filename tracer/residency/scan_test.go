package residency

import (
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const mib, gib = 1 << 20, 1 << 30

func ownTracker(t *testing.T) *Tracker {
	t.Helper()
	p := tracertest.Must(process.Open(os.Getpid()))(t)
	t.Cleanup(func() { p.Close() })

	tracker := tracertest.Must(NewTracker(p, 1, nil))(t)
	t.Cleanup(func() { tracker.Close() })
	return tracker
}

func disablePagemapScan(pagemap *process.Pagemap) {
	field := reflect.ValueOf(pagemap).Elem().FieldByName("canScan")
	*(*bool)(unsafe.Pointer(field.UnsafeAddr())) = false
}

func TestTracker(t *testing.T) {
	t.Run("execve after the maps were read", func(t *testing.T) {
		tracker := ownTracker(t)
		maps := tracertest.Must(tracker.process.Maps())(t)

		if s, err := tracker.Scan(maps, nil, 1, nil); err != nil || s.Status.RSS <= 0 {
			t.Errorf("before execve: %+v, %v", s, err)
		}

		tracker.image = process.Image{}
		if _, err := tracker.Scan(maps, nil, 1, nil); !errors.Is(err, process.ErrExecuted) {
			t.Errorf("after execve: %v, want %v", err, process.ErrExecuted)
		}
	})

	t.Run("memory mapped since the first scan is not from before tracing", func(t *testing.T) {
		all := mem.Spans{{Start: 0, End: 100 * mib}}
		tracker := &Tracker{beforeTracing: all, inherited: all}
		found := &pageScan{
			runs:    mem.Runs{{Span: mem.Span{Start: 0, End: 90 * mib}}},
			scanned: all,
		}
		intervals := []addrspace.Interval{
			{Start: 20 * mib, End: 40 * mib},
			{Start: 50 * mib, End: 60 * mib, Origin: addrspace.BeforeTracing},
		}

		tracker.update(found, intervals, false)
		want := mem.Spans{{Start: 0, End: 20 * mib}, {Start: 40 * mib, End: 90 * mib}}
		if !slices.Equal(tracker.beforeTracing, want) || !slices.Equal(tracker.inherited, want) {
			t.Errorf("before tracing: %v, inherited: %v, want %v",
				tracker.beforeTracing, tracker.inherited, want)
		}

		tracker.update(found, nil, true)
		if tracker.inherited != nil {
			t.Errorf("inherited without the parent: %v", tracker.inherited)
		}
	})

	t.Run("pages copied before the first scan are inherited", func(t *testing.T) {
		parent := &Tracker{lastPrivate: [2]mem.Spans{
			{{Start: 0, End: 50 * mib}},
			{{Start: 10 * mib, End: 60 * mib}},
		}}
		tracker := &Tracker{Forked: true}
		tracker.setFirst(&pageScan{
			runs:   mem.Runs{{Span: mem.Span{Start: 0, End: 100 * mib}}},
			shared: mem.Spans{{Start: 80 * mib, End: 90 * mib}},
		}, parent)

		want := mem.Spans{
			{Start: 10 * mib, End: 50 * mib}, {Start: 80 * mib, End: 90 * mib},
		}
		if !slices.Equal(tracker.inherited, want) {
			t.Errorf("inherited: %v, want %v", tracker.inherited, want)
		}
	})
}

// mapFile maps a part of a file and returns its line of /proc/PID/maps.
func mapFile(t *testing.T, file *os.File, offset, size int64) process.Mapping {
	t.Helper()
	memory, err := unix.Mmap(int(file.Fd()), offset, int(size), unix.PROT_READ, unix.MAP_SHARED)
	tracertest.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(memory) })

	start := uint64(uintptr(unsafe.Pointer(&memory[0])))
	return process.Mapping{
		Start: start, End: start + uint64(size), Offset: uint64(offset), Inode: 7, Path: "/data",
	}
}

func TestScanPages(t *testing.T) {
	// Pages that processes share would not be found otherwise.
	t.Run("same page groups of a file wherever it is mapped", func(t *testing.T) {
		const size, offset = 512 * mib, 100*mib + 36<<10
		file := tracertest.Must(os.CreateTemp(t.TempDir(), ""))(t)
		defer file.Close()
		tracertest.NoError(t, file.Truncate(size))

		tracker := ownTracker(t)
		scannedOffsets := func(m process.Mapping) mem.Spans {
			s := tracertest.Must(tracker.scanPages([]process.Mapping{m}, 0.3))(t)
			spans := slices.Clone(s.scanned)
			for i := range spans {
				spans[i].Start += m.Offset - m.Start
				spans[i].End += m.Offset - m.Start
			}
			return spans.Intersect(mem.Spans{{Start: offset, End: size}})
		}

		whole := scannedOffsets(mapFile(t, file, 0, size))
		part := scannedOffsets(mapFile(t, file, offset, size-offset))
		if !slices.Equal(whole, part) || len(whole) < 20 {
			t.Errorf("%d ranges, %d where the file is mapped from %d on",
				len(whole), len(part), offset)
		}
	})

	t.Run("some page groups of each large mapping, however small the share", func(t *testing.T) {
		tracker := ownTracker(t)
		for i := range uint64(200) {
			m := process.Mapping{Start: gib + i*100*mib, End: gib + i*100*mib + minSampledBytes}
			s := tracertest.Must(tracker.scanPages([]process.Mapping{m}, minScanShare))(t)
			if len(s.scanned) == 0 {
				t.Errorf("nothing of the mapping at %d MiB was scanned", m.Start/mib)
			}
		}
	})

	t.Run("fewer pages if there are too many runs", func(t *testing.T) {
		before := MaxRuns
		MaxRuns = 10
		defer func() { MaxRuns = before }()

		tracker := ownTracker(t)
		maps := tracertest.Must(tracker.process.Maps())(t)
		s, err := tracker.scanPages(maps, 1)
		if err != nil || !s.truncated || len(s.runs) > MaxRuns || tracker.maxShare != minScanShare {
			t.Errorf("%d runs, truncated: %v, share of later scans %v, %v",
				len(s.runs), s.truncated, tracker.maxShare, err)
		}
	})
}

func TestLongestScanned(t *testing.T) {
	var maps []process.Mapping
	start := uint64(gib)
	for _, size := range []uint64{1024 * gib, 40 * gib, 1 * gib, 20 * gib, 4 * gib} {
		maps = append(maps, process.Mapping{Start: start, End: start + size})
		start += size
	}
	device := process.Mapping{Start: start, End: start + gib, Path: "/dev/nvidia0"}

	pagemap := ownTracker(t).Pagemap
	if longest := longestScanned(pagemap, maps); longest != math.MaxUint64 {
		t.Errorf("with PAGEMAP_SCAN: %d bytes, want all", longest)
	}

	disablePagemapScan(pagemap)
	for _, c := range []struct {
		name string
		maps []process.Mapping
		want uint64
	}{
		{"more than one read", append(slices.Clone(maps), device), 40*gib - 1},
		{"one mapping too large", append(slices.Clone(maps[:1]), device), 1024*gib - 1},
		{"61 GiB", maps[1:4], math.MaxUint64},
	} {
		t.Run(c.name, func(t *testing.T) {
			if longest := longestScanned(pagemap, c.maps); longest != c.want {
				t.Errorf("%d bytes, want %d", longest, c.want)
			}
		})
	}
}

func TestMayCountInRSS(t *testing.T) {
	for path, want := range map[string]bool{
		"/dev/nvidia0": false, "[vvar]": false, "/dev/shm/x": true, "": true, "[vdso]": true,
	} {
		if got := mayCountInRSS(process.Mapping{Path: path, Inode: 1}); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

// TestNearest covers a running process: each status is its RSS at some moment of the scan.
func TestNearest(t *testing.T) {
	const far = 1 << 40 // its square overflows
	run := func(start, end uint64, swapped bool) mem.Run {
		return mem.Run{Span: mem.Span{Start: start, End: end}, Swapped: swapped}
	}
	runs := mem.Runs{run(0, 100, false), run(100, 900, true), run(900, 1000, false)} // 200 bytes

	for _, c := range []struct {
		name                string
		first, second, want int64
		samples             []mappingSample
	}{
		{name: "first is exact", first: 200, second: 190, want: 200},
		{name: "first is above", first: 230, second: 190, want: 190},
		{name: "first is below", first: 170, second: 210, want: 210},
		{name: "equal distance", first: 190, second: 210, want: 190},
		{name: "swapped pages do not count", first: 1000, second: 210, want: 210},
		{name: "far away", first: 200 + far, second: 201 + far/2, want: 201 + far/2},
		{name: "first is unknown", first: growth.Unknown, second: 201, want: 201},
		{
			name:  "sampled",
			first: 1000, second: 210, want: 1000, samples: make([]mappingSample, 1),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &pageScan{runs: runs, samples: c.samples}
			got := s.nearest(process.Status{RSS: c.first}, process.Status{RSS: c.second})
			if got.RSS != c.want {
				t.Errorf("%d, want %d", got.RSS, c.want)
			}
		})
	}
}

func TestExtrapolate(t *testing.T) {
	t.Run("pages of hugetlbfs do not count", func(t *testing.T) {
		s := &pageScan{
			runs: mem.Runs{
				{Span: mem.Span{Start: 0, End: 30 * mib}},
				{Span: mem.Span{Start: 100 * mib, End: 120 * mib}},
			},
			samples: []mappingSample{{
				Span:       mem.Span{Start: 100 * mib, End: 200 * mib},
				groupBytes: 2 * mib, share: 0.25,
			}},
		}
		segments := []Segment{
			{Region: region.Region{End: 30 * mib, Class: region.Hugetlb}},
			{Region: region.Region{Start: 100 * mib, End: 200 * mib}},
		}

		share := s.extrapolate(segments, process.Status{RSS: 80 * mib, Anonymous: 80 * mib})
		if segments[1].factor != 4 || share != 0.25 {
			t.Errorf("factor %v, share %v; want 4 and 0.25", segments[1].factor, share)
		}

		// The variance of the page groups, and the same again for the factor: this segment has all
		// sampled memory.
		want := 2 * 12.0 * 10 * (2 * mib) * (2 * mib)
		if math.Abs(segments[1].variance-want) > 1 {
			t.Errorf("variance %v, want %v", segments[1].variance, want)
		}
	})

	t.Run("truncated scan", func(t *testing.T) {
		s := &pageScan{
			runs: mem.Runs{{Span: mem.Span{Start: 0, End: 30 * mib}}}, truncated: true,
		}
		if share := s.extrapolate(nil, process.Status{RSS: 120 * mib}); share != 0.25 {
			t.Errorf("share %v, want 0.25", share)
		}
	})
}

func TestSegmentsOf(t *testing.T) {
	regions := []region.Region{
		{Start: 100, End: 200, Class: region.File, Offset: 1000}, {Start: 250, End: 400},
	}
	intervals := []addrspace.Interval{
		{Start: 50, End: 90}, {Start: 120, End: 140, Stack: 1}, {Start: 140, End: 300, Stack: 2},
	}

	type piece struct{ start, end, offset, stack uint64 }
	var got []piece
	for _, s := range segmentsOf(regions, intervals) {
		got = append(got, piece{s.Region.Start, s.Region.End, s.Offset, s.Stack})
	}
	want := []piece{
		{100, 120, 1000, 0},
		{120, 140, 1020, 1},
		{140, 200, 1040, 2},
		{250, 300, 0, 2},
		{300, 400, 50, 0},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
