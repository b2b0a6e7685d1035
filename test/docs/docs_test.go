package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/test/docs/snippet"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	repository = "../.."
	casesPage  = "docs/cases.md"
)

// TestCases checks that the page of the cases runs each program in both forms, and has an output
// of each.
func TestCases(t *testing.T) {
	text := tracertest.Must(os.ReadFile(filepath.Join(repository, casesPage)))(t)
	page := snippet.Page{Path: casesPage, Text: string(text)}

	var code strings.Builder
	for _, s := range page.Snippets() {
		if s.Run != "cases" {
			t.Errorf("%s:%d: make docs-cases does not run this", s.Path, s.Line)
		}
		code.WriteString(s.Code)
	}
	if strings.Contains(page.Text, "```text\n```") {
		t.Error("a block has no output: make docs-cases")
	}

	programs, err := filepath.Glob(filepath.Join(repository, "examples/cases/*.py"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("found no programs: %v", err)
	}
	for _, path := range programs {
		call := "python3 examples/cases/" + filepath.Base(path)
		for _, want := range []string{call + " &\n", call + " --fixed &\n"} {
			if !strings.Contains(code.String(), want) {
				t.Errorf("%s does not run %q", casesPage, want)
			}
		}
	}
}
