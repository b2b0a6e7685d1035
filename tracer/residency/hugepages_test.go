package residency

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

// TestHugePages touches memory that was mapped before tracing, and samples one page fault in 521.
// Each stack must get the memory that it has touched, in pages of any size.
func TestHugePages(t *testing.T) {
	t.Run("came huge", func(t *testing.T) {
		touch(t, touched{huge: true}, touched{huge: true}, touched{})
	})
	t.Run("collapsed by khugepaged", func(t *testing.T) {
		touch(t, touched{huge: true}, touched{collapsed: true}, touched{})
	})
	t.Run("collapsed alone", func(t *testing.T) {
		touch(t, touched{collapsed: true}, touched{collapsed: true})
	})
	t.Run("mappings of one huge page each, which came huge", func(t *testing.T) {
		touch(t, touched{huge: true, pieces: touchedBytes / hugePage}, touched{})
	})
	t.Run("mappings of one huge page each, collapsed", func(t *testing.T) {
		touch(t, touched{collapsed: true, pieces: touchedBytes / hugePage}, touched{})
	})
	t.Run("half of the huge pages collapsed", func(t *testing.T) {
		touch(t, touched{huge: true, collapsed: true}, touched{})
	})
}

const (
	touchedBytes = 8 * gib
	hugePage     = 2 << 20
)

func TestPageSizes(t *testing.T) {
	for _, c := range []struct {
		small, huge     uint64
		smallFaultsFrom float64 // (n-1)/ln n, computed by Python
	}{
		{4 << 10, 2 << 20, 81.913},
		{16 << 10, 32 << 20, 268.472},
		{64 << 10, 512 << 20, 909.009},
	} {
		p := pageSizes{c.small}
		if p.huge() != c.huge || math.Abs(p.smallFaultsFrom()-c.smallFaultsFrom) > 0.001 {
			t.Errorf("pages of %d bytes: huge ones of %d, small faults from %f; want %+v", c.small,
				p.huge(), p.smallFaultsFrom(), c)
		}

		came := hugePages{pages: 3, faults: 3}
		if got := came.bytesPerFault(p); got != float64(c.huge) {
			t.Errorf("%+v: a fault of pages that came huge brought %f bytes", c, got)
		}
		collapsed := hugePages{pages: 3, faults: 3 * float64(c.huge/c.small)}
		if got := collapsed.bytesPerFault(p); got != float64(c.small) {
			t.Errorf("%+v: a fault of collapsed pages brought %f bytes", c, got)
		}
	}
}

// simulate makes the machine's pages 4 KiB large.
func simulate(t *testing.T) {
	t.Helper()
	before := sizes
	sizes = pageSizes{4 << 10}
	t.Cleanup(func() { sizes = before })
}

// touched is the memory that one stack has touched: touchedBytes in so many mappings, 0 meaning
// one. Huge pages came huge or were collapsed later; with both, every other one.
type touched struct {
	huge, collapsed bool
	pieces          int
}

// touch touches the memory of one stack after the other. An error of a tenth is allowed: some eight
// huge pages are sampled of memory that came huge.
func touch(t *testing.T, stacks ...touched) {
	t.Helper()
	simulate(t)
	const period = 521
	for seed := range uint64(20) {
		scan := &Scan{Share: 1, Status: process.Status{RSS: int64(len(stacks)) * touchedBytes}}
		var faults []source.Fault
		sinceSample := rand.New(rand.NewPCG(seed, 1)).IntN(period)
		fault := func(page uint64, stack int) {
			if sinceSample++; sinceSample == period {
				sinceSample = 0
				f := source.Fault{Page: page, Stack: uint64(stack), Weight: period}
				faults = append(faults, f)
			}
		}

		next := uint64(hugePage)
		for i, by := range stacks {
			pieces := uint64(max(1, by.pieces))
			for range pieces {
				span := mem.Span{Start: next, End: next + touchedBytes/pieces}
				next = span.End + hugePage
				area := region.Region{Start: span.Start, End: span.End, Class: region.Anonymous}
				scan.Segments = append(scan.Segments, Segment{Region: area, factor: 1, fileFactor: 1})
				scan.runs = append(scan.runs, mem.Run{Span: span, Huge: by.huge || by.collapsed})

				for page := span.Start; page < span.End; page += 4096 {
					isHuge := by.huge && (!by.collapsed || page/hugePage%2 == 0)
					if !isHuge || page%hugePage == 0 {
						fault(page, i+1)
					}
				}
			}
		}

		rows := newRows(scan)
		rows.Fill(Samples{Faults: faults})
		for _, row := range rows.holdings {
			if off := float64(row.ResidentBytes - touchedBytes); row.Kind == growth.KindMmap &&
				math.Abs(off) > touchedBytes/10 {
				t.Errorf("seed %d: a stack has %.2f of what it touched", seed, 1+off/touchedBytes)
			}
		}
		if n := len(rows.holdings); n < len(stacks) {
			t.Fatalf("%d rows", n)
		}
	}
}
