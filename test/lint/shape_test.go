package main

import (
	"reflect"
	"strings"
	"testing"
)

func oneBody(all, blank int) map[string]bodyLines { return map[string]bodyLines{".": {all, blank}} }

func TestShape(t *testing.T) {
	long := strings.Repeat("x", maxColumns)
	for name, test := range map[string]struct {
		source source
		want   shape
	}{
		"Go": {
			source{"a.go", "package a\n\nfunc f() {\n\tg()\n\n\tg()\n}\n\nfunc g() {}\n"},
			shape{lines: 9, bodies: oneBody(3, 1)},
		},
		"C": {
			source{"a.c", "struct s {\n\n};\nint f(void)\n{\n\tint a;\n\n\treturn 1;\n}\n"},
			shape{lines: 9, bodies: oneBody(0, 0)},
		},
		"long lines": {
			source{"a.c", long + "\n\t" + long + "\n" + long[:97] + "\t\n" + long[:96] + "\t\n"},
			shape{lines: 4, longLines: 2, bodies: oneBody(0, 0), worstPath: "a.c", worstCount: 2},
		},
		"letters of two bytes": {
			source{"a.go", "package a\n\n// " + strings.Repeat("ü", 97) + "\n"},
			shape{lines: 3, bodies: oneBody(0, 0)},
		},
		"a URL": {source{"a.go", "package a\n\n// https://" + long + "\n"}, shape{lines: 3, bodies: oneBody(0, 0)}},
		"a raw string": {
			source{"a.go", "package a\n\nfunc f() {\n\tg(`\n\n" + long + "x`)\n}\n"},
			shape{lines: 7, bodies: oneBody(3, 0)},
		},
		"another language": {source{"a.py", long + "x\n"}, shape{}},
	} {
		var got shape
		if err := got.add(test.source); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, test.want) {
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
		{shape{lines: 1000, longLines: 9, bodies: oneBody(100, 4)}, 0},
		{shape{lines: 1000, longLines: 9, bodies: oneBody(100, 12)}, 0},
		{shape{lines: 1000, longLines: 10, bodies: oneBody(100, 4)}, 1},
		{shape{lines: 1000, longLines: 10, bodies: oneBody(100, 3)}, 2},
		{shape{bodies: oneBody(100, 13)}, 1},
		{shape{bodies: oneBody(99, 0)}, 0},
		{shape{bodies: map[string]bodyLines{".": {100, 8}, "a": {100, 3}, "b": {100, 2}}}, 2},
	} {
		if got := test.shape.faults(); len(got) != test.want {
			t.Errorf("%s: faults %q, want %d", test.shape, got, test.want)
		}
	}
}
