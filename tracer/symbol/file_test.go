package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Each row builds a program in one way and names every function that nm lists.
func TestName(t *testing.T) {
	tests := []struct {
		name, tool, source string
		flags              []string
		strip              bool
		nm                 []string
	}{
		{"C", "gcc", sourceC, nil, false, nil},
		{"C static", "gcc", sourceC, []string{"-static"}, false, nil},
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

	// One function around three hundred others, and symbols of size 0.
	t.Run("nested functions", func(t *testing.T) {
		var b strings.Builder
		var before []string // so that outer is the last symbol of a block
		for i := range blockSize - 1 {
			before = append(before, fmt.Sprintf("before%d", i))
		}

		b.WriteString(labels(before...))
		b.WriteString(".globl outer\n.type outer,@function\nouter: nop\n")
		for i := range 300 {
			fmt.Fprintf(&b,
				".globl f%[1]d\n.type f%[1]d,@function\nf%[1]d: .fill 3,1,0x90\n.size f%[1]d,3\nnop\n",
				i)
		}

		b.WriteString("nop\n.size outer,.-outer\n.fill 9,1,0x90\n")
		b.WriteString(".globl sizeless\n.type sizeless,@function\nsizeless: nop\nnop\n")
		path := assemble(t, b.String())
		functions := nmFunctions(t, path)
		o, f := newOracle(t, functions), openSound(t, path, "")

		for addr := functions[0].value - 9; addr < functions[len(functions)-1].value+9; addr++ {
			o.check(t, f, addr)
		}
	})

	// A function at address 0 is undefined in all but name.
	t.Run("function at 0", func(t *testing.T) {
		path := assemble(t,
			labels("real")+".globl zero\n.type zero,@function\nzero = 0\n.size zero,64\n")
		listed := false

		for _, fn := range nmFunctions(t, path) {
			listed = listed || fn.name == "zero" && fn.value == 0
		}

		if !listed {
			t.Fatal("nm lists no function at 0")
		}

		if name, ok := openSound(t, path, "").Name(0); ok {
			t.Errorf("Name(0) = %q", name)
		}
	})
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

func TestNameOfAliases(t *testing.T) {
	for _, test := range []struct{ names, want string }{
		{"l:local g:global_one", "global_one"},
		{"l:local w:weak_one", "weak_one"},
		{"g:__alias_target g:alias_name w:weak_alias_name_longer", "alias_name"},
		{"l:__GI___libc_malloc g:__libc_malloc g:malloc", "malloc"},
		{"g:_a g:longer", "longer"},
		{"g:_a l:b", "_a"},
		{"g:longer g:short", "short"},
		{"g:b g:a", "a"},
		{"g:_ZN1aC2Ev g:_ZN1aC1Ev", "a::a"},
	} {
		var source strings.Builder
		source.WriteString(".text\n")
		for _, field := range strings.Fields(test.names) {
			binding, name, _ := strings.Cut(field, ":")
			directive := map[string]string{"l": ".local", "w": ".weak", "g": ".globl"}[binding]
			fmt.Fprintf(&source, "%[1]s %[2]s\n.type %[2]s,@function\n.size %[2]s,2\n%[2]s:\n",
				directive, name)
		}

		source.WriteString("nop\nnop\n")
		path := assemble(t, source.String())
		f := openSound(t, path, "")
		vaddr := nmFunctions(t, path)[0].value

		for _, addr := range []uint64{vaddr, vaddr + 1} {
			if got, ok := f.Name(addr); !ok || got != test.want {
				t.Errorf("Name of %s = %q, %v, want %q", test.names, got, ok, test.want)
			}
		}
	}
}

func TestNameHostile(t *testing.T) {
	long := strings.Repeat("x", 5000)
	tests := []struct{ name, want string }{
		{"\x1b[31mred\x07", "?[31mred?"},
		{"\xff\xfe", "??"},
		{"a\u202eb", "a?b"}, // right-to-left override
		{"größe", "größe"},
		{"@", "@"},
		{
			"_ZN3NMSW3MFccvoB3ABIEccccccccooB3ABIEc",
			"_ZN3NMSW3MFccvoB3ABIEccccccccooB3ABIEc",
		}, // the demangler panics
		{long, long[:maxName]},
		{"_Z1fI" + strings.Repeat("P", 4000) + "iEvv", "f"},
		{"_ZN1aC1Ev", "a::a"},
		{"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"},
		{"_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"},
		{"_RNvXs_NtCs5_3foo3barNtB4_3BazNtB4_5Trait3run", "<foo::bar::Baz as foo::bar::Trait>::run"},
		{"main.(*Cache[go.shape.string]).Put", "main.(*Cache[...]).Put"},
		{"gopkg.in/yaml%2ev3.Marshal", "gopkg.in/yaml.v3.Marshal"},
		{"_cgo_44730a4b2f0f_Cfunc_hold", "C.hold"},
		{"_cgo_44730a4b2f0f_C2func_open", "C.open"},
		{"_cgo_topofstack", "_cgo_topofstack"},
	}

	var names []string
	for _, test := range tests {
		names = append(names, test.name)
	}

	f := openSound(t, assemble(t, labels(names...)), "")
	f.load(&f.functions, isFunction)
	symbols := f.functions.tables[0].symbols
	if got, want := len(symbols), len(tests); got != want {
		t.Fatalf("%d symbols, want %d", got, want)
	}

	for i, s := range symbols { // the functions lie in the order of the source
		for range 2 { // read, then cached
			if got, ok := f.Name(s.value); !ok || got != tests[i].want {
				t.Errorf("Name of %q = %q, %v, want %q", tests[i].name, got, ok, tests[i].want)
			}
		}
	}
}

func TestAddress(t *testing.T) {
	t.Run("segments", func(t *testing.T) {
		paths := []string{
			libc,
			compile(t, "gcc", sourceC),
			compile(t, "gcc", sourceC, "-no-pie"),
			compile(t, "gcc", sourceC, "-static"),
			compile(t, "gcc", sourceC, "-Wl,-z,noseparate-code"),
		}

		for _, path := range paths {
			f := withoutDebug(t, path)
			end := uint64(0) // of the segments in the file
			for _, line := range strings.Split(run(t, "", "readelf", "-lW", path), "\n") {
				field := strings.Fields(line)
				if len(field) < 6 || field[0] != "LOAD" {
					continue
				}

				offset, vaddr := hexadecimal(t, field[1]), hexadecimal(t, field[2])
				size := hexadecimal(t, field[4])
				for _, at := range []uint64{0, size / 2, size - 1} {
					if got, ok := f.Address(offset + at); !ok || got != vaddr+at {
						t.Errorf("%s: Address(%#x) = %#x, %v, want %#x", path, offset+at, got, ok,
							vaddr+at)
					}
				}

				end = max(end, offset+size)
			}

			if end == 0 {
				t.Errorf("readelf prints no segment of %s", path)
			}

			for _, offset := range []uint64{end, end + 1<<20, 1<<64 - 1} {
				if got, ok := f.Address(offset); ok {
					t.Errorf("%s: Address(%#x) = %#x behind the segments, which end at %#x", path,
						offset, got, end)
				}
			}
		}
	})

	// Where two segments hold an offset, the executable one answers.
	t.Run("two segments", func(t *testing.T) {
		data := read(t, assemble(t, labels("f")))
		const loadable, fileSize, vaddr = 1, 32, 16 // PT_LOAD; offsets in Elf64_Phdr
		first := data[binary.LittleEndian.Uint64(data[0x20:]):]
		if binary.LittleEndian.Uint32(first) != loadable {
			t.Fatal("the first program header is no PT_LOAD")
		}

		binary.LittleEndian.PutUint64(first[fileSize:], uint64(len(data)))
		binary.LittleEndian.PutUint64(first[vaddr:], 0x100000)
		f := fromBytes(t, data)

		for offset, want := range map[uint64]uint64{0x1000: 0x1000, 0x40: 0x100040} {
			if got, ok := f.Address(offset); !ok || got != want {
				t.Errorf("Address(%#x) = %#x, %v, want %#x", offset, got, ok, want)
			}
		}
	})
}

func TestBuildID(t *testing.T) {
	paths := []string{libc, libcpp}
	for _, style := range []string{"sha1", "md5", "uuid", "0x00ff17ab", "none"} {
		paths = append(paths, compile(t, "gcc", sourceC, "-Wl,--build-id="+style))
	}

	for _, path := range paths {
		want := ""
		for _, line := range strings.Split(run(t, "", "readelf", "-nW", path), "\n") {
			if _, id, ok := strings.Cut(line, "Build ID: "); ok {
				want = strings.TrimSpace(id)
			}
		}

		if got := withoutDebug(t, path).BuildID(); got != want {
			t.Errorf("BuildID() of %s = %q, readelf prints %q", path, got, want)
		}

		data := read(t, path)
		binary.LittleEndian.PutUint64(data[0x28:],
			0) // e_shoff: no section headers, the segment has to serve

		if got := fromBytes(t, data).BuildID(); got != want {
			t.Errorf("BuildID() of %s without sections = %q, readelf prints %q", path, got, want)
		}
	}

	// Notes are padded to 4 bytes, or to 8 where the section is aligned so.
	t.Run("behind another note", func(t *testing.T) {
		for _, align := range []string{"4", "8"} {
			pad := ".balign " + align + "\n"
			note := pad + ".long 4,20,%d\n.ascii \"GNU\\0\"\n" + pad + ".fill 20,1,%#x\n" + pad
			path := assemble(t, labels("f")+".section .note.test,\"a\",@note\n"+
				fmt.Sprintf(note, 9, 0x55)+fmt.Sprintf(note, 3, 0x66))

			run(t, "", "objcopy", "--remove-section=.note.gnu.build-id", path)
			want := strings.Repeat("66", 20)
			if out := run(t, "", "readelf", "-nW", path); !strings.Contains(out, want) {
				t.Fatalf("readelf -n finds no build ID:\n%s", out)
			}

			if got := withoutDebug(t, path).BuildID(); got != want {
				t.Errorf("alignment %s: BuildID() = %q, want %q", align, got, want)
			}
		}
	})
}

// The error says why a file is refused.
func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		write(t, path, data)
		return path
	}

	changed := func(name string, offset int, value byte) string {
		data := read(t, libc)
		data[offset] = value
		return file(name, data)
	}

	const m32 = "int f(void) { return 1; }"
	tests := []struct{ path, want string }{
		{file("text", bytes.Repeat([]byte("no ELF file "), 20)), "not an ELF file"},
		{file("empty", nil), "64 bytes at offset 0 lie outside the file of 0 bytes"},
		{changed("EI_DATA", 5, 2), "ELFCLASS64 ELFDATA2MSB is not supported"},
		{compile(t, "gcc", m32, "-m32", "-nostdlib", "-shared"), "a 32-bit program"},
		{compile(t, "gcc", sourceC, "-c"), "ET_REL is neither"},
		{changed("e_phoff", 0x27, 1<<7), "read program headers: "},
		{changed("e_phentsize", 54, 32), "entries of 32 bytes are not supported"},
	}

	for _, test := range tests {
		_, err := NewDebugFiles().New(handleOf(t, test.path), test.path, "")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%s): error %v, want one with %q", test.path, err, test.want)
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

			found, _ := f.Functions(Symtab, map[string]bool{"victim": true})
			if intact := test.name == "section names outside"; intact != (len(found) > 0) {
				t.Errorf("Functions = %v", found)
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
	{"section names outside", "names: in section 61440", true, func(_ *testing.T, data []byte) {
		binary.LittleEndian.PutUint16(data[0x3e:], 0xf000)
	}},
	{"symbols outside", "read symbols: ", true, symtab(func(s *section) { s.Off = 1<<64 - 8 })},
	{"too many symbols", "read symbols: ", true, symtab(func(s *section) { s.Size = 1 << 60 })},
	{"no section", "names in section 9999 of", true, symtab(func(s *section) { s.Link = 9999 })},
	{"names outside", "read symbol names: ", false, strtab(func(s *section) { s.Off = 1 << 40 })},
	{"elsewhere", "names in a section of type", true, symtab(func(s *section) { s.Link = 0 })},
	{"short entries", "entries of 1 bytes", true, symtab(func(s *section) { s.Entsize = 1 })},
	{"compressed", "compressed", true, symtab(func(s *section) {
		s.Flags |= uint64(elf.SHF_COMPRESSED)
	})},
	{"no names", "read symbol name", false, strtab(func(s *section) { s.Size = 1 })},
}

// A sparse file of a terabyte costs no memory: the limits hold where the size of the file does not
// bound anything.
func TestSparseFile(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, []byte){
		"symbols": symtab(func(s *section) { s.Size = 24 * (maxSymbols + 1) }),
		"names":   strtab(func(s *section) { s.Size = maxNames + 1 }),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sparse")
			data := read(t, assemble(t, labels("victim")))
			damage(t, data)
			patch(elf.SHT_NOTE, func(s *section) { s.Size = 1 << 39 })(t, data)
			write(t, path, data)
			tracertest.NoError(t, os.Truncate(path, 1<<40))

			allocated := tracertest.Allocated(func() {
				f := withoutDebug(t, path)
				f.Name(0x1000)
				if found, err := f.Functions(Symtab, map[string]bool{"victim": true}); err == nil {
					t.Errorf("Functions = %v", found)
				}
				if err := f.Err(); err == nil || !strings.Contains(err.Error(), "exceed the limit") {
					t.Errorf("Err() = %v, want a limit", err)
				}
			})
			if allocated > 1<<20 {
				t.Errorf("%d bytes allocated", allocated)
			}
		})
	}
}

func FuzzOpen(f *testing.F) {
	path := assemble(f,
		labels("first", "_ZN5space5ThingC1Ev", "_ZN5space5ThingC2Ev")+".symver first,other@@V1\n")
	whole := read(f, path)
	code := read(f, compile(f, "g++", splitC, "-O2"))
	f.Add(code)
	f.Add(read(f, assemble(f, sourceProbes)))
	split(f, path)
	run(f, "", "objcopy", "--add-gnu-debuglink="+path+".debug", path)

	for _, seed := range [][]byte{whole, read(f, path), read(f, path+".debug")} {
		f.Add(seed)
		for _, n := range []int{
			0, 16, 63, 64, 120, 400, len(seed) / 2, len(seed) - 64, len(seed) - 1,
		} {
			f.Add(seed[:n])
		}
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		allocated, limit := tracertest.Allocated(func() { exercise(t, data) }), uint64(32<<20+64*len(data))
		if allocated > limit {
			t.Errorf("%d bytes allocated for a file of %d bytes, more than %d", allocated,
				len(data), limit)
		}
	})
}

// exercise calls everything on the file data.
func exercise(t *testing.T, data []byte) {
	file, err := newFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return
	}

	file.BuildID()
	link, _, _ := file.image.debugLink()
	debugPaths(file.BuildID(), link, "/usr/bin/program", "/root")
	addresses := []uint64{0, 1, 0x1000, 1 << 63, 1<<64 - 1}

	for _, offset := range []uint64{0, 0x40, 0x1000, uint64(len(data)), 1<<64 - 1} {
		if vaddr, ok := file.Address(offset); ok {
			addresses = append(addresses, vaddr)
		}
	}

	file.load(&file.functions, isFunction)
	for _, t := range file.functions.tables {
		for _, s := range t.symbols[:min(len(t.symbols), 50)] {
			addresses = append(addresses, s.value, s.end(), s.end()+1)
		}
	}

	for _, vaddr := range addresses {
		name, ok := file.Name(vaddr)
		if ok == (name == "") {
			t.Errorf("Name(%#x) = %q, %v", vaddr, name, ok)
		}

		if utf8.RuneCountInString(name) > maxName || !utf8.ValidString(name) {
			t.Errorf("Name(%#x) = %q", vaddr, name)
		}
	}

	probes, _ := file.Probes("otel_memory")
	for _, p := range probes {
		isOutside := p.Offset >= uint64(len(data)) || p.Semaphore+1 >= uint64(len(data))
		if isOutside || p.Semaphore%2 != 0 || len(p.Arguments) > maxProbeText {
			t.Errorf("probe %+v", p)
		}
	}

	for _, name := range []string{"first", "other", "nowhere"} {
		file.Export(name)
		file.ColdRanges(name)
	}

	for _, table := range []Table{Symtab, Dynsym} {
		found, _ := file.Functions(table,
			map[string]bool{"first": true, "work": true, "main": true})
		for _, vaddr := range found {
			addresses = append(addresses, vaddr)
		}
	}

	_, _ = file.Imports(func(string) bool { return true })
	_, _ = file.Lacks("malloc", "")
	for _, vaddr := range addresses {
		code, offset, err := file.Code(vaddr, 64)
		if err == nil && offset+uint64(len(code)) > uint64(len(data)) {
			t.Errorf("code at %#x of a file of %d bytes", offset, len(data))
		}

		if p, ok := file.FDERange(vaddr); ok && (vaddr < p.Start || vaddr >= p.End) {
			t.Errorf("%#x is in %+v", vaddr, p)
		}

		file.Bias(vaddr, vaddr)
		file.Variable(vaddr)
		file.Writable()
	}

	_ = file.Err()
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
