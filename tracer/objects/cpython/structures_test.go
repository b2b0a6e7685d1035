package cpython

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// fieldsOf returns the numbers of the structures by name of the field.
func fieldsOf(s *Structures) map[string]int64 {
	fields := make(map[string]int64)
	value := reflect.ValueOf(*s)
	for i := range value.NumField() {
		name, field := value.Type().Field(i).Name, value.Field(i)
		switch {
		case field.CanUint():
			fields[name] = int64(field.Uint())
		case field.CanInt():
			fields[name] = field.Int()
		}
	}
	return fields
}

// notInHeaders are the fields that TestRuntime checks on live interpreters: no header has them, or
// not in every version.
var notInHeaders = map[string]bool{
	"PartialFunc": true, "PartialArgs": true, "PartialKw": true, "LRUFunc": true, "LRUCache": true,
	"LRUElemKey": true, "LRUElemResult": true, "ModuleDict": true, "ModuleName": true,
	"DequeLeftblock": true, "DequeRightblock": true, "DequeLeftindex": true,
	"DequeRightindex": true, "BlockLeftlink": true, "BlockData": true, "BlockRightlink": true,
	"DequeBlockSize": true, "KeysHeader": true, "ValuesHeader": true, "ValuesHeaderAt": true,
	"ManagedDict": true, "ManagedValues": true, "PreHeader": true, "PoolSize": true,
}

// The oracle is the compiler: offsetof in the headers of each version.
func TestStructures(t *testing.T) {
	includes := make(map[string][]string) // -I flags by version
	found, _ := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".pyenv/versions/3.*/include/python3.*"))
	for _, dir := range found {
		includes[filepath.Base(dir)] = []string{dir}
	}
	out := runTool(t, "sh", tracertest.Source("headers.sh"), "forky", "libpython3.14-dev")
	if dir := strings.TrimSpace(out); strings.HasPrefix(dir, "missing: ") {
		t.Logf("3.14 is checked on live interpreters alone: %s", dir)
	} else {
		includes["python3.14"] = []string{filepath.Join(dir, "python3.14"), dir}
	}

	for version, dirs := range includes {
		var minor int
		if n, _ := fmt.Sscanf(version, "python3.%d", &minor); n != 1 || structuresOf(minor) == nil {
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			compareWithHeaders(t, minor, dirs)
		})
	}
}

func compareWithHeaders(t *testing.T, minor int, includes []string) {
	program := filepath.Join(t.TempDir(), "structures")
	arguments := []string{"-w", "-o", program, "testdata/structures.c"}
	for _, dir := range includes {
		arguments = append(arguments, "-I", dir, "-I", filepath.Join(dir, "internal"))
	}
	if out, err := exec.Command("gcc", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}

	got := fieldsOf(structuresOf(minor))
	printed := make(map[string]bool)
	for line := range strings.Lines(runTool(t, program)) {
		var name string
		var want int64
		if _, err := fmt.Sscan(line, &name, &want); err != nil {
			t.Fatal(err)
		}
		printed[name] = true
		value, known := got[name]
		if !known || value != want {
			t.Errorf("%s is %d, want %d", name, value, want)
		}
	}
	for name, value := range got {
		if !printed[name] && !notInHeaders[name] && value != 0 {
			t.Errorf("%s is %d, but the headers do not have it", name, value)
		}
	}
}

func TestStructuresOfUnknownVersions(t *testing.T) {
	for _, minor := range []int{-1, 0, 7, 15, 1 << 40} {
		if s := structuresOf(minor); s != nil {
			t.Errorf("3.%d has structures %+v", minor, s)
		}
	}
}

// TestPublished refuses a version of whose published offsets no positions are known.
func TestPublished(t *testing.T) {
	untouched := memoryFunc(func(uint64, []byte) error { return nil })
	for minor := firstMinor; minor <= 16; minor++ {
		s := Structures{Minor: minor}
		err := s.checkPublished(newView(untouched), 1<<20)
		if isBefore := minor < 13; isBefore != (err == nil) {
			t.Errorf("3.%d: %v", minor, err)
		}
	}
}
