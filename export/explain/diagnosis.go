package explain

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/diagnosis"
)

var causeTexts = map[diagnosis.Cause]string{
	diagnosis.HeapLeak:      "allocated by stacks that keep what they allocate",
	diagnosis.PythonObjects: "small Python objects, in pymalloc's arenas",
	diagnosis.Fragmentation: "freed memory that malloc keeps",
	diagnosis.MmapGrowth:    "private memory that was mapped besides malloc",
	diagnosis.SharedMemory:  "shared memory, such as /dev/shm and memfd",
	diagnosis.CopyOnWrite:   "copies of inherited pages that forked workers wrote to",
	diagnosis.PageCache:     "pages of mapped files, which the kernel can take back",
	diagnosis.Pinned:        "pinned for copies to a GPU",
}

// Diagnosis returns a part of the growth in a sentence: "fragmentation: 97% of the growth is freed
// memory that malloc keeps (high confidence)".
func Diagnosis(d diagnosis.Diagnosis) string {
	share := units.WholePercent(math.Abs(d.Share)) + " of the growth"
	if d.Cause == diagnosis.Undecided {
		if d.Bytes < 0 {
			return "undecided: other memory shrank, by " + share
		}
		return "undecided: the cause of " + share + " is not known"
	}

	how := ""
	if d.Free != 0 {
		how = ", by walking malloc's heaps near the baseline and near the end"
	}
	return fmt.Sprintf("%s: %s is %s%s (%s confidence)", d.Cause, share, causeTexts[d.Cause], how,
		d.Confidence)
}
