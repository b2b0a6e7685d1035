// Package exporttest compares the results of exports with golden files and with go tool pprof, and
// errors with words.
package exporttest

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
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
		t.Errorf("no error, want one with %q", words)
		return
	}

	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}

// ProfileFile is a file with a profile.
func ProfileFile(t *testing.T, p *profile.Profile) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "profile.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := p.Write(file); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// A Sum is the memory of a function in bytes: itself, and with all that it calls.
type Sum struct{ Flat, Cum int64 }

// Top has the functions of profiles by go tool pprof, which reads them and adds up by itself.
func Top(t *testing.T, arguments ...string) map[string]Sum {
	t.Helper()
	out, err := exec.Command("go", append([]string{
		"tool", "pprof", "-top", "-unit=B", "-symbolize=none", "-nodecount=1000000",
		"-nodefraction=0", "-edgefraction=0",
	}, arguments...)...).Output()
	if err != nil {
		t.Fatal(err)
	}

	top := make(map[string]Sum)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasSuffix(fields[1], "%") {
			continue
		}
		flat, err := strconv.ParseInt(strings.TrimSuffix(fields[0], "B"), 10, 64)
		cum, err2 := strconv.ParseInt(strings.TrimSuffix(fields[3], "B"), 10, 64)
		if err != nil || err2 != nil {
			t.Errorf("go tool pprof says %s", line)
		}
		top[strings.Join(fields[5:], " ")] = Sum{flat, cum}
	}
	return top
}
