package growth

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func ownersOf(t *testing.T, rules string) *Owners {
	t.Helper()
	o, err := ParseOwners("my.rules", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var (
	pilFrame   = pythonFrame("Image.resize", "/usr/lib/python3/dist-packages/PIL/Image.py", 2192)
	convFrame  = pythonFrame("Conv2d.forward", "/venv/lib/python3.12/site-packages/torch/nn/modules/conv.py", 5)
	torchFrame = nativeFrame("at::_ops::conv2d::call(at::Tensor const&)", "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so")
	jsonFrame  = pythonFrame("decode", "/usr/lib/python3.11/json/decoder.py", 3)
)

func TestTheOwnerIsWhoWouldHaveToRelease(t *testing.T) {
	libc, newFrame := "/lib/libc.so.6", nativeFrame("operator new(unsigned long)", "/lib/libstdc++.so.6")
	optimizer := pythonFrame("step", "/venv/lib/python3.12/site-packages/torch/optim/adamw.py", 7)
	engine := nativeFrame("torch::autograd::Engine::execute(...)", "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so")
	numpy := nativeFrame("PyArray_NewFromDescr", "/venv/lib/python3.12/site-packages/numpy/core/_multiarray_umath.so")
	for _, c := range []struct {
		name   string
		frames []Frame
		want   string
	}{
		{"what a model returns is its caller's", []Frame{mallocFrame, torchFrame, convFrame, stepLine, mainLine}, "train.py"},
		{"so is what the standard library returns", []Frame{mallocFrame, jsonFrame, stepLine}, "train.py"},
		{"and a library of C", []Frame{mallocFrame, newFrame, nativeFrame("parse", "/lib/libx.so"), stepLine}, "train.py"},
		{"of two that might hold it, the nearer to the leaf", []Frame{mallocFrame, pythonFrame("f", "/src/model.py", 1), stepLine}, "model.py"},
		{"the state of an optimizer", []Frame{mallocFrame, torchFrame, optimizer, stepLine}, "optimizer"},
		{"but not what its closure computes", []Frame{mallocFrame, torchFrame, convFrame, pythonFrame("closure", "/src/train.py", 4), optimizer, stepLine}, "train.py"},
		{"the backward pass", []Frame{mallocFrame, torchFrame, engine, stepLine}, "autograd"},
		{"but not what its hook keeps", []Frame{mallocFrame, torchFrame, pythonFrame("hook", "/src/train.py", 4), engine, stepLine}, "train.py"},
		{"an array", []Frame{mallocFrame, numpy, stepLine}, "numpy"},
		{"but not what numpy calls back", []Frame{mallocFrame, pythonFrame("f", "/src/train.py", 4), numpy, stepLine}, "train.py"},
		{"no Python: the library", []Frame{mallocFrame, newFrame, nativeFrame("grow", "/opt/libx.so"), nativeFrame("main", "/bin/x")}, "libx.so"},
		{"code without a file is its caller's", []Frame{mallocFrame, pythonFrame("__init__", "<string>", 2), stepLine}, "train.py"},
		{"the allocator's insides hold nothing", []Frame{nativeFrame("sysmalloc", "/opt/liballoc.so"), nativeFrame("malloc", "/opt/liballoc.so"), nativeFrame("main", "/src/leak")}, "leak"},
		{"nor does a layer below no Python", []Frame{mallocFrame, torchFrame, nativeFrame("main", "/src/infer")}, "infer"},
		{"layers alone", []Frame{mallocFrame, torchFrame, nativeFrame("start_thread", libc)}, "torch"},
		{"Python alone", []Frame{mallocFrame, pythonFrame("run", "/usr/lib/python3.11/threading.py", 1)}, "python"},
		{"an interpreter alone", []Frame{mallocFrame, nativeFrame("PyThread_start", "/usr/bin/python3.11")}, "python"},
		{"threads of OpenMP", []Frame{mallocFrame, nativeFrame("gomp_team_start", "/lib/libgomp.so.1")}, "openmp"},
		{"the C library alone", []Frame{mallocFrame, nativeFrame("start_thread", libc)}, "libc"},
		{"code in no module", []Frame{mallocFrame, {Function: "0x1234"}, nativeFrame("main", "/src/leak")}, "leak"},
		{"nothing known", []Frame{{Function: "0x1234"}}, "other"},
		{"not kept", nil, "other"},
	} {
		if got := DefaultOwners().Of(&Stack{Frames: c.frames, Truncated: "for a test"}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestMemoryWithoutAHolderIsOwnedByItsRoot(t *testing.T) {
	for root, want := range map[string]string{
		"[file: /data/train.bin]": "file", "[before tracing]": "before-tracing", "[heap: free but resident]": "libc", "[unexplained]": "other", "": "other",
	} {
		if got := DefaultOwners().Of(NamedStack(1, root, "arena 3")); got != want {
			t.Errorf("%q: %q, want %q", root, got, want)
		}
		held := (&Stack{Frames: []Frame{mallocFrame, pilFrame}}).Under(root)
		if got := DefaultOwners().Of(held); got != "pil" {
			t.Errorf("%q with a holder: %q", root, got)
		}
	}
}

func TestAUsersRulesGoFirst(t *testing.T) {
	o := ownersOf(t, `
# a comment, and a blank line

images	any   file /PIL/	# resized
decoder   leaf  file /json/  function ^decode$
-         leaf  file /train\.py$
loader    any   root ^\[file:.*\.parquet
`)
	for _, c := range []struct {
		want  string
		stack *Stack
	}{
		{"images", &Stack{Frames: []Frame{mallocFrame, pilFrame, stepLine}}},
		{"decoder", &Stack{Frames: []Frame{mallocFrame, jsonFrame, stepLine}}},
		{"run.py", &Stack{Frames: []Frame{mallocFrame, pythonFrame("encode", jsonFrame.File, 1), stepLine, pythonFrame("<module>", "/src/run.py", 2)}}},
		{"loader", NamedStack(1, "[file: /data/a.parquet]")},
		{"file", NamedStack(1, "[file: /data/a.bin]")},
		{"numpy", &Stack{Frames: []Frame{mallocFrame, nativeFrame("f", "/venv/lib/python3.12/site-packages/numpy/x.so"), stepLine}}},
	} {
		if got := o.Of(c.stack); got != c.want {
			t.Errorf("%+v: %q, want %q", c.stack, got, c.want)
		}
	}
}

func TestTheFirstRuleThatFitsDecides(t *testing.T) {
	a, b := "a any function ^f$\n", "b any function ^g$\n"
	s := &Stack{Frames: []Frame{nativeFrame("g", "/x.so"), nativeFrame("f", "/x.so")}}
	for rules, want := range map[string]string{a + b: "a", b + a: "b", "c leaf module x\n" + a: "c", a + "c leaf module x\n": "a"} {
		if got := ownersOf(t, rules).Of(s); got != want {
			t.Errorf("%q: %q, want %q", rules, got, want)
		}
	}
}

func TestAllPatternsOfARuleMustFitOneFrame(t *testing.T) {
	o := ownersOf(t, "both any function ^f$ module /x\\.so\n")
	for want, frames := range map[string][]Frame{
		"both": {nativeFrame("f", "/x.so")},
		"y.so": {nativeFrame("f", "/y.so"), nativeFrame("g", "/x.so")},
	} {
		if got := o.Of(&Stack{Frames: frames}); got != want {
			t.Errorf("%+v: %q, want %q", frames, got, want)
		}
	}
}

func TestRulesThatCannotBeReadNameTheLineAndTheCause(t *testing.T) {
	long := strings.Repeat("x", maxNameBytes+1)
	for text, want := range map[string]string{
		"pil any file /PIL/\nx":   "my.rules:2: 1 words, not COMPONENT any|leaf WHERE PATTERN",
		"x any file":              "3 words",
		"x any file a module":     "5 words",
		"x all file a":            `"all" is neither any nor leaf`,
		"x any line a":            `"line" is none of function, file, module and root`,
		"\n\nx any file (":        "my.rules:3: pattern of file: error parsing regexp: missing closing )",
		"x any file a module b":   "a file or a module, not both",
		"x leaf root a":           "a root is no leaf",
		"x any root a function b": "a root is no leaf, and has nothing but its name",
		"- any file a":            `component "-" is for leaf rules`,
		long + " any file a":      "component of more than 64 bytes",
		"x\x1b[2J any file a":     `component "x\x1b[2J" is not printable`,
		strings.Repeat("x any file a\n", maxRules+1): "my.rules:1001: more than 1000 rules",
		strings.Repeat("#", MaxOwnersBytes+1):             "my.rules: longer than 1048576 bytes",
	} {
		_, err := ParseOwners("my.rules", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// A target may make up names without end.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	o := ownersOf(t, "")
	for i := range 3 * maxCached {
		f := nativeFrame(fmt.Sprint(i), "/src/x.so") // one library with many functions, then many scripts
		if i > 2*maxCached {
			f = pythonFrame("f", fmt.Sprint("/src/", i, ".py"), 1)
		}
		if got, want := o.Of(&Stack{Frames: []Frame{f}}), placeOf(&f).ownName(); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
		known := len(o.places)
		if at := o.places[place{whereModule, "/src/x.so"}]; at != nil {
			known += len(at.functions)
		}
		if known > maxCached+3 {
			t.Fatalf("%d places and functions are remembered", known)
		}
	}
}

func TestOwnersServeSeveralAtOnce(t *testing.T) {
	o := ownersOf(t, "")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 1000 {
				if got := o.Of(&Stack{Frames: []Frame{nativeFrame("f", fmt.Sprint("/opt/", i%50, ".so"))}}); got != fmt.Sprint(i%50, ".so") {
					t.Error(got)
				}
			}
		})
	}
	group.Wait()
}

// Names are whatever the traced process makes up.
func FuzzOwners(f *testing.F) {
	for _, seed := range []string{"", "<", "<frozen >", "/site-packages//x", "/site-packages/torch//", "//", "\xff/..", "/torchinductor_/", "[file: ]"} {
		f.Add(seed, "f")
	}
	o, _ := ParseOwners("", nil)
	f.Fuzz(func(t *testing.T, place, function string) {
		for _, s := range []*Stack{
			{Frames: []Frame{pythonFrame(function, place, 1)}}, {Frames: []Frame{nativeFrame(function, place)}}, NamedStack(1, place, function),
		} {
			if owner := o.Of(s); owner == "" || len(owner) > max(len(place), len("inductor-compile")) {
				t.Errorf("%q belongs to %q", place, owner)
			}
			if got := Culprits([]StackTrend{{Stack: s, Growth: 1, Low: 1, Trend: TrendAccumulating}}, o); len(got) != 1 {
				t.Errorf("%q: %+v", place, got)
			}
		}
	})
}
