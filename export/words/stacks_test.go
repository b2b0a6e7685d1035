package words

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/trend"
)

func TestWhere(t *testing.T) {
	heap := growth.KindHeap
	for name, test := range map[string]struct {
		kind   growth.Kind
		module string
		stack  []string
		want   string
	}{
		"alone": {heap, "", []string{"leak"}, "leak"},
		"with module": {
			heap, "/usr/lib/libx.so.1", []string{"leak (/usr/lib/libx.so.1)"}, "leak (libx.so.1)",
		},
		"without name":  {heap, "/usr/lib/libx.so.1", []string{"libx.so.1+0x12"}, "libx.so.1+0x12"},
		"other kind":    {growth.KindMmap, "", []string{"pool"}, "[mmap] pool"},
		"three callers": {heap, "", []string{"a (/x)", "b (/x/y)", "c", "d", "e"}, "a < b < c < d"},
		"Python near": {
			heap, "",
			[]string{"a (/x)", "b (/x/y)", "f (/d/f.py:7)", "c", "g (/g.py:1)"},
			"a < b < f (f.py:7) < c < g (g.py:1)",
		},
		"Python far": {
			heap, "",
			[]string{"a", "b", "c", "d", "f (/d/f.py:7)", "g (<string>:1)", "h (h.py:2)", "i (i.py:3)"},
			"a < b < ... < f (f.py:7) < g (<string>:1) < h (h.py:2)",
		},
		"Python alone": {
			heap, "", []string{"f (/d/f.py:7)", "g (/d/g.py:8)"}, "f (f.py:7) < g (g.py:8)",
		},
		"no stack": {heap, "", nil, "[stack unknown]"},
	} {
		a := summary.Accumulation{
			Function: "[stack unknown]", Module: test.module, Kind: test.kind, Stack: test.stack,
		}
		if len(test.stack) > 0 {
			a.Function, _, _ = strings.Cut(test.stack[0], " ")
		}
		mustBe(t, Where(a), test.want, name)
	}

	t.Run("short", func(t *testing.T) {
		for _, test := range []struct {
			stack        []string
			short, brief string
		}{
			{
				[]string{
					"grab (/lib/_imaging.so)", "new (/usr/lib/Image.py:7)",
					"load (/srv/train.py:47)", "main (/srv/train.py:60)",
					"<module> (/srv/train.py:99)",
				},
				"new (Image.py:7) < load (train.py:47) < main (train.py:60)",
				"new:7 < load:47 < main:60",
			},
			{
				[]string{
					"alloc (/lib/libtorch.so)",
					"_apply (/venv/lib/python3.12/site-packages/torch/nn/module.py:1)",
					"_apply (/venv/lib/python3.12/site-packages/torch/nn/module.py:2)",
					"run (/usr/lib/python3.12/threading.py:3)",
					"build.<locals>.<lambda> (/srv/train.py:4)", "main (/srv/train.py:5)",
				},
				"_apply (module.py:1) < ... < build.<locals>.<lambda> (train.py:4) < main (train.py:5)",
				"_apply:1 < ... < <lambda>:4 < main:5",
			},
			{
				[]string{
					"a (/usr/lib/python3/dist-packages/x.py:1)",
					"b (<frozen importlib._bootstrap>:2)", "c (/usr/lib/python3.11/y.py:3)",
					"d (/usr/lib/python3.11/y.py:4)",
				},
				"a (x.py:1) < b (<frozen importlib._bootstrap>:2) < c (y.py:3)", "a:1 < b:2 < c:3",
			},
			{[]string{"grab (/lib/libx.so)", "leak (/bin/x)"}, "grab < leak", "grab < leak"},
		} {
			a := summary.Accumulation{
				Function: "grab", Module: "/lib/_imaging.so", Kind: heap, Stack: test.stack,
			}
			mustBe(t, WhereShort(a), test.short)
			mustBe(t, WhereBrief(a), test.brief)
		}

		a := summary.Accumulation{
			Function: "mmap", Kind: "mapping",
			Stack: []string{"mmap (/lib/libc.so)", "load (/srv/train.py:47)"},
		}
		if got, want := WhereBrief(a), "[mapping] load:47"; got != want {
			t.Errorf("reads %q, want %q", got, want)
		}
	})
}

func TestSuspect(t *testing.T) {
	load, main := "load (/srv/train.py:47)", "main (/srv/train.py:60)"
	resize := "Image.resize (/usr/lib/python3/dist-packages/PIL/Image.py:2192)"
	one := []trend.LineShare{{Line: 47, Share: 0.9}}
	two := []trend.LineShare{{Line: 47, Share: 0.6}, {Line: 49, Share: 0.35}}
	for _, test := range []struct {
		suspect summary.Suspect
		want    string
	}{
		{
			summary.Suspect{
				Function: load, Lines: one, Explains: 1, Path: []string{load, resize, "new (/x.so)"},
				Callers: []string{main, "<module> (/srv/train.py:90)", "exec (/x.so)"},
			},
			"load (train.py:47) < main (train.py:60) < <module> (train.py:90), calls Image.resize",
		},
		{
			summary.Suspect{
				Function: load, Lines: two, Explains: 0.82, Path: []string{load},
				Callers: []string{main},
			},
			"load (train.py:47 60%, :49 35%) < main (train.py:60) (82% of it)",
		},
		{
			summary.Suspect{
				Function: resize, Explains: 1, Path: []string{resize, "new (/srv/x.py:3)"},
				NewCodePerMin: 12,
			},
			"Image.resize (Image.py:2192); recompiles: 12.0 newly mapped kernels a minute",
		},
		{
			summary.Suspect{Function: "grow (/bin/x)", Explains: 1, Path: []string{"grow (/bin/x)"}},
			"grow",
		},
		{
			summary.Suspect{
				Function: "grow (/bin/x)", Explains: 0.02, Path: []string{"grow (/bin/x)"}, Sites: 150,
				CommonCaller: "main (/bin/x)",
			},
			"grow (2% of it); the largest of 150 call sites, common caller main",
		},
	} {
		mustBe(t, Suspect(test.suspect), test.want)
	}
}

func TestFrameClass(t *testing.T) {
	for frame, want := range map[string]string{
		"step (/src/train.py:40)": "python", "<module> (<string>:1)": "python",
		"resize (/src/_image.pyx:7)": "python",
		"leak (/src/leak.c:12)":      "native", "free (/lib/libc.so.6)": "native",
		"f(int) (/x.py)": "native", "": "native", "[a": "native",
		"[truncated: more than 127 frames]": "root", "[file: /data/train.bin]": "root",
	} {
		mustBe(t, FrameClass(frame), want, frame)
	}
}
