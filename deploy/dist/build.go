package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
)

// A target is a platform for which a program is built.
type target struct {
	arch     string // of Go
	machine  string // the same in the kernel's words, also RPM's and the wheels'
	isStatic bool   // without glibc, and without NVML
}

// targets are all. The first one has all modules.
var targets = []target{
	{"amd64", "x86_64", false},
	{"amd64", "x86_64", true},
	{"arm64", "aarch64", false},
	{"arm64", "aarch64", true},
}

func (t target) String() string {
	if t.isStatic {
		return t.arch + "-static"
	}
	return t.arch
}

// A program is a target that was built.
type program struct {
	target
	path  string // in the folder of temporary files
	data  []byte
	glibc string // the oldest one that it runs with, as 2.34; empty: none is needed
}

// build builds a target. Nothing of this machine's settings goes into it.
func (r *release) build(t target) (program, error) {
	p := program{target: t, path: filepath.Join(r.work, t.String(), "allocscope")}
	cgo := "1"
	if t.isStatic {
		cgo = "0"
	}
	compiler := "gcc"
	if t.arch != runtime.GOARCH {
		compiler = t.machine + "-linux-gnu-gcc"
	}

	err := r.goCommand([]string{
		"GOARCH=" + t.arch, "CGO_ENABLED=" + cgo, "CC=" + compiler,
	}, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w "+r.linkFlags(), "-o", p.path,
		"./cmd/allocscope")
	if err != nil {
		return p, err
	}
	if p.data, err = os.ReadFile(p.path); err != nil {
		return p, err
	}

	if p.glibc, err = neededGlibc(p.data); err != nil {
		return p, err
	}
	if (p.glibc == "") != t.isStatic {
		return p, fmt.Errorf("it needs glibc %q", p.glibc)
	}
	return p, nil
}

func (r *release) linkFlags() string {
	return fmt.Sprintf("-X main.version=%s -X main.commit=%s -X main.commitTime=%s", r.version.text,
		r.commit, r.time.Format(time.RFC3339))
}

// goCommand runs Go in the project's folder, with variables besides those that are always set.
func (r *release) goCommand(variables []string, arguments ...string) error {
	command := exec.Command("go", arguments...)
	command.Dir = r.root
	command.Env = append(os.Environ(), "GOOS=linux", "GOFLAGS=", "GOWORK=off", "GOAMD64=v1",
		"GOARM64=v8.0", "GOEXPERIMENT=", "CGO_CFLAGS=-O2 -g", "CGO_LDFLAGS=-O2 -g",
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10))
	command.Env = append(command.Env, variables...)
	command.Stderr = os.Stderr
	return command.Run()
}

// neededGlibc returns the newest version of glibc's symbols that a program imports; empty: none.
func neededGlibc(data []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	defer f.Close()
	if f.Section(".dynamic") == nil {
		return "", nil
	}
	needs, err := f.DynamicVersionNeeds()
	if err != nil {
		return "", err
	}

	var newest *semver.Version
	for _, library := range needs {
		for _, need := range library.Needs {
			number, ok := strings.CutPrefix(need.Dep, "GLIBC_")
			version, err := semver.NewVersion(number)
			if !ok || err != nil || version.Major() != 2 {
				return "", fmt.Errorf("it needs %s of %s, which glibc does not have", need.Dep,
					library.Name)
			}
			if newest == nil || version.GreaterThan(newest) {
				newest = version
			}
		}
	}
	if newest == nil {
		return "", fmt.Errorf("it is dynamic, and needs no version of glibc")
	}
	return newest.Original(), nil
}

// makeShare returns manual pages and completions. This machine's program writes them.
func (r *release) makeShare() ([]file, error) {
	folder := filepath.Join(r.work, "share")
	err := r.goCommand(nil, "run", "-trimpath", "-tags", "share", "-ldflags", r.linkFlags(),
		"./cmd/allocscope", "share", folder)
	if err != nil {
		return nil, fmt.Errorf("write manual pages and completions: %w", err)
	}

	return filesIn(r.work, "share")
}

// filesIn returns the files of a folder below root, by their paths in root.
func filesIn(root, folder string) (files []file, err error) {
	tree := os.DirFS(root)
	err = fs.WalkDir(tree, folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, path)
		files = append(files, file{path, 0o644, data})
		return err
	})
	return files, err
}
