package tracer

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// countedFiles are the parts of files, in memory, of the processes of the tree that come earlier.
type countedFiles map[process.FileID]pages.Spans

// A filePart is a part of a file that an area has in memory.
type filePart struct {
	pages.Span
	area *area
}

// countFiles finds what of the files in each area is counted already: for an earlier process, or another area of this one.
func (l *ledger) countFiles() {
	parts := make(map[process.FileID][]filePart)
	for i := range l.areas {
		a := &l.areas[i]
		if a.heap || !a.inLedger() {
			continue
		}
		shift := a.Offset - a.Region.Start
		for _, run := range l.runs.Between(a.Region.Start, a.Region.End) {
			if run.File && !run.Swapped {
				span := pages.Span{Start: run.Start + shift, End: run.End + shift}
				parts[a.File] = append(parts[a.File], filePart{span, a})
			}
		}
	}
	for file, of := range parts {
		l.own[file] = countParts(of, l.files[file])
		l.files[file] = l.files[file].Or(l.own[file])
	}
}

// countParts adds to areas what of one file is counted before or twice, and gives all that there is of it.
func countParts(parts []filePart, before pages.Spans) pages.Spans {
	slices.SortStableFunc(parts, func(a, b filePart) int { return cmp.Compare(a.Start, b.Start) })
	all := make([]pages.Span, 0, len(parts))
	var end uint64 // of what is in all
	for _, p := range parts {
		fresh := pages.Span{Start: min(max(p.Start, end), p.End), End: p.End}
		for len(before) > 0 && before[0].End <= fresh.Start {
			before = before[1:]
		}
		p.area.shared += p.Len() - fresh.Len() + pages.Spans{fresh}.And(before).Len()
		all, end = append(all, fresh), max(end, p.End)
	}
	return pages.SpansOf(all)
}
