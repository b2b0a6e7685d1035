package words

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
)

// rowKinds are the kinds of memory of the causes whose call sites are those that touch the memory
// first, as far as the mapping was made before the trace.
var rowKinds = map[diagnosis.Cause][]growth.Kind{
	diagnosis.OlderMemory:  {growth.KindOlder},
	diagnosis.MmapGrowth:   {growth.KindMmap},
	diagnosis.SharedMemory: {growth.KindShmem},
	diagnosis.CopyOnWrite:  {growth.KindCOW},
	diagnosis.PageCache:    {growth.KindFile},
}

// rowsOf are the rows of the main process that grow by a cause, the largest first.
func rowsOf(s *summary.Summary, cause diagnosis.Cause) []summary.BreakdownRow {
	return rowsOfKinds(s, rowKinds[cause]...)
}

func rowsOfKinds(s *summary.Summary, kinds ...growth.Kind) (rows []summary.BreakdownRow) {
	for _, r := range s.Breakdown {
		if r.Process == s.Process.PID && r.DeltaBytes > 0 && slices.Contains(kinds, r.Kind) {
			rows = append(rows, r)
		}
	}

	slices.SortStableFunc(rows, func(a, b summary.BreakdownRow) int {
		return int(max(-1, min(1, b.DeltaBytes-a.DeltaBytes)))
	})
	return rows
}

// filesText names the files whose pages grow: "data.mdb", "data.mdb and 2 other files". It is empty
// where none has a name.
func filesText(rows []summary.BreakdownRow) string {
	var names []string
	for _, r := range rows {
		if r.File != "" && !slices.Contains(names, r.File) {
			names = append(names, r.File)
		}
	}
	if len(names) == 0 {
		return ""
	}

	text := filepath.Base(names[0])
	if n := len(names) - 1; n > 0 {
		text += " and " + units.Plural(n, "other file", "other files")
	}
	return text
}

// touchLines are the lines of the user's code that touch most of the memory that grows by a cause for
// the first time: "touch_mmap.py:6  at module level   <- first touched here". Memory whose
// allocation was seen is in the lines of its suspects.
func touchLines(s *summary.Summary, cause diagnosis.Cause) []string {
	return rowLines(rowsOf(s, cause), "first touched here")
}

// firstSite is the site of the largest row of a cause; empty: it has none.
func firstSite(s *summary.Summary, cause diagnosis.Cause) string {
	if rows := rowsOf(s, cause); len(rows) > 0 {
		return rows[0].Site
	}
	return ""
}

// touchingRuntime is the runtime whose code, or code that it generates, touches most of the memory
// that grows by a cause, and its file; empty: it is no runtime.
func touchingRuntime(
	s *summary.Summary, cause diagnosis.Cause,
) (runtime growth.Runtime, file string) {
	var sum, own int64
	for _, r := range rowsOf(s, cause) {
		sum += r.DeltaBytes
		of := growth.RuntimeOf(fileOf(r.Site))
		if of != "" && runtime == "" {
			runtime, file = of, fileOf(r.Site)
		}
		if of != "" || strings.HasSuffix(r.Site, generatedMark) {
			own += r.DeltaBytes
		}
	}

	if 2*own < sum {
		return "", ""
	}
	return runtime, file
}

// rowLines are the sites of most of the memory of some rows, two at most, and how it was reached
// there.
func rowLines(rows []summary.BreakdownRow, reached string) (lines []string) {
	var sum, sites int64
	for _, r := range rows {
		sum += r.DeltaBytes
		if r.Site == "" {
			continue
		}
		line := siteText(summary.Suspect{}, r.Site) + "   <- " + reached
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
		sites += r.DeltaBytes
	}

	if 2*sites < sum {
		return nil
	}
	return lines[:min(len(lines), 2)]
}

// growingCause is the main cause of the growth. Where it is pages of mapped files, they are named,
// although the kernel can take them back.
func growingCause(s *summary.Summary) *summary.Diagnosis {
	if main := s.MainCause(); main != nil {
		return main
	}
	for i, d := range s.Diagnoses {
		if d.Process == s.Process.PID && d.Cause == diagnosis.PageCache && d.Share >= 0.5 {
			return &s.Diagnoses[i]
		}
	}
	return nil
}

// minKindShare is the share of the growth from which on a kind of memory is named, where no cause is
// known.
const minKindShare = 0.2

// growingKind is the kind of memory that grows most, where its rows say whose it is; false: they do
// not, or it is too little.
func growingKind(s *summary.Summary) (kind growth.Kind, share float64, ok bool) {
	own := BreakdownOf(s.Breakdown, s.Process.PID)
	grown := own.Sum().Delta

	for _, k := range own.Kinds {
		isNamed := k.Kind == growth.KindHeap && s.MainResident().HeapTraced ||
			slices.Contains([]growth.Kind{
				growth.KindMmap, growth.KindOlder, growth.KindShmem, growth.KindFile, growth.KindCOW,
				growth.KindPython, growth.KindStack, growth.KindJIT,
			}, k.Kind)
		if isNamed && grown > 0 && k.Delta >= minKindShare*grown {
			return k.Kind, k.Delta / grown, true
		}
	}
	return "", 0, false
}

// minCauseShare is the share of the growth from which on a cause beside the main one is said.
const minCauseShare = 0.02

// causesText accounts for the growth besides one cause, which may be nil: "40% is freed memory that
// malloc keeps; 3% has no cause". It is empty where nothing else grows. The causes that have no room
// are summed up.
func causesText(s *summary.Summary, main *summary.Diagnosis, room int) string {
	var parts []string
	for _, d := range s.Diagnoses {
		isOther := d.Process == s.Process.PID && (main == nil || d.Cause != main.Cause)
		if d.Cause == diagnosis.Undecided {
			d.Share = undecidedShare(s)
		}

		if !isOther || d.Share < minCauseShare {
			continue
		}

		share := sharePercent(d.Share)
		if d.Cause == diagnosis.Undecided {
			parts = append(parts, share+" has no cause")
			continue
		}
		parts = append(parts, share+" is "+causes[d.Cause].long)
	}

	for kept := len(parts); kept > 0; kept-- {
		text := strings.Join(parts[:kept], "; ")
		if more := len(parts) - kept; more > 0 {
			text += fmt.Sprintf("; %d more: --details", more)
		}
		if len(text) <= room || kept == 1 {
			return text
		}
	}
	return ""
}

// PeakText is the highest RSS that the kernel has counted and no sample shows; empty: samples do.
func PeakText(rss summary.RSS) string {
	switch {
	case rss.PeakBytes == nil:
		return ""
	case rss.PeakBefore:
		return "before this trace RSS has been " + units.Bytes(float64(*rss.PeakBytes)) + " (VmHWM)"
	}
	return "RSS has been " + units.Bytes(float64(*rss.PeakBytes)) + " for less than a second " +
		"during this trace (VmHWM)"
}
