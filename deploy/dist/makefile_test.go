package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A checkout is a folder in which the targets of the Makefile run without this repository.
type checkout struct {
	folder   string
	programs string // folder of programs that come before the system's
}

// newCheckout has a Go that makes the files of make install without compiling.
func newCheckout(t *testing.T) checkout {
	t.Helper()
	c := checkout{t.TempDir(), t.TempDir()}
	c.program(t, "go", `case $1 in
		build) mkdir -p bin; echo >bin/allocscope ;;
		run) mkdir -p bin/share/man/man1; echo >bin/share/man/man1/allocscope.1
			echo >bin/share/man/man1/allocscope-trace.1 ;;
	esac`)
	return c
}

func (c checkout) program(t *testing.T, name, text string) {
	t.Helper()
	write(t, filepath.Join(c.programs, name), "#!/bin/sh\n"+text+"\n")
}

// make returns the output of a target.
func (c checkout) make(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	makefile, err := filepath.Abs("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("make", append([]string{"-f", makefile}, arguments...)...)
	command.Dir = c.folder
	command.Env = append(os.Environ(), "PATH="+c.programs+":"+os.Getenv("PATH"), "MAKEFLAGS=")
	out, err := command.CombinedOutput()
	return string(out), err
}

func TestMakeInstall(t *testing.T) {
	c, to := newCheckout(t), t.TempDir()
	c.program(t, "no-sudo", "exit 1")
	arguments := []string{"SUDO=no-sudo", "DESTDIR=" + to, "PREFIX=/opt/a b"}
	if out, err := c.make(t, append(arguments, "install")...); err != nil {
		t.Fatalf("with DESTDIR it asks for sudo: %v, %s", err, out)
	}
	count := func() int {
		files := output(t, "find", filepath.Join(to, "opt/a b"), "-type", "f")
		return strings.Count(files, "\n")
	}
	if count() != 3 {
		t.Errorf("%d files, want 3", count())
	}
	if out, err := c.make(t, append(arguments, "uninstall")...); err != nil || count() != 0 {
		t.Errorf("uninstall leaves %d files: %v, %s", count(), err, out)
	}
	if out, err := c.make(t, "DESTDIR="+to, "PREFIX=/none", "uninstall"); err != nil {
		t.Errorf("uninstall of nothing: %v, %s", err, out)
	}
	own := filepath.Join(to, "own/made")
	out, err := c.make(t, "SUDO=no-sudo", "PREFIX="+own, "install")
	if err != nil || !strings.Contains(out, `Next: sudo "`+own+`/bin/allocscope" doctor`) {
		t.Errorf("into a folder of the user: %v, %s", err, out)
	}
	if out, err := c.make(t, "SUDO=no-sudo", "PREFIX="+readOnly(t)+"/made", "install"); err == nil ||
		!strings.Contains(out, "no-sudo install") {
		t.Errorf("where the user may not write it does not ask for sudo: %s", out)
	}

	c.program(t, "install", `case $* in *allocscope.1*) exit 1 ;; esac`)
	if out, err := c.make(t, append(arguments, "install")...); err == nil {
		t.Errorf("a page that cannot be installed is no error: %s", out)
	}
}

// readOnly returns a folder that this user may not write into. Root may, but in a file system that is
// mounted read-only.
func readOnly(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if os.Geteuid() != 0 {
		if err := os.Chmod(folder, 0o555); err != nil {
			t.Fatal(err)
		}
		return folder
	}

	if err := syscall.Mount("none", folder, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, 0) })
	return folder
}

// TestMakeDist has no commit to make a release of.
func TestMakeDist(t *testing.T) {
	c := newCheckout(t)
	refused := func(remedy string) {
		t.Helper()
		if out, err := c.make(t, "dist"); err == nil || !strings.Contains(out, remedy) {
			t.Errorf("%v, %s; want %q", err, out, remedy)
		}
	}
	refused("safe.directory " + c.folder)

	path := filepath.Join(c.folder, "file")
	write(t, path, "")
	output(t, "git", "-C", c.folder, "init", "--quiet")
	output(t, "git", "-C", c.folder, "add", "file")
	output(t, "git", "-C", c.folder, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit",
		"--quiet", "--message", "a")
	if out, err := c.make(t, "one-commit"); err != nil {
		t.Errorf("of one commit: %v, %s", err, out)
	}

	write(t, path, "changed")
	refused("commit or stash them")
}
