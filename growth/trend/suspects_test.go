package trend

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth/growthtest"

	"github.com/allocscope/allocscope/growth"
)

// growingStack is a stack that accumulates so many bytes.
func growingStack(bytes float64, frames ...growth.Frame) StackTrend {
	return StackTrend{
		Stack: &growth.Stack{ID: 1, PID: 1, Frames: frames}, Kind: growth.KindHeap, Growth: bytes,
		Low: bytes, Trend: growth.TrendAccumulating,
	}
}

func numbered(trends []StackTrend) []StackTrend {
	for i := range trends {
		trends[i].Stack.ID = uint64(i + 1)
	}
	return trends
}

func onlySuspect(t *testing.T, trends []StackTrend) Suspect {
	t.Helper()
	suspects := Suspects(numbered(trends), nil)
	if len(suspects) != 1 {
		t.Fatalf("%d suspects, want one: %+v", len(suspects), suspects)
	}
	return suspects[0]
}

func functionsOf(frames []growth.Frame) string {
	var names []string
	for _, f := range frames {
		names = append(names, f.Function)
	}
	return strings.Join(names, ", ")
}

// mustBeSuspects checks the suspects: function, lines with their shares in percent unless it is one,
// and growth in bytes.
func mustBeSuspects(t *testing.T, trends []StackTrend, want ...string) {
	t.Helper()
	var got []string
	for _, s := range Suspects(numbered(trends), nil) {
		text := s.Frame.Function
		for _, l := range s.Lines {
			text += fmt.Sprintf(":%d", l.Line)
			if len(s.Lines) > 1 {
				text += fmt.Sprintf("(%.0f%%)", 100*l.Share)
			}
		}
		got = append(got, fmt.Sprintf("%s %.0f", text, s.Growth))
	}
	if !slices.Equal(got, want) {
		t.Errorf("suspects %q, want %q", got, want)
	}
}

const inductor = "/usr/lib/python3/dist-packages/torch/_inductor/"

var (
	mallocFrame = growthtest.NativeFrame("malloc", "/lib/libc.so.6")
	mainLine    = scriptLine("<module>", 100)
	stepLine    = scriptLine("train_step", 42)
	compileLine = growthtest.PythonFrame("compile", inductor+"compile_fx.py", 7)
)

func scriptLine(function string, line int) growth.Frame {
	return growthtest.PythonFrame(function, "/src/train.py", line)
}

// scattered is n stacks of like growth below two lines; each of them is small.
func scattered(n int) []StackTrend {
	var trends []StackTrend
	for i := range n {
		leaf := growthtest.PythonFrame("lower", inductor+"lowering.py", i)
		trends = append(trends, growingStack(10+float64(i%7), mallocFrame,
			growthtest.NativeFrame("PyObject_New", "/bin/python"), leaf, compileLine, stepLine,
			mainLine))
	}
	return trends
}

func TestSuspects(t *testing.T) {
	t.Run("the line that hundreds of leaves share", func(t *testing.T) {
		got := onlySuspect(t, scattered(300))
		if got.Component != "inductor-compile" || got.Frame != stepLine || got.Stacks != 300 ||
			math.Abs(got.Inclusive-1) > 1e-9 {
			t.Errorf("%+v", got)
		}
		// The stacks are numbered from 1; every seventh grows most.
		if len(got.StackIDs) != maxStackIDs || !slices.Equal(got.StackIDs[:3], []uint64{7, 14, 21}) {
			t.Errorf("%d stacks, first %v", len(got.StackIDs), got.StackIDs[:3])
		}
		if above := functionsOf(got.Above); above != "<module>" {
			t.Errorf("above: %s", above)
		}
		if functionsOf(got.Path) != "train_step, compile, lower, PyObject_New" ||
			got.Path[2].Line != 6 { // the first of the heaviest leaves
			t.Errorf("path: %+v", got.Path)
		}
	})

	t.Run("one per component", func(t *testing.T) {
		pillow := growthtest.PythonFrame("open", "/usr/lib/python3/dist-packages/PIL/Image.py", 3)
		trends := append(
			scattered(20),
			growingStack(5000, mallocFrame, pillow, stepLine, mainLine),
			growingStack(4, mallocFrame, growthtest.NativeFrame("strdup", "/lib/libc.so.6"),
				growthtest.NativeFrame("run", "/opt/libnccl.so.2")),
		)
		var components []string
		for _, c := range Suspects(numbered(trends), nil) {
			components = append(components, c.Component+" "+c.Frame.Function)
		}
		want := []string{"pil train_step", "inductor-compile train_step", "nccl run"}
		if !slices.Equal(components, want) {
			t.Errorf("components %v, want %v", components, want)
		}
	})

	// One function is called from many addresses, and of one name in two libraries.
	t.Run("native frames are the same by function and module", func(t *testing.T) {
		main := growthtest.NativeFrame("main", "/bin/x")
		var trends []StackTrend
		for i := range 10 {
			grow := growthtest.NativeFrame("grow", "/opt/libx.so")
			grow.Address, grow.Line = uint64(i), i
			caller := growthtest.NativeFrame(fmt.Sprint("f", i), "/opt/libx.so")
			trends = append(trends, growingStack(10, mallocFrame, caller, grow, main))
		}
		if got := onlySuspect(t, trends); got.Frame.Function != "grow" || got.Inclusive != 1 ||
			got.Component != "libx.so" {
			t.Errorf("%+v", got)
		}

		var twoLibraries []StackTrend
		for _, module := range []string{"/opt/one.so", "/opt/two.so"} {
			leaf := growthtest.NativeFrame("f in "+module, "/a/libx.so")
			run := growthtest.NativeFrame("run", module)
			twoLibraries = append(twoLibraries, growingStack(50, leaf, run, main))
		}
		if got := Suspects(numbered(twoLibraries), nil); len(got) != 2 {
			t.Errorf("%+v", got)
		}
	})

	t.Run("stacks that share nothing", func(t *testing.T) {
		cut := func(growth float64, line int) StackTrend {
			trend := growingStack(growth, scriptLine(fmt.Sprint("leaf", line), line),
				scriptLine(fmt.Sprint("caller", line), line))
			trend.Stack.Truncated = "too deep"
			return trend
		}
		mustBeSuspects(t, []StackTrend{cut(20, 1), cut(50, 2), cut(30, 3)},
			"leaf2:2 50", "leaf3:3 30", "leaf1:1 20")
	})

	t.Run("lost stacks", func(t *testing.T) {
		lost := growingStack(10)
		lost.Stack.Truncated = "stack map full"
		if got := onlySuspect(t, []StackTrend{lost}); got.Component != "other" ||
			got.Frame.Function != "[stack not kept: stack map full]" || len(got.Path) != 1 {
			t.Errorf("%+v", got)
		}
		if got := onlySuspect(t, []StackTrend{growingStack(10)}); got.Frame.Function != "[stack unknown]" ||
			len(got.Above) != 0 {
			t.Errorf("%+v", got)
		}
	})

	t.Run("only what grows", func(t *testing.T) {
		never := []growth.Trend{
			growth.TrendTransient, growth.TrendRefilled, growth.TrendNoGrowth,
			growth.TrendUndecided,
		}
		for _, trend := range append(never, growth.TrendAccumulating, "") {
			stack := growingStack(10, mainLine)
			stack.Trend = trend
			isSuspect := len(Suspects([]StackTrend{stack}, nil)) == 1
			if isSuspect == slices.Contains(never, trend) {
				t.Errorf("%q: suspect: %v", trend, isSuspect)
			}
		}
		for _, bytes := range []float64{0, -5, math.NaN()} {
			if got := Suspects([]StackTrend{growingStack(bytes, mainLine)}, nil); len(got) != 0 {
				t.Errorf("%+v", got)
			}
		}
	})

	t.Run("sums", func(t *testing.T) {
		trends := []StackTrend{
			growingStack(50, mainLine), growingStack(30, mainLine), growingStack(40, mainLine),
		}
		for i := range trends {
			trends[i].Low = trends[i].Growth - float64(10*i) // 0, 10 and 20 less: 22.36 together
			trends[i].Rate, trends[i].Share = trends[i].Growth/10, trends[i].Growth/1000
		}
		trends[1].Trend, trends[2].Trend = growth.TrendSaturating, growth.TrendSaturating
		got := onlySuspect(t, trends)
		if got.Growth != 120 || math.Abs(got.Low-(120-math.Sqrt(500))) > 1e-9 || got.Rate != 12 ||
			math.Abs(got.Share-0.12) > 1e-12 || got.Trend != growth.TrendSaturating {
			t.Errorf("%+v", got)
		}
	})

	t.Run("the order of stacks changes nothing", func(t *testing.T) {
		trends := numbered(
			append(scattered(60), growingStack(10, stepLine, mainLine), growingStack(10, mainLine)),
		)
		want := Suspects(trends, nil)
		random := rand.New(rand.NewPCG(3, 4))
		for range 20 {
			random.Shuffle(len(trends),
				func(i, j int) { trends[i], trends[j] = trends[j], trends[i] })
			if got := Suspects(trends, nil); !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
	})
}

func TestBranches(t *testing.T) {
	const packages = "/venv/lib/python3.13/site-packages/"
	line := scriptLine
	library := func(function string, line int) growth.Frame {
		return growthtest.PythonFrame(function, "/usr/lib/python3.13/json/decoder.py", line)
	}
	dynamo := func(function string) growth.Frame {
		return growthtest.PythonFrame(function, packages+"torch/_dynamo/convert_frame.py", 5)
	}
	native := func(function string) growth.Frame {
		return growthtest.NativeFrame(function, "/srv/server")
	}
	torch := func(function string) growth.Frame {
		return growthtest.NativeFrame(function, packages+"torch/lib/libtorch_cpu.so")
	}
	thread := growthtest.PythonFrame(
		"Thread._bootstrap_inner", "/usr/lib/python3.13/threading.py", 1041)
	// numbers of the same function, each from other code below it
	scatter := func(n int, frames ...growth.Frame) (trends []StackTrend) {
		for i := range n {
			leaf := line(fmt.Sprint("leaf", i), i)
			trends = append(trends, growingStack(1, append([]growth.Frame{leaf}, frames...)...))
		}
		return trends
	}

	for _, c := range []struct {
		name   string
		trends []StackTrend
		want   []string
	}{
		{
			"two functions that main calls",
			[]StackTrend{
				growingStack(66, line("images", 5), line("main", 20), mainLine),
				growingStack(33, line("arrays", 9), line("main", 21), mainLine),
				growingStack(1, line("log", 12), line("main", 22), mainLine),
			},
			[]string{"images:5 66", "arrays:9 33"},
		},
		{
			"two lines of main that allocate",
			[]StackTrend{
				growingStack(66, line("main", 20), mainLine),
				growingStack(33, line("main", 21), mainLine),
				growingStack(1, line("main", 22), mainLine),
			},
			[]string{"main:20(66%):21(33%) 100"},
		},
		{
			"two lines of main that a library allocates for",
			[]StackTrend{
				growingStack(66, library("decode", 3), line("main", 20), mainLine),
				growingStack(34, library("decode", 3), line("main", 21), mainLine),
			},
			[]string{"main:20(66%):21(34%) 100"},
		},
		{
			"a line of main, and a function that it calls",
			[]StackTrend{
				growingStack(50, line("main", 20), mainLine),
				growingStack(50, line("images", 5), line("main", 21), mainLine),
			},
			[]string{"main:20 50", "images:5 50"},
		},
		{
			"two lines of a function",
			[]StackTrend{
				growingStack(60, line("evaluate", 31), line("main", 50), mainLine),
				growingStack(40, line("evaluate", 33), line("main", 50), mainLine),
			},
			[]string{"evaluate:31(60%):33(40%) 100"},
		},
		{
			"most through one line of a function",
			[]StackTrend{
				growingStack(85, line("evaluate", 31), mainLine),
				growingStack(15, line("evaluate", 33), mainLine),
			},
			[]string{"evaluate:31 100"},
		},
		{
			"a function that explains most is the only one",
			[]StackTrend{
				growingStack(85, line("images", 5), line("main", 20), mainLine),
				growingStack(15, line("arrays", 9), line("main", 21), mainLine),
			},
			[]string{"images:5 100"},
		},
		{
			"two callers of a function",
			[]StackTrend{
				growingStack(40, line("keep", 5), line("train", 20), line("main", 60), mainLine),
				growingStack(30, line("keep", 5), line("test", 30), line("main", 61), mainLine),
				growingStack(30, line("log", 9), line("main", 62), mainLine),
			},
			[]string{"keep:5 70", "log:9 30"},
		},
		{
			"functions of one name",
			[]StackTrend{
				growingStack(60, growth.Frame{
					Function: "f", File: "/src/a.py", Line: 3, StartLine: 1, Python: true,
				}, mainLine),
				growingStack(40, growth.Frame{
					Function: "f", File: "/src/a.py", Line: 9, StartLine: 8, Python: true,
				}, mainLine),
			},
			[]string{"f:3 60", "f:9 40"},
		},
		{
			"threads",
			[]StackTrend{
				growingStack(50, line("read", 5), line("Reader.run", 7), thread),
				growingStack(30, line("write", 6), line("Writer.run", 9), thread),
				growingStack(20, line("main", 99), mainLine),
			},
			[]string{"read:5 50", "write:6 30", "main:99 20"},
		},
		{
			"no branch has a tenth",
			slices.Concat(scatter(15, mainLine), []StackTrend{growingStack(1.5, line("f", 7), mainLine)}),
			[]string{"f:7 16"}, // all of it, spread; f is the largest
		},
		{
			"no line has a tenth",
			func() (trends []StackTrend) {
				for i := range 20 {
					trends = append(trends, growingStack(1, line("table", 10+i), mainLine))
				}
				return trends
			}(),
			[]string{"table:10 20"},
		},
		{
			"compiled function",
			[]StackTrend{
				growingStack(50, dynamo("compile_inner"), dynamo("call"), line("main", 40), mainLine),
				growingStack(50, dynamo("transform"), dynamo("call"), line("main", 40), mainLine),
			},
			[]string{"main:40 100"},
		},
		{
			"generated code, console script",
			[]StackTrend{growingStack(
				10,
				growthtest.PythonFrame("call", "/tmp/torchinductor_me/ab/cab.py", 7),
				growthtest.PythonFrame("forward", "<eval_with_key>.3", 8),
				line("step", 9),
				growthtest.PythonFrame("<module>", "/opt/venv/bin/torchrun", 8),
			)},
			[]string{"step:9 10"},
		},
		{
			"no code of the user",
			[]StackTrend{
				growingStack(70, torch("grow"), dynamo("compile_inner"), thread),
				growingStack(30, torch("grow"), dynamo("transform"), thread),
			},
			[]string{"compile_inner:5 70", "transform:5 30"},
		},
		{
			"native code of the user below Python of others",
			[]StackTrend{
				growingStack(70, torch("grow"), native("encode"), dynamo("compile_inner"), thread),
				growingStack(30, torch("grow"), native("encode"), dynamo("transform"), thread),
			},
			[]string{"encode 100"},
		},
		{
			"a gap is no code",
			[]StackTrend{
				growingStack(50, native("one"), growth.Frame{Function: growth.FramesLeftOut},
					native("main")),
				growingStack(50, native("two"), growth.Frame{Function: growth.FramesLeftOut},
					native("main")),
			},
			[]string{"one 50", "two 50"},
		},
		{
			"native threads",
			[]StackTrend{
				growingStack(70, mallocFrame, native("serve"), native("start_thread"), native("clone3")),
				growingStack(30, mallocFrame, native("main"), native("__libc_start_call_main")),
			},
			[]string{"serve 70", "main 30"},
		},
	} {
		t.Run(c.name, func(t *testing.T) { mustBeSuspects(t, c.trends, c.want...) })
	}
}

func TestLowestCommonFunction(t *testing.T) {
	t.Run("a recursive function counts once", func(t *testing.T) {
		visit := scriptLine("visit", 20)
		var trends []StackTrend
		for i := range 30 {
			frames := []growth.Frame{mallocFrame, scriptLine(fmt.Sprint("leaf", i), 1000+i)}
			for range 1 + i%5 {
				frames = append(frames, visit)
			}
			trends = append(trends, growingStack(10, append(frames, mainLine)...))
		}
		trends = append(trends, growingStack(70, scriptLine("other", 30), mainLine))
		got := onlySuspect(t, trends)
		if got.Frame != visit || math.Abs(got.Inclusive-300.0/370) > 1e-9 {
			t.Errorf("%+v", got)
		}
		if functionsOf(got.Path) != "visit, leaf0" {
			t.Errorf("the path turns in a circle: %s", functionsOf(got.Path))
		}
	})

	t.Run("the path follows the growth", func(t *testing.T) {
		line := func(function string) growth.Frame { return scriptLine(function, 1) }
		got := onlySuspect(t, []StackTrend{
			growingStack(10, line("alone"), stepLine, mainLine),
			growingStack(8, line("one"), line("both"), stepLine, mainLine),
			growingStack(9, line("two"), line("both"), stepLine, mainLine),
			growingStack(12, stepLine, mainLine), // ends at the suspect
		})
		if functionsOf(got.Path) != "train_step, both, two" || functionsOf(got.Above) != "<module>" {
			t.Errorf("path: %s", functionsOf(got.Path))
		}
		got = onlySuspect(t, []StackTrend{
			growingStack(10, line("alone"), stepLine, mainLine), growingStack(12, stepLine, mainLine),
		})
		if functionsOf(got.Path) != "train_step" {
			t.Errorf("most of it ends here: %s", functionsOf(got.Path))
		}
	})

	// In a tree of calls in which every function has one caller, the frames that explain enough lie
	// on one way down from the root. Where no function allocates a tenth itself, the growth is
	// spread, and they all meet in the common caller.
	t.Run("random call trees", func(t *testing.T) {
		random, spread := rand.New(rand.NewPCG(5, 6)), 0
		for tree := range 300 {
			const nodes = 40
			parent := make([]int, nodes)
			below := make([]float64, nodes)
			own := make([]float64, nodes)
			var trends []StackTrend
			for node := range nodes {
				if node > 0 {
					parent[node] = max(random.IntN(node), node-1-random.IntN(8))
				}
				own[node] = math.Ceil(random.ExpFloat64() * random.ExpFloat64() * 100)
				if tree%2 == 0 {
					own[node] = 100 + float64(random.IntN(100))
				}
				var frames []growth.Frame
				for at := node; ; at = parent[at] {
					frames = append(frames, scriptLine(fmt.Sprint("f", at), at))
					below[at] += own[node]
					if at == 0 {
						break
					}
				}
				trends = append(trends, growingStack(own[node], frames...))
			}
			want := 0
			for node := range nodes {
				if below[node] >= 0.8*below[0] { // callees have higher numbers
					want = node
				}
			}

			got, largest := onlySuspect(t, trends), slices.Max(own)
			if largest >= 0.1*below[0] {
				if got.Sites != 0 || got.Frame.Line != want ||
					math.Abs(got.Inclusive-below[want]/below[0]) > 1e-9 {
					t.Fatalf("%+v, want f%d", got, want)
				}
				continue
			}
			spread++
			if got.Sites != nodes || own[got.Frame.Line] != largest || got.Common.Line != want {
				t.Fatalf("%+v, want %d sites below f%d", got, nodes, want)
			}
		}
		if spread < 100 || spread > 200 {
			t.Errorf("the growth of %d of 300 trees is spread", spread)
		}
	})
}
