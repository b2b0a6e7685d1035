package liveness

import (
	"strings"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// maxSwappedSpans bounds how many stretches are remembered, 16 bytes each.
const maxSwappedSpans = 1 << 20

// ownMemory reads what a process has for itself: not what is swapped out, which reading would bring back, again and again, nor
// what is reserved, shared or of a device, to which a link that was read in the process may lead.
type ownMemory struct {
	Memory
	own pages.Spans
}

// memoryOf a process with these maps.
func memoryOf(p *process.Process, maps []process.Mapping) (Memory, error) {
	status, err := p.Status()
	if err != nil {
		return nil, err
	}
	own := ownSpans(maps)
	if status.Swap > 0 {
		pageMap, err := p.OpenPagemap()
		if err != nil {
			return nil, err
		}
		defer pageMap.Close()
		own = own.Subtract(swappedOut(pageMap, maps))
	}
	return &ownMemory{p, own}, nil
}

// ownSpans are those that a process can read and shares with nobody.
func ownSpans(maps []process.Mapping) pages.Spans {
	spans := make([]pages.Span, 0, len(maps))
	for _, m := range maps {
		if m.Read && !m.Shared && !strings.HasPrefix(m.Path, "/dev/") {
			spans = append(spans, pages.Span{Start: m.Start, End: m.End})
		}
	}
	return pages.MergeSpans(spans)
}

// swappedOut gives the private memory that is swapped out. What cannot be told counts as that.
func swappedOut(pageMap *process.Pagemap, maps []process.Mapping) pages.Spans {
	var away []pages.Span
	var runs []process.PageRun
	for _, m := range maps {
		if !m.Read || !m.Write || m.Shared {
			continue
		}
		var err error
		if runs, err = pageMap.AnonymousRuns(runs[:0], m.Start, m.End); err != nil || len(away) > maxSwappedSpans {
			away = append(away, pages.Span{Start: m.Start, End: m.End})
			continue
		}
		for _, r := range runs {
			if r.Swapped {
				away = append(away, pages.Span{Start: r.Start, End: r.End})
			}
		}
	}
	return pages.MergeSpans(away)
}

// Peek implements liveness.Memory.
func (m *ownMemory) Peek(addresses []uint64, size int) ([][]byte, error) {
	var there []uint64
	var places []int
	for i, a := range addresses {
		if m.own.Contains(pages.Span{Start: a, End: a + uint64(size)}) {
			there, places = append(there, a), append(places, i)
		}
	}
	found := make([][]byte, len(addresses))
	contents, err := m.Memory.Peek(there, size)
	if err != nil {
		return nil, err
	}
	for i, content := range contents {
		found[places[i]] = content
	}
	return found, nil
}
