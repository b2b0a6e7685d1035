package main

import (
	"slices"
	"testing"
)

func TestPathFaults(t *testing.T) {
	folder := t.TempDir()
	writeFile(t, folder, "go.mod", "")
	text := "`go.mod`, `make test`, `word` and `summary.json`\n`growth/gone.go`, `.ci/`, `f_lasti`\n"
	got := pathFaults(folder, []source{{handbook, text}, {"README.md", "`other/gone.go`"}})
	want := []string{
		"CONTRIBUTING.md:2: there is no growth/gone.go", "CONTRIBUTING.md:2: there is no .ci/",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
