package symbol

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

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

// A function is one that nm lists.
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
		if kind != "FUNC" && class != "i" || class == "U" || value == "" {
			continue
		}
		name, _, _ = strings.Cut(name, "@")
		functions = append(functions, function{name, hexadecimal(t, value), hexadecimal(t, cmp.Or(size, "0")), class == "t"})
	}
	slices.SortFunc(functions, func(a, b function) int { return cmp.Compare(a.value, b.value) })
	if len(functions) == 0 {
		t.Fatalf("nm lists no function in %s", path)
	}
	return functions
}

func hexadecimal(t testing.TB, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// An oracle answers for Name from what nm and c++filt print, by brute force.
type oracle struct {
	functions []function
	shown     map[string]string // mangled name: as c++filt prints it, without templates
}

func newOracle(t testing.TB, functions []function) *oracle {
	t.Helper()
	o := &oracle{functions, make(map[string]string)}
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

// at returns what the functions that contain addr and start last are called.
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

// abbreviations are what the demanglers print differently: c++filt expands the
// substitutions Ss, Si, So and Sd more often.
var abbreviations = strings.NewReplacer("std::string", "std::basic_string", "std::istream", "std::basic_istream",
	"std::ostream", "std::basic_ostream", "std::iostream", "std::basic_iostream")

// check compares Name with the oracle at addr and reports whether it agrees.
func (o *oracle) check(t testing.TB, f *File, addr uint64) bool {
	t.Helper()
	want := o.at(addr)
	got, ok := f.Name(addr)
	got = abbreviations.Replace(got)
	if ok != (len(want) > 0) || ok && !slices.Contains(want, got) {
		t.Errorf("Name(%#x) = %q, %v; nm and c++filt say %q", addr, got, ok, want)
		return false
	}
	return true
}

// checkAll compares Name with the oracle at the first, last and following
// address of each function.
func (o *oracle) checkAll(t testing.TB, f *File) {
	t.Helper()
	for _, fn := range o.functions {
		for _, addr := range []uint64{fn.value, fn.value + max(fn.size, 1) - 1, fn.value + max(fn.size, 1)} {
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
	for _, op := range []string{"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">"} {
		if strings.HasPrefix(s, "operator"+op) {
			return "operator" + op
		}
	}
	return ""
}
