package objects

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// recordsScript keeps as many more records as each line says, and prints how many there are. A
// twentieth of the objects of another type are freed, and as many are made elsewhere.
const recordsScript = `
import gc, random, sys
class Record:
    __slots__ = ("number", "text")
    def __init__(self, number): self.number, self.text = number + 0.5, bytes(70)
class Steady:
    __slots__ = ("one", "two", "three", "four")
random.seed(1)
gc.disable()
kept, steady = [], [Steady() for number in range(300000)]
print("ready", flush=True)
for line in sys.stdin:
    for number in range(int(line)): kept.append(Record(number))
    for place in random.sample(range(len(steady)), len(steady) // 20): steady[place] = None
    for place, one in enumerate(steady):
        if one is None: steady[place] = Steady()
    print(len(kept), len(steady), flush=True)
    print("done", flush=True)
`

// TestPairedGrowth counts a share of the windows of a process before and after its records grow by
// 3%, which is less than the error of the first count. Each trial draws other windows. The growth
// is found, and is within its interval.
func TestPairedGrowth(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", recordsScript))
	target.Await("ready")
	keep := func(n int) (records, steady float64) {
		target.Say(fmt.Sprint(n))
		if _, err := fmt.Sscan(target.Await("done")[0], &records, &steady); err != nil {
			t.Fatal(err)
		}
		return records, steady
	}
	h := openHeap(t, target.PID())
	count := func(share float64, first *Census) *Census {
		counted, err := h.Census(context.Background(), CensusOptions{Share: share, Before: first})
		if err != nil {
			t.Fatal(err)
		}
		if first != nil {
			counted.Elapsed = time.Minute
		}
		return counted
	}

	const trials = 10
	wasRecords, _ := keep(800_000)
	var firsts [trials]*Census
	for i := range firsts {
		firsts[i] = count(0.4, nil)
	}
	records, _ := keep(24_000)
	found, outside, wrong := 0, 0, 0
	for i, first := range firsts {
		share := []float64{1, 0.8}[i%2]
		after := count(share, first)
		for _, g := range census.Grown(&first.Result, &after.Result) {
			switch g.Type {
			case "__main__.Record":
				found++
				if true := records - wasRecords; true < g.Low || true > g.High {
					outside++
				}
			case "__main__.Steady":
				wrong++
			}
			t.Logf("share %g: %+v", share, g)
		}
		for _, one := range first.Types {
			if one.Type == "__main__.Record" && one.Margin < records-wasRecords {
				t.Errorf("the margin of one census is %.0f: nothing was tested", one.Margin)
			}
		}
	}
	if found < trials-1 || outside > 2 || wrong > 1 {
		t.Errorf("of %d trials, the growth is found in %d, and is not within the interval in %d; "+
			"a type that does not grow is said to in %d", trials, found, outside, wrong)
	}
}
