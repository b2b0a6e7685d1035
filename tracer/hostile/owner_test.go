package hostile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReplaceable has a program of root's, and ways in which others could replace it.
func TestReplaceable(t *testing.T) {
	folder, err := os.MkdirTemp("/", "allocscope-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	inner := filepath.Join(folder, "inner")
	program := filepath.Join(inner, "program")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}

	own := func(path string, uid int) func() error {
		return func() error { return os.Chown(path, uid, 0) }
	}
	allow := func(path string, mode os.FileMode) func() error {
		return func() error { return os.Chmod(path, mode) }
	}
	for _, c := range []struct {
		change, undo func() error
		part         string
	}{
		{allow(folder, 0o755), allow(folder, 0o755), ""},
		{own(program, 1), own(program, 0), program},
		{own(inner, 1), own(inner, 0), inner},
		{allow(program, 0o775), allow(program, 0o755), program},
		{allow(folder, 0o757), allow(folder, 0o755), folder},
		{allow(folder, 0o777|os.ModeSticky), allow(folder, 0o755), ""},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		part, why, err := Replaceable(program)
		if err != nil || part != c.part || (why == "") != (part == "") {
			t.Errorf("%q %q, error %v, want %q", part, why, err, c.part)
		}
		if err := c.undo(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Replaceable(folder + "/none"); err == nil {
		t.Error("a file that is not there has no error")
	}
}
