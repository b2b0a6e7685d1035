package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestLeft makes two folders that differ in known ways.
func TestLeft(t *testing.T) {
	before, after := t.TempDir(), t.TempDir()
	for path, content := range map[string][2]string{
		"same":           {"1", "1"}, // written again
		"changed":        {"1", "2"},
		"removed":        {"1", ""},
		"left":           {"", "1"},
		"folder/left":    {"", "1"},
		"kept/left":      {"", "1"},
		"keptnot/left":   {"", "1"},
		"kept/changed":   {"1", "2"},
		"folder/removed": {"1", ""},
	} {
		write(t, filepath.Join(before, path), content[0])
		age(t, filepath.Join(before, path))
		write(t, filepath.Join(after, path), content[1])
	}
	tracertest.NoError(t, os.Chmod(filepath.Join(after, "same"), 0o600))
	write(t, filepath.Join(before, "mode"), "1")
	write(t, filepath.Join(after, "mode"), "1")
	tracertest.NoError(t, os.Chmod(filepath.Join(after, "mode"), 0o755))
	tracertest.NoError(t, os.Symlink("left", filepath.Join(after, "link")))

	got := left(listed(t, before), listed(t, after), []string{"/kept"}, before, after)
	want := []string{
		"changed: /changed (-rw-------)",
		"changed: /mode (-rwxr-xr-x)",
		"left: /folder/left",
		"left: /keptnot/left",
		"left: /left",
		"left: /link",
		"removed: /folder/removed",
		"removed: /removed",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("left: got %q, want %q", got, want)
	}
}

// TestPlan has a case for each name of a file that `make dist` writes, and none for others. All
// expect the version that the program says, whatever form of it the file's name has.
func TestPlan(t *testing.T) {
	dist := t.TempDir()
	const version, debian, wheel = "0.1.0-rc1-3-g5d92ebea0123", "0.1.0~rc1+3.g5d92ebea0123",
		"0.1.0rc1.post3+g5d92ebea0123"
	for _, name := range []string{
		"allocscope-" + version + "-linux-amd64.tar.gz",
		"allocscope-" + version + "-linux-amd64-static.tar.gz",
		"allocscope_" + debian + "_amd64.deb",
		"allocscope-" + debian + "-1.x86_64.rpm",
		"allocscope-" + wheel + "-py3-none-manylinux_2_34_x86_64.whl",
		"allocscope-" + wheel + "-py3-none-musllinux_1_1_x86_64.whl",
		"allocscope-" + version + "-image.tar",
		"allocscope_" + debian + "_arm64.deb",
		"allocscope-" + version + ".cdx.json",
		"SHA256SUMS",
	} {
		write(t, filepath.Join(dist, name), "-")
	}

	cases := tracertest.Must(plan(dist))(t)
	if want := 3*4 + 1 + 1 + 2 + 1 + 1; len(cases) != want {
		t.Errorf("%d cases, want %d", len(cases), want)
	}
	for _, c := range cases {
		if c.version != version {
			t.Errorf("%s: version %q, want %q", c.file, c.version, version)
		}
	}

	unknown := filepath.Join(dist, "unknown")
	write(t, unknown, "-")
	if _, err := plan(dist); err == nil {
		t.Error("a file that no case installs is no error")
	}
	tracertest.NoError(t, os.Remove(unknown))
	write(t, filepath.Join(dist, "allocscope-0.1.0.cdx.json"), "-")
	if _, err := plan(dist); err == nil {
		t.Error("files of two versions are no error")
	}
}

func listed(t *testing.T, root string) listing {
	t.Helper()
	entries := tracertest.Must(list(root))(t)
	return entries
}

// age makes a file, if it is there, older than those written from now on.
func age(t *testing.T, path string) {
	t.Helper()
	hourAgo := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, hourAgo, hourAgo); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// write makes a file and its folder, but no file without content.
func write(t *testing.T, path, content string) {
	t.Helper()
	tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	if content == "" {
		return
	}
	tracertest.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}
