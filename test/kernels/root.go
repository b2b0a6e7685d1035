package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// jobsFile has the work of the first process of a machine.
const jobsFile = "/jobs.json"

// makeRoot writes the file system of a machine to a temporary file and returns its path. It is not
// compressed: the machine would have to unpack it, which is slow under emulation.
func makeRoot(s settings, p plan) (string, error) {
	file, err := os.CreateTemp("", "allocscope-root-")
	if err != nil {
		return "", err
	}
	defer file.Close()

	a := newArchive(file)
	if err := fill(a, s, p); err != nil {
		os.Remove(file.Name())
		return "", err
	}
	return file.Name(), a.close()
}

func fill(a *archive, s settings, p plan) error {
	for _, folder := range []string{"dev", "proc", "sys", "tmp"} {
		a.put(folder, directory, 0, nil)
	}

	jobs, err := json.Marshal(p.work)
	if err != nil {
		return err
	}
	a.put(jobsFile, regular, 0, jobs)

	if err := a.copy(s.program(p.architecture, "kernels"), "/init"); err != nil {
		return err
	}
	if err := a.copyTree(s.program(p.architecture, ""), nil); err != nil {
		return err
	}
	if p.refusal != "" {
		return nil
	}

	if err := a.copyTree(s.testdata, nil); err != nil {
		return err
	}
	if p.architecture == arm64 {
		return a.fillARM64(s)
	}

	if err := a.copyTree(s.targets, nil); err != nil {
		return err
	}
	if err := a.copyLibrariesOf(s.targets); err != nil {
		return err
	}
	return a.copyPython()
}

// fillARM64 adds the programs that the tests trace, built for arm64, and the interpreters that run
// them.
func (a *archive) fillARM64(s settings) (err error) {
	before, err := crossBuild(s.targets)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.RemoveAll(s.targets), os.Rename(before, s.targets))
	}()

	if err := a.copyTree(s.targets, nil); err != nil {
		return err
	}
	return a.moveTree(s.arm64Root, "/")
}

// moveTree adds the files of a folder under the path of another one. Links stay as they are.
func (a *archive) moveTree(from, to string) error {
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}

		name := path.Join(to, relative)
		if entry.Type() == fs.ModeSymlink {
			target, err := os.Readlink(file)
			a.put(name, symlink, 0, []byte(target))
			return err
		}
		return a.copy(file, name)
	})
}

// copyTree adds the files of a folder, except those in folders for which skip is true; nil skips
// none.
func (a *archive) copyTree(folder string, skip func(name string) bool) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			return a.copy(path, path)
		case skip != nil && skip(entry.Name()):
			return fs.SkipDir
		}
		return nil
	})
}

// copyLibrariesOf adds the libraries of all programs in a folder.
func (a *archive) copyLibrariesOf(folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return a.copyLibraries(path)
	})
}

// copyLibraries adds the libraries and the dynamic linker of a program; a static one has none.
func (a *archive) copyLibraries(program string) error {
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") {
		return fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}

	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") {
			if err := a.copy(word, word); err != nil {
				return err
			}
		}
	}
	return nil
}

// python is the distribution's interpreter.
const python = "/usr/bin/python3"

// unneededFolders of Python's library are not copied.
var unneededFolders = map[string]bool{
	"test": true, "idlelib": true, "tkinter": true, "lib2to3": true, "ensurepip": true,
	"turtledemo": true, "pydoc_data": true, "distutils": true, "dist-packages": true,
	"site-packages": true,
}

// copyPython adds the interpreter with its library.
func (a *archive) copyPython() error {
	const script = "import sysconfig; print(sysconfig.get_path('stdlib'))"
	out, err := exec.Command(python, "-c", script).Output()
	if err != nil {
		return fmt.Errorf("ask %s for its library: %w", python, err)
	}

	library := strings.TrimSpace(string(out))
	if err := a.copy(python, python); err != nil {
		return err
	}
	if err := a.copyLibraries(python); err != nil {
		return err
	}

	skip := func(folder string) bool {
		return unneededFolders[folder] || strings.HasPrefix(folder, "config-")
	}
	if err := a.copyTree(library, skip); err != nil {
		return err
	}
	return a.copyLibrariesOf(filepath.Join(library, "lib-dynload"))
}

// An archive is an initramfs that is being written, in the format "newc" of the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst.
type archive struct {
	w       *bufio.Writer
	entries map[string]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriter(w), entries: map[string]bool{".": true}}
}

// File types and permissions of entries (inode(7)).
const (
	regular   = 0o100755
	directory = 0o040755
	symlink   = 0o120777
)

// put adds an entry and the folders above it. modified is in seconds since 1970.
func (a *archive) put(name string, mode int, modified int64, data []byte) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if a.entries[name] {
		return
	}
	a.entries[name] = true

	a.put(path.Dir(name), directory, 0, nil)
	a.write(name, mode, modified, data)
}

// write leaves errors to bufio.Writer, which keeps the first; close returns it.
func (a *archive) write(name string, mode int, modified int64, data []byte) {
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		len(a.entries), mode, 0, 0, 1, modified, len(data), 0, 0, 0, 0, len(name)+1, 0, name)

	a.w.WriteString(header + padding(len(header)))
	a.w.Write(data)
	a.w.WriteString(padding(len(data)))
}

func padding(length int) string { return "\x00\x00\x00"[:-length&3] }

// copy adds a file of this machine. A file behind symbolic links is added under its own path, with
// a link to it. It keeps its time, because Python compares the times of its files.
func (a *archive) copy(from, to string) error {
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(real)
	if err != nil {
		return err
	}

	if from == to && real != from {
		a.put(to, symlink, 0, []byte(real))
		to = real
	}
	a.put(to, regular, info.ModTime().Unix(), data)
	return nil
}

func (a *archive) close() error {
	a.write("TRAILER!!!", 0, 0, nil)
	return a.w.Flush()
}
