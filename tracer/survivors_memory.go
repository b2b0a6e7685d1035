package tracer

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/survivor"
)

// mostAway bounds how many stretches are remembered, 16 bytes each.
const mostAway = 1 << 20

// swappedMemory reads the memory of a process, but for what is swapped out: reading that would bring it back, again and again.
type swappedMemory struct {
	survivor.Memory
	away residency.Spans
}

// memoryOf a process that may have been swapped out in part.
func memoryOf(p *process.Process, maps []process.Mapping) (survivor.Memory, error) {
	status, err := p.Status()
	if err != nil {
		return nil, err
	}
	if status.Swap <= 0 {
		return p, nil
	}
	pages, err := p.Pages()
	if err != nil {
		return nil, err
	}
	defer pages.Close()
	return &swappedMemory{p, swappedOut(pages, maps)}, nil
}

// swappedOut gives the private memory that is swapped out. What cannot be told counts as that.
func swappedOut(pages *process.Pages, maps []process.Mapping) residency.Spans {
	var away []residency.Span
	var runs []process.PageRun
	for _, m := range maps {
		if !m.Read || !m.Write || m.Share {
			continue
		}
		var err error
		if runs, err = pages.AnonymousRuns(runs[:0], m.Start, m.End); err != nil || len(away) > mostAway {
			away = append(away, residency.Span{Start: m.Start, End: m.End})
			continue
		}
		for _, r := range runs {
			if r.Swapped {
				away = append(away, residency.Span{Start: r.Start, End: r.End})
			}
		}
	}
	return residency.SpansOf(away)
}

// Peek implements survivor.Memory.
func (m *swappedMemory) Peek(addresses []uint64, size int) ([][]byte, error) {
	var there []uint64
	var places []int
	for i, a := range addresses {
		if !overlapsAny(m.away, a, uint64(size)) {
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

// overlapsAny tells whether any of the spans has a byte of so many at an address.
func overlapsAny(spans residency.Spans, address, size uint64) bool {
	i, _ := slices.BinarySearchFunc(spans, address, func(s residency.Span, at uint64) int {
		if s.End <= at {
			return -1
		}
		return 1
	})
	return i < len(spans) && (spans[i].Start <= address || spans[i].Start-address < size)
}
