package symbol

import (
	"path/filepath"
	"testing"
)

const variablesCpp = `
#include <map>
static long table[100], *end = table + 100;
char plain[3];
namespace space {
struct Registry { static std::map<int, int *> entries; template <typename T> static T slot; };
std::map<int, int *> Registry::entries;
template <typename T> T Registry::slot;
}
thread_local int perThread = 7;
extern "C" void *counter(int n) { static int calls[5]; return &calls[n]; }
int main(int argc, char **) {
	space::Registry::slot<long> += argc + perThread;
	return counter(argc) == end || plain[argc] || table[argc];
}
`

// variablesOracle knows the variables of a file. They have to have the right offset, too.
func variablesOracle(t testing.TB, path string, args ...string) *oracle {
	t.Helper()
	o := newOracle(t, nmSymbols(t, path, func(class, kind string) bool {
		return kind == "OBJECT" && class != "A" // versions are absolute symbols
	}, args...))
	starts := make(map[uint64]bool)
	for _, v := range o.functions {
		starts[v.value] = true
	}
	o.tested = func(f *File, addr uint64) (string, bool) {
		name, offset, ok := f.Variable(addr)
		if ok && !starts[addr-offset] {
			t.Errorf("%#x is %s+%#x: nothing begins there", addr, name, offset)
		}
		return name, ok
	}
	return o
}

func TestVariable(t *testing.T) {
	for _, path := range []string{libc, libcpp} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			variablesOracle(t, path, "-D").checkAll(t, withoutDebug(t, path))
		})
	}

	t.Run("of a program", func(t *testing.T) {
		path := compile(t, "g++", variablesCpp)
		o := variablesOracle(t, path)
		f := openSound(t, path, "")
		o.checkAll(t, f)

		// The names that people read.
		found := make(map[string]uint64)
		for _, v := range o.functions {
			if name, _, ok := f.Variable(v.value); ok {
				found[name] = v.size
			}
		}
		for name, size := range map[string]uint64{
			"table": 800, "plain": 3, "space::Registry::entries": 48, "space::Registry::slot": 8,
			"perThread": 0,
		} {
			if found[name] != size {
				t.Errorf("%s has %d bytes, want %d of %v", name, found[name], size, found)
			}
		}
	})

	t.Run("in a debug file", func(t *testing.T) {
		path := compile(t, "g++", variablesCpp, "-Wl,--build-id=none")
		o := variablesOracle(t, path)
		debug := split(t, path)
		run(t, "", "objcopy", "--add-gnu-debuglink="+debug, path)
		o.checkAll(t, open(t, path, path, "/"))
	})

	t.Run("functions are none", func(t *testing.T) {
		f := withoutDebug(t, libc)
		for _, function := range nmFunctions(t, libc, "-D") {
			if name, _, ok := f.Variable(function.value); ok {
				t.Errorf("%s is in variable %s", function.name, name)
			}
		}
	})
}
