// Package breakdown accounts for memory by stack and kind at two moments of a trace: the RSS of
// processes, and their memory on GPUs.
package breakdown

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// A Row is the memory of one stack in one kind at two moments, in bytes.
type Row struct {
	// PID of the process. 0 in a row of the tree, where memory that processes share counts once.
	PID  int
	Kind growth.Kind
	GPU  string // as in a Holding
	// Stack of the memory. A row of the tree has the stack of one process, for all stacks that look
	// the same to a person.
	Stack *growth.Stack
	// Start and End are resident bytes. Bytes of KindSwapped are swapped out, and bytes of kinds on
	// GPUs are GPUBytes.
	Start, End int64
	// Error is half the width of the 95% confidence interval of the change, in bytes. 0: it is
	// exact, or on a GPU.
	Error float64
}

// Delta is the change in bytes.
func (r *Row) Delta() int64 { return r.End - r.Start }

func (r *Row) isZero() bool { return r.Start == 0 && r.End == 0 }

// RSS accounts for the resident memory of the processes whose pages were scanned, at two moments of
// a trace. At both, the rows of a process, except KindSwapped, sum to its RSS as the kernel counts:
// each process has a row of KindUnexplained for the rest. A process that is missing at a moment
// counts 0 there.
//
// The rows of the tree, PID 0, are the holdings less the memory shared with an earlier process.
//
// Rows that are 0 at both moments are left out. The result is sorted by PID, then the largest
// change, then the largest End.
func RSS(start, end *growth.Snapshot) []Row {
	b := breakdown{
		index:    make(map[growth.Key]int),
		startBin: growth.LastBin(end.Bins, start.Elapsed),
	}
	b.add(start, func(e *entry) *growth.Holding { return &e.start })
	b.add(end, func(e *entry) *growth.Holding { return &e.end })

	rows := slices.Concat(b.processRows(), b.swappedRows(), b.treeRows())
	rows = slices.DeleteFunc(rows, func(r Row) bool {
		return r.isZero() && r.Kind != growth.KindUnexplained
	})
	sortRows(rows)

	return rows
}

// GPU accounts for the GPU memory of processes at two moments of a trace, after gpu.Attribute. At
// both, the rows of a process sum to the known part of it. Order and omissions are as in RSS.
func GPU(start, end *growth.Snapshot) []Row {
	var rows []Row
	index := make(map[growth.Key]int)
	add := func(s *growth.Snapshot, side func(*Row) *int64) {
		for i := range s.GPUHoldings {
			h := &s.GPUHoldings[i]
			row, ok := index[h.Key()]
			if !ok {
				row = len(rows)
				index[h.Key()] = row
				rows = append(rows, Row{
					PID: h.Stack.PID, Kind: h.Kind, GPU: h.GPU, Stack: h.Stack,
				})
			}
			*side(&rows[row]) += h.GPUBytes
		}
	}

	add(start, func(r *Row) *int64 { return &r.Start })
	add(end, func(r *Row) *int64 { return &r.End })

	rows = slices.DeleteFunc(rows, func(r Row) bool { return r.isZero() })
	sortRows(rows)

	return rows
}

func sortRows(rows []Row) {
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(a.PID, b.PID),
			cmp.Compare(absolute(b.Delta()), absolute(a.Delta())), cmp.Compare(b.End, a.End),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.GPU, b.GPU),
			cmp.Compare(a.Stack.ID, b.Stack.ID),
		)
	})
}

func absolute(x int64) int64 { return max(x, -x) }

// A breakdown is the memory of each stack of each process at the two moments.
type breakdown struct {
	entries []entry
	index   map[growth.Key]int
	// startBin is the last bin of births up to the first moment.
	startBin int
}

type entry struct {
	stack      *growth.Stack
	kind       growth.Kind
	start, end growth.Holding
}

// add adds a snapshot to one side of the breakdown.
func (b *breakdown) add(s *growth.Snapshot, side func(*entry) *growth.Holding) {
	known := make(map[int]int64, len(s.Residents))
	for _, r := range s.Residents {
		known[r.PID] = 0
	}

	for _, holdings := range [][]growth.Holding{s.Holdings, s.Others} {
		for i := range holdings {
			h := &holdings[i]
			sum, isScanned := known[h.Stack.PID]
			if !isScanned {
				continue // it has ended
			}
			known[h.Stack.PID] = sum + h.ResidentBytes
			addHolding(side(b.entry(h.Stack, h.Kind)), h)
		}
	}

	for _, r := range s.Residents {
		rest := growth.Holding{}
		if r.RSS != growth.Unknown {
			rest.ResidentBytes = r.RSS - known[r.PID]
		}
		addHolding(
			side(b.entry(growth.NamedStack(r.PID, growth.RootUnexplained), growth.KindUnexplained)),
			&rest,
		)
	}
}

func (b *breakdown) entry(stack *growth.Stack, kind growth.Kind) *entry {
	key := growth.KeyOf(stack, kind, "")
	i, ok := b.index[key]
	if !ok {
		i = len(b.entries)
		b.index[key] = i
		b.entries = append(b.entries, entry{stack: stack, kind: kind})
	}
	return &b.entries[i]
}

// addHolding adds the fields that a breakdown uses.
func addHolding(sum, h *growth.Holding) {
	sum.ResidentBytes += h.ResidentBytes
	sum.SharedBytes += h.SharedBytes
	sum.SwappedBytes += h.SwappedBytes
	sum.Variance += h.Variance
	sum.ResidentVariance += h.ResidentVariance
	sum.Births = slices.Concat(sum.Births, h.Births)
}

func (b *breakdown) processRows() []Row {
	rows, variances := make([]Row, len(b.entries)), b.variances()
	for i := range b.entries {
		e := &b.entries[i]
		rows[i] = Row{
			PID: e.stack.PID, Kind: e.kind, Stack: e.stack,
			Start: e.start.ResidentBytes, End: e.end.ResidentBytes,
			Error: growth.ZScore95 * math.Sqrt(variances[i]),
		}
	}
	return rows
}

// swappedRows are one for each process.
func (b *breakdown) swappedRows() []Row {
	var rows []Row
	index := make(map[int]int)
	for i := range b.entries {
		e := &b.entries[i]
		pid := e.stack.PID
		row, ok := index[pid]
		if !ok {
			row = len(rows)
			index[pid] = row
			stack := growth.NamedStack(pid, growth.RootSwapped)
			rows = append(rows, Row{PID: pid, Kind: growth.KindSwapped, Stack: stack})
		}
		rows[row].Start += e.start.SwappedBytes
		rows[row].End += e.end.SwappedBytes
	}

	return rows
}

// treeRows sum over processes the stacks that look the same.
func (b *breakdown) treeRows() []Row {
	var rows []Row
	index, variances := make(map[string]int), b.variances()
	for i := range b.entries {
		e := &b.entries[i]
		isEmpty := e.start.ResidentBytes == 0 && e.end.ResidentBytes == 0
		if isEmpty && variances[i] == 0 && e.kind != growth.KindUnexplained {
			continue // most stacks of a program that keeps making new ones
		}
		key := e.appearance()
		row, ok := index[key]
		if !ok {
			row = len(rows)
			index[key] = row
			rows = append(rows, Row{Kind: e.kind, Stack: e.stack})
		}
		r := &rows[row]
		r.Start += e.start.ResidentBytes - e.start.SharedBytes
		r.End += e.end.ResidentBytes - e.end.SharedBytes
		r.Error = math.Hypot(r.Error, growth.ZScore95*math.Sqrt(variances[i]))
	}

	return rows
}

// appearance is equal for stacks that look the same to a person, whatever their process and
// addresses.
func (e *entry) appearance() string {
	var text strings.Builder
	write := func(part string) {
		text.WriteString(part)
		text.WriteByte(0)
	}

	write(string(e.kind))
	write(e.stack.Root)
	write(e.stack.Truncated)
	for _, f := range growth.WithoutAllocator(e.stack.Frames) {
		write(f.Function)
		write(f.File)
		write(strconv.Itoa(f.Line))
		if f.Module != nil {
			write(f.Module.Path)
		}
	}

	return text.String()
}

// variances of the changes of all entries, in bytes².
func (b *breakdown) variances() []float64 {
	heaps := b.heapTurnovers()
	variances := make([]float64, len(b.entries))
	for i := range b.entries {
		e := &b.entries[i]
		t := growth.TurnoverOf(&e.start, &e.end, b.startBin)
		if heap, ok := heaps[e.stack.PID]; ok && isHeapResidual(e.kind) {
			t = heap
		}
		variances[i] = max(0, t.Born*e.end.ResidentVariance+t.Freed*e.start.ResidentVariance)
	}
	return variances
}

// isHeapResidual is true of kinds whose bytes are the bytes of the heap less its live objects.
func isHeapResidual(k growth.Kind) bool {
	return k == growth.KindRetained || k == growth.KindUnclassified || k == growth.KindBeforeTracing
}

// heapTurnovers returns by PID the turnover of all live objects of a heap. Residuals of arenas have
// the variance of live objects, but no births. Summed over the arenas, the errors equal the errors
// of the live objects; a single arena is taken to have the turnover of the heap.
func (b *breakdown) heapTurnovers() map[int]growth.Turnover {
	type variance struct{ born, end, freed, start float64 }
	sums := make(map[int]variance)
	for i := range b.entries {
		e := &b.entries[i]
		if e.kind != growth.KindHeap {
			continue
		}
		t, sum := growth.TurnoverOf(&e.start, &e.end, b.startBin), sums[e.stack.PID]
		sum.born += t.Born * e.end.ResidentVariance
		sum.end += e.end.ResidentVariance
		sum.freed += t.Freed * e.start.ResidentVariance
		sum.start += e.start.ResidentVariance
		sums[e.stack.PID] = sum
	}

	turnovers := make(map[int]growth.Turnover, len(sums))
	for pid, sum := range sums {
		turnovers[pid] = growth.Turnover{
			Born: growth.Share(sum.born, sum.end), Freed: growth.Share(sum.freed, sum.start),
		}
	}
	return turnovers
}
