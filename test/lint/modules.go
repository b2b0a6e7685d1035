package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// testModules are the modules that the other linters do not see: of tests, and of releases. To
// compile their imports takes 80 s of CPU; to read the declarations takes three.
var testModules = []string{"deploy/dist", "test/fleet", "test/fleet/grafana"}

// A listedPackage is a package as `go list` has it.
type listedPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	DepOnly         bool // it is only imported
	Error           *struct{ Err string }
}

// typeFaults returns a line for each fault of types in the packages and tests of a module.
func typeFaults(folder string) (faults []string, err error) {
	list := exec.Command("go", "list", "-e", "-deps", "-test",
		"-json=ImportPath,Dir,GoFiles,ImportMap,DepOnly,Error", "./...")
	list.Dir = folder
	list.Env = append(os.Environ(), "CGO_ENABLED=0") // all packages are Go then
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", folder, err)
	}

	files := token.NewFileSet()
	packages := map[string]*types.Package{"unsafe": types.Unsafe}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; { // imported packages come first
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return faults, nil
		} else if err != nil {
			return nil, err
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue // a program that go test writes
		}
		if p.Error != nil {
			faults = append(faults, fmt.Sprintf("%s: %s", p.ImportPath, p.Error.Err))
			continue
		}

		found, err := p.check(files, packages)
		if err != nil {
			return nil, err
		}
		faults = append(faults, found...)
	}
}

// check adds a package to the checked ones. If a package is only imported, it reads the
// declarations alone.
func (p listedPackage) check(
	files *token.FileSet, packages map[string]*types.Package,
) (faults []string, err error) {
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}

	config := types.Config{
		IgnoreFuncBodies: p.DepOnly,
		Importer: importer(func(path string) (*types.Package, error) {
			if other, ok := p.ImportMap[path]; ok {
				path = other
			}
			if imported := packages[path]; imported != nil {
				return imported, nil
			}
			return nil, fmt.Errorf("there is no package %s", path)
		}),
		Error: func(err error) {
			if !p.DepOnly {
				faults = append(faults, err.Error())
			}
		},
	}
	path, _, _ := strings.Cut(p.ImportPath, " ")
	packages[p.ImportPath], _ = config.Check(path, files, parsed, nil) // Error has the faults
	return faults, nil
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
