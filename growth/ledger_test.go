package growth

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func resident(stack *Stack, kind Kind, bytes, shared int64) Holding {
	return Holding{Stack: stack, Kind: kind, ResidentBytes: bytes, SharedBytes: shared}
}

func ofProcess(pid int, function string) *Stack {
	return NamedStack(pid, "", function)
}

// randomMoment is a snapshot of some of five processes, and of one that has ended: its holdings are of no process that was
// looked at. The kernel's RSS is drawn apart from the holdings.
func randomMoment(random *rand.Rand, at time.Duration) *Snapshot {
	kinds := []Kind{KindHeap, KindRetained, KindMmap, KindFile, KindCOW, KindUnexplained}
	s := &Snapshot{Elapsed: at, Bins: []time.Duration{time.Second, 2 * time.Second}}
	for pid := range 6 {
		pid += 10
		if looked := pid < 15 && random.IntN(4) > 0; looked {
			s.Residents = append(s.Residents, Resident{PID: pid, RSS: random.Int64N(1 << 40)})
		}
		for range random.IntN(40) {
			stack := ofProcess(pid, string(rune('a'+random.IntN(8))))
			h := resident(stack, kinds[random.IntN(len(kinds))], random.Int64N(1<<36)-1<<34, random.Int64N(1<<33))
			h.SwappedBytes = random.Int64N(3) << 20
			if random.IntN(2) == 0 {
				s.Holdings = append(s.Holdings, h)
			} else {
				s.Others = append(s.Others, h)
			}
		}
	}
	return s
}

func rssOf(s *Snapshot, pid int) int64 {
	for _, r := range s.Residents {
		if r.PID == pid {
			return r.RSS
		}
	}
	return 0
}

func sharedOf(s *Snapshot) (shared int64) {
	for _, h := range slices.Concat(s.Holdings, s.Others) {
		if rssOf(s, h.Stack.PID) != 0 {
			shared += h.SharedBytes
		}
	}
	return shared
}

func TestRowsSumToTheKernelsNumberOfEachProcessAndOfTheTree(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	for range 500 {
		start, end := randomMoment(random, time.Second), randomMoment(random, 2*time.Second)
		before, after, unexplained := make(map[int]int64), make(map[int]int64), make(map[int]int)
		for _, r := range Ledger(start, end) {
			if r.Kind == KindSwapped {
				continue
			}
			before[r.PID] += r.Start
			after[r.PID] += r.End
			if r.Kind == KindUnexplained && r.Stack.Root == unexplainedRoot {
				unexplained[r.PID]++
			}
		}
		var treeBefore, treeAfter int64
		for pid := 10; pid < 16; pid++ {
			from, to := rssOf(start, pid), rssOf(end, pid)
			treeBefore += from
			treeAfter += to
			if before[pid] != from || after[pid] != to {
				t.Fatalf("PID %d: rows from %d to %d bytes, RSS from %d to %d", pid, before[pid], after[pid], from, to)
			}
			if there := from != 0 || to != 0; there != (unexplained[pid] == 1) {
				t.Fatalf("PID %d: %d rows of what is unexplained", pid, unexplained[pid])
			}
		}
		if before[0] != treeBefore-sharedOf(start) || after[0] != treeAfter-sharedOf(end) {
			t.Fatalf("the tree: rows from %d to %d, want %d to %d", before[0], after[0], treeBefore-sharedOf(start), treeAfter-sharedOf(end))
		}
	}
}

func TestTheOrderOfTheLedgerIsItsOwn(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	start, end := randomMoment(random, time.Second), randomMoment(random, 2*time.Second)
	want := Ledger(start, end)
	for i := 1; i < len(want); i++ {
		a, b := &want[i-1], &want[i]
		if a.PID > b.PID || a.PID == b.PID && absolute(a.Delta()) < absolute(b.Delta()) {
			t.Fatalf("%+v before %+v", a, b)
		}
	}
	if got := Ledger(start, end); !slices.EqualFunc(got, want, func(a, b LedgerRow) bool { return a.Kind == b.Kind && a.Start == b.Start && a.End == b.End }) {
		t.Error("another order the second time")
	}
}

// rowOf is the only row of a process and kind.
func rowOf(t *testing.T, rows []LedgerRow, pid int, kind Kind) LedgerRow {
	t.Helper()
	rows = slices.DeleteFunc(slices.Clone(rows), func(r LedgerRow) bool { return r.PID != pid || r.Kind != kind })
	if len(rows) != 1 {
		t.Fatalf("%d rows of PID %d and kind %s, want one: %+v", len(rows), pid, kind, rows)
	}
	return rows[0]
}

func TestAProcessThatBeganOrEndedCountsNothingWhereItWasNot(t *testing.T) {
	start := &Snapshot{Residents: []Resident{{PID: 1, RSS: 70}}, Holdings: []Holding{resident(ofProcess(1, "f"), KindHeap, 70, 0)}}
	end := &Snapshot{
		Residents: []Resident{{PID: 2, RSS: 50}},
		Holdings:  []Holding{resident(ofProcess(1, "f"), KindHeap, 70, 0)}, // as it was when it ended
		Others:    []Holding{resident(ofProcess(2, "g"), KindMmap, 40, 0)},
	}
	rows := Ledger(start, end)
	for _, c := range []struct {
		pid        int
		kind       Kind
		start, end int64
	}{{1, KindHeap, 70, 0}, {1, KindUnexplained, 0, 0}, {2, KindMmap, 0, 40}, {2, KindUnexplained, 0, 10}, {0, KindHeap, 70, 0}, {0, KindMmap, 0, 40}} {
		if r := rowOf(t, rows, c.pid, c.kind); r.Start != c.start || r.End != c.end {
			t.Errorf("%+v: from %d to %d", c, r.Start, r.End)
		}
	}
}

// What two processes hold by stacks that read alike is one row of the tree, and what they share counts once.
func TestTheTreeCountsOnceWhatProcessesShare(t *testing.T) {
	at := func(pid int, address uint64) *Stack {
		return &Stack{ID: address, PID: pid, Frames: []Frame{{Function: "load", Address: address, Module: &Module{Path: "/x.so", Start: address}}}}
	}
	elsewhere := at(3, 0x30)
	elsewhere.Frames[0].Module.Path = "/y.so"
	end := &Snapshot{
		Residents: []Resident{{PID: 1, RSS: 100}, {PID: 2, RSS: 100}, {PID: 3, RSS: 9}},
		Holdings: []Holding{
			resident(at(1, 0x10), KindShmem, 100, 0), resident(at(2, 0x20), KindShmem, 100, 90), resident(elsewhere, KindShmem, 9, 0),
		},
	}
	var got []int64
	for _, r := range Ledger(&Snapshot{}, end) {
		if r.PID == 0 {
			got = append(got, r.End)
		}
	}
	if want := []int64{110, 9, 0}; !slices.Equal(got, want) {
		t.Errorf("rows of the tree: %d, want %d", got, want)
	}
}

func TestWhatTheHoldingsLeaveOfTheRSSIsUnexplained(t *testing.T) {
	given := resident(NamedStack(1, unexplainedRoot), KindUnexplained, -5, 0)
	held := resident(ofProcess(1, "f"), KindHeap, 70, 0)
	for _, c := range []struct {
		rss      int64
		holdings []Holding
		want     int64
	}{{80, []Holding{held}, 10}, {60, []Holding{held}, -10}, {65, []Holding{held, given}, -5}, {64, []Holding{held, given}, -6}, {Unknown, []Holding{held, given}, -5}} {
		end := &Snapshot{Residents: []Resident{{PID: 1, RSS: c.rss}}, Holdings: c.holdings}
		if r := rowOf(t, Ledger(&Snapshot{}, end), 1, KindUnexplained); r.End != c.want {
			t.Errorf("RSS of %d: %d unexplained, want %d", c.rss, r.End, c.want)
		}
	}
}

func TestWhatIsSwappedOutIsARowOfItsOwn(t *testing.T) {
	at := func(heap, mapped int64) *Snapshot {
		one, other := resident(ofProcess(1, "f"), KindHeap, 10, 0), resident(ofProcess(1, "f"), KindMmap, 0, 0)
		one.SwappedBytes, other.SwappedBytes = heap, mapped
		return &Snapshot{Residents: []Resident{{PID: 1, RSS: 10}}, Holdings: []Holding{one, other}}
	}
	if r := rowOf(t, Ledger(at(1, 2), at(30, 40)), 1, KindSwapped); r.Start != 3 || r.End != 70 {
		t.Errorf("from %d to %d, want 3 to 70", r.Start, r.End)
	}
	for _, r := range Ledger(at(0, 0), at(0, 0)) {
		if r.Kind == KindSwapped {
			t.Errorf("nothing is swapped out: %+v", r)
		}
	}
}

// The rows of what no source has seen allocated are of the ledger alone.
func TestWhatIsMerelyResidentIsNotJudged(t *testing.T) {
	trace := mappedTrace(10, 20, 30, 40)
	want := JudgeStacks(trace, lasting(0, 3), 1)
	for i, s := range trace {
		for _, kind := range []Kind{KindHeap, KindRetained, KindFile, KindBefore, KindUnexplained} {
			s.Holdings = append(s.Holdings, resident(NamedStack(0, "[before attach]", string(kind)), kind, int64(i)<<30, 0))
		}
	}
	got := JudgeStacks(trace, lasting(0, 3), 1)
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if culprits := Culprits(got, nil); len(culprits) != 1 || culprits[0].Growth != 30 {
		t.Errorf("culprits %+v", culprits)
	}
	grown := Between(trace[0], trace[3])
	Label(grown, got)
	for _, h := range grown {
		if (h.Trend == "") != (h.InuseBytes == 0) {
			t.Errorf("%s: trend %q", h.Kind, h.Trend)
		}
	}
}
