package process

import (
	"testing"
	"time"
)

// shares are what a process shares of its memory, and what it does not, in bytes.
type shares struct{ pss, private int64 }

func TestTheRollupIsTheSumOfTheMappings(t *testing.T) {
	for _, p := range []*Process{stopped(t), shrunk(t)} {
		// What a stopped process shares changes with the processes that begin and end beside it.
		var sums map[string]int64
		var mappings int64
		rollup := atRest(t, func() shares {
			pss, private, err := p.Rollup()
			if err != nil {
				t.Fatal(err)
			}
			return shares{pss, private}
		}, func() { sums, mappings = smaps(t, p.PID) })
		if sums["Private_Clean"] == 0 || sums["Private_Dirty"] == 0 {
			t.Fatalf("%+v: the test is wrong", sums)
		}
		if want := sums["Private_Clean"] + sums["Private_Dirty"]; rollup.private != want {
			t.Errorf("private %d, the mappings sum to %d", rollup.private, want)
		}
		if rounded := rollup.pss - sums["Pss"]; rounded < 0 || rounded > mappings<<10 { // each is rounded down to a KiB
			t.Errorf("PSS %d, %d mappings sum to %d", rollup.pss, mappings, sums["Pss"])
		}
	}
}

func TestProcessorTimeIsOfWorkAndNotOfWaiting(t *testing.T) {
	p := stopped(t)
	var err error
	reading := func() { _, _, err = p.Rollup() }
	if cost := ProcessorTime(reading); cost <= 0 || err != nil {
		t.Errorf("a reading costs %v, %v", cost, err)
	}
	const waiting = 200 * time.Millisecond
	if cost := ProcessorTime(func() { time.Sleep(waiting) }); cost > waiting/4 {
		t.Errorf("waiting %v costs %v", waiting, cost)
	}
}
