package trace

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Package export does not know the sources of package tracer.
func TestSourcesAreExplained(t *testing.T) {
	page := tracertest.Must(os.ReadFile("../../../docs/reference/files.md"))(t)
	lines := strings.Split(string(page), "\n")
	row := lines[slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "| `sources[]` |")
	})]

	for _, name := range source.Names() {
		s := &summary.Summary{
			Sources:   []summary.Source{{Name: name, State: summary.SourceFailed}},
			GPUMemory: make([]summary.GPUMemory, 1),
		}
		says := func(limit string) bool { return strings.HasPrefix(limit, "Without source "+name) }
		if !slices.ContainsFunc(words.Limits(s), says) {
			t.Errorf("export/words does not say what is unknown without source %s", name)
		}
		if !strings.Contains(row, "`"+name+"`") {
			t.Errorf("docs/reference/files.md does not list source %s", name)
		}
	}
}
