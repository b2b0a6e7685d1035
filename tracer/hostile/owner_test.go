package hostile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestReplaceable has a program of root's, and ways in which others could replace it.
func TestReplaceable(t *testing.T) {
	folder := tracertest.Must(os.MkdirTemp("/", "allocscope-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(folder) })
	inner := filepath.Join(folder, "inner")
	program := filepath.Join(inner, "program")
	tracertest.NoError(t, os.Mkdir(inner, 0o755))
	tracertest.NoError(t, os.WriteFile(program, nil, 0o755))

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
		tracertest.NoError(t, c.change())
		part, why, err := Replaceable(program)
		if err != nil || part != c.part || (why == "") != (part == "") {
			t.Errorf("%q %q, error %v, want %q", part, why, err, c.part)
		}
		tracertest.NoError(t, c.undo())
	}
	if _, _, err := Replaceable(folder + "/none"); err == nil {
		t.Error("a file that is not there has no error")
	}
}
