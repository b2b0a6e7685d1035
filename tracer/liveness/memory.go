package liveness

import (
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// maxSwappedSpans bounds the spans of swapped memory, 16 bytes each.
const maxSwappedSpans = 1 << 20

// privateMemory reads the private memory of a process. Forged links may lead elsewhere, so it does
// not read the following:
//
//   - swapped memory, which each read would bring back into RAM,
//   - reserved memory (PROT_NONE),
//   - shared memory and device files.
//
// Anonymous memory that was never touched is zero: Peek does not read it.
type privateMemory struct {
	mem.Reader
	readable, anonymous mem.Spans
}

// newPrivateMemory returns the private memory of a process with these maps.
func newPrivateMemory(p *process.Process, maps []process.Mapping) (mem.Reader, error) {
	status, err := p.Status()
	if err != nil {
		return nil, err
	}

	// Only anonymous memory is zero where it was never touched: pages of a file have its contents.
	readable := privateSpans(maps)
	anonymous := privateSpans(slices.DeleteFunc(slices.Clone(maps), process.Mapping.IsFile))
	if status.Swap > 0 { // else there is no need to read the page tables
		pagemap, err := p.OpenPagemap()
		if err != nil {
			return nil, err
		}
		defer pagemap.Close()
		swapped := swappedSpans(pagemap, maps)
		readable, anonymous = readable.Subtract(swapped), anonymous.Subtract(swapped)
	}

	return &privateMemory{Reader: p, readable: readable, anonymous: anonymous}, nil
}

// privateSpans returns the readable mappings that no other process shares.
func privateSpans(maps []process.Mapping) mem.Spans {
	spans := make([]mem.Span, 0, len(maps))
	for _, m := range maps {
		if m.Read && !m.Shared && !strings.HasPrefix(m.Path, "/dev/") {
			spans = append(spans, mem.Span{Start: m.Start, End: m.End})
		}
	}
	return mem.MergeSpans(spans)
}

// swappedSpans returns the private memory that is swapped out. A mapping whose pages cannot be
// read, or that comes after maxSwappedSpans, counts as swapped out.
func swappedSpans(pagemap *process.Pagemap, maps []process.Mapping) mem.Spans {
	var swapped []mem.Span
	var runs []mem.Run
	for _, m := range maps {
		if !m.Read || !m.Write || m.Shared {
			continue
		}

		var err error
		runs, err = pagemap.AnonymousRuns(runs[:0], m.Start, m.End)
		if err != nil || len(swapped) > maxSwappedSpans {
			swapped = append(swapped, mem.Span{Start: m.Start, End: m.End})
			continue
		}
		for _, r := range runs {
			if r.Swapped {
				swapped = append(swapped, r.Span)
			}
		}
	}

	return mem.MergeSpans(swapped)
}

// Peek implements mem.Reader.
func (m *privateMemory) Peek(addresses []uint64, size int) ([][]byte, error) {
	return m.PeekInto(nil, addresses, size)
}

// PeekInto is Peek with a buffer: see mem.PeekInto.
func (m *privateMemory) PeekInto(buffer []byte, addresses []uint64, size int) ([][]byte, error) {
	var readable []uint64
	var indices []int
	for i, a := range addresses {
		if m.readable.Contains(mem.Span{Start: a, End: a + uint64(size)}) {
			readable, indices = append(readable, a), append(indices, i)
		}
	}

	read, err := mem.PeekInto(m.Reader, buffer, readable, size)
	if err != nil {
		return nil, err
	}
	contents := make([][]byte, len(addresses))
	for i, content := range read {
		span := mem.Span{Start: readable[i], End: readable[i] + uint64(size)}
		if content == nil && m.anonymous.Contains(span) {
			if content, err = m.peekPages(span); err != nil {
				return nil, err
			}
		}
		contents[indices[i]] = content
	}

	return contents, nil
}

// peekPages reads anonymous memory, of which at least one page was never touched.
func (m *privateMemory) peekPages(s mem.Span) ([]byte, error) {
	content := make([]byte, s.End-s.Start)
	page := process.PageSize
	if s.Start/page == (s.End-1)/page {
		return content, nil
	}
	for at := s.Start; at < s.End; {
		end := min(s.End, (at/page+1)*page)
		read, err := m.Reader.Peek([]uint64{at}, int(end-at))
		if err != nil {
			return nil, err
		}
		copy(content[at-s.Start:], read[0])
		at = end
	}
	return content, nil
}
