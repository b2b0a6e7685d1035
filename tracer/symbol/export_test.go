package symbol

import (
	"debug/elf"
	"encoding/binary"
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

func TestExportsAreFoundWithEveryKindOfHashTable(t *testing.T) {
	for _, style := range []string{"gnu", "sysv", "both"} {
		t.Run(style, func(t *testing.T) {
			path := compile(t, "gcc", exportsC, "-shared", "-fPIC", "-Wl,--hash-style="+style)
			f := open(t, path, path, "")
			if want := exportsOf(t, path); len(want) != 5 {
				t.Fatalf("readelf lists %v", want)
			} else {
				mustFind(t, f, want)
			}
			for _, name := range []string{"elsewhere", "hidden", "nowhere", "", "variabl", "variable2"} {
				if got, ok := f.Export(name); ok {
					t.Errorf("%q is %+v, but is not exported", name, got)
				}
			}
		})
	}
}

func TestEveryExportOfALargeLibraryIsFound(t *testing.T) {
	path := strings.TrimSpace(run(t, "", "gcc", "-print-file-name=libstdc++.so.6"))
	want := exportsOf(t, path)
	if len(want) < 4000 {
		t.Fatalf("readelf lists %d exports", len(want))
	}
	mustFind(t, open(t, path, path, ""), want)
}

func mustFind(t *testing.T, f *File, exports map[string][]Symbol) {
	t.Helper()
	for name, want := range exports {
		if got, ok := f.Export(name); !ok || !slices.Contains(want, got) {
			t.Errorf("%s is %+v, %v; readelf says %+v", name, got, ok, want)
		}
	}
}

func TestADamagedHashTableHidesNamesOnly(t *testing.T) {
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
}

// A bucket without an end, made of one hash that is always right, must not be followed for ever.
func TestAnEndlessBucketIsGivenUp(t *testing.T) {
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
	patch(elf.SHT_GNU_HASH, func(s *elf.Section64) { s.Off, s.Size = uint64(len(data)), uint64(len(table)) })(t, data)
	reader := &countingReader{data: append(data, table...)}
	m, err := newFile(reader, int64(len(reader.data)))
	if err != nil {
		t.Fatal(err)
	}
	reader.reads = 0
	if s, ok := m.Export(name); ok || reader.reads < maxChain || reader.reads > 3*maxChain {
		t.Errorf("%+v, %v after %d reads, want about %d", s, ok, reader.reads, maxChain)
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
