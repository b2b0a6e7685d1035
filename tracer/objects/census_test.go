package objects_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// churned is how many objects of a type census.py makes and drops at a time, and few how many of a
// type the interpreter may have besides, or may have dropped and not yet freed.
const churned, few = 100, 100

// leftOut is the largest share of the objects in chunks of malloc that a census may leave out,
// since the chunks beside them changed while it followed them.
const leftOut = 0.01

// TestCensus compares the number of objects with the program's own account, while a thread of it
// makes and drops objects.
func TestCensus(t *testing.T) {
	for _, p := range pythons(t) {
		for _, malloc := range []string{"pymalloc", "malloc"} {
			t.Run(p.name+"/"+malloc, func(t *testing.T) {
				t.Parallel()
				testCensus(t, p, malloc)
			})
		}
	}
}

func testCensus(t *testing.T, p python, malloc string) {
	command := p.run(t, []string{"PYTHONMALLOC=" + malloc}, "census.py")
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	heap := tracertest.Must(objects.Open(openProcess(t, target.PID())))(t)

	var faults []string
	for range 3 { // where a busy machine stops a census, the program goes on
		if faults = compareCensus(t, target, heap, malloc); len(faults) == 0 {
			return
		}
	}
	t.Error(strings.Join(faults, "\n"))
}

// compareCensus returns a line for each number of a census that is not the program's.
func compareCensus(
	t *testing.T, target *tracertest.Target, heap *objects.Heap, malloc string,
) (faults []string) {
	t.Helper()
	before, blocksBefore := askCounts(t, target)
	census := tracertest.Must(heap.Census(t.Context(), objects.CensusOptions{}))(t)
	after, blocksAfter := askCounts(t, target)

	counted := map[string]float64{}
	for _, one := range census.Types {
		if counted[one.Type] != 0 {
			t.Errorf("%s is there twice", one.Type)
		}
		counted[one.Type] = one.Count
	}
	for name, n := range before {
		low, high := min(n, after[name]), max(n, after[name])
		switch {
		case strings.HasPrefix(name, "__main__."): // these do not change
			if malloc == "malloc" || name == "__main__.Large" {
				low -= low * leftOut
			}
		case name == "bytearray" || name == "list" || name == "set":
			low, high = low-churned-few, high+churned+few
		default:
			low, high = low-few, high+few
		}
		if got := counted[name]; got < low || got > high {
			faults = append(faults,
				fmt.Sprintf("%.0f of %s, the program has %.0f to %.0f", got, name, low, high))
		}
	}

	if malloc == "pymalloc" {
		const passing = 10 * churned // blocks that come and go
		low, high := min(blocksBefore, blocksAfter)-passing, max(blocksBefore, blocksAfter)+passing
		if census.Blocks < low || census.Blocks > high {
			faults = append(faults,
				fmt.Sprintf("%.0f blocks, the program has %.0f to %.0f", census.Blocks, low, high))
		}
	}
	if census.Share != 1 || census.Missing != "" {
		t.Errorf("share %g, missing %q", census.Share, census.Missing)
	}
	t.Logf("%.0f blocks, %d inconsistent, took %v", census.Blocks, census.Inconsistent, census.Took)
	return faults
}

// askCounts returns the number of objects by type, and of blocks of pymalloc, by the program.
func askCounts(
	t *testing.T, target *tracertest.Target,
) (counts map[string]float64, blocks float64) {
	t.Helper()
	counts = map[string]float64{}
	target.Say("count")
	for _, line := range target.Await("done") {
		var name string
		var n float64
		if _, err := fmt.Sscanf(line, "count %s %g", &name, &n); err == nil {
			counts[strings.TrimPrefix(name, "builtins.")] = n
		} else if _, err := fmt.Sscanf(line, "blocks %g", &blocks); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	if len(counts) != 9 {
		t.Fatalf("counts %v", counts)
	}
	return counts, blocks
}
