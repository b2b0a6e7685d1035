package words

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// TestSiteLines has the lines of WHERE about one suspect.
func TestSiteLines(t *testing.T) {
	const add, run = "Meter.add (/app/train.py:12)", "main (/app/train.py:25)"
	for name, c := range map[string]struct {
		suspect summary.Suspect
		want    []string
	}{
		"one object": {
			summary.Suspect{
				Function: add, Path: []string{add}, Callers: []string{run},
				Replaced: &summary.Replaced{Objects: 1, Bytes: 42 << 20},
			},
			[]string{
				"train.py:12  Meter.add()   <- your code",
				"one object, replaced by a larger one at this line: 42.0 MiB now",
				"train.py:25  main()   <- caller",
			},
		},
		"several objects": {
			summary.Suspect{
				Function: add, Path: []string{add},
				Replaced: &summary.Replaced{Objects: 3, Bytes: 42 << 20},
			},
			[]string{
				"train.py:12  Meter.add()   <- your code",
				"3 objects, replaced by larger ones at this line: 42.0 MiB now",
			},
		},
		"a function in C below Python": {
			summary.Suspect{
				Function: add, Callers: []string{run}, Path: []string{
					add, "_ctypes_callproc (/usr/lib/python3.11/lib-dynload/_ctypes.so)",
					"ffi_call (/usr/lib/x86_64-linux-gnu/libffi.so.8)",
					"session_register (/app/libsession.so)", "xalloc (/app/libsession.so)",
				},
			},
			[]string{
				"train.py:12  Meter.add()   <- your code",
				"session_register (libsession.so)   <- your code in C",
				"train.py:25  main()   <- caller",
			},
		},
		"a library without names": {
			summary.Suspect{Function: add, Path: []string{add, "libx.so.1+0x4a6 (/usr/lib/libx.so.1)"}},
			[]string{"train.py:12  Meter.add()   <- your code; calls libx.so.1"},
		},
		"two lines and a long name": {
			summary.Suspect{
				Function: add, Path: []string{
					add, "_multiarray_umath.cpython-311-x86_64-linux-gnu.so+0xde138 (/usr/lib/numpy/core/" +
						"_multiarray_umath.cpython-311-x86_64-linux-gnu.so)",
				},
				Lines: []trend.LineShare{{Line: 12, Share: 0.5}, {Line: 13, Share: 0.5}},
			},
			[]string{"train.py:12 (50% of it), :13 (50%)  Meter.add()   <- your code"},
		},
		"a program in C": {
			summary.Suspect{
				Function: "createStringObject (/usr/bin/redis-server)",
				Path: []string{
					"createStringObject (/usr/bin/redis-server)", "zmalloc_usable (/usr/bin/redis-server)",
				},
				Callers: []string{"main (/usr/bin/redis-server)"},
			},
			[]string{
				"createStringObject (redis-server)   <- the program's own code",
				"main (redis-server)   <- caller",
			},
		},
		"no name at all": {
			summary.Suspect{Function: "libruby.so.3.1+0xd8484 (/usr/lib/libruby.so.3.1)"},
			[]string{"libruby.so.3.1+0xd8484   <- no symbols"},
		},
		"of another interpreter": {
			summary.Suspect{Function: "Perl_sv_grow (/usr/bin/perl)"},
			[]string{"Perl_sv_grow (perl)   <- no names of Perl here"},
		},
		"of Go's runtime": {
			summary.Suspect{Function: "runtime.sysMmap.abi0 (/app/goleak)"},
			[]string{
				"runtime.sysMmap.abi0 (goleak)   <- " +
					"Go: its own heap profile (net/http/pprof) has every call site",
			},
		},
		"of Go's runtime, by cgo": {
			summary.Suspect{Function: "x_cgo_mmap (/app/goleak)"},
			[]string{
				"x_cgo_mmap (goleak)   <- " +
					"Go: its own heap profile (net/http/pprof) has every call site",
			},
		},
		"spread": {
			summary.Suspect{
				Function: "bad_146 (/app/nist)", Path: []string{"bad_146 (/app/nist)"}, Sites: 150,
				Explains: 0.007, CommonCaller: "main (/app/nist)",
			},
			[]string{
				"150 call sites, none with more than 1%; the largest:",
				"bad_146 (nist)   <- the program's own code",
				"nist  main()   <- common caller",
			},
		},
	} {
		mustBe(t, siteLines(c.suspect, ""), c.want, name)
	}
}

// TestShares: where the growth has two causes, WHERE says of how much each line is.
func TestShares(t *testing.T) {
	share := 0.2
	site := summary.Suspect{Function: "shrink (/app/pool)", Path: []string{"shrink (/app/pool)"}, Share: &share}
	growing := func(cause diagnosis.Cause, percent float64) *summary.Summary {
		s := because(grown(verdict.ClassGrowing, verdict.ReasonStillGrowing), cause, percent)
		s.Suspects = []summary.Suspect{site}
		return s
	}
	for name, c := range map[string]struct {
		s    *summary.Summary
		want []string
	}{
		"freed alone": {
			growing(diagnosis.Fragmentation, 80), []string{"no call site: this memory is free"},
		},
		"kept beside": {
			because(growing(diagnosis.Fragmentation, 80), diagnosis.HeapLeak, 20), []string{
				" 80%  no call site: this memory is free",
				" 20%  shrink (pool)   <- the program's own code",
			},
		},
		"one cause": {
			growing(diagnosis.HeapLeak, 100), []string{"shrink (pool)   <- the program's own code"},
		},
	} {
		mustBe(t, whereLines(c.s, Place{}), c.want, name)
	}
}

// TestNativeStep: a program without Python has no list or dict.
func TestNativeStep(t *testing.T) {
	for want, frame := range map[string]string{
		"":                                    "load (/app/train.py:3)",
		"createStringObject()":                "createStringObject (/usr/bin/redis-server)",
		"main.remember() allocates: Go's own": "main.remember (/app/tool)",
		"heap snapshots":                      "node::Buffer::New (/usr/bin/node)",
		"jcmd 7 GC.class_histogram":           "os::malloc (/usr/lib/jvm/lib/server/libjvm.so)",
		"cache of its Perl code that grows":   "Perl_sv_grow (/usr/bin/perl)",
		"ObjectSpace.dump_all":                "rb_str_times (/usr/lib/libruby-3.1.so.3.1.2)",
		"dash code is not read":               "savestr (/usr/bin/dash)",
	} {
		s := &summary.Summary{Process: summary.Process{PID: 7}}
		path := []string{frame}
		if frame == "main.remember (/app/tool)" {
			path = append(path, "runtime.mallocgc (/app/tool)")
		}
		s.Suspects = []summary.Suspect{{Function: frame, Path: path}}
		got := nativeStep(s, diagnosis.HeapLeak)
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q", frame, got)
		}
	}
}

// TestUnkept names the runtime whose references cannot be read, and says why nothing is known of
// the blocks of a malloc. Memory that nothing refers to is in no heap of an interpreter.
func TestUnkept(t *testing.T) {
	for want, k := range map[string]summary.Keeper{
		"kept by: not known, as the references of V8's heap cannot be read": {
			Samples: 16, Reason: keeper.ReasonRuntime, Runtime: "V8",
		},
		"kept by: not found (the blocks of this malloc are not known)": {
			Reason: keeper.ReasonAllocator,
		},
		"kept by: not found (no CPU time was left); it had 10 s at most: trace a smaller run": {
			Reason: keeper.ReasonBudget,
		},
		"kept by: not found (no CPU time was left); --overhead off gives a search 10 s": {
			Reason: keeper.ReasonBudget, Earlier: true,
		},
		"kept by nothing that one search has found, in 16 of 16 samples": {
			Samples: 16, Reason: keeper.ReasonRuntime, Runtime: "Perl", Lost: 16,
		},
	} {
		k.PID, k.StackID = 7, "1"
		s := growingBy(diagnosis.HeapLeak, 1, 0, "New (/usr/bin/node)")
		s.Suspects[0].StackIDs, s.Keepers = []string{"1"}, []summary.Keeper{k}
		mustBe(t, unkeptLine(s, Place{}), []string{want})
	}
}

// TestTimeRemedy names what would have given a search more time.
func TestTimeRemedy(t *testing.T) {
	late, early := &summary.Keeper{}, &summary.Keeper{Earlier: true}
	unlimited := &summary.Summary{Overhead: &summary.Overhead{}}
	if got := timeRemedy(unlimited, early); strings.Contains(got, "--overhead") {
		t.Errorf("%q, and it is off", got)
	}
	stopped := &summary.Summary{Ended: summary.EndedInterrupt}
	if got := timeRemedy(stopped, late); !strings.Contains(got, "--duration") {
		t.Errorf("%q after Ctrl-C", got)
	}
}

// TestUnkeptReplaced: an object that is replaced all the time has no keeper to look for.
func TestUnkeptReplaced(t *testing.T) {
	s := growingBy(diagnosis.HeapLeak, 1, 0, "cat (/app/train.py:9)")
	s.Objects = &summary.Objects{Types: []summary.TypeGrowth{{Type: "torch.Tensor"}}}
	if got := unkeptLine(s, Place{}); len(got) == 0 {
		t.Error("nothing is said of an object that stays")
	}
	s.Suspects[0].Replaced = &summary.Replaced{Objects: 1, Bytes: 1 << 20}
	if got := unkeptLine(s, Place{}); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestHolderText names the user's functions and no script.
func TestHolderText(t *testing.T) {
	suspect := func(component, frame string) summary.Suspect {
		return summary.Suspect{Component: component, Function: frame, Path: []string{frame}}
	}
	load, grow := suspect("train.py", "load (/app/train.py:3)"), suspect("train.py", "grow (/app/train.py:9)")
	module := suspect("train.py", "<module> (/app/train.py:1)")
	spread := load
	spread.Sites = 40

	for want, suspects := range map[string][]summary.Suspect{
		"load()":            {load},
		"load() and grow()": {load, grow},
		"train.py":          {module},
		"40 call sites":     {spread},
		"Pillow (pil)":      {suspect("pil", "load (/app/train.py:3)"), load},
		"serve()":           {suspect("tool", "serve (/app/tool)")},
		"Store::add(int)":   {suspect("tool", "Store::add(int) (/app/tool)")},
		"libruby.so":        {suspect("libruby.so", "libruby.so+0x1 (/usr/lib/libruby.so)")},
		"main()":            {suspect("pkg", "main (/app/pkg/__init__.py:4)")},
		"3 functions":       {load, grow, suspect("train.py", "f (/app/train.py:8)")},
	} {
		if got, isPlural := holderText(suspects); got != want ||
			isPlural != (strings.Contains(want, " and ") || want[0] <= '9') {
			t.Errorf("%q, plural %v, want %q", got, isPlural, want)
		}
	}
}

// TestMissingPython has the reasons why stacks lack the frames of Python.
func TestMissingPython(t *testing.T) {
	s := &summary.Summary{Process: summary.Process{PID: 7}, Events: growth.Events{Stacks: 100}}
	missing := func() string {
		s.Evidence = nil
		s.AddLimits(nil)
		return missingPython(s)
	}

	mustBe(t, missing(), "", "without a reason")

	thread := growth.Loss{
		Kind: growth.LossPythonFrames, Cause: growth.TruncatedPythonThread, Count: 50, PID: 7,
	}
	s.Losses = []growth.Loss{thread}
	if got := missing(); !strings.Contains(got, "too many threads") {
		t.Errorf("no thread: %q", got)
	}
	s.Losses[0].Count = 1
	mustBe(t, missing(), "", "one stack of a hundred")

	s.Sources = []summary.Source{{Name: "python", PID: 7, State: summary.SourceFailed}}
	native := summary.Suspect{Function: "PyList_New (/usr/bin/python3.15)"}
	want := "PyList_New (python3.15)   <- no Python frames: allocscope cannot read this Python"
	if got := siteLines(native, missing()); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}
