package words

import (
	"testing"

	"github.com/allocscope/allocscope/export"
)

func TestAShortPlaceBeginsWithTheCodeOfPython(t *testing.T) {
	for _, test := range []struct {
		stack        []string
		short, brief string
	}{
		{
			[]string{"grab (/lib/_imaging.so)", "new (/usr/lib/Image.py:7)", "load (/srv/train.py:47)", "main (/srv/train.py:60)", "<module> (/srv/train.py:99)"},
			"new (Image.py:7) < load (train.py:47) < main (train.py:60)", "new:7 < load:47 < main:60",
		},
		{
			[]string{
				"alloc (/lib/libtorch.so)", "_apply (/venv/lib/python3.12/site-packages/torch/nn/module.py:1)", "_apply (/venv/lib/python3.12/site-packages/torch/nn/module.py:2)",
				"run (/usr/lib/python3.12/threading.py:3)", "build.<locals>.<lambda> (/srv/train.py:4)", "main (/srv/train.py:5)",
			},
			"_apply (module.py:1) < ... < build.<locals>.<lambda> (train.py:4) < main (train.py:5)", "_apply:1 < ... < <lambda>:4 < main:5",
		},
		{
			[]string{"a (/usr/lib/python3/dist-packages/x.py:1)", "b (<frozen importlib._bootstrap>:2)", "c (/usr/lib/python3.11/y.py:3)", "d (/usr/lib/python3.11/y.py:4)"},
			"a (x.py:1) < b (<frozen importlib._bootstrap>:2) < c (y.py:3)", "a:1 < b:2 < c:3",
		},
		{[]string{"grab (/lib/libx.so)", "leak (/bin/x)"}, "grab < leak", "grab < leak"},
	} {
		a := export.Accumulation{Function: "grab", Module: "/lib/_imaging.so", Kind: "heap", Stack: test.stack}
		if got := WhereShort(a); got != test.short {
			t.Errorf("reads %q, want %q", got, test.short)
		}
		if got := WhereBrief(a); got != test.brief {
			t.Errorf("reads %q, want %q", got, test.brief)
		}
	}
	a := export.Accumulation{Function: "mmap", Kind: "mapping", Stack: []string{"mmap (/lib/libc.so)", "load (/srv/train.py:47)"}}
	if got, want := WhereBrief(a), "[mapping] load:47"; got != want {
		t.Errorf("reads %q, want %q", got, want)
	}
}
