package words

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
)

// OtherProcesses is the number of other processes that had resident memory at the end. It is 0
// where their memory is negligible beside the memory of the main process.
func OtherProcesses(s *summary.Summary) int {
	resident := make(map[int]int64)
	for _, p := range s.Residents {
		if p.EndBytes != nil {
			resident[p.Process] = *p.EndBytes
		}
	}
	return conclude.OtherProcesses(s.Process.PID, resident)
}

// A KindSum is how much of one kind of memory a process has, in bytes.
type KindSum struct {
	// Kind is empty for the sum of several kinds.
	Kind growth.Kind
	// Delta is the change from the baseline to the end, and End the resident bytes then. Error is
	// half the width of the 95% interval of Delta; 0 means that Delta is exact.
	Delta, End, Error float64
	// IsIncomplete: something is missing for which a loss is known.
	IsIncomplete bool
}

// Start is the resident memory at the baseline, in bytes.
func (s KindSum) Start() float64 { return s.End - s.Delta }

func (s *KindSum) add(more KindSum) {
	s.Delta += more.Delta
	s.End += more.End
	s.Error = math.Hypot(s.Error, more.Error)
	s.IsIncomplete = s.IsIncomplete || more.IsIncomplete
}

// A Breakdown is the RSS of one process by kind, the largest change first, and its unexplained
// part. Swapped memory is not in RSS, so it is left out.
type Breakdown struct {
	Kinds       []KindSum
	Unexplained KindSum
}

// BreakdownOf sums the rows of one process by kind. Process 0 is the process tree.
func BreakdownOf(rows []summary.BreakdownRow, process int) Breakdown {
	b := Breakdown{Unexplained: KindSum{Kind: growth.KindUnexplained}}
	for _, row := range rows {
		if row.Process != process || row.Kind == growth.KindSwapped {
			continue
		}
		b.sumOf(row.Kind).add(KindSum{
			Delta: float64(row.DeltaBytes), End: float64(row.EndBytes),
			Error: float64(row.ErrorBytes), IsIncomplete: row.Lost != "",
		})
	}

	slices.SortStableFunc(b.Kinds, func(a, b KindSum) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Delta), math.Abs(a.Delta)), cmp.Compare(b.End, a.End))
	})
	return b
}

func (b *Breakdown) sumOf(kind growth.Kind) *KindSum {
	if kind == growth.KindUnexplained {
		return &b.Unexplained
	}

	i := slices.IndexFunc(b.Kinds, func(s KindSum) bool { return s.Kind == kind })
	if i < 0 {
		i = len(b.Kinds)
		b.Kinds = append(b.Kinds, KindSum{Kind: kind})
	}

	return &b.Kinds[i]
}

// Sum is the RSS itself. The kernel counts it, so it has no error.
func (b *Breakdown) Sum() KindSum {
	sum := b.Unexplained
	for _, s := range b.Kinds {
		sum.add(s)
	}
	return KindSum{Delta: sum.Delta, End: sum.End}
}

// A BreakdownLine is a row of a Breakdown for people.
type BreakdownLine struct {
	// Component is empty where the line is not about one.
	Label, Component string
	KindSum
}

// Lines has one line for each of the first kinds, one for all others, and one for the unexplained
// part. Together they are the Sum.
func (b *Breakdown) Lines(kinds int, p summary.Resident) []BreakdownLine {
	if len(b.Kinds) == kinds+1 {
		kinds++ // a line for one other kind can as well name it
	}

	kinds = min(kinds, len(b.Kinds))

	var lines []BreakdownLine
	for _, s := range b.Kinds[:kinds] {
		label := Kind(s.Kind, p)
		if s.IsIncomplete {
			label += ", incomplete"
		}

		lines = append(lines, BreakdownLine{Label: label, KindSum: s})
	}

	if others := b.Kinds[kinds:]; len(others) > 0 {
		sum := BreakdownLine{Label: fmt.Sprintf("%d other kinds", len(others))}
		for _, s := range others {
			sum.add(s)
		}
		lines = append(lines, sum)
	}

	return append(lines, BreakdownLine{
		Label: Kind(growth.KindUnexplained, p), KindSum: b.Unexplained,
	})
}

var kindTexts = map[growth.Kind]string{
	growth.KindHeap:          "heap, allocated and not freed",
	growth.KindRetained:      "heap, free but resident",
	growth.KindUnclassified:  "heap, unclassified",
	growth.KindMetadata:      "heap metadata",
	growth.KindMmap:          "mapped memory",
	growth.KindPython:        "Python's arenas",
	growth.KindStack:         "thread stacks",
	growth.KindCOW:           "copy-on-write copies",
	growth.KindInherited:     "inherited memory",
	growth.KindFile:          "mapped files",
	growth.KindShmem:         "shared memory",
	growth.KindJIT:           "generated code",
	growth.KindDeviceFile:    "device files",
	growth.KindBeforeTracing: "allocated before tracing started",
	growth.KindOlder:         "older memory, touched now",
	growth.KindPinned:        "pinned for a GPU",
	growth.KindUnexplained:   "unexplained",
}

// Kind describes a kind of memory, with the arenas and threads of the process where these explain
// it.
func Kind(kind growth.Kind, p summary.Resident) string {
	text := cmp.Or(kindTexts[kind], string(kind))
	inArenas := kind == growth.KindRetained || kind == growth.KindUnclassified

	switch {
	case kind == growth.KindHeap && !p.HeapTraced:
		text = "heap, allocation site unknown"
	case inArenas && p.Arenas > 0:
		text += ", " + units.Plural(p.Arenas, "arena", "arenas")
	}

	if (inArenas || kind == growth.KindStack) && p.Threads != nil {
		text += ", " + units.Plural(int(*p.Threads), "thread", "threads")
	}

	return text
}

// allScannedShare is the share of scanned pages that rounds to all of them.
const allScannedShare = 0.995

// Scanned is the share of the pages of a process that was scanned: "12%". It is empty where all
// were, and where the share is unknown.
func Scanned(p summary.Resident) string {
	if p.Scanned <= 0 || p.Scanned >= allScannedShare {
		return ""
	}
	return units.Percent(p.Scanned)
}

// NothingAccumulated reports that no allocation site accumulates.
func NothingAccumulated(s *summary.Summary) string {
	text := "Nothing that was traced accumulated since the baseline."
	if from := FromBursts(s.Overhead); from != "" {
		text += " Heap memory is known from " + from +
			": a longer trace may find its allocation sites."
	}
	return text
}

// flatStacks is about stacks that hold more than before, such as of a warm-up, while RSS is flat.
const flatStacks = "memory as a whole does not grow"

// StacksTitle heads a table of stacks that hold more at the end than at the baseline.
func StacksTitle(s *summary.Summary) string {
	title := "Stacks that grew since the baseline"
	if s.Class.IsFlat() {
		title = "Stacks that hold more than at the baseline; " + flatStacks
	}
	return title
}

// RowsNote explains the rows of accumulating stacks, or why there are none.
func RowsNote(s *summary.Summary) string {
	switch {
	case len(s.Accumulating) == 0 && !HeapKnown(s):
		return NothingAccumulated(s) + " " + HeapNotAttached(s.Process.PID)
	case len(s.Accumulating) == 0:
		return NothingAccumulated(s)
	}

	note := ""
	if from := FromBursts(s.Overhead); from != "" {
		note = "Heap memory is known from " + from + ". "
	}

	note += "Each row is what a stack holds at the end, less what it held at the baseline. " +
		"Shares are of all stacks that grew."
	if s.Class.IsFlat() {
		note += " But " + flatStacks + "."
	}
	isProven := func(a summary.Accumulation) bool { return a.RateLow == nil || *a.RateLow > 0 }
	if !slices.ContainsFunc(s.Accumulating, isProven) {
		note += " None of it is proven: all intervals contain 0."
	}

	return note
}

// GPURowsNote explains the rows of stacks that accumulate on GPUs, or why there are none.
func GPURowsNote(g summary.GPUMemory) string {
	if len(g.Accumulating) == 0 {
		return "Nothing that was traced on GPUs accumulated since the baseline."
	}
	return "Each row is what a stack holds on GPUs at the end, less what it held at the baseline."
}

// Tree names the process tree of a breakdown.
func Tree(others int) string {
	return "Its tree, with " + units.Plural(others, "other process", "other processes") +
		", shared pages once"
}

// BarsBegin explains bars that begin at a size. It is empty for zero.
func BarsBegin(bytes float64) string {
	if bytes <= 0 {
		return ""
	}
	return "The bars begin at " + units.Bytes(bytes) + ", not at zero."
}

// NotDrawn is the note on the parts that a flame graph leaves out: small functions, which it calls
// by one name, and the stacks that hold so many bytes less than at the baseline.
func NotDrawn(functions int, name string, shrunk int, less float64) string {
	var notes []string
	if functions > 0 {
		notes = append(notes, fmt.Sprintf("%s too small to be drawn: see %s.",
			units.Plural(functions, "function is", "functions are"), name))
	}

	if shrunk > 0 {
		stacks := units.Plural(shrunk, "stack that has shrunk is", "stacks that have shrunk are")
		notes = append(notes, fmt.Sprintf("%s left out: %s less than at the baseline.", stacks,
			units.Bytes(less)))
	}

	return strings.Join(notes, " ")
}
