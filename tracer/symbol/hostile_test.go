package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// fromBytes opens an ELF file in memory.
func fromBytes(t testing.TB, data []byte) *File {
	t.Helper()
	f, err := newFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// labels is assembly source of one-byte functions with these names. Each byte
// of a name may be anything but a quote, a backslash and NUL.
func labels(names ...string) string {
	var b strings.Builder
	b.WriteString(".text\n")
	for _, name := range names {
		fmt.Fprintf(&b, ".globl \"%[1]s\"\n.type \"%[1]s\",@function\n\"%[1]s\": nop\n.size \"%[1]s\",1\n", name)
	}
	return b.String()
}

func TestNameHostile(t *testing.T) {
	long := strings.Repeat("x", 5000)
	tests := []struct{ name, want string }{
		{"\x1b[31mred\x07", "?[31mred?"},
		{"\xff\xfe", "??"},
		{"a\u202eb", "a?b"}, // right-to-left override
		{"größe", "größe"},
		{"@", "@"},
		{"_ZN3NMSW3MFccvoB3ABIEccccccccooB3ABIEc", "_ZN3NMSW3MFccvoB3ABIEccccccccooB3ABIEc"}, // the demangler panics
		{long, long[:maxName]},
		{"_Z1fI" + strings.Repeat("P", 4000) + "iEvv", "f"},
		{"_ZN1aC1Ev", "a::a"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
		{"_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"},
	}
	var names []string
	for _, test := range tests {
		names = append(names, test.name)
	}
	f := openSound(t, assemble(t, labels(names...)), "")
	f.load()
	if got, want := len(f.symbols.symbols), len(tests); got != want {
		t.Fatalf("%d symbols, want %d", got, want)
	}
	for i, s := range f.symbols.symbols { // the functions lie in the order of the source
		for range 2 { // read, then cached
			if got, ok := f.Name(s.value); !ok || got != tests[i].want {
				t.Errorf("Name of %q = %q, %v, want %q", tests[i].name, got, ok, tests[i].want)
			}
		}
	}
}

func TestNameDropsVersion(t *testing.T) {
	f := openSound(t, assemble(t, labels("plain")+".symver plain,other@V1\n.symver plain,pl@@@V2\n"), "")
	f.load()
	for _, s := range f.symbols.symbols {
		if name, ok := f.Name(s.value); !ok || name != "pl" {
			t.Errorf("Name(%#x) = %q, %v, want pl", s.value, name, ok)
		}
	}
}

// A table that is cut or lies about its place costs the names, not the file.
func TestSymbolTableDamaged(t *testing.T) {
	library := assemble(t, labels("victim"))
	for _, test := range damage {
		t.Run(test.name, func(t *testing.T) {
			data := read(t, library)
			test.apply(t, data)
			f := fromBytes(t, data)
			vaddr, ok := f.Address(0x1000)
			if !ok {
				t.Error("the file lost its segments")
			}
			name, named := f.Name(vaddr)
			if err := f.Err(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Err() = %v, want one with %q", err, test.want)
			}
			if named != test.named || named && name != "victim" {
				t.Errorf("Name = %q, %v, want %v", name, named, test.named)
			}
		})
	}
}

var damage = []struct {
	name, want string
	named      bool // .dynsym still serves
	apply      func(t *testing.T, data []byte)
}{
	{"section headers outside", "read sections: ", false, func(_ *testing.T, data []byte) {
		binary.LittleEndian.PutUint64(data[0x28:], 1<<62)
	}},
	{"section names outside", "section names: in section 61440", true, func(_ *testing.T, data []byte) {
		binary.LittleEndian.PutUint16(data[0x3e:], 0xf000)
	}},
	{"symbols outside", "read symbols: ", true, patch(elf.SHT_SYMTAB, func(s *elf.Section64) { s.Off = 1<<64 - 8 })},
	{"too many symbols", "read symbols: ", true, patch(elf.SHT_SYMTAB, func(s *elf.Section64) { s.Size = 1 << 60 })},
	{"names in no section", "names in section 9999 of", true, patch(elf.SHT_SYMTAB, func(s *elf.Section64) { s.Link = 9999 })},
	{"names outside", "read symbol names: ", false, patch(elf.SHT_STRTAB, func(s *elf.Section64) { s.Off = 1 << 40 })},
	{"names elsewhere", "names in a section of type", true, patch(elf.SHT_SYMTAB, func(s *elf.Section64) { s.Link = 0 })},
	{"short entries", "entries of 1 bytes", true, patch(elf.SHT_SYMTAB, func(s *elf.Section64) { s.Entsize = 1 })},
	{"compressed", "compressed", true, patch(elf.SHT_SYMTAB, func(s *elf.Section64) { s.Flags |= uint64(elf.SHF_COMPRESSED) })},
	{"no names", "read symbol name", false, patch(elf.SHT_STRTAB, func(s *elf.Section64) { s.Size = 1 })},
}

// patch changes every section header of one type.
func patch(kind elf.SectionType, change func(*elf.Section64)) func(*testing.T, []byte) {
	return func(t *testing.T, data []byte) {
		found := false
		at := binary.LittleEndian.Uint64(data[0x28:])
		for range binary.LittleEndian.Uint16(data[0x3c:]) {
			var s elf.Section64
			if _, err := binary.Decode(data[at:], binary.LittleEndian, &s); err != nil {
				t.Fatal(err)
			}
			if elf.SectionType(s.Type) == kind {
				found = true
				change(&s)
				if _, err := binary.Encode(data[at:], binary.LittleEndian, &s); err != nil {
					t.Fatal(err)
				}
			}
			at += 64
		}
		if !found {
			t.Fatalf("no section of type %s", kind)
		}
	}
}

// A sparse file of a terabyte costs no memory: the limits hold where the size
// of the file does not bound anything.
func TestSparseFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse")
	data := read(t, assemble(t, labels("victim")))
	patch(elf.SHT_SYMTAB, func(s *elf.Section64) { s.Size = (maxSymbols + 1) * elf.Sym64Size })(t, data)
	patch(elf.SHT_NOTE, func(s *elf.Section64) { s.Size = 1 << 39 })(t, data)
	write(t, path, data)
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := withoutDebug(t, path)
	f.Name(0x1000)
	runtime.ReadMemStats(&after)
	if err := f.Err(); err == nil || !strings.Contains(err.Error(), "exceed the limit") {
		t.Errorf("Err() = %v, want a limit", err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
}
