package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

const ledgerMiB = 1 << 20

func ledgerRow(process int, kind growth.Kind, start, end, err float64) summary.BreakdownRow {
	from, to := int64(start*ledgerMiB), int64(end*ledgerMiB)
	return summary.BreakdownRow{Process: process, Kind: kind, StartBytes: from, EndBytes: to, DeltaBytes: to - from, ErrorBytes: int64(err * ledgerMiB)}
}

func bytesAt(mib int64) *int64 {
	mib *= ledgerMiB
	return &mib
}

// ledgerSummary is a process of many kinds, traced with all sources.
func ledgerSummary() *summary.Summary {
	threads := int64(17)
	return &summary.Summary{
		Process: summary.Process{PID: 42},
		Breakdown: []summary.BreakdownRow{
			ledgerRow(42, growth.KindHeap, 100, 300, 3), ledgerRow(42, growth.KindHeap, 0, 200, 4), ledgerRow(42, growth.KindRetained, 10, 41, 4),
			ledgerRow(42, growth.KindPython, 5, 25, 0), ledgerRow(42, growth.KindFile, 90, 80, 0), ledgerRow(42, growth.KindStack, 1, 6, 0),
			ledgerRow(42, growth.KindMmap, 0, 4, 0), ledgerRow(42, growth.KindJIT, 0, 2, 0), ledgerRow(42, growth.KindShmem, 7, 8, 0),
			ledgerRow(42, growth.KindBefore, 500, 500, 0), ledgerRow(42, growth.KindUnexplained, 1, 0.5, 0), ledgerRow(42, growth.KindSwapped, 0, 700, 0),
			ledgerRow(0, growth.KindHeap, 100, 900, 0), ledgerRow(0, growth.KindUnexplained, 0, 1, 0),
		},
		Residents: []summary.Resident{{Process: 42, HeapTraced: true, Threads: &threads, Arenas: 12, EndBytes: bytesAt(1166)}},
	}
}

func ledgerText(t *testing.T, s *summary.Summary) string {
	t.Helper()
	var out bytes.Buffer
	if err := printLedger(&out, s); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// spokenLines are what is said, with single spaces.
func spokenLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestTheLedgerIsOneLineForEachKindAndTheirSum(t *testing.T) {
	got := strings.Join(spokenLines(ledgerText(t, ledgerSummary())), "\n")
	want := strings.Join([]string{
		"", "Where the growth of RSS is (PID 42: +452 MiB):", "", "growth ± 95 % at the end what",
		"+400 MiB 5.00 MiB 500 MiB heap, allocated and not freed",
		"+31.0 MiB 4.00 MiB 41.0 MiB heap free but resident, 12 arenas, 17 threads",
		"+20.0 MiB 25.0 MiB Python's arenas",
		"-10.0 MiB 80.0 MiB mapped files",
		"+5.00 MiB 6.00 MiB thread stacks, 17 threads",
		"+4.00 MiB 4.00 MiB mapped memory",
		"+3.00 MiB 510 MiB 3 other kinds",
		"-512 KiB 512 KiB unexplained",
		"+452 MiB 1.14 GiB RSS, as the kernel counts",
	}, "\n")
	if got != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
}

func TestWhatIsUnexplainedIsShownEvenIfItIsNothing(t *testing.T) {
	s := ledgerSummary()
	s.Breakdown = s.Breakdown[:1]
	mustSay(t, "the ledger", ledgerText(t, s), "unexplained")
}

func TestOneKindMoreThanThereAreLinesForIsNamed(t *testing.T) {
	s := ledgerSummary()
	s.Breakdown = append(s.Breakdown[:8:8], s.Breakdown[10])
	if text := ledgerText(t, s); !strings.Contains(text, "generated code") || strings.Contains(text, "other kinds") {
		t.Errorf("printed:\n%s", text)
	}
	s.Breakdown = append(s.Breakdown, ledgerRow(42, growth.KindShmem, 0, 1, 0))
	if text := ledgerText(t, s); !strings.Contains(text, "2 other kinds") {
		t.Errorf("printed:\n%s", text)
	}
}

func TestWithoutSourceHeapItIsSaidThatItsHolderCannotBeNamed(t *testing.T) {
	s := ledgerSummary()
	if text := ledgerText(t, s); strings.Contains(text, "cannot be told") || strings.Contains(text, "holder not known") {
		t.Errorf("the heap was traced:\n%s", text)
	}
	s.Residents[0].HeapTraced = false
	s.Residents = append(s.Residents, summary.Resident{Process: 43, EndBytes: bytesAt(90)})
	if text := ledgerText(t, s); strings.Contains(text, "not freed") || strings.Count(text, "holder not known") != 2 {
		t.Errorf("of the process and of its tree it is not said that the holder is not known:\n%s", text)
	}
	mustSay(t, "the ledger", ledgerText(t, s), "heap, holder not known\n", "source heap was not attached to PID 42. A trace with it names the code.\n")
}

func TestTheTreeIsPrintedWhereThereAreOtherProcesses(t *testing.T) {
	s := ledgerSummary()
	if text := ledgerText(t, s); strings.Contains(text, "tree") {
		t.Errorf("one process alone:\n%s", text)
	}
	s.Residents = append(s.Residents, summary.Resident{Process: 43, StartBytes: bytesAt(9)}, summary.Resident{Process: 44, EndBytes: bytesAt(0)})
	if text := ledgerText(t, s); strings.Contains(text, "tree") {
		t.Errorf("others that hold nothing at the end:\n%s", text)
	}
	s.Residents = append(s.Residents, summary.Resident{Process: 45, EndBytes: bytesAt(8)})
	if text := ledgerText(t, s); strings.Contains(text, "tree") {
		t.Errorf("another that holds next to nothing:\n%s", text)
	}
	s.Residents[len(s.Residents)-1].EndBytes = bytesAt(80)
	text := ledgerText(t, s)
	mustSay(t, "the ledger", text, "\nIts tree, with 1 other process, shared pages once (+801 MiB):\n")
	if !regexp.MustCompile(`\+800 MiB +900 MiB +heap, allocated and not freed\n.*unexplained\n +\+801 MiB +901 MiB +all\n$`).MatchString(text) {
		t.Errorf("printed:\n%s", text)
	}
}

func TestAdviceIsALineThatSaysWhomItIsFor(t *testing.T) {
	s := ledgerSummary()
	s.Advice = []summary.Advice{{Process: 42, Text: "trim"}, {Process: 43, Text: "trim too"}, {Text: "spawn"}}
	if text := ledgerText(t, s); !strings.HasSuffix(text, "\n\nadvice: trim\nadvice: PID 43: trim too\nadvice: spawn\n") {
		t.Errorf("printed:\n%s", text)
	}
}

func TestWithoutALedgerNothingIsSaidOfIt(t *testing.T) {
	if text := ledgerText(t, &summary.Summary{Process: summary.Process{PID: 42}}); text != "" {
		t.Errorf("printed:\n%s", text)
	}
}

// The ends of the ledger are snapshots in which the pages of the process were looked at.
func TestTheLedgerBeginsAndEndsWhereThePagesWereLookedAt(t *testing.T) {
	at := func(second int, pids ...int) numbered {
		s := &growth.Snapshot{Elapsed: time.Duration(second) * time.Second, Alive: pids}
		for _, pid := range pids {
			s.Residents = append(s.Residents, growth.Resident{PID: pid})
		}
		return numbered{Snapshot: s}
	}
	r := &recorder{snapshots: []numbered{at(0, 42), at(1, 7), at(2, 7, 42), at(3, 42), at(4, 42), at(5, 7)}}
	track := &growth.Track{Member: growth.Member{Process: growth.Process{PID: 42}, From: time.Second / 2}} // before, another program
	nothing := &growth.Snapshot{}
	for name, c := range map[string]struct {
		span     span
		from, to int
	}{
		"both were":               {span{r.snapshots[3].Snapshot, r.snapshots[4].Snapshot}, 3, 4},
		"before the first":        {span{nothing, r.snapshots[4].Snapshot}, 2, 4},
		"of another process":      {span{r.snapshots[1].Snapshot, r.snapshots[4].Snapshot}, 2, 4},
		"after its death":         {span{r.snapshots[3].Snapshot, nothing}, 3, 4},
		"neither":                 {span{nothing, nothing}, 2, 4},
		"while another lives on":  {span{r.snapshots[2].Snapshot, r.snapshots[5].Snapshot}, 2, 4},
		"one snapshot is no span": {span{r.snapshots[2].Snapshot, r.snapshots[2].Snapshot}, 2, 2},
	} {
		got := r.lookedAt(track, c.span)
		if got.start.Elapsed != time.Duration(c.from)*time.Second || got.end.Elapsed != time.Duration(c.to)*time.Second {
			t.Errorf("%s: from %s to %s, want %d s to %d s", name, got.start.Elapsed, got.end.Elapsed, c.from, c.to)
		}
	}
	if got := r.lookedAt(&growth.Track{}, span{nothing, nothing}); got != (span{nothing, nothing}) {
		t.Errorf("of nobody: %+v", got)
	}
}

func TestThePageCacheIsThatOfTheNearestMoment(t *testing.T) {
	r := &recorder{}
	if got := r.cacheAt(0); got != growth.Unknown {
		t.Errorf("%d bytes before the first moment", got)
	}
	for i := range 5 {
		row := growth.Row{Around: growth.Around{CgroupCache: int64(100 * i)}}
		row.Elapsed = time.Duration(i) * time.Second
		r.history.Rows = append(r.history.Rows, row)
	}
	for at, want := range map[float64]int64{0: 0, 0.4: 0, 0.6: 100, 3: 300, 9: 400} {
		if got := r.cacheAt(time.Duration(at * float64(time.Second))); got != want {
			t.Errorf("after %v s: %d bytes, want %d", at, got, want)
		}
	}
}
