package growth

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A LedgerRow is the resident memory of one stack in one kind at two moments, in bytes.
type LedgerRow struct {
	// PID of the process; 0: the tree, where what several processes share counts once.
	PID  int
	Kind Kind
	// Stack that holds it. In a row of the tree that of one process, for all whose stacks read alike.
	Stack *Stack
	// Start and End are what was resident; of kind swapped, what was swapped out.
	Start, End int64
	// Error is half the width of the 95 % interval of the change, in bytes. 0: it is exact.
	Error float64
}

// Delta is the change, in bytes.
func (r *LedgerRow) Delta() int64 { return r.End - r.Start }

// normal95 is how many standard deviations to either side hold 95 % of a normal distribution.
const normal95 = 1.959964

const (
	unexplainedRoot = "[unexplained]"
	swappedRoot     = "[swapped out]"
)

// Ledger accounts for the resident memory of the processes that were looked at, at two moments of one trace. For each process
// the rows but those of kind swapped sum to its RSS, as the kernel counts, at both moments: what the holdings leave is in its
// row of kind unexplained, which each process has. One that is missing at a moment counts 0 there.
//
// The rows of the tree, PID 0, are what the processes hold less what they share with an earlier one.
//
// Rows that are 0 at both moments are left out. The result is sorted by PID, the largest change first, then the largest End.
func Ledger(start, end *Snapshot) []LedgerRow {
	l := ledger{at: make(map[holder]int), startBin: lastBin(end.Bins, start.Elapsed)}
	l.read(start, func(e *ledgerEntry) *Holding { return &e.start })
	l.read(end, func(e *ledgerEntry) *Holding { return &e.end })
	rows := slices.Concat(l.processRows(), l.swappedRows(), l.treeRows())
	rows = slices.DeleteFunc(rows, func(r LedgerRow) bool {
		return r.Start == 0 && r.End == 0 && r.Kind != KindUnexplained
	})
	slices.SortStableFunc(rows, func(a, b LedgerRow) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(absolute(b.Delta()), absolute(a.Delta())), cmp.Compare(b.End, a.End),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Stack.ID, b.Stack.ID))
	})
	return rows
}

// A ledger is what each stack of each process holds at the two moments.
type ledger struct {
	entries []ledgerEntry
	at      map[holder]int
	// startBin is the last bin of births up to the first moment.
	startBin int
}

type ledgerEntry struct {
	stack      *Stack
	kind       Kind
	start, end Holding
}

// read enters a snapshot on one side of the ledger.
func (l *ledger) read(s *Snapshot, side func(*ledgerEntry) *Holding) {
	known := make(map[int]int64, len(s.Residents))
	for _, r := range s.Residents {
		known[r.PID] = 0
	}
	for _, holdings := range [][]Holding{s.Holdings, s.Others} {
		for i := range holdings {
			h := &holdings[i]
			sum, looked := known[h.Stack.PID]
			if !looked {
				continue // it has ended
			}
			known[h.Stack.PID] = sum + h.ResidentBytes
			side(l.entry(h.Stack, h.Kind)).join(h)
		}
	}
	for _, r := range s.Residents {
		rest := Holding{}
		if r.RSS != Unknown {
			rest.ResidentBytes = r.RSS - known[r.PID]
		}
		side(l.entry(NamedStack(r.PID, unexplainedRoot), KindUnexplained)).join(&rest)
	}
}

func (l *ledger) entry(stack *Stack, kind Kind) *ledgerEntry {
	key := holderOf(stack, kind, "")
	i, ok := l.at[key]
	if !ok {
		i = len(l.entries)
		l.at[key] = i
		l.entries = append(l.entries, ledgerEntry{stack: stack, kind: kind})
	}
	return &l.entries[i]
}

// join adds what a ledger is about.
func (h *Holding) join(more *Holding) {
	h.ResidentBytes += more.ResidentBytes
	h.SharedBytes += more.SharedBytes
	h.SwappedBytes += more.SwappedBytes
	h.Variance += more.Variance
	h.ResidentVariance += more.ResidentVariance
	h.Births = slices.Concat(h.Births, more.Births)
}

func (l *ledger) processRows() []LedgerRow {
	rows, variances := make([]LedgerRow, len(l.entries)), l.variances()
	for i := range l.entries {
		e := &l.entries[i]
		rows[i] = LedgerRow{
			PID: e.stack.PID, Kind: e.kind, Stack: e.stack, Start: e.start.ResidentBytes, End: e.end.ResidentBytes,
			Error: normal95 * math.Sqrt(variances[i]),
		}
	}
	return rows
}

// swappedRows are one for each process.
func (l *ledger) swappedRows() []LedgerRow {
	var rows []LedgerRow
	at := make(map[int]int)
	for i := range l.entries {
		e := &l.entries[i]
		row, ok := at[e.stack.PID]
		if !ok {
			row = len(rows)
			at[e.stack.PID] = row
			rows = append(rows, LedgerRow{PID: e.stack.PID, Kind: KindSwapped, Stack: NamedStack(e.stack.PID, swappedRoot)})
		}
		rows[row].Start += e.start.SwappedBytes
		rows[row].End += e.end.SwappedBytes
	}
	return rows
}

// treeRows sum what processes hold by stacks that read alike.
func (l *ledger) treeRows() []LedgerRow {
	var rows []LedgerRow
	at, variances := make(map[string]int), l.variances()
	for i := range l.entries {
		e := &l.entries[i]
		key := e.reading()
		row, ok := at[key]
		if !ok {
			row = len(rows)
			at[key] = row
			rows = append(rows, LedgerRow{Kind: e.kind, Stack: e.stack})
		}
		rows[row].Start += e.start.ResidentBytes - e.start.SharedBytes
		rows[row].End += e.end.ResidentBytes - e.end.SharedBytes
		rows[row].Error = math.Hypot(rows[row].Error, normal95*math.Sqrt(variances[i]))
	}
	return rows
}

// reading is equal for stacks that tell a person the same, whatever their process and addresses.
func (e *ledgerEntry) reading() string {
	var text strings.Builder
	write := func(part string) {
		text.WriteString(part)
		text.WriteByte(0)
	}
	write(string(e.kind))
	write(e.stack.Root)
	write(e.stack.Truncated)
	for _, f := range WithoutAllocator(e.stack.Frames) {
		write(f.Function)
		write(f.File)
		write(strconv.Itoa(f.Line))
		if f.Module != nil {
			write(f.Module.Path)
		}
	}
	return text.String()
}

func absolute(x int64) int64 { return max(x, -x) }
