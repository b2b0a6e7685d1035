package symbol

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	libc   = "/usr/lib/x86_64-linux-gnu/libc.so.6"
	libcpp = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
)

const sourceC = `
#include <stdlib.h>
static __attribute__((noinline)) void *inner(size_t n) { return malloc(n); }
__attribute__((noinline)) void *outer(size_t n) { return inner(n + 1); }
int main(void) { free(outer(7)); return 0; }
`

const sourceCpp = `
#include <cstdlib>
namespace space {
namespace { __attribute__((noinline)) void *hidden(int n) { return malloc(n); } }
struct Thing {
	void *p = hidden(3);
	void *operator->();
	bool operator<(const Thing &) const;
	explicit operator bool() const;
};
void *Thing::operator->() { return p; }
bool Thing::operator<(const Thing &t) const { return p < t.p; }
Thing::operator bool() const { return p; }
template <typename T, int N> __attribute__((noinline)) T *fill(T v) { T *p = (T *)malloc(N * sizeof(T)); *p = v; return p; }
}
int main(int argc, char **) {
	auto closure = [](int n) __attribute__((noinline)) { return space::fill<int, 4>(n); };
	space::Thing t; free(closure(argc)); free(t.operator->());
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
	tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	tracertest.NoError(t, os.WriteFile(path, data, 0o755))
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	return tracertest.Must(os.ReadFile(path))(t)
}

func handleOf(t testing.TB, path string) *hostile.File {
	t.Helper()
	handle := tracertest.Must(hostile.Open(nil, path, 0, 0))(t)
	t.Cleanup(func() { handle.Close() })

	return handle
}

// open opens the file at path for the length of the test; see New.
func open(t testing.TB, path, seen, root string) *File {
	t.Helper()
	return openWith(t, NewDebugFiles(), path, seen, root)
}

// openWith is open where debug files count among others that were sought.
func openWith(t testing.TB, d *DebugFiles, path, seen, root string) *File {
	t.Helper()
	f := tracertest.Must(d.New(handleOf(t, path), seen, root))(t)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})

	return f
}

// openSound is open for a file that is not damaged: Err has to be nil.
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

// withoutDebug opens a file without looking for its debug file.
func withoutDebug(t testing.TB, path string) *File {
	t.Helper()
	return tracertest.Must(Open(handleOf(t, path), path))(t)
}

func fromBytes(t testing.TB, data []byte) *File {
	t.Helper()
	return tracertest.Must(newFile(bytes.NewReader(data), int64(len(data))))(t)
}

// labels is assembly source of one-byte functions with these names. Each byte
// of a name may be anything but a quote, a backslash and NUL.
func labels(names ...string) string {
	var b strings.Builder
	b.WriteString(".text\n")
	for _, name := range names {
		fmt.Fprintf(&b,
			".globl \"%[1]s\"\n.type \"%[1]s\",@function\n\"%[1]s\": nop\n.size \"%[1]s\",1\n",
			name)
	}

	return b.String()
}

// A section is a header of a section.
type section = elf.Section64

func symtab(change func(*section)) func(*testing.T, []byte) {
	return patch(elf.SHT_SYMTAB, change)
}

func strtab(change func(*section)) func(*testing.T, []byte) {
	return patch(elf.SHT_STRTAB, change)
}

// patch changes every section header of one type.
func patch(kind elf.SectionType, change func(*section)) func(*testing.T, []byte) {
	return func(t *testing.T, data []byte) {
		found := false
		at := binary.LittleEndian.Uint64(data[0x28:])
		for range binary.LittleEndian.Uint16(data[0x3c:]) {
			var s section
			tracertest.Must(binary.Decode(data[at:], binary.LittleEndian, &s))(t)

			if elf.SectionType(s.Type) == kind {
				found = true
				change(&s)
				tracertest.Must(binary.Encode(data[at:], binary.LittleEndian, &s))(t)
			}

			at += 64
		}

		if !found {
			t.Fatalf("no section of type %s", kind)
		}
	}
}

// apt names the Debian package of each tool that the tests run.
var apt = map[string]string{
	"gcc": "gcc", "g++": "g++", "strip": "binutils", "nm": "binutils", "objcopy": "binutils",
	"readelf": "binutils", "c++filt": "binutils", "go": "golang-go",
}

// run runs a tool and returns its standard output.
func run(t testing.TB, stdin, tool string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Fatalf("%v (apt-get install %s)", err, apt[tool])
	}

	cmd := exec.Command(tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", tool, strings.Join(args, " "), err, &stderr)
	}

	return string(out)
}

// A function is a function or variable that nm lists.
type function struct {
	name        string // without version
	value, size uint64
	local       bool
}

func (f function) contains(addr uint64) bool {
	return addr == f.value || addr > f.value && addr-f.value < f.size
}

// nmFunctions lists the defined functions of a file by address, as nm prints
// them; args is -D for .dynsym.
func nmFunctions(t testing.TB, path string, args ...string) []function {
	t.Helper()
	return nmSymbols(t, path, func(class, kind string) bool {
		return kind == "FUNC" || class == "i"
	}, args...)
}

// nmSymbols lists the defined symbols of a file of some classes and kinds, as nmFunctions does.
func nmSymbols(
	t testing.TB, path string, isWanted func(class, kind string) bool, args ...string,
) []function {
	t.Helper()
	var functions []function
	for line := range strings.Lines(run(t, "", "nm", append(args, "--format=sysv", path)...)) {
		field := strings.Split(line, "|")
		if len(field) < 7 {
			continue
		}

		for i := range field {
			field[i] = strings.TrimSpace(field[i])
		}

		name, value, class, kind, size := field[0], field[1], field[2], field[3], field[4]
		if !isWanted(class, kind) || class == "U" || value == "" {
			continue
		}

		name, _, _ = strings.Cut(name, "@")
		functions = append(functions,
			function{name, hexadecimal(t, value), hexadecimal(t, cmp.Or(size, "0")), class == "t"})
	}

	slices.SortFunc(functions, func(a, b function) int { return cmp.Compare(a.value, b.value) })
	if len(functions) == 0 {
		t.Fatalf("nm lists no such symbol in %s", path)
	}

	return functions
}

func hexadecimal(t testing.TB, s string) uint64 {
	t.Helper()
	return tracertest.Must(strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64))(t)
}

// An oracle names addresses by brute force, from the output of nm and c++filt.
type oracle struct {
	functions []function
	shown     map[string]string // mangled name: as c++filt prints it, without templates
	tested    func(f *File, addr uint64) (name string, ok bool)
}

func newOracle(t testing.TB, functions []function) *oracle {
	t.Helper()
	o := &oracle{functions, make(map[string]string), (*File).Name}
	var in strings.Builder

	for _, f := range functions {
		in.WriteString(f.name + "\n")
	}

	lines := strings.Split(run(t, in.String(), "c++filt", "--no-params"), "\n")
	for i, f := range functions {
		o.shown[f.name] = abbreviations.Replace(withoutTemplates(lines[i]))
	}

	return o
}

// at returns the names of the functions that contain addr and start last.
func (o *oracle) at(addr uint64) []string {
	end, _ := slices.BinarySearchFunc(o.functions, addr, func(f function, addr uint64) int {
		if f.value <= addr {
			return -1
		}
		return 1
	})

	var names []string
	var start uint64
	for _, f := range slices.Backward(o.functions[:end]) {
		if len(names) > 0 && f.value != start {
			break
		}

		if f.contains(addr) {
			names, start = append(names, o.shown[f.name]), f.value
		}
	}

	return names
}

// abbreviations are texts that the demanglers print differently: c++filt expands the substitutions
// Ss, Si, So and Sd more often.
var abbreviations = strings.NewReplacer(
	"std::string", "std::basic_string", "std::istream", "std::basic_istream",
	"std::ostream", "std::basic_ostream", "std::iostream", "std::basic_iostream",
)

// check compares Name with the oracle at addr and reports whether it agrees.
func (o *oracle) check(t testing.TB, f *File, addr uint64) bool {
	t.Helper()
	want := o.at(addr)
	got, ok := o.tested(f, addr)
	got = abbreviations.Replace(got)

	if ok != (len(want) > 0) || ok && !slices.Contains(want, got) {
		t.Errorf("Name(%#x) = %q, %v; nm and c++filt print %q", addr, got, ok, want)
		return false
	}

	return true
}

// checkAll compares Name with the oracle at the first, last and following
// address of each function.
func (o *oracle) checkAll(t testing.TB, f *File) {
	t.Helper()
	for _, fn := range o.functions {
		for _, addr := range []uint64{
			fn.value, fn.value + max(fn.size, 1) - 1, fn.value + max(fn.size, 1),
		} {
			if !o.check(t, f, addr) {
				t.Fatalf("at function %+v", fn)
			}
		}
	}
}

// withoutTemplates cuts template arguments from a demangled name.
func withoutTemplates(s string) string {
	var b strings.Builder
	depth := 0
	for i := 0; i < len(s); i++ {
		if depth == 0 {
			if op := operatorAt(s[i:]); op != "" {
				b.WriteString(op)
				i += len(op) - 1
				continue
			}
		}

		switch {
		case s[i] == '<':
			depth++
		case s[i] == '>' && s[i-1] != '-':
			depth--
		case depth == 0:
			b.WriteByte(s[i])
		}
	}

	return strings.TrimRight(b.String(), " ") // c++filt prints "operator<< <int>"
}

// operatorAt returns the operator with an angle bracket that s starts with.
func operatorAt(s string) string {
	for _, op := range []string{
		"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">",
	} {
		if strings.HasPrefix(s, "operator"+op) {
			return "operator" + op
		}
	}

	return ""
}
