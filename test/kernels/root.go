package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// jobsFile tells the first process of a machine what to run.
const jobsFile = "/jobs.json"

// makeRoot writes the file system of a machine to a temporary file and gives its path. Not compressed: qemu copies it in at
// once, and unpacking would be emulated.
func makeRoot(s setting, p plan) (string, error) {
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

func fill(a *archive, s setting, p plan) error {
	for _, folder := range []string{"dev", "proc", "sys", "tmp"} {
		a.put(folder, directory, 0, nil)
	}
	jobs, err := json.Marshal(p.work)
	if err != nil {
		return err
	}
	a.put(jobsFile, regular, 0, jobs)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := a.copy(self, "/init"); err != nil {
		return err
	}
	if err := a.copyTree(s.programs, nil); err != nil {
		return err
	}
	if p.refused {
		return nil
	}
	if err := a.copyTree(s.testdata, nil); err != nil {
		return err
	}
	if err := a.copyTree(s.targets, nil); err != nil {
		return err
	}
	if err := a.copyLibrariesOf(s.targets); err != nil {
		return err
	}
	return a.copyPython()
}

// copyTree adds the files of a folder, without those in folders that skip names.
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

// copyLibrariesOf adds what the programs in a folder are linked with.
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

// unneeded folders of Python's library.
var unneeded = map[string]bool{
	"test": true, "idlelib": true, "tkinter": true, "lib2to3": true, "ensurepip": true, "turtledemo": true, "pydoc_data": true,
	"distutils": true, "dist-packages": true, "site-packages": true,
}

// copyPython adds the interpreter with its library.
func (a *archive) copyPython() error {
	out, err := exec.Command(python, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").Output()
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
	skip := func(folder string) bool { return unneeded[folder] || strings.HasPrefix(folder, "config-") }
	if err := a.copyTree(library, skip); err != nil {
		return err
	}
	return a.copyLibrariesOf(filepath.Join(library, "lib-dynload"))
}
