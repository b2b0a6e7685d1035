package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"

	"golang.org/x/tools/go/packages"
)

// testModules are the modules that the other linters do not see: of tests, and of releases. To
// compile their imports takes 80 s of CPU; to read the declarations takes six.
var testModules = []string{"deploy/dist", "test/fleet", "test/fleet/grafana"}

// typeFaults returns a line for each fault of types in the packages and tests of a module.
func typeFaults(folder string) (faults []string, err error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
			packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax,
		Dir: folder, Tests: true,
		Env: append(os.Environ(), "CGO_ENABLED=0"), // all packages are Go then
		ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
			return parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		},
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", folder, err)
	}

	for _, pkg := range loaded {
		for _, fault := range pkg.Errors {
			faults = append(faults, fault.Error())
		}
	}
	slices.Sort(faults)
	return slices.Compact(faults), nil // a package and its tests have the same files
}
