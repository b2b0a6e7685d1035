package growth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func TestARecursiveFrameCountsOnceAStack(t *testing.T) {
	visit := pythonFrame("visit", "/src/train.py", 20)
	leaf := func(i int) Frame { return pythonFrame("leaf", "/src/train.py", 1000+i) }
	var trends []StackTrend
	for i := range 30 {
		frames := []Frame{mallocFrame, leaf(i)}
		for range 1 + i%5 {
			frames = append(frames, visit)
		}
		trends = append(trends, growingStack(10, append(frames, mainLine)...))
	}
	trends = append(trends, growingStack(70, pythonFrame("other", "/src/train.py", 30), mainLine))
	got := onlyCulprit(t, trends)
	if got.Frame != visit || math.Abs(got.Inclusive-300.0/370) > 1e-9 {
		t.Errorf("%+v", got)
	}
	if functionsOf(got.Path) != "visit, leaf" {
		t.Errorf("the path turns in a circle: %s", functionsOf(got.Path))
	}
}

func TestRecursionDoesNotMakeAFrameHeavier(t *testing.T) {
	visit, other := pythonFrame("visit", "/src/train.py", 20), pythonFrame("other", "/src/train.py", 30)
	got := onlyCulprit(t, []StackTrend{growingStack(50, visit, visit, visit, mainLine), growingStack(50, other, mainLine)})
	if got.Frame != mainLine || got.Inclusive != 1 {
		t.Errorf("%+v", got)
	}
}

func TestMutualRecursionIsNamedByTheDeeperOfMost(t *testing.T) {
	a, b := pythonFrame("a", "/src/train.py", 1), pythonFrame("b", "/src/train.py", 2)
	got := onlyCulprit(t, []StackTrend{
		growingStack(60, pythonFrame("x", "/src/train.py", 3), b, a, b, a, mainLine),
		growingStack(40, pythonFrame("y", "/src/train.py", 4), a, b, a, mainLine),
	})
	if got.Frame != b || got.Inclusive != 1 || functionsOf(got.Path) != "b, x" || functionsOf(got.Above) != "a, b, a, <module>" {
		t.Errorf("%+v", got)
	}
}

func TestThePathGoesWhereMostOfTheGrowthIs(t *testing.T) {
	line := func(function string) Frame { return pythonFrame(function, "/src/train.py", 1) }
	got := onlyCulprit(t, []StackTrend{
		growingStack(10, line("alone"), mainLine),
		growingStack(8, line("one"), line("both"), mainLine), growingStack(9, line("two"), line("both"), mainLine),
		growingStack(12, mainLine), // ends at the culprit
	})
	if functionsOf(got.Path) != "<module>, both, two" || len(got.Above) != 0 {
		t.Errorf("path: %s", functionsOf(got.Path))
	}
	got = onlyCulprit(t, []StackTrend{growingStack(10, line("alone"), mainLine), growingStack(12, mainLine)})
	if functionsOf(got.Path) != "<module>" {
		t.Errorf("most of it ends here: %s", functionsOf(got.Path))
	}
}

// In a tree of calls in which every function has one caller, the frames that explain enough lie on one way down from the root.
func TestInATreeOfCallsTheCulpritIsTheLowestThatExplainsEnough(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		const nodes = 40
		parent := make([]int, nodes)
		below := make([]float64, nodes)
		var trends []StackTrend
		for node := range nodes {
			if node > 0 {
				parent[node] = max(random.IntN(node), node-1-random.IntN(8))
			}
			growth := math.Ceil(random.ExpFloat64() * random.ExpFloat64() * 100)
			var frames []Frame
			for at := node; ; at = parent[at] {
				frames = append(frames, pythonFrame(fmt.Sprint("f", at), "/src/train.py", at))
				below[at] += growth
				if at == 0 {
					break
				}
			}
			trends = append(trends, growingStack(growth, frames...))
		}
		want := 0
		for node := range nodes {
			if below[node] >= 0.8*below[0] { // callees have higher numbers
				want = node
			}
		}
		if got := onlyCulprit(t, trends); got.Frame.Line != want || math.Abs(got.Inclusive-below[want]/below[0]) > 1e-9 {
			t.Fatalf("%+v, want f%d", got, want)
		}
	}
}
