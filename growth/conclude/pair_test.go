package conclude

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/trend"
)

// TestPairOf ends with the exit only where there is no other end.
func TestPairOf(t *testing.T) {
	first, second := &growth.Snapshot{}, &growth.Snapshot{Elapsed: time.Second}
	trace := &Trace{
		Snapshots: []*growth.Snapshot{first},
		Exit:      &growth.Snapshot{Elapsed: 1500 * time.Millisecond},
	}
	if end := trace.PairOf(nil, trend.Window{}).End; end != trace.Exit {
		t.Errorf("with one snapshot growth ends at %s", end.Elapsed)
	}
	trace.Snapshots = append(trace.Snapshots, second)
	if end := trace.PairOf(nil, trend.Window{}).End; end != second {
		t.Errorf("with two snapshots growth ends at %s", end.Elapsed)
	}
}

// The ends of the breakdown are snapshots in which the pages of the process were scanned.
func TestScannedPair(t *testing.T) {
	at := func(second int, pids ...int) *growth.Snapshot {
		s := &growth.Snapshot{Elapsed: time.Duration(second) * time.Second, Alive: pids}
		for _, pid := range pids {
			s.Residents = append(s.Residents, growth.Resident{PID: pid})
		}
		return s
	}

	trace := &Trace{Snapshots: []*growth.Snapshot{
		at(0, 42), at(1, 7), at(2, 7, 42), at(3, 42),
		at(4, 42), at(5, 7),
	}}

	track := &growth.ProcessHistory{Member: growth.Member{
		Process: growth.Process{PID: 42},
		From:    time.Second / 2,
	}} // before, another program

	nothing := &growth.Snapshot{}
	number := func(i int) *growth.Snapshot {
		if i < 0 {
			return nothing
		}
		return trace.Snapshots[i]
	}

	for name, c := range map[string]struct{ start, end, wantStart, wantEnd int }{
		"both were":               {3, 4, 3, 4},
		"before the first":        {-1, 4, 2, 4},
		"of another process":      {1, 4, 2, 4},
		"after its death":         {3, -1, 3, 4},
		"neither":                 {-1, -1, 2, 4},
		"while another lives on":  {2, 5, 2, 4},
		"one snapshot is no span": {2, 2, 2, 2},
	} {
		got := trace.ScannedPair(track, Pair{number(c.start), number(c.end)})
		if want := (Pair{number(c.wantStart), number(c.wantEnd)}); got != want {
			t.Errorf("%s: from %s to %s", name, got.Start.Elapsed, got.End.Elapsed)
		}
	}

	none := Pair{nothing, nothing}
	if got := trace.ScannedPair(&growth.ProcessHistory{}, none); got != none {
		t.Errorf("of no process: %+v", got)
	}
}

func TestCacheAt(t *testing.T) {
	trace := &Trace{History: &growth.History{}}
	if got := trace.cacheAt(0); got != growth.Unknown {
		t.Errorf("%d bytes before the first moment", got)
	}

	for i := range 5 {
		row := growth.Row{System: growth.SystemMemory{CgroupCache: int64(100 * i)}}
		row.Elapsed = time.Duration(i) * time.Second
		trace.History.Rows = append(trace.History.Rows, row)
	}

	for at, want := range map[float64]int64{0: 0, 0.4: 0, 0.6: 100, 3: 300, 9: 400} {
		if got := trace.cacheAt(time.Duration(at * float64(time.Second))); got != want {
			t.Errorf("after %v s: %d bytes, want %d", at, got, want)
		}
	}
}
