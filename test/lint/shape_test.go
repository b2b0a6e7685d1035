package main

import (
	"strings"
	"testing"
)

func TestShape(t *testing.T) {
	long := strings.Repeat("x", maxColumns)
	for name, test := range map[string]struct {
		source source
		want   shape
	}{
		"Go": {
			source{"a.go", "package a\n\nfunc f() {\n\tg()\n\n\tg()\n}\n\nfunc g() {}\n"},
			shape{lines: 9, bodyLines: 3, blankLines: 1},
		},
		"C": {
			source{"a.c", "struct s {\n\n};\nint f(void)\n{\n\tint a;\n\n\treturn 1;\n}\n"},
			shape{lines: 9, bodyLines: 3, blankLines: 1},
		},
		"long lines": {
			source{"a.c", long + "\n\t" + long + "\n" + long[:97] + "\t\n" + long[:96] + "\t\n"},
			shape{lines: 4, longLines: 2, worstPath: "a.c", worstCount: 2},
		},
		"letters of two bytes": {
			source{"a.go", "package a\n\n// " + strings.Repeat("ü", 97) + "\n"},
			shape{lines: 3},
		},
		"a URL": {source{"a.go", "package a\n\n// https://" + long + "\n"}, shape{lines: 3}},
		"a raw string": {
			source{"a.go", "package a\n\nfunc f() {\n\tg(`\n\n" + long + "x`)\n}\n"},
			shape{lines: 7, bodyLines: 3},
		},
		"another language": {source{"a.py", long + "x\n"}, shape{}},
	} {
		var got shape
		if err := got.add(test.source); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}

	if err := new(shape).add(source{"a.go", "package"}); err == nil {
		t.Error("a file that is no Go passes")
	}
}

func TestShapeFaults(t *testing.T) {
	for _, test := range []struct {
		shape shape
		want  int
	}{
		{shape{lines: 1000, longLines: 9, bodyLines: 100, blankLines: 6}, 0},
		{shape{lines: 1000, longLines: 10, bodyLines: 100, blankLines: 6}, 1},
		{shape{lines: 1000, longLines: 10, bodyLines: 100, blankLines: 5}, 2},
	} {
		if got := test.shape.faults(); len(got) != test.want {
			t.Errorf("%s: faults %q, want %d", test.shape, got, test.want)
		}
	}
}
