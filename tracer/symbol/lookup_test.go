package symbol

import (
	"debug/elf"
	"encoding/binary"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// exportsOf is readelf's opinion of the exports of a file. A name can have several versions.
func exportsOf(t testing.TB, path string) map[string][]Symbol {
	t.Helper()
	found := make(map[string][]Symbol)
	for line := range strings.Lines(run(t, "", "readelf", "--dyn-syms", "-W", path)) {
		f := strings.Fields(line) // number: value size type bind visibility section name
		if len(f) < 8 || f[3] != "FUNC" && f[3] != "OBJECT" || f[4] == "LOCAL" || f[6] == "UND" {
			continue
		}

		name, _, _ := strings.Cut(f[7], "@")
		size := tracertest.Must(strconv.ParseUint(f[2], 0, 64))(t)

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
		want := exportsOf(t, libcpp)
		if len(want) < 4000 {
			t.Fatalf("readelf lists %d exports", len(want))
		}

		mustFind(t, withoutDebug(t, libcpp), want)
	})

	// It hides names only.
	t.Run("damaged hash table", func(t *testing.T) {
		library := compile(t, "gcc", exportsC, "-shared", "-fPIC", "-Wl,--hash-style=gnu")
		for name, change := range map[string]func(*section){
			"outside the file":           func(s *section) { s.Off = 1 << 40 },
			"at the end of what can be":  func(s *section) { s.Off = 1<<64 - 8 },
			"in the middle of something": func(s *section) { s.Off = 0x10 },
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
				patch(elf.SHT_GNU_HASH, func(s *section) {
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

		patch(elf.SHT_GNU_HASH, func(s *section) {
			s.Off, s.Size = uint64(len(data)), uint64(len(table))
		})(t, data)

		reader := &countingReader{data: append(data, table...)}
		m := tracertest.Must(newFile(reader, int64(len(reader.data))))(t)

		reader.bytes = 0
		const chain = 4 * maxChain // bytes
		if s, ok := m.Export(name); ok || reader.bytes < chain || reader.bytes > chain+chain/8 {
			t.Errorf("%+v, %v after %d bytes, want about %d", s, ok, reader.bytes, chain)
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
	bytes int
}

func (r *countingReader) ReadAt(buffer []byte, offset int64) (int, error) {
	r.bytes += len(buffer)
	return copy(buffer, r.data[offset:]), nil
}

// lacksOf is readelf's opinion of the functions and variables that a file leaves to other files.
func lacksOf(t testing.TB, path string) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	for line := range strings.Lines(run(t, "", "readelf", "--dyn-syms", "-W", path)) {
		if f := strings.Fields(line); len(f) >= 8 && f[6] == "UND" {
			name, _, _ := strings.Cut(f[7], "@")
			found[name] = true
		}
	}
	return found
}

func TestLacks(t *testing.T) {
	const sourceC = exportsC + "extern int other; int *where(void) { return &other; }"
	libraries := map[string]string{"large library": libcpp, "program": "/bin/true"}
	for _, style := range []string{"gnu", "sysv", "both"} {
		libraries[style] = compile(t, "gcc", sourceC, "-shared", "-fPIC", "-Wl,--hash-style="+style)
	}
	for name, path := range libraries {
		t.Run(name, func(t *testing.T) {
			want := lacksOf(t, path)
			if len(want) == 0 {
				t.Fatal("readelf lists none")
			}
			names := slices.Collect(maps.Keys(want))
			for exported := range exportsOf(t, path) {
				names = append(names, exported)
			}
			names = append(names, "elsewher", "elsewhere2", "nowhere", "hidden")

			got, err := withoutDebug(t, path).Lacks(names...)
			if err != nil || len(got) != len(names) {
				t.Fatalf("%d results, error %v", len(got), err)
			}
			for i, name := range names {
				if got[i] != want[name] {
					t.Errorf("%q is lacking: %v, readelf: %v", name, got[i], want[name])
				}
			}
		})
	}

	t.Run("damaged", func(t *testing.T) {
		library := compile(t, "gcc", sourceC, "-shared", "-fPIC", "-Wl,--hash-style=gnu")
		for _, kind := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_STRTAB} {
			for _, offset := range []uint64{0x10, 1 << 40, 1<<64 - 8} {
				data := read(t, library)
				patch(kind, func(s *section) { s.Off = offset })(t, data)
				_, _ = fromBytes(t, data).Lacks("elsewhere") // it must not panic
			}
		}
		for _, value := range []uint32{1, 1 << 20, 1<<32 - 1} {
			data := read(t, library)
			patch(elf.SHT_DYNSYM, func(s *section) {
				binary.LittleEndian.PutUint32(data[s.Off+elf.Sym64Size:], value) // the offset of a name
			})(t, data)
			_, _ = fromBytes(t, data).Lacks("elsewhere")
		}
	})
}

func TestFunctions(t *testing.T) {
	t.Run("C library", func(t *testing.T) {
		names := make(map[string]bool)
		want := make(map[string][]uint64) // a name can have several versions
		for _, fn := range nmFunctions(t, libc, "-D") {
			want[fn.name] = append(want[fn.name], fn.value)
			names[fn.name] = true
		}

		got, err := withoutDebug(t, libc).Functions(Dynsym, names)
		if err != nil || len(got) < 2000 {
			t.Fatalf("%d functions, %v", len(got), err)
		}

		for name, address := range got {
			if !slices.Contains(want[name], address) {
				t.Errorf("%s at %#x, nm prints %#x", name, address, want[name])
			}
		}
	})

	// Two files of one program may each have a local function of one name.
	t.Run("local functions", func(t *testing.T) {
		const local = "static __attribute__((used)) void "
		other := filepath.Join(t.TempDir(), "other.c")
		write(t, other, []byte(local+"two(void) {} "+local+"three(void) {} "+local+"both(void) {}"))
		const global = "void one(void) {} void both(void) {} "
		program := compile(t, "gcc", global+local+"two(void) {}", other, "-nostdlib", "-static")

		want := make(map[string]uint64)
		for _, fn := range nmFunctions(t, program) {
			if !fn.local || fn.name == "three" {
				want[fn.name] = fn.value
			}
		}

		got, err := withoutDebug(t, program).Functions(Symtab,
			map[string]bool{"one": true, "two": true, "three": true, "both": true, "none": true})
		if err != nil || len(want) != 3 || !maps.Equal(got, want) {
			t.Errorf("found %#x, %v, nm prints %#x", got, err, want)
		}
	})
}
