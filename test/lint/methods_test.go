package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// methods returns a file with methods of a receiver, named by numbers from first on.
func methods(receiver string, first, count int) string {
	var text strings.Builder
	text.WriteString("package a\n")
	for n := range count {
		fmt.Fprintf(&text, "func (%s) m%d() {}\n", receiver, first+n)
	}
	return text.String()
}

func TestMethods(t *testing.T) {
	for name, test := range map[string]struct {
		sources []source
		want    int // faults
	}{
		"30": {[]source{{"a/b.go", methods("*t", 0, 30)}}, 0},
		"31": {[]source{{"a/b.go", methods("*t", 0, 31)}}, 1},
		"31 in two files, of values and pointers": {
			[]source{{"a/b.go", methods("x t", 0, 30)}, {"a/c.go", methods("*t", 30, 1)}}, 1,
		},
		"31 of a generic type": {
			[]source{{"a/b.go", methods("*t[K]", 0, 30)}, {"a/c.go", methods("(t[K, V])", 30, 1)}}, 1,
		},
		"the same for two build tags": {
			[]source{{"a/b.go", methods("*t", 0, 20)}, {"a/c.go", methods("*t", 0, 20)}}, 0,
		},
		"two packages": {[]source{{"a/b.go", methods("*t", 0, 20)}, {"b/b.go", methods("*t", 20, 20)}}, 0},
		"two types":    {[]source{{"a/b.go", methods("*t", 0, 20)}, {"a/c.go", methods("u", 20, 20)}}, 0},
		"a test":       {[]source{{"a/b.go", methods("*t", 0, 30)}, {"a/b_test.go", methods("*t", 30, 1)}}, 0},
	} {
		found := methodsOf{}
		for _, s := range test.sources {
			tracertest.NoError(t, found.add(s))
		}
		if faults := found.faults(); len(faults) != test.want {
			t.Errorf("%s: faults %q, want %d", name, faults, test.want)
		}
	}
}
