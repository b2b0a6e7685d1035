package symbol

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The ends of every segment, as readelf -lW prints them.
func TestAddress(t *testing.T) {
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
			offset, vaddr, size := hexadecimal(t, field[1]), hexadecimal(t, field[2]), hexadecimal(t, field[4])
			for _, at := range []uint64{0, size / 2, size - 1} {
				if got, ok := f.Address(offset + at); !ok || got != vaddr+at {
					t.Errorf("%s: Address(%#x) = %#x, %v, want %#x", path, offset+at, got, ok, vaddr+at)
				}
			}
			end = max(end, offset+size)
		}
		if end == 0 {
			t.Errorf("readelf prints no segment of %s", path)
		}
		for _, offset := range []uint64{end, end + 1<<20, 1<<64 - 1} {
			if got, ok := f.Address(offset); ok {
				t.Errorf("%s: Address(%#x) = %#x behind the segments, which end at %#x", path, offset, got, end)
			}
		}
	}
}

// From a process to a name: the program prints where the kernel mapped it and
// the address of outer.
func TestAddressOfProcess(t *testing.T) {
	for _, flags := range [][]string{nil, {"-no-pie"}, {"-Wl,-z,noseparate-code"}} {
		path := compile(t, "gcc", sourceC, flags...)
		lines := bufio.NewScanner(strings.NewReader(run(t, "", path)))
		lines.Scan()
		addr := hexadecimal(t, lines.Text())
		f := openSound(t, path, "")
		found := false
		for lines.Scan() {
			var start, end, offset uint64
			if n, _ := fmt.Sscanf(lines.Text(), "%x-%x r-xp %x", &start, &end, &offset); n < 3 || addr < start || addr >= end {
				continue
			}
			found = true
			vaddr, ok := f.Address(addr - start + offset)
			if name, _ := f.Name(vaddr); !ok || name != "outer" {
				t.Errorf("%q: address %#x is %#x, %v: %q, want outer", flags, addr, vaddr, ok, name)
			}
		}
		if !found {
			t.Errorf("%q: no mapping of %#x", flags, addr)
		}
	}
}

// Where two segments hold an offset, code is looked for in the executable one.
func TestAddressPrefersCode(t *testing.T) {
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
}

// Two notes in a row: padded to 4 bytes, or to 8 where the section is aligned so.
func TestBuildIDBehindNote(t *testing.T) {
	for _, align := range []string{"4", "8"} {
		note := ".balign " + align + "\n.long 4,%s\n.ascii \"GNU\\0\"\n.balign " + align + "\n%s\n.balign " + align + "\n"
		path := assemble(t, labels("f")+".section .note.test,\"a\",@note\n"+
			fmt.Sprintf(note, "20,9", ".fill 20,1,0x55")+fmt.Sprintf(note, "20,3", ".fill 20,1,0x66"))
		run(t, "", "objcopy", "--remove-section=.note.gnu.build-id", path)
		want := strings.Repeat("66", 20)
		if out := run(t, "", "readelf", "-nW", path); !strings.Contains(out, want) {
			t.Fatalf("readelf -n finds no build ID:\n%s", out)
		}
		if got := withoutDebug(t, path).BuildID(); got != want {
			t.Errorf("alignment %s: BuildID() = %q, want %q", align, got, want)
		}
	}
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
			t.Errorf("BuildID() of %s = %q, readelf says %q", path, got, want)
		}
		data := read(t, path)
		binary.LittleEndian.PutUint64(data[0x28:], 0) // e_shoff: no section headers, the segment has to serve
		if got := fromBytes(t, data).BuildID(); got != want {
			t.Errorf("BuildID() of %s without sections = %q, readelf says %q", path, got, want)
		}
	}
}

// What is no ELF file that can be read gives an error that says so.
func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	write(t, text, []byte(strings.Repeat("no ELF file ", 20)))
	empty := filepath.Join(dir, "empty")
	write(t, empty, nil)
	big := filepath.Join(dir, "big-endian")
	data := read(t, libc)
	data[5] = 2 // EI_DATA: ELFDATA2MSB
	write(t, big, data)
	segments := filepath.Join(dir, "segments")
	data = read(t, libc)
	binary.LittleEndian.PutUint64(data[0x20:], 1<<63) // e_phoff
	write(t, segments, data)

	tests := []struct{ path, want string }{
		{text, "not an ELF file"},
		{empty, "64 bytes at offset 0 lie outside the file of 0 bytes"},
		{big, "ELFCLASS64 ELFDATA2MSB is not supported"},
		{compile(t, "gcc", "int f(void) { return 1; }", "-m32", "-nostdlib", "-shared"), "a 32-bit program"},
		{compile(t, "gcc", sourceC, "-c"), "ET_REL is neither"},
		{segments, "read program headers: "},
		{dir, "not a regular file"},
		{"/dev/null", "not a regular file"},
	}
	for _, test := range tests {
		handle, err := os.Open(test.path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(handle, test.path, ""); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%s): error %v, want one with %q", test.path, err, test.want)
		}
		handle.Close()
	}
}
