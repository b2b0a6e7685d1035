package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A testCase is one file of dist/ in one root.
type testCase struct {
	root, form string
	file       string // name in dist/
	version    string // of allocscope, as it says it itself
	prepare    string // shell code in the root before the installation; "" for none
	install    string // shell code in the root; $FILE is the file, $NAME its name without extension
	program    string // the command that is installed
	remove     string // shell code in the root
	outside    bool   // install and remove run outside of the root, whose path is $ROOT
	kept       []string
	leaks      []leak
	hasDemo    bool
}

// A leak is a program that leaks, and the result that its trace must have.
type leak struct {
	name     string
	command  string   // shell code
	function string   // that keeps the memory
	file     string   // of the function: a source, or a program in native code
	text     string   // of the line in the source; "" for native code
	python   string   // a function in Python above it; "" for a program without Python
	native   []string // the stack has one of these, in a name of a function or of a file
}

// Folders of a root that have the files given to it.
const (
	filesFolder    = "/mnt"   // dist/
	programsFolder = "/media" // the programs that leak
)

var (
	listLeak = leak{
		name: "list", command: "exec python3 /media/leak.py list",
		function: "keep_buffer", file: "leak.py", text: "kept.append(bytearray(MIB))",
		python: "main", native: []string{"libc.so.6"},
	}
	tensorLeak = leak{
		name: "tensor", command: "exec python3 /media/leak.py tensor",
		function: "keep_tensor", file: "leak.py", text: "kept.append(torch.ones(",
		python: "main", native: []string{"libc10", "libtorch", "c10::", "at::"},
	}
	nativeLeak = leak{
		name: "musl", command: "exec /media/leak-musl",
		function: "keep_buffer", file: "leak-musl", native: []string{"main (/media/leak-musl)"},
	}
)

// distributions are the roots with a package manager, and whether they have PyTorch.
var distributions = []struct {
	name     string
	hasTorch bool
}{
	{"debian-12", true}, {"debian-13", true}, {"ubuntu-22.04", true}, {"ubuntu-24.04", false},
}

// plan returns the cases for the files in a folder. A file that no case installs is an error.
func plan(dist string) ([]testCase, error) {
	files, err := filepath.Glob(filepath.Join(dist, "*"))
	if err != nil {
		return nil, err
	}

	if len(files) == 0 {
		return nil, fmt.Errorf("%s: %w (make dist)", dist, os.ErrNotExist)
	}
	version, err := releaseVersion(dist)
	if err != nil {
		return nil, err
	}

	var cases []testCase
	for _, path := range files {
		made := casesFor(filepath.Base(path))
		if made == nil {
			return nil, fmt.Errorf("%s: no test installs it", path)
		}
		for _, c := range made {
			c.version = version
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// releaseVersion is the version in the name of the SBOM. Packages have another form of it, which
// sorts as their managers do.
func releaseVersion(dist string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dist, "allocscope-*.cdx.json"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s has %d files allocscope-VERSION.cdx.json, not one (make dist)", dist,
			len(found))
	}
	name := filepath.Base(found[0])
	return strings.TrimSuffix(strings.TrimPrefix(name, "allocscope-"), ".cdx.json"), nil
}
