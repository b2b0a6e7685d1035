// Package exporttest compares the results of exports with golden files, and errors with words.
package exporttest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Update is flag -update: the golden files are written, not compared.
var Update = flag.Bool("update", false, "write the golden files")

// Golden compares a text with a file of testdata.
func Golden[T string | []byte](t *testing.T, name string, got T) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal([]byte(got), want) {
		t.Errorf("differs from %s (write it with -update):\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// WantError fails without an error, and for each word that the error lacks.
func WantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}

	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}
