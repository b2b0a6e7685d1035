package sourcecode

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
)

// Bounds of a program that is read.
const (
	maxFiles      = 1000
	maxFileBytes  = 1 << 20
	maxTotalBytes = 8 << 20
)

// installed are parts of the paths of libraries, which know no variable of the program by its name.
var installed = []string{"/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python"}

// Read reads the source of the modules of a process, by their paths, without the libraries that are
// installed. nil: a part of it cannot be read, or has changed since the process began.
func Read(p *process.Process, paths []string) *Program {
	stat, err := p.Stat()
	if err != nil {
		return nil
	}

	began, left := time.Now().Add(-stat.Age()), maxTotalBytes
	program := &Program{}

	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if isInstalled(path) {
			continue
		}
		text, ok := readFile(p, path, began)
		if left -= len(text); !ok || left < 0 || len(program.files) == maxFiles {
			return nil
		}
		program.Add(path, text)
	}
	return program
}

// isInstalled reports whether a module is part of Python or of a library; without a file it is
// built in.
func isInstalled(path string) bool {
	return path == "" || slices.ContainsFunc(installed,
		func(part string) bool { return strings.Contains(path, part) })
}

func readFile(p *process.Process, path string, began time.Time) (text string, ok bool) {
	if !filepath.IsAbs(path) || filepath.Ext(path) != ".py" {
		return "", false
	}
	f, err := p.OpenFile(path)
	if err != nil {
		return "", false
	}

	defer f.Close()

	if f.Size() > maxFileBytes || f.Modified.After(began) {
		return "", false
	}

	all, err := f.ReadAll(maxFileBytes)
	return string(all), err == nil
}
