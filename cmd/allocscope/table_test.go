package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

func TestAQuotedPathIsOneWordForTheShell(t *testing.T) {
	for _, path := range []string{
		"allocscope-42-20260102-030405/growth.pb.gz", "/tmp/a b", "it's", "''", "$HOME", "`id`", "$(id)", "a;b", "a&b", "a|b", "*", "~", "#x", "!x", `back\slash`,
		"new\nline", "tab\t", "\xff\xfe", "é", "a=b", "{a,b}", "\"", "-dash", "\x1b[31m",
	} {
		out, err := exec.Command("sh", "-c", "printf %s. "+shellQuote(path)).Output()
		if err != nil || string(out) != path+"." {
			t.Errorf("%q is quoted as %s, which the shell reads as %q, %v", path, shellQuote(path), out, err)
		}
	}
}

func TestAPlainPathIsNotQuoted(t *testing.T) {
	if path := "/home/me/allocscope-42_x+y/growth.pb.gz"; shellQuote(path) != path {
		t.Errorf("quoted as %s", shellQuote(path))
	}
}

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
			if got := whereText(test.accumulation); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestATableOfNothingSaysSo(t *testing.T) {
	var out bytes.Buffer
	if err := printResult(&out, &export.Summary{Process: export.Process{PID: 42, Command: "job"}, DurationS: 1.25, Ended: export.EndedDuration}, "/tmp/my folder"); err != nil {
		t.Fatal(err)
	}
	mustSay(t, "the table", out.String(), "job (PID 42), 1.2 s, as long as asked for\n", "Nothing that was traced accumulated", "'/tmp/my folder/growth.pb.gz'\n")
	if strings.Contains(out.String(), "RSS") {
		t.Errorf("speaks of an RSS that is not known:\n%s", out.String())
	}
}
