package cpython

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestVersions checks that each version has a file. The oldest one names every field, and each all
// fields of _Py_DebugOffsets, which move with every version.
func TestVersions(t *testing.T) {
	files, err := filepath.Glob("v3[0-9]*.go")
	if err != nil || len(files) != len(versions) {
		t.Errorf("%d files for %d versions, %v", len(files), len(versions), err)
	}

	for i, v := range versions {
		if v.Minor != versions[0].Minor+i {
			t.Errorf("3.%d is at %d", v.Minor, i)
		}
		named := fieldsOfFile(t, fmt.Sprintf("v3%d.go", v.Minor))
		var literals []any
		if i == 0 {
			literals = []any{Version{}, Frames{}, CodeLayout{}, Structures{}}
		}
		if v.DebugOffsets != nil {
			literals = append(literals, DebugOffsets{})
		}
		for _, literal := range literals {
			literal := reflect.TypeOf(literal)
			for i := range literal.NumField() {
				if name := literal.Field(i).Name; !slices.Contains(named[literal.Name()], name) {
					t.Errorf("3.%d: the file does not name %s.%s", v.Minor, literal.Name(), name)
				}
			}
		}

		for name, value := range fieldsOf(v) {
			if value == Published && v.DebugOffsets == nil {
				t.Errorf("3.%d: %s is published, but nothing is", v.Minor, name)
			}
		}
		if v.DebugOffsets == nil {
			continue
		}
		positions := reflect.ValueOf(*v.DebugOffsets)
		for i := range positions.NumField() {
			if at := positions.Field(i).Uint(); at != Absent && at+8 > DebugOffsetsSize {
				t.Errorf("3.%d: %s is beyond DebugOffsetsSize", v.Minor,
					positions.Type().Field(i).Name)
			}
		}
	}
}

// fieldsOfFile returns the fields that the struct literals of a file name, by the type.
func fieldsOfFile(t *testing.T, path string) map[string][]string {
	t.Helper()
	file := tracertest.Must(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)

	named := make(map[string][]string)
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		for _, element := range literal.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				name := fmt.Sprint(literal.Type)
				named[name] = append(named[name], fmt.Sprint(pair.Key))
			}
		}
		return true
	})
	return named
}

// fieldsOf returns the numbers of a version by the name of the field.
func fieldsOf(v *Version) map[string]int64 {
	fields := map[string]int64{"Minor": int64(v.Minor)}
	values := []reflect.Value{
		reflect.ValueOf(v.Frames), reflect.ValueOf(v.CodeLayout), reflect.ValueOf(v.Structures),
	}
	if v.DebugOffsets != nil {
		values = append(values, reflect.ValueOf(*v.DebugOffsets))
	}
	for _, value := range values {
		for i := range value.NumField() {
			name, field := value.Type().Field(i).Name, value.Field(i)
			switch {
			case field.CanUint():
				fields[name] = int64(field.Uint())
			case field.CanInt():
				fields[name] = field.Int()
			}
		}
	}

	return fields
}

// notInHeaders are the fields that tests check on live interpreters: no header has them, or not in
// every version.
var notInHeaders = map[string]bool{
	"LRUFunc": true, "ModuleDict": true, "DequeLeftblock": true, "DequeRightblock": true,
	"DequeLeftindex": true, "DequeMaxlen": true, "LRUCache": true, "LRUMaxsize": true,
	"DequeRightindex": true, "BlockLeftlink": true, "BlockData": true, "BlockRightlink": true,
	"KeysHeader": true, "ValuesForm": true, "ValuesHeader": true, "ValuesHeaderAt": true,
	"ManagedDict": true, "ManagedValues": true, "PreHeader": true, "PoolSize": true,
	"ImmortalRefcnt": true, "LineForm": true, "LastiUnit": true, "FirstFullGC": true,
	"StackRefTags": true, "GCStatsForm": true,
}

var update = flag.Bool("update", false, "write the offsets of the headers into the files of the versions")

// The oracle is the compiler: offsetof in the headers of each version.
func TestStructures(t *testing.T) {
	for _, v := range versions {
		t.Run(fmt.Sprintf("3.%d", v.Minor), func(t *testing.T) {
			t.Parallel()
			if includes := headersOf(t, v.Minor); includes != nil {
				compareWithHeaders(t, v, includes)
			}
		})
	}
}

// headersOf returns the folders with the headers of a version. They are nil where they cannot be
// had from Debian.
func headersOf(t *testing.T, minor int) []string {
	t.Helper()
	const fromDebian = 14 // and later: pyenv has the others
	name := fmt.Sprintf("python3.%d", minor)
	if minor < fromDebian {
		found, _ := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".pyenv/versions/3.*/include", name))
		if len(found) == 0 {
			t.Fatalf("pyenv has no headers of 3.%d (testdata/interpreters.sh)", minor)
		}
		return found[:1]
	}

	out := strings.TrimSpace(tracertest.Run(t, "sh", tracertest.Source("headers.sh"), "forky",
		"lib"+name+"-dev"))
	if strings.HasPrefix(out, "missing: ") {
		t.Logf("3.%d is checked on live interpreters alone: %s", minor, out)
		return nil
	}
	return []string{filepath.Join(out, name), out}
}

func compareWithHeaders(t *testing.T, v *Version, includes []string) {
	program := filepath.Join(t.TempDir(), "structures")
	arguments := []string{"-w", "-o", program, "testdata/structures.c"}
	for _, dir := range includes {
		arguments = append(arguments, "-I", dir, "-I", filepath.Join(dir, "internal"))
	}

	tracertest.Run(t, "gcc", arguments...)
	got := fieldsOf(v)
	printed := make(map[string]bool)
	for line := range strings.Lines(tracertest.Run(t, program)) {
		var name string
		var want int64
		tracertest.Must(fmt.Sscan(line, &name, &want))(t)
		printed[name] = true
		value, known := got[name]
		switch {
		case known && value == want:
		case known && *update:
			setField(t, fmt.Sprintf("v3%d.go", v.Minor), name, want)
		default:
			t.Errorf("%s is %d, want %d", name, value, want)
		}
	}

	for name, value := range got {
		if !printed[name] && !notInHeaders[name] && value != Absent && value != Published {
			t.Errorf("%s is %d, but the headers do not have it", name, value)
		}
	}
}

// setField writes a number into the file of a version.
func setField(t *testing.T, path, name string, value int64) {
	t.Helper()
	content := tracertest.Must(os.ReadFile(path))(t)

	field := regexp.MustCompile(`(?m)^(\s+(?:v\.)?` + name + `(?::\s+| = ))[^,\n]+`)
	if field.Match(content) {
		content = field.ReplaceAll(content, fmt.Appendf(nil, "${1}%d", value))
	} else {
		content = fmt.Appendf(bytes.TrimSuffix(content, []byte("})\n")), "\tv.%s = %d\n})\n", name, value)
	}
	tracertest.NoError(t, os.WriteFile(path, content, 0o644))
}

func TestFind(t *testing.T) {
	for _, minor := range []int{-1, 0, 7, 99, 1 << 40} {
		v, err := Find(minor)
		want := fmt.Sprintf("CPython 3.%d (CPython %s are supported)", minor, Supported)
		if v != nil || err == nil || err.Error() != want {
			t.Errorf("3.%d: %+v, %v", minor, v, err)
		}
	}
}
