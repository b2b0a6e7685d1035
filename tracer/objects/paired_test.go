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

// TestPairedGrowth counts a share of the windows of processes before and after their records grow by
// 3%, which is less than the error of the first count. Each trial draws other windows. The growth is
// found in nine trials of ten, and is within its interval. The trials of a process are alike, since
// its new records lie in the same windows: there are several processes.
func TestPairedGrowth(t *testing.T) {
	const processes, trials = 3, 7
	found, outside, wrong := 0, 0, 0
	for range processes {
		a, b, c := pairedTrials(t, trials)
		found, outside, wrong = found+a, outside+b, wrong+c
	}
	const all = processes * trials
	if found < all*9/10+1 || outside > all/5 || wrong > all/10 {
		t.Errorf("of %d trials, the growth is found in %d, and is not within the interval in %d; "+
			"a type that does not grow is said to in %d", all, found, outside, wrong)
	}
}

// pairedTrials returns the trials of a process in which its growth was found, and was not within its
// interval, and in which a type was said to grow that does not.
func pairedTrials(t *testing.T, trials int) (found, outside, wrong int) {
	t.Helper()
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", recordsScript))
	target.Await("ready")
	keep := func(n int) (records, steady float64) {
		target.Say(fmt.Sprint(n))
		tracertest.Must(fmt.Sscan(target.Await("done")[0], &records, &steady))(t)
		return records, steady
	}
	h := openHeap(t, target.PID())
	count := func(share float64, first *Census) *Census {
		counted, err := h.Census(context.Background(), CensusOptions{Share: share, Before: first})
		tracertest.NoError(t, err)
		if first != nil {
			counted.Elapsed = time.Minute
		}
		return counted
	}

	wasRecords, _ := keep(800_000)
	firsts := make([]*Census, trials)
	for i := range firsts {
		firsts[i] = count(0.4, nil)
	}
	records, _ := keep(24_000)
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
	return found, outside, wrong
}
