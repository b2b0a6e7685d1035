package main

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestTypeFaults(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26\n",
		"a.go":      "package m\n\nimport \"fmt\"\n\nfunc F() string { return fmt.Sprint(x) }\n",
		"m_test.go": "package m\n\nconst rank = 1\n\nfunc f() { strings.ToLower(1) }\n",
		"x_test.go": "package m\n\nconst rank = 2\n",
		"y_test.go": "package m_test\n\nimport \"example.com/m\"\n\nvar _ int = m.F()\n",
		"z/z.go":    "package z\n\nimport _ \"example.com/none\"\n",
	} {
		writeFile(t, folder, name, text)
	}

	faults := tracertest.Must(typeFaults(folder))(t)
	got := strings.Join(faults, "\n")
	for _, want := range []string{
		"a.go:5:37: undefined: x", "x_test.go:3:7: rank redeclared",
		"m_test.go:5:12: undefined: strings", "y_test.go:5:13: cannot use m.F()",
		"example.com/none",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
