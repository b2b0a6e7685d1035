package residency

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// CountedFiles are the parts of files that rows of a snapshot count already, as offsets.
type CountedFiles map[process.FileID]mem.Spans

// A filePart is a part of a file that a segment has in memory.
type filePart struct {
	mem.Span // offsets in the file
	segment  *Segment
}

// countFiles sets the part of the files in each segment that another row counts already: of an
// earlier process, or of another segment of this one.
func (r *Rows) countFiles() {
	parts := make(map[process.FileID][]filePart)
	for i := range r.Segments {
		segment := &r.Segments[i]
		if segment.Heap || !segment.countsInRSS() {
			continue
		}

		shift := segment.Offset - segment.Region.Start
		for _, run := range r.runs.Clip(segment.Region.Start, segment.Region.End) {
			if run.File && !run.Swapped {
				span := mem.Span{Start: run.Start + shift, End: run.End + shift}
				parts[segment.File] = append(parts[segment.File], filePart{
					Span: span, segment: segment,
				})
			}
		}
	}

	for file, of := range parts {
		r.ownFiles[file] = countParts(of, r.files[file])
		r.files[file] = r.files[file].Union(r.ownFiles[file])
	}
}

// countParts adds to the segments how much of their parts of one file is in counted, or in another
// part as well. It returns the union of the parts.
func countParts(parts []filePart, counted mem.Spans) mem.Spans {
	slices.SortStableFunc(parts, func(a, b filePart) int { return cmp.Compare(a.Start, b.Start) })

	union := make([]mem.Span, 0, len(parts))
	var lastEnd uint64 // of all parts so far
	for _, part := range parts {
		fresh := mem.Span{Start: min(max(part.Start, lastEnd), part.End), End: part.End}
		for len(counted) > 0 && counted[0].End <= fresh.Start {
			counted = counted[1:]
		}

		repeated := part.Len() - fresh.Len()
		part.segment.sharedBytes += repeated + mem.Spans{fresh}.Intersect(counted).Len()

		union = append(union, fresh)
		lastEnd = max(lastEnd, part.End)
	}
	return mem.MergeSpans(union)
}
