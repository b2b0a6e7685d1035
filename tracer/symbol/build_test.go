package symbol

import (
	"os"
	"path/filepath"
	"testing"
)

const sourceC = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static __attribute__((noinline)) void *inner(size_t n) { return malloc(n); }
__attribute__((noinline)) void *outer(size_t n) { return inner(n + 1); }
__attribute__((noinline)) void __alias_target(void) { puts("x"); }
void alias_name(void) __attribute__((alias("__alias_target")));
void weak_alias_name_longer(void) __attribute__((weak, alias("__alias_target")));
int printmaps(const char *marker) {
	char line[1024];
	FILE *f = fopen("/proc/self/maps", "r");
	printf("%p\n", (void *)outer);
	while (fgets(line, sizeof line, f)) fputs(line, stdout);
	return 0;
}
int main(void) { free(outer(7)); return printmaps("m"); }
`

const sourceCpp = `
#include <cstdlib>
#include <new>
namespace space {
namespace { __attribute__((noinline)) void *hidden(int n) { return malloc(n); } }
struct Thing {
	Thing();
	virtual ~Thing();
	Thing &operator<<(int n);
	bool operator<(const Thing &) const;
	void *operator->();
	void *operator new(size_t n);
	explicit operator bool() const;
	void *p;
};
Thing::Thing() : p(hidden(3)) {}
Thing::~Thing() { free(p); }
Thing &Thing::operator<<(int n) { p = realloc(p, n); return *this; }
bool Thing::operator<(const Thing &t) const { return p < t.p; }
void *Thing::operator->() { return p; }
void *Thing::operator new(size_t n) { return malloc(n); }
Thing::operator bool() const { return p; }
template <typename T, int N> __attribute__((noinline)) T *fill(T v) { T *p = (T *)malloc(N * sizeof(T)); *p = v; return p; }
}
extern "C" void *plain(int n) { return space::fill<int, 4>(n); }
int main(int argc, char **) {
	auto closure = [](int n) __attribute__((noinline)) { return plain(n); };
	space::Thing t; t << argc; free(closure(argc)); free(space::fill<double, 2>(1.0));
	return t < t;
}
`

// compile compiles source with gcc or g++ into a new folder and returns the
// path of the result.
func compile(t testing.TB, tool, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	suffix := map[string]string{"gcc": ".c", "g++": ".cc"}[tool]
	input, output := filepath.Join(dir, "source"+suffix), filepath.Join(dir, "program")
	write(t, input, []byte(source))
	run(t, "", tool, append([]string{"-O1", "-o", output, input}, flags...)...)
	return output
}

// assemble compiles assembly source into a shared object that defines the
// symbol versions V1 and V2.
func assemble(t testing.TB, source string) string {
	t.Helper()
	dir := t.TempDir()
	input, output := filepath.Join(dir, "source.s"), filepath.Join(dir, "library.so")
	write(t, input, []byte(source))
	versions := filepath.Join(dir, "versions")
	write(t, versions, []byte("V1 {}; V2 {};"))
	run(t, "", "gcc", "-nostdlib", "-shared", "-Wl,--version-script="+versions, "-o", output, input)
	return output
}

// split moves the symbols of the program at path to a debug file and returns
// its path.
func split(t testing.TB, path string) (debug string) {
	t.Helper()
	debug = path + ".debug"
	run(t, "", "objcopy", "--only-keep-debug", path, debug)
	run(t, "", "strip", path)
	return debug
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// open opens the file at path for the length of the test; see New.
func open(t testing.TB, path, seen, root string) *File {
	t.Helper()
	handle, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handle.Close() })
	f, err := New(handle, seen, root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// openSound is open for a file that nothing is wrong with.
func openSound(t testing.TB, path, root string) *File {
	t.Helper()
	f := open(t, path, path, root)
	t.Cleanup(func() {
		if err := f.Err(); err != nil {
			t.Errorf("Err() = %v", err)
		}
	})
	return f
}
