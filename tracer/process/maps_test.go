package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestParseMaps(t *testing.T) {
	t.Run("paths", func(t *testing.T) {
		for text, want := range map[string]string{
			"":                                  "",
			"[heap]":                            "[heap]",
			"[anon: glibc: malloc]":             "[anon: glibc: malloc]",
			"/tmp/gone (deleted)":               "/tmp/gone (deleted)",
			"/tmp/two  spaces and a tail ":      "/tmp/two  spaces and a tail ",
			`/tmp/line\012break`:                `/tmp/line\012break`,
			"/tmp/1-2 rw-p 0 00:00 5 /etc/evil": "/tmp/1-2 rw-p 0 00:00 5 /etc/evil",
			"/tmp/caf\xc3\xa9":                  "/tmp/café",
			"/tmp/\xff\xfebytes":                "/tmp/??bytes",
			"/tmp/\x1b[31mred\x07":              "/tmp/?[31mred?",
			"/tmp/\u202eright to left":          "/tmp/?right to left",
		} {
			maps, err := ParseMaps([]byte("1000-2000 rw-p 00000000 00:00 5 " + text + "\n"))
			if err != nil || len(maps) != 1 || maps[0].Path != want {
				t.Errorf("%q: %+v, %v; want %q", text, maps, err, want)
			}
		}
	})

	t.Run("mapping that has grown between two pieces", func(t *testing.T) {
		maps, err := ParseMaps([]byte("1000-5000 r--p 0 0:0 0 /a\n" +
			"6000-8000 rw-p 0 0:0 0 [heap]\n6000-b000 rw-p 0 0:0 0 [heap]\na000-c000 rw-p 0 0:0 0\n"))
		var spans [][2]uint64
		for _, m := range maps {
			spans = append(spans, [2]uint64{m.Start, m.End})
		}
		want := [][2]uint64{{0x1000, 0x5000}, {0x6000, 0xa000}, {0xa000, 0xc000}}
		if err != nil || !slices.Equal(spans, want) {
			t.Errorf("%x, %v; want %x", spans, err, want)
		}
	})

	t.Run("malformed", func(t *testing.T) {
		for _, text := range []string{
			"\n", "garbage\n", "2000-1000 rw-p 0 00:00 0\n", "1000-1000 rw-p 0 00:00 0\n",
			"1000 rw-p 0 00:00 0\n", "1000-2000 rwp 0 00:00 0\n", "1000-2000 rw-p 0 0000 0\n",
			"1000-2000 rw-p zz 00:00 0\n", "1000-2000 rw-p 0 00:00\n", "-1000-2000 rw-p 0 00:00 0\n",
			"10000000000000000-20000000000000000 rw-p 0 00:00 0\n",
			"1000-2000 rw-p 0 00:00 99999999999999999999\n",
		} {
			if maps, err := ParseMaps([]byte(text)); err == nil {
				t.Errorf("%q: read as %+v", text, maps)
			}
		}
		_, err := ParseMaps([]byte("1000-2000 rw-p 0 00:00 0\n\n"))
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("the error of line 2 is %v", err)
		}
	})
}

func TestFindMapping(t *testing.T) {
	maps := []Mapping{
		{Start: 0x1000, End: 0x2000}, {Start: 0x2000, End: 0x3000}, {Start: 0x5000, End: 0x6000},
	}
	for address, want := range map[uint64]uint64{
		0: 0, 0xfff: 0, 0x1000: 0x1000, 0x1fff: 0x1000, 0x2000: 0x2000, 0x3000: 0, 0x4fff: 0,
		0x5fff: 0x5000, 0x6000: 0, 1<<64 - 1: 0,
	} {
		if m, ok := FindMapping(maps, address); ok != (want != 0) || m.Start != want {
			t.Errorf("%#x is in %#x, %v; want %#x", address, m.Start, ok, want)
		}
	}
}

func TestOpenMapped(t *testing.T) {
	// Hostile names: the path in the maps and Executable must be equal.
	for _, name := range []string{
		"plain", "two words", "line\nbreak", `back\012slash`, "\xffbytes", "\x1b[31m", "a (deleted)",
	} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			copyFile(t, "/bin/cat", path)
			p := startEcho(t, exec.Command(path))
			mustFindProgram(t, p)
			tracertest.NoError(t, os.Remove(path))
			mustFindProgram(t, open(t, p.PID))
		})
	}

	t.Run("device", func(t *testing.T) {
		zero := must(os.Open("/dev/zero"))
		defer zero.Close()
		memory := must(unix.Mmap(int(zero.Fd()), 0, int(PageSize), unix.PROT_READ, unix.MAP_PRIVATE))
		defer unix.Munmap(memory)

		p := openSelf(t)
		m, ok := FindMapping(must(p.Maps()), addressOf(memory))
		if !ok || m.Path != "/dev/zero" {
			t.Fatalf("mapped at %+v", m)
		}
		if f, err := p.OpenMapped(m); err == nil {
			f.Close()
			t.Error("a device was opened")
		}
	})
}

func mustFindProgram(t *testing.T, p *Process) {
	t.Helper()
	maps := must(p.Maps())
	i := slices.IndexFunc(maps, func(m Mapping) bool { return m.Path == p.Executable && m.IsFile() })
	if i < 0 || p.Executable != growth.Printable(p.Executable) {
		t.Fatalf("%q is in none of %+v, or not printable", p.Executable, maps)
	}

	f := must(p.OpenMapped(maps[i]))
	defer f.Close()
	if got, want := readAll(t, f.Stream()), readFile(t, "/bin/cat"); !bytes.Equal(got, want) {
		t.Errorf("%q opens another file, of %d bytes", p.Executable, len(got))
	}
}

func FuzzParseMaps(f *testing.F) {
	self := readFile(f, "/proc/self/maps")
	f.Add(self)
	for line := range bytes.Lines(self) {
		f.Add(line)
	}
	for _, seed := range []string{
		"", "\n", "1000-2000 rw-p 0 00:00 0 a\x00\\012\xff",
		"1-ffffffffffffffff ---s ffffffffffffffff ffffffff:ffffffff 18446744073709551615 /",
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, raw []byte) {
		maps, err := ParseMaps(raw)
		if err != nil && maps != nil {
			t.Errorf("an error and %d mappings", len(maps))
		}
		if lines := bytes.Count(raw, []byte("\n")) + 1; len(maps) > lines {
			t.Errorf("%d mappings of %d lines", len(maps), lines)
		}
		for _, m := range maps {
			mustReadBack(t, m)
		}
	})
}

// mustReadBack fails for an invalid mapping, or for one that does not read back as itself.
func mustReadBack(t *testing.T, m Mapping) {
	t.Helper()
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	if m.Start >= m.End || !utf8.ValidString(m.Path) || strings.ContainsFunc(m.Path, isControl) {
		t.Errorf("%#x-%#x %q", m.Start, m.End, m.Path)
	}

	permissions := []byte("----")
	for i, set := range []bool{m.Read, m.Write, m.Execute, m.Shared} {
		if set {
			permissions[i] = "rwxs"[i]
		}
	}
	text := fmt.Sprintf("%x-%x %s %x %x:%x %d %s\n", m.Start, m.End, permissions, m.Offset,
		unix.Major(m.Device), unix.Minor(m.Device), m.Inode, m.Path)
	again, err := ParseMaps([]byte(text))
	if err != nil || len(again) != 1 || again[0] != m {
		t.Errorf("%+v is written %q and read %+v, %v", m, text, again, err)
	}
}
