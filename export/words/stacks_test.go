package words

import (
	"testing"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

func TestWhereNamesTheFunctionItsFileAndItsNearestCallers(t *testing.T) {
	for name, test := range map[string]struct {
		accumulation export.Accumulation
		want         string
	}{
		"alone":         {export.Accumulation{Function: "leak", Kind: growth.KindHeap, Stack: []string{"leak"}}, "leak"},
		"with module":   {export.Accumulation{Function: "leak", Module: "/usr/lib/libx.so.1", Kind: growth.KindHeap, Stack: []string{"leak (/usr/lib/libx.so.1)"}}, "leak (libx.so.1)"},
		"without name":  {export.Accumulation{Function: "libx.so.1+0x12", Module: "/usr/lib/libx.so.1", Kind: growth.KindHeap, Stack: []string{"libx.so.1+0x12"}}, "libx.so.1+0x12"},
		"other kind":    {export.Accumulation{Function: "pool", Kind: growth.KindMmap, Stack: []string{"pool"}}, "[mmap] pool"},
		"three callers": {export.Accumulation{Function: "a", Kind: growth.KindHeap, Stack: []string{"a (/x)", "b (/x/y)", "c", "d", "e"}}, "a < b < c < d"},
		"Python near":   {export.Accumulation{Function: "a", Kind: growth.KindHeap, Stack: []string{"a (/x)", "b (/x/y)", "f (/d/f.py:7)", "c", "g (/g.py:1)"}}, "a < b < f (f.py:7) < c < g (g.py:1)"},
		"Python far":    {export.Accumulation{Function: "a", Kind: growth.KindHeap, Stack: []string{"a", "b", "c", "d", "f (/d/f.py:7)", "g (<string>:1)", "h (h.py:2)", "i (i.py:3)"}}, "a < b < ... < f (f.py:7) < g (<string>:1) < h (h.py:2)"},
		"Python alone":  {export.Accumulation{Function: "f", Kind: growth.KindHeap, Stack: []string{"f (/d/f.py:7)", "g (/d/g.py:8)"}}, "f (f.py:7) < g (g.py:8)"},
		"no stack":      {export.Accumulation{Function: "[stack unknown]", Kind: growth.KindHeap}, "[stack unknown]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Where(test.accumulation); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
