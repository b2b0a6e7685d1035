package words

import (
	"slices"

	"github.com/allocscope/allocscope/export"
)

// HeapKnown tells that source heap was attached to any process, so that who holds heap memory is known; also where the summary
// names no sources.
func HeapKnown(s *export.Summary) bool {
	isHeap := func(x export.Source) bool { return x.Name == "heap" && x.State == export.SourceAttached }
	return len(s.Sources) == 0 || slices.ContainsFunc(s.Sources, isHeap)
}
