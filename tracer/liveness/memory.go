package liveness

import (
	"strings"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// maxSwappedSpans bounds the spans of swapped memory, 16 bytes each.
const maxSwappedSpans = 1 << 20

// privateMemory reads the private memory of a process. Forged links may lead elsewhere, so it does
// not read the following:
//
//   - swapped memory, which each read would bring back into RAM,
//   - reserved memory (PROT_NONE),
//   - shared memory and device files.
type privateMemory struct {
	Memory
	readable pages.Spans
}

// newPrivateMemory returns the private memory of a process with these maps.
func newPrivateMemory(p *process.Process, maps []process.Mapping) (Memory, error) {
	status, err := p.Status()
	if err != nil {
		return nil, err
	}

	readable := privateSpans(maps)
	if status.Swap > 0 {
		pagemap, err := p.OpenPagemap()
		if err != nil {
			return nil, err
		}
		defer pagemap.Close()
		readable = readable.Subtract(swappedSpans(pagemap, maps))
	}
	return &privateMemory{Memory: p, readable: readable}, nil
}

// privateSpans returns the readable mappings that no other process shares.
func privateSpans(maps []process.Mapping) pages.Spans {
	spans := make([]pages.Span, 0, len(maps))
	for _, m := range maps {
		if m.Read && !m.Shared && !strings.HasPrefix(m.Path, "/dev/") {
			spans = append(spans, pages.Span{Start: m.Start, End: m.End})
		}
	}
	return pages.MergeSpans(spans)
}

// swappedSpans returns the private memory that is swapped out. A mapping whose pages cannot be
// read, or that comes after maxSwappedSpans, counts as swapped out.
func swappedSpans(pagemap *process.Pagemap, maps []process.Mapping) pages.Spans {
	var swapped []pages.Span
	var runs []process.PageRun
	for _, m := range maps {
		if !m.Read || !m.Write || m.Shared {
			continue
		}

		var err error
		runs, err = pagemap.AnonymousRuns(runs[:0], m.Start, m.End)
		if err != nil || len(swapped) > maxSwappedSpans {
			swapped = append(swapped, pages.Span{Start: m.Start, End: m.End})
			continue
		}
		for _, r := range runs {
			if r.Swapped {
				swapped = append(swapped, pages.Span{Start: r.Start, End: r.End})
			}
		}
	}
	return pages.MergeSpans(swapped)
}

// Peek implements Memory.
func (m *privateMemory) Peek(addresses []uint64, size int) ([][]byte, error) {
	var readable []uint64
	var indices []int
	for i, a := range addresses {
		if m.readable.Contains(pages.Span{Start: a, End: a + uint64(size)}) {
			readable, indices = append(readable, a), append(indices, i)
		}
	}

	read, err := m.Memory.Peek(readable, size)
	if err != nil {
		return nil, err
	}
	contents := make([][]byte, len(addresses))
	for i, content := range read {
		contents[indices[i]] = content
	}
	return contents, nil
}
