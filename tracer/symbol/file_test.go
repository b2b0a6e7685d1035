package symbol

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	libc   = "/usr/lib/x86_64-linux-gnu/libc.so.6"
	libcpp = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
)

// Each row builds a program in one way and names every function that nm lists.
func TestNames(t *testing.T) {
	tests := []struct {
		name, tool, source string
		flags              []string
		strip              bool
		nm                 []string
	}{
		{"C", "gcc", sourceC, nil, false, nil},
		{"C no PIE", "gcc", sourceC, []string{"-no-pie"}, false, nil},
		{"C static", "gcc", sourceC, []string{"-static"}, false, nil},
		{"C joined segments", "gcc", sourceC, []string{"-Wl,-z,noseparate-code"}, false, nil},
		{"C exported", "gcc", sourceC, []string{"-rdynamic"}, true, []string{"-D"}},
		{"C++", "g++", sourceCpp, nil, false, nil},
		{"C++ exported", "g++", sourceCpp, []string{"-rdynamic"}, true, []string{"-D"}},
		{"C++ debug sections", "g++", sourceCpp, []string{"-g", "-gz"}, false, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := compile(t, test.tool, test.source, test.flags...)
			if test.strip {
				run(t, "", "strip", path)
			}
			newOracle(t, nmFunctions(t, path, test.nm...)).checkAll(t, openSound(t, path, ""))
		})
	}
}

func TestNameStripped(t *testing.T) {
	path := compile(t, "gcc", sourceC)
	functions := nmFunctions(t, path)
	run(t, "", "strip", path)
	f := openSound(t, path, "")
	for _, fn := range functions {
		if got, ok := f.Name(fn.value); ok {
			t.Errorf("Name(%#x) = %q in a file without symbols", fn.value, got)
		}
	}
}

// Every byte of the functions of a system library, and those between them.
func TestNameEverywhere(t *testing.T) {
	for _, path := range []string{libc, libcpp} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			functions := nmFunctions(t, path, "-D")
			o := newOracle(t, functions)
			f := withoutDebug(t, path)
			last := functions[len(functions)-1]
			named := 0
			for addr := functions[0].value - 64; addr < last.value+last.size+64; addr += 5 {
				if _, ok := f.Name(addr); ok {
					named++
				}
				if !o.check(t, f, addr) {
					break
				}
			}
			if named < 1000 {
				t.Errorf("only %d addresses have a name", named)
			}
			o.checkAll(t, f)
		})
	}
}

// withoutDebug opens a file without looking for its debug file.
func withoutDebug(t testing.TB, path string) *File {
	t.Helper()
	handle, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handle.Close() })
	info, err := handle.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFile(handle, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The Go toolchain makes the arm64 file: no cross compiler is needed.
func TestNameARM64(t *testing.T) {
	dir := t.TempDir()
	path, source := filepath.Join(dir, "program"), filepath.Join(dir, "main.go")
	write(t, source, []byte("package main\n\nfunc main() { println(len(make([]byte, 9))) }\n"))
	t.Setenv("GOARCH", "arm64")
	t.Setenv("CGO_ENABLED", "0")
	run(t, "", "go", "build", "-o", path, source)
	if machine := run(t, "", "readelf", "-hW", path); !strings.Contains(machine, "AArch64") {
		t.Fatalf("not an arm64 file:\n%s", machine)
	}
	f := openSound(t, path, "")
	o := newOracle(t, nmFunctions(t, path))
	for _, fn := range o.functions {
		o.check(t, f, fn.value)
		o.check(t, f, fn.value+max(fn.size, 1)-1)
	}
}

func TestNamePrefersAlias(t *testing.T) {
	path := compile(t, "gcc", sourceC)
	f := openSound(t, path, "")
	fromLibc := withoutDebug(t, libc)
	full := openSound(t, libc, "")
	id := fromLibc.BuildID()
	debug := debugDir + "/.build-id/" + id[:2] + "/" + id[2:] + ".debug"
	if full.debug == nil {
		t.Fatalf("no debug file %s (apt-get install libc6-dbg)", debug)
	}
	tests := []struct {
		file      *File
		functions []function
		name      string // one of the aliases
		want      string
	}{
		{f, nmFunctions(t, path), "__alias_target", "alias_name"},
		{fromLibc, nmFunctions(t, libc, "-D"), "__libc_malloc", "malloc"},
		{full, nmFunctions(t, debug), "__GI___libc_malloc", "malloc"},
		{full, nmFunctions(t, debug), "__write", "write"},
		{full, nmFunctions(t, debug), "__libc_free", "free"},
		{full, nmFunctions(t, debug), "_int_malloc", "_int_malloc"},
		{full, nmFunctions(t, debug), "__restore_rt", "__restore_rt"}, // of size 0
	}
	for _, test := range tests {
		found := false
		for _, fn := range test.functions {
			if fn.name != test.name {
				continue
			}
			found = true
			if got, _ := test.file.Name(fn.value); got != test.want {
				t.Errorf("Name at %s = %q, want %q", test.name, got, test.want)
			}
		}
		if !found {
			t.Errorf("nm lists no %s", test.name)
		}
	}
}

// What a reader of a profile sees of C++ names.
func TestNameReadable(t *testing.T) {
	path := compile(t, "g++", sourceCpp)
	f := openSound(t, path, "")
	want := map[string]bool{
		"space::(anonymous namespace)::hidden": true, "space::Thing::Thing": true, "space::Thing::~Thing": true,
		"space::Thing::operator<<": true, "space::Thing::operator<": true, "space::Thing::operator->": true,
		"space::Thing::operator new": true, "space::Thing::operator bool": true, "space::fill": true,
		"plain": true, "main": true,
	}
	for _, fn := range nmFunctions(t, path) {
		name, _ := f.Name(fn.value)
		delete(want, name)
	}
	for name := range want {
		t.Errorf("no function is named %q", name)
	}
}

func BenchmarkNameLibtorch(b *testing.B) {
	paths, err := filepath.Glob("/usr/lib/*/libtorch_cpu.so*")
	if err != nil || len(paths) == 0 {
		b.Skip("no libtorch_cpu.so (apt-get install python3-torch)")
	}
	var before, after runtime.MemStats
	var held []*File
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		f := withoutDebug(b, paths[0])
		f.load()
		held = append(held, f)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(held)), "held-B/file")
	b.ReportMetric(float64(len(held[0].symbols.symbols)), "symbols")
}

func BenchmarkNameFind(b *testing.B) {
	f := withoutDebug(b, libc)
	f.load()
	symbols := f.symbols.symbols
	for i := 0; b.Loop(); i++ {
		s := symbols[i%len(symbols)]
		f.Name(s.value + s.size())
	}
}
