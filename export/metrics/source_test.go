package metrics

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// constantsOf are the values of the constants of a type in a file.
func constantsOf(t *testing.T, path, of string) (values []string) {
	t.Helper()
	file := tracertest.Must(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == of {
			value := tracertest.Must(strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value))(t)
			values = append(values, value)
		}
		return true
	})

	slices.Sort(values)
	return values
}

func testClasses(t *testing.T) {
	for _, test := range []struct {
		path, of string
		got      []string
	}{
		{"../../growth/verdict/verdict.go", "Class", textsOf(classes)},
		{"metrics.go", "TraceOutcome", textsOf(outcomes)},
	} {
		slices.Sort(test.got)
		if want := constantsOf(t, test.path, test.of); !slices.Equal(test.got, want) {
			t.Errorf("%s: the metrics have %q, want %q", test.of, test.got, want)
		}
	}

	if n := len(constantsOf(t, "../../growth/kind.go", "Kind")); n > maxParts {
		t.Errorf("there are %d kinds, more than the bound", n)
	}
	if n := len(constantsOf(t, "../../growth/trace_events.go", "LossKind")); n > maxParts {
		t.Errorf("there are %d losses, more than the bound", n)
	}
}

func textsOf[S ~string](values []S) (texts []string) {
	for _, v := range values {
		texts = append(texts, string(v))
	}
	return texts
}
