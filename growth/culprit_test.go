package growth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// growingStack is a stack that accumulates so many bytes.
func growingStack(growth float64, frames ...Frame) StackTrend {
	return StackTrend{Stack: &Stack{ID: 1, PID: 1, Frames: frames}, Kind: KindHeap, Growth: growth, Low: growth, Trend: TrendAccumulating}
}

// numbered gives each stack an ID of its own.
func numbered(trends []StackTrend) []StackTrend {
	for i := range trends {
		trends[i].Stack.ID = uint64(i + 1)
	}
	return trends
}

func onlyCulprit(t *testing.T, trends []StackTrend) Culprit {
	t.Helper()
	culprits := Culprits(numbered(trends), nil)
	if len(culprits) != 1 {
		t.Fatalf("%d culprits, want one: %+v", len(culprits), culprits)
	}
	return culprits[0]
}

// functionsOf is the functions of frames in their order.
func functionsOf(frames []Frame) string {
	var names []string
	for _, f := range frames {
		names = append(names, f.Function)
	}
	return strings.Join(names, ", ")
}

const inductor = "/usr/lib/python3/dist-packages/torch/_inductor/"

var (
	mallocFrame = nativeFrame("malloc", "/lib/libc.so.6")
	mainLine    = pythonFrame("<module>", "/src/train.py", 100)
	stepLine    = pythonFrame("train_step", "/src/train.py", 42)
	compileLine = pythonFrame("compile", inductor+"compile_fx.py", 7)
)

// scattered is n stacks of like growth below two lines; none of them alone is worth a look.
func scattered(n int) []StackTrend {
	var trends []StackTrend
	for i := range n {
		leaf := pythonFrame("lower", inductor+"lowering.py", i)
		trends = append(trends, growingStack(10+float64(i%7), mallocFrame, nativeFrame("PyObject_New", "/bin/python"), leaf, compileLine, stepLine, mainLine))
	}
	return trends
}

func TestALeakOverHundredsOfLeavesIsNamedByTheLineTheyShare(t *testing.T) {
	got := onlyCulprit(t, scattered(300))
	if got.Owner != "inductor-compile" || got.Frame != compileLine || got.Stacks != 300 || math.Abs(got.Inclusive-1) > 1e-9 {
		t.Errorf("%+v", got)
	}
	if above := functionsOf(got.Above); above != "train_step, <module>" {
		t.Errorf("above: %s", above)
	}
	if functionsOf(got.Path) != "compile, lower, PyObject_New" || got.Path[1].Line != 6 { // the first of the heaviest leaves
		t.Errorf("path: %+v", got.Path)
	}
}

func TestTheLineMayBelongToTheOwnersCaller(t *testing.T) {
	trends := scattered(40)
	for i := range 40 {
		guard := pythonFrame("guard", inductor+"guards.py", i)
		trends = append(trends, growingStack(10, mallocFrame, guard, pythonFrame("check", inductor+"guards.py", 900), stepLine, mainLine))
	}
	if got := onlyCulprit(t, trends); got.Frame != stepLine || got.Owner != "inductor-compile" || functionsOf(got.Above) != "<module>" {
		t.Errorf("%+v", got)
	}
}

func TestOneDominantStackIsNamedByItsOwnLine(t *testing.T) {
	leak := pythonFrame("remember", "/src/train.py", 13)
	trends := []StackTrend{
		growingStack(900, mallocFrame, nativeFrame("ImagingAllocate", "/lib/_imaging.so"), leak, stepLine, mainLine),
		growingStack(50, mallocFrame, stepLine, mainLine),
		growingStack(50, mallocFrame, pythonFrame("log", "/src/train.py", 60), mainLine),
	}
	got := onlyCulprit(t, trends)
	if got.Frame != leak || got.Inclusive != 0.9 || functionsOf(got.Path) != "remember, ImagingAllocate" || functionsOf(got.Above) != "train_step, <module>" {
		t.Errorf("%+v", got)
	}
}

func TestFourFifthsAreEnough(t *testing.T) {
	leak, other := pythonFrame("leak", "/src/train.py", 1), pythonFrame("other", "/src/train.py", 2)
	for share, want := range map[float64]Frame{80: leak, 79: mainLine} {
		if got := onlyCulprit(t, []StackTrend{growingStack(share, leak, mainLine), growingStack(100-share, other, mainLine)}); got.Frame != want {
			t.Errorf("at %v %%: %+v", share, got)
		}
	}
}

// The heaviest stack of all is not below the culprit.
func TestTheCulpritNeedNotBeOnTheHeaviestStack(t *testing.T) {
	deep := pythonFrame("deep", "/src/train.py", 5)
	trends := []StackTrend{growingStack(15, pythonFrame("alone", "/src/train.py", 6), stepLine, mainLine)}
	for i := range 85 {
		trends = append(trends, growingStack(1, pythonFrame("leaf", "/src/train.py", 1000+i), deep, stepLine, mainLine))
	}
	if got := onlyCulprit(t, trends); got.Frame != deep || math.Abs(got.Inclusive-0.85) > 1e-9 {
		t.Errorf("%+v", got)
	}
}

func TestEveryOwnerHasItsCulprit(t *testing.T) {
	pillow := pythonFrame("open", "/usr/lib/python3/dist-packages/PIL/Image.py", 3)
	trends := append(scattered(20), growingStack(5000, mallocFrame, pillow, stepLine, mainLine),
		growingStack(4, mallocFrame, nativeFrame("strdup", "/lib/libc.so.6"), nativeFrame("run", "/opt/libnccl.so.2")))
	culprits := Culprits(numbered(trends), nil)
	var owners []string
	for _, c := range culprits {
		owners = append(owners, fmt.Sprint(c.Owner, " ", c.Frame.Function))
	}
	if want := []string{"pil open", "inductor-compile compile", "nccl strdup"}; !reflect.DeepEqual(owners, want) {
		t.Errorf("owners %v, want %v", owners, want)
	}
}

// One function is called from many addresses, and of one name in two libraries.
func TestNativeFramesAreTheSameByFunctionAndModule(t *testing.T) {
	var trends []StackTrend
	for i := range 10 {
		grow := nativeFrame("grow", "/opt/libx.so")
		grow.Address, grow.Line = uint64(i), i
		trends = append(trends, growingStack(10, mallocFrame, nativeFrame(fmt.Sprint("f", i), "/opt/libx.so"), grow, nativeFrame("main", "/bin/x")))
	}
	if got := onlyCulprit(t, trends); got.Frame.Function != "grow" || got.Inclusive != 1 || got.Owner != "libx.so" {
		t.Errorf("%+v", got)
	}
	trends = []StackTrend{
		growingStack(50, nativeFrame("f", "/a/libx.so"), nativeFrame("run", "/opt/one.so"), nativeFrame("main", "/bin/x")),
		growingStack(50, nativeFrame("g", "/a/libx.so"), nativeFrame("run", "/opt/two.so"), nativeFrame("main", "/bin/x")),
	}
	if got := onlyCulprit(t, trends); got.Frame.Function != "main" {
		t.Errorf("%+v", got)
	}
}

func TestStacksThatShareNothingAreNamedByTheHeaviest(t *testing.T) {
	cut := func(growth float64, line int) StackTrend {
		trend := growingStack(growth, pythonFrame("leaf", "/src/train.py", line), pythonFrame("caller", "/src/train.py", line))
		trend.Stack.Truncated = "too deep"
		return trend
	}
	got := onlyCulprit(t, []StackTrend{cut(20, 1), cut(50, 2), cut(30, 3)})
	if got.Frame.Function != "leaf" || got.Frame.Line != 2 || got.Inclusive != 0.5 || got.Stacks != 3 {
		t.Errorf("%+v", got)
	}
}

func TestStacksThatWereNotKeptHaveNoOwner(t *testing.T) {
	lost := growingStack(10)
	lost.Stack.Truncated = "stack map full"
	if got := onlyCulprit(t, []StackTrend{lost}); got.Owner != "other" || got.Frame.Function != "[stack not kept: stack map full]" || len(got.Path) != 1 {
		t.Errorf("%+v", got)
	}
	if got := onlyCulprit(t, []StackTrend{growingStack(10)}); got.Frame.Function != "[stack unknown]" || len(got.Above) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestOnlyWhatGrowsIsToBlame(t *testing.T) {
	for trend, want := range map[Trend]int{
		TrendAccumulating: 1, TrendFilling: 1, "": 1, TrendChurn: 0, TrendRefill: 0, TrendNoGrowth: 0,
	} {
		stack := growingStack(10, mainLine)
		stack.Trend = trend
		if got := Culprits([]StackTrend{stack}, nil); len(got) != want {
			t.Errorf("%q: %d culprits, want %d", trend, len(got), want)
		}
	}
	if got := Culprits([]StackTrend{growingStack(0, mainLine), growingStack(-5, mainLine), growingStack(math.NaN(), mainLine)}, nil); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestACulpritHasTheSumsOfItsStacks(t *testing.T) {
	trends := []StackTrend{growingStack(50, mainLine), growingStack(30, mainLine), growingStack(40, mainLine)}
	for i := range trends {
		trends[i].Low = trends[i].Growth - float64(10*i) // 0, 10 and 20 less: 22.36 together
		trends[i].Rate, trends[i].Share = trends[i].Growth/10, trends[i].Growth/1000
	}
	trends[1].Trend, trends[2].Trend = TrendFilling, TrendFilling
	got := onlyCulprit(t, trends)
	if got.Growth != 120 || math.Abs(got.Low-(120-math.Sqrt(500))) > 1e-9 || got.Rate != 12 || math.Abs(got.Share-0.12) > 1e-12 || got.Trend != TrendFilling {
		t.Errorf("%+v", got)
	}
}

func TestTheOrderOfStacksChangesNothing(t *testing.T) {
	trends := numbered(append(scattered(60), growingStack(10, stepLine, mainLine), growingStack(10, mainLine)))
	want := Culprits(trends, nil)
	random := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		random.Shuffle(len(trends), func(i, j int) { trends[i], trends[j] = trends[j], trends[i] })
		if got := Culprits(trends, nil); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
}
