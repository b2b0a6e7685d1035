package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMessages(t *testing.T) {
	const page = "# Errors\n\n| `no such process` | `anything` |\ntext with `anything`\n" +
		"| `grant CAP_BPF and CAP_PERFMON`, `of pid` | |\n| `is gone`, `only in a test` | |\n"
	const program = `package p
var err = errors.New("no such process")
func f(pid int) { g("run as root or " + (remedy + "grant CAP_BPF ") +
	"and CAP_PERFMON", h("maps of pid %d", pid)) } // is gone`

	var m messages
	for _, s := range []source{
		{quotesPage, page},
		{"tracer/p.go", program},
		{"tracer/p_test.go", "package p\nvar s = `only in a test`\n"},
		{"docs/other.md", "| `only there` | |\n"},
	} {
		tracertest.NoError(t, m.add(s))
	}

	want := []string{
		quotesPage + `:6: no message has "is gone"`,
		quotesPage + `:6: no message has "only in a test"`,
	}
	if got := m.faults(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCauses checks that each cause of growth has its place in docs/causes.md: results link there.
func TestCauses(t *testing.T) {
	page := tracertest.Must(os.ReadFile("../../docs/causes.md"))(t)

	for cause := range diagnosis.NumCauses {
		if !strings.Contains(string(page), "\n## "+cause.String()+"\n") {
			t.Errorf("docs/causes.md has no heading %q", "## "+cause.String())
		}
	}
}
