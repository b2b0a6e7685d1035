package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// Lines for kinds of memory of the process and of its tree; the others are one more.
const kindLines, treeKindLines = 6, 3

// printLedger prints where the growth of RSS is, of the process and of its tree where there are others, and what that advises.
func printLedger(out io.Writer, s *export.Summary) error {
	own, p := bookOf(s.Ledger, s.Process.PID), residentOf(s)
	if len(own.kinds) > 0 {
		fmt.Fprintf(out, "\nWhere the growth of RSS is (PID %d: %s):\n\n", s.Process.PID, formatSigned(own.sum().delta))
		if err := own.print(out, kindLines, "RSS, as the kernel counts", p); err != nil {
			return err
		}
		if !p.HeapTraced {
			fmt.Fprintf(out, "Who holds heap memory cannot be told: source heap was not attached to PID %d. A trace with it names the code.\n", s.Process.PID)
		}
	}
	if others := othersOf(s); others > 0 {
		tree := bookOf(s.Ledger, 0)
		fmt.Fprintf(out, "\nIts tree, with %s, shared pages once (%s):\n\n", plural(others, "other process", "other processes"), formatSigned(tree.sum().delta))
		if err := tree.print(out, treeKindLines, "all", export.Resident{HeapTraced: p.HeapTraced}); err != nil {
			return err
		}
	}
	printAdvice(out, s)
	return nil
}

func printAdvice(out io.Writer, s *export.Summary) {
	if len(s.Advice) > 0 {
		fmt.Fprintln(out)
	}
	for _, a := range s.Advice {
		if a.Process != 0 && a.Process != s.Process.PID {
			a.Text = fmt.Sprintf("PID %d: %s", a.Process, a.Text)
		}
		fmt.Fprintf(out, "advice: %s\n", a.Text)
	}
}

// residentOf is what the kernel counted of the process that the trace is about.
func residentOf(s *export.Summary) export.Resident {
	i := slices.IndexFunc(s.Residents, func(p export.Resident) bool { return p.Process == s.Process.PID })
	if i < 0 {
		return export.Resident{}
	}
	return s.Residents[i]
}

// worthTelling is the part of what a process holds above which the others of its tree have a block of their own.
const worthTelling = 0.05

// othersOf is how many other processes had resident memory at the end; 0 where all of theirs is too little to be told.
func othersOf(s *export.Summary) int {
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
	if float64(bytes) < worthTelling*float64(own) {
		return 0
	}
	return others
}

// A kindSum is what a process holds in one kind of memory, in bytes.
type kindSum struct {
	kind            growth.Kind
	delta, end, err float64
}

func (s *kindSum) add(more kindSum) {
	s.delta += more.delta
	s.end += more.end
	s.err = math.Hypot(s.err, more.err)
}

// A book is the ledger of one process by kinds, the largest change first, and what is unexplained. What is swapped out is no
// part of it.
type book struct {
	kinds       []kindSum
	unexplained kindSum
}

func bookOf(ledger []export.LedgerRow, process int) book {
	b := book{unexplained: kindSum{kind: growth.KindUnexplained}}
	for _, row := range ledger {
		if row.Process == process && row.Kind != growth.KindSwapped {
			b.of(row.Kind).add(kindSum{delta: float64(row.DeltaBytes), end: float64(row.EndBytes), err: float64(row.ErrorBytes)})
		}
	}
	slices.SortStableFunc(b.kinds, func(a, b kindSum) int {
		return cmp.Or(cmp.Compare(math.Abs(b.delta), math.Abs(a.delta)), cmp.Compare(b.end, a.end))
	})
	return b
}

func (b *book) of(kind growth.Kind) *kindSum {
	if kind == growth.KindUnexplained {
		return &b.unexplained
	}
	i := slices.IndexFunc(b.kinds, func(s kindSum) bool { return s.kind == kind })
	if i < 0 {
		i = len(b.kinds)
		b.kinds = append(b.kinds, kindSum{kind: kind})
	}
	return &b.kinds[i]
}

// sum of all is the kernel's own number: it has no error.
func (b *book) sum() kindSum {
	sum := b.unexplained
	for _, s := range b.kinds {
		sum.add(s)
	}
	return kindSum{delta: sum.delta, end: sum.end}
}

// print prints a line for each of so many kinds, one for the others, one for what is unexplained, and their sum.
func (b *book) print(out io.Writer, lines int, all string, p export.Resident) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "growth\t± 95 %\tat the end\t  what\n")
	line := func(s kindSum, what string) {
		err := ""
		if s.err > 0 {
			err = formatBytes(s.err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", formatSigned(s.delta), err, formatBytes(s.end), what)
	}
	if len(b.kinds) == lines+1 {
		lines++ // one alone can be named
	}
	var others kindSum
	for i, s := range b.kinds {
		if i < lines {
			line(s, kindText(s.kind, p))
		} else {
			others.add(s)
		}
	}
	if len(b.kinds) > lines {
		line(others, fmt.Sprintf("%d other kinds", len(b.kinds)-lines))
	}
	line(b.unexplained, kindText(growth.KindUnexplained, p))
	line(b.sum(), all)
	return w.Flush()
}

// kindTexts are the kinds of memory in words for people.
var kindTexts = map[growth.Kind]string{
	growth.KindHeap:        "heap, allocated and not freed",
	growth.KindRetained:    "heap free but resident",
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
	growth.KindUnexplained: "unexplained",
}

// kindText is a kind in words, with what the process has to do with it.
func kindText(kind growth.Kind, p export.Resident) string {
	text := cmp.Or(kindTexts[kind], string(kind))
	switch {
	case kind == growth.KindHeap && !p.HeapTraced:
		text = "heap, holder not known"
	case kind == growth.KindRetained && p.Arenas > 0:
		text += ", " + plural(p.Arenas, "arena", "arenas")
	}
	if (kind == growth.KindRetained || kind == growth.KindStack) && p.Threads != nil {
		text += ", " + plural(int(*p.Threads), "thread", "threads")
	}
	return text
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
