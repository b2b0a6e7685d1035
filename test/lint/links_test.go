package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestLinkFaults(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) source {
		writeFile(t, folder, name, text)
		return source{name, text}
	}

	sources := []source{
		write("docs/a.md", "# A `b`, and C\n\n## Twice\n## Twice\n\n```sh\n# no heading\n[x](no.md)\n```\n"+
			"[itself](#a-b-and-c) [second](#twice-1) [up](../README.md) [web](https://x.org/y.md)\n"+
			"[gone](gone.md) [no heading](#no-heading) `[code](code.md)`\n[ref]: gone2.md\n"),
		write("README.md", "[a](docs/a.md#twice) [b](docs/a.md#thrice) ![c](docs/c.png)\n"),
		write("a.go", "// see docs/a.md and docs/b.md; https://x.org/docs/z.md\n"),
	}
	got, err := linkFaults(folder, sources)
	want := []string{
		"docs/a.md:11: there is no docs/gone.md",
		"docs/a.md:11: docs/a.md has no heading #no-heading",
		"docs/a.md:12: there is no docs/gone2.md",
		"README.md:1: docs/a.md has no heading #thrice",
		"README.md:1: there is no docs/c.png",
		"a.go:1: there is no docs/b.md",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// writeFile writes a file below a folder, with the folders above it.
func writeFile(t *testing.T, folder, name, text string) {
	t.Helper()
	path := filepath.Join(folder, name)
	tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	tracertest.NoError(t, os.WriteFile(path, []byte(text), 0o755))
}
