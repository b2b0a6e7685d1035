package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A suite names tests of other packages, which may be renamed. Under qemu a test that is not there
// would be seen only when somebody runs the suites.
func TestSuites(t *testing.T) {
	pattern := regexp.MustCompile(kernelTests)
	kernelTestsFound := 0
	for _, s := range suites {
		tests := testsOf(t, filepath.Join("..", "..", s.folder))
		for name := range tests {
			if pattern.MatchString(name) {
				kernelTestsFound++
			}
		}
		named := s.tests
		if s.program == suites[0].program {
			named = slices.Concat(named, fewTests(""))
		}
		for _, name := range named {
			name, _, _ = strings.Cut(name, "/")
			if !tests[name] {
				t.Errorf("%s has no test %s", s.folder, name)
			}
		}
	}
	if kernelTestsFound == 0 {
		t.Errorf("no test matches %s", kernelTests)
	}
}

func TestPatternOf(t *testing.T) {
	for want, tests := range map[string][]string{
		"^(TestA|TestB)$":                       {"TestA", "TestB"},
		"^(TestA|TestA|TestB)$/^(a|b|c)$/^(x)$": {"TestA/a/x", "TestA/b", "TestB/c"},
	} {
		if got := patternOf(tests); got != want {
			t.Errorf("%q: %s, want %s", tests, got, want)
		}
	}
}

func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", folder, err)
	}

	tests := make(map[string]bool)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		tracertest.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
	}
	return tests
}
