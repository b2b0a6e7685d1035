package folder

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page.html")
	do(t, os.WriteFile(path, []byte("an earlier one"), 0o644))
	do(t, WriteFile(path, current(), writes("page")))
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 || content(t, dir, "page.html") != "page" {
		t.Errorf("%v, %v", info, err)
	}
	exporttest.WantError(t, WriteFile(path, current(), func(io.Writer) error { return errors.New("no more") }),
		"write "+path+": no more")
	mustHold(t, dir, "page.html")
	if got := content(t, dir, "page.html"); got != "page" {
		t.Errorf("after an error there is %s", got)
	}
	exporttest.WantError(t, WriteFile(filepath.Join(dir, "no", "page.html"), current(), writes("")),
		"there is no directory")

	// One who was killed while writing leaves a temporary file.
	t.Run("killed writer", func(t *testing.T) {
		first, path := out(t)
		fill(t, first)
		put(t, "half", path, temporaryName(ReportFile))
		f, err := Open(path, current())
		do(t, err)
		defer f.Close()
		do(t, f.WriteFile(ReportFile, writes("whole")))
		if content(t, path, ReportFile) != "whole" || strings.Contains(tree(t, path), ".tmp") {
			t.Errorf("there is %s", tree(t, path))
		}
	})

	// A rename would put the page in place of the device or of the link.
	t.Run("no regular file", func(t *testing.T) {
		dir := t.TempDir()
		link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
		do(t, os.Symlink(filepath.Join(dir, "elsewhere"), link))
		do(t, unix.Mkfifo(fifo, 0o600))
		for _, path := range []string{link, fifo, dir} {
			before, err := os.Lstat(path)
			do(t, err)
			exporttest.WantError(t, WriteFile(path, current(), writes("page")), "not a regular file")
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("%s is another file now, %v", path, err)
			}
		}
	})
}

func TestCreateFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bundle.tar.gz")
	exporttest.WantError(t, CreateFile(path, current(), func(io.Writer) error { return errors.New("no more") }),
		"write "+path+": no more")
	mustHold(t, dir, "")

	do(t, CreateFile(path, current(), writes("one")))
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	link := filepath.Join(dir, "link")
	do(t, os.Symlink(filepath.Join(dir, "elsewhere"), link))
	for _, taken := range []string{path, link} {
		exporttest.WantError(t, CreateFile(taken, current(), writes("two")), "it is there already")
	}
	mustHold(t, dir, "bundle.tar.gz link")
	if got := content(t, dir, "bundle.tar.gz"); got != "one" {
		t.Errorf("it holds %q", got)
	}
}

func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestOwnerFromEnvironment(t *testing.T) {
	if o, err := OwnerFromEnvironment(environment(nil)); err != nil || o != current() {
		t.Errorf("without sudo: %v, %v", o, err)
	}
	sudo, err := OwnerFromEnvironment(environment(map[string]string{
		"SUDO_UID": "1000", "SUDO_GID": "100",
	}))
	if os.Geteuid() != 0 {
		if err != nil || sudo != current() {
			t.Errorf("not root: %v, %v", sudo, err)
		}
		tracertest.NeedsRoot(t) // others cannot give files away
	}
	if err != nil || (sudo != Owner{1000, 100}) {
		t.Errorf("with sudo: %v, %v", sudo, err)
	}
	for _, test := range []struct{ uid, gid, want string }{
		{"1000", "", `read SUDO_GID: "" is not a user or group ID`},
		{"", "1000", `read SUDO_UID: ""`},
		{"-1", "100", `read SUDO_UID: "-1"`},
		{"4294967295", "100", `read SUDO_UID: "4294967295"`},
		{"1000", "4294967296", `read SUDO_GID: "4294967296"`},
		{"1000x", "100", `read SUDO_UID: "1000x"`},
	} {
		_, err := OwnerFromEnvironment(environment(map[string]string{
			"SUDO_UID": test.uid, "SUDO_GID": test.gid,
		}))
		exporttest.WantError(t, err, test.want, "unset SUDO_UID")
	}
}
