package symbol

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exportsOf is readelf's opinion of what a file exports. A name can have several versions.
func exportsOf(t testing.TB, path string) map[string][]Symbol {
	t.Helper()
	found := make(map[string][]Symbol)
	for line := range strings.Lines(run(t, "", "readelf", "--dyn-syms", "-W", path)) {
		f := strings.Fields(line) // number: value size type bind visibility section name
		if len(f) < 8 || f[3] != "FUNC" && f[3] != "OBJECT" || f[4] == "LOCAL" || f[6] == "UND" {
			continue
		}

		name, _, _ := strings.Cut(f[7], "@")
		size, err := strconv.ParseUint(f[2], 0, 64)
		if err != nil {
			t.Fatal(err)
		}

		found[name] = append(found[name], Symbol{hexadecimal(t, f[1]), size})
	}

	return found
}

const exportsC = `
int variable = 7; const long constant[3] = {1};
int function(void) { return 1; }
extern int elsewhere(void); int user(void) { return elsewhere(); }
static int hidden = 3; int *address(void) { return &hidden; }
`

func TestExport(t *testing.T) {
	for _, style := range []string{"gnu", "sysv", "both"} {
		t.Run(style, func(t *testing.T) {
			path := compile(t, "gcc", exportsC, "-shared", "-fPIC", "-Wl,--hash-style="+style)
			f := open(t, path, path, "")
			if want := exportsOf(t, path); len(want) != 5 {
				t.Fatalf("readelf lists %v", want)
			} else {
				mustFind(t, f, want)
			}

			for _, name := range []string{
				"elsewhere", "hidden", "nowhere", "", "variabl", "variable2",
			} {
				if got, ok := f.Export(name); ok {
					t.Errorf("%q is %+v, but is not exported", name, got)
				}
			}
		})
	}

	t.Run("large library", func(t *testing.T) {
		path := strings.TrimSpace(run(t, "", "gcc", "-print-file-name=libstdc++.so.6"))
		want := exportsOf(t, path)
		if len(want) < 4000 {
			t.Fatalf("readelf lists %d exports", len(want))
		}

		mustFind(t, open(t, path, path, ""), want)
	})

	// It hides names only.
	t.Run("damaged hash table", func(t *testing.T) {
		library := compile(t, "gcc", exportsC, "-shared", "-fPIC", "-Wl,--hash-style=gnu")
		for name, change := range map[string]func(*elf.Section64){
			"outside the file":           func(s *elf.Section64) { s.Off = 1 << 40 },
			"at the end of what can be":  func(s *elf.Section64) { s.Off = 1<<64 - 8 },
			"in the middle of something": func(s *elf.Section64) { s.Off = 0x10 },
		} {
			t.Run("a table "+name, func(t *testing.T) {
				data := read(t, library)
				patch(elf.SHT_GNU_HASH, change)(t, data)
				if s, ok := fromBytes(t, data).Export("variable"); ok {
					t.Errorf("found %+v", s)
				}
			})
		}

		for _, word := range []int{0, 1, 2, 3} {
			for _, value := range []uint32{0, 1<<32 - 1} {
				data := read(t, library)
				patch(elf.SHT_GNU_HASH, func(s *elf.Section64) {
					binary.LittleEndian.PutUint32(data[s.Off+uint64(word)*4:], value)
				})(t, data)

				fromBytes(t, data).Export("variable") // found or not: it must not panic
			}
		}
	})

	// A chain without an end, made of one hash that always matches, must not be followed for ever.
	t.Run("endless chain", func(t *testing.T) {
		data := read(t, compile(t, "gcc", exportsC, "-shared", "-fPIC", "-Wl,--hash-style=gnu"))
		const name = "nowhere"
		table := make([]byte, 16+8+4+8*maxChain)

		for i, word := range []uint32{1, 0, 1, 0} { // one bucket, from symbol 0, one filter word
			binary.LittleEndian.PutUint32(table[i*4:], word)
		}

		binary.LittleEndian.PutUint64(table[16:], 1<<64-1)
		for at := 28; at < len(table); at += 4 {
			binary.LittleEndian.PutUint32(table[at:], gnuHash(name)&^1)
		}

		patch(elf.SHT_GNU_HASH,
			func(s *elf.Section64) { s.Off, s.Size = uint64(len(data)), uint64(len(table)) })(
			t,
			data,
		)

		reader := &countingReader{data: append(data, table...)}
		m, err := newFile(reader, int64(len(reader.data)))
		if err != nil {
			t.Fatal(err)
		}

		reader.reads = 0
		if s, ok := m.Export(name); ok || reader.reads < maxChain || reader.reads > 3*maxChain {
			t.Errorf("%+v, %v after %d reads, want about %d", s, ok, reader.reads, maxChain)
		}
	})
}

func mustFind(t *testing.T, f *File, exports map[string][]Symbol) {
	t.Helper()
	for name, want := range exports {
		if got, ok := f.Export(name); !ok || !slices.Contains(want, got) {
			t.Errorf("%s is %+v, %v; readelf prints %+v", name, got, ok, want)
		}
	}
}

type countingReader struct {
	data  []byte
	reads int
}

func (r *countingReader) ReadAt(buffer []byte, offset int64) (int, error) {
	r.reads++
	return copy(buffer, r.data[offset:]), nil
}

// addresses returns the functions of a file by name, as nm prints them.
func addresses(t testing.TB, path string, flags ...string) map[string]uint64 {
	t.Helper()
	found := make(map[string]uint64)
	for text := range strings.Lines(run(t, "", "nm", append(flags, path)...)) {
		var address uint64
		var kind, name string
		if n, _ := fmt.Sscanf(text, "%x %s %s", &address, &kind, &name); n == 3 &&
			strings.Contains("TtW", kind) {
			name, _, _ = strings.Cut(name, "@")
			found[name] = address
		}
	}

	return found
}

func TestFunctions(t *testing.T) {
	t.Run("C library", func(t *testing.T) {
		path := libc
		versions := make(map[string]int)
		for line := range strings.Lines(run(t, "", "nm", "-D", "--defined-only", path)) {
			if fields := strings.Fields(line); len(fields) == 3 {
				name, _, _ := strings.Cut(fields[2], "@")
				versions[name]++
			}
		}

		m := withoutDebug(t, path)
		want := addresses(t, path, "-D", "--defined-only")
		names := make(map[string]bool)

		for name := range want {
			names[name] = true
		}

		got, err := m.Functions(Dynsym, names)
		if err != nil || len(got) < 2000 {
			t.Fatalf("%d functions, %v", len(got), err)
		}

		for name, address := range got {
			if versions[name] == 1 && address != want[name] {
				t.Errorf("%s at %#x, nm prints %#x", name, address, want[name])
			}
		}
	})

	// Two files of one program may each have a local function of one name.
	t.Run("local functions", func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"a.s": ".globl one, both\n.type one,@function\none: ret\n.type two,@function\ntwo: ret\n.type both,@function\nboth: ret\n",
			"b.s": ".type two,@function\ntwo: ret\n.type three,@function\nthree: ret\n.type both,@function\nboth: ret\n.globl _start\n_start: ret\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		program := filepath.Join(dir, "program")
		run(t, "", "gcc", "-nostdlib", "-static", "-o", program, filepath.Join(dir, "a.s"),
			filepath.Join(dir, "b.s"))
		m := withoutDebug(t, program)
		got, err := m.Functions(Symtab,
			map[string]bool{"one": true, "two": true, "three": true, "both": true, "none": true})
		if err != nil {
			t.Fatal(err)
		}

		want := addresses(t, program, "--extern-only")
		if len(got) != 3 || got["one"] != want["one"] || got["both"] != want["both"] ||
			got["three"] == 0 {
			t.Errorf("found %#x, nm lists the global ones %#x", got, want)
		}
	})
}
