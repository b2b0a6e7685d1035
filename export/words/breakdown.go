package words

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// ResidentOf is what the kernel counted of the process that the trace is about.
func ResidentOf(s *summary.Summary) summary.Resident {
	i := slices.IndexFunc(s.Residents, func(p summary.Resident) bool { return p.Process == s.Process.PID })
	if i < 0 {
		return summary.Resident{}
	}
	return s.Residents[i]
}

// worthTelling is the part of what a process holds above which the others of its tree have a block of their own.
const minOtherShare = 0.05

// OthersOf is how many other processes had resident memory at the end; 0 where all of theirs is too little to be told.
func OtherProcesses(s *summary.Summary) int {
	var others int
	var bytes, own int64
	for _, p := range s.Residents {
		switch {
		case p.EndBytes == nil || *p.EndBytes == 0:
		case p.Process == s.Process.PID:
			own = *p.EndBytes
		default:
			others++
			bytes += *p.EndBytes
		}
	}
	if float64(bytes) < minOtherShare*float64(own) {
		return 0
	}
	return others
}

// A KindSum is what a process holds in one kind of memory, in bytes.
type KindSum struct {
	// Kind; empty for a sum of several.
	Kind growth.Kind
	// Delta is the change from the boundary to the end, End what is resident then, Error half the width of the 95 % interval of
	// Delta; 0: it is exact.
	Delta, End, Error float64
}

// Start is what was resident at the boundary, in bytes.
func (s KindSum) Start() float64 { return s.End - s.Delta }

func (s *KindSum) add(more KindSum) {
	s.Delta += more.Delta
	s.End += more.End
	s.Error = math.Hypot(s.Error, more.Error)
}

// A Book is the ledger of one process by kinds, the largest change first, and what is unexplained. What is swapped out is no
// part of it.
type Breakdown struct {
	Kinds       []KindSum
	Unexplained KindSum
}

// BookOf sums the rows of one process by kind; process 0 is the tree.
func BreakdownOf(ledger []summary.BreakdownRow, process int) Breakdown {
	b := Breakdown{Unexplained: KindSum{Kind: growth.KindUnexplained}}
	for _, row := range ledger {
		if row.Process == process && row.Kind != growth.KindSwapped {
			b.sumOf(row.Kind).add(KindSum{Delta: float64(row.DeltaBytes), End: float64(row.EndBytes), Error: float64(row.ErrorBytes)})
		}
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

// Sum of all is the kernel's own number: it has no error.
func (b *Breakdown) Sum() KindSum {
	sum := b.Unexplained
	for _, s := range b.Kinds {
		sum.add(s)
	}
	return KindSum{Delta: sum.Delta, End: sum.End}
}

// A Line is a row of a book for people.
type BreakdownLine struct {
	Label string
	KindSum
}

// Lines are one for each of so many kinds, one for the others, and one for what is unexplained. Together they are the Sum.
func (b *Breakdown) Lines(kinds int, p summary.Resident) []BreakdownLine {
	if len(b.Kinds) == kinds+1 {
		kinds++ // one alone can be named
	}
	kinds = min(kinds, len(b.Kinds))
	var lines []BreakdownLine
	for _, s := range b.Kinds[:kinds] {
		lines = append(lines, BreakdownLine{Kind(s.Kind, p), s})
	}
	if others := b.Kinds[kinds:]; len(others) > 0 {
		sum := BreakdownLine{Label: fmt.Sprintf("%d other kinds", len(others))}
		for _, s := range others {
			sum.add(s)
		}
		lines = append(lines, sum)
	}
	return append(lines, BreakdownLine{Kind(growth.KindUnexplained, p), b.Unexplained})
}

// kindTexts are the kinds of memory in words for people.
var kindTexts = map[growth.Kind]string{
	growth.KindHeap:        "heap, allocated and not freed",
	growth.KindRetained:    "heap free but resident",
	growth.KindUntold:      "heap free, or not told yet",
	growth.KindMetadata:    "metadata of the heap",
	growth.KindMmap:        "mapped memory",
	growth.KindPython:      "Python's arenas",
	growth.KindStack:       "thread stacks",
	growth.KindCOW:         "copies of inherited memory",
	growth.KindInherited:   "inherited memory",
	growth.KindFile:        "mapped files",
	growth.KindShmem:       "shared memory",
	growth.KindJIT:         "generated code",
	growth.KindDevice:      "device memory",
	growth.KindBefore:      "from before the attach",
	growth.KindPinned:      "pinned for a GPU",
	growth.KindUnexplained: "unexplained",
}

// Kind is a kind in words, with what the process has to do with it.
func Kind(kind growth.Kind, p summary.Resident) string {
	text := cmp.Or(kindTexts[kind], string(kind))
	switch {
	case kind == growth.KindHeap && !p.HeapTraced:
		text = "heap, holder not known"
	case isOfArenas(kind) && p.Arenas > 0:
		text += ", " + units.Plural(p.Arenas, "arena", "arenas")
	}
	if (isOfArenas(kind) || kind == growth.KindStack) && p.Threads != nil {
		text += ", " + units.Plural(int(*p.Threads), "thread", "threads")
	}
	return text
}

func isOfArenas(kind growth.Kind) bool {
	return kind == growth.KindRetained || kind == growth.KindUntold
}

// allLooked is the share of pages from which on all were looked at, for people.
const allScannedShare = 0.995

// Looked is the share of the pages of a process that was looked at: "12 %". Empty: all were, or it is not known.
func Scanned(p summary.Resident) string {
	if p.Scanned <= 0 || p.Scanned >= allScannedShare {
		return ""
	}
	return units.Percent(p.Scanned)
}
