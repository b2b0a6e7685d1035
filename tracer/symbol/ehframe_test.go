package symbol

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// readelfRanges is readelf's opinion of a file's unwind information. Cold: the first row does not
// belong to an entry, nor to a PLT.
func readelfRanges(t testing.TB, path string) (ranges []CodeRange) {
	t.Helper()
	row := -1 // of the last range
	for line := range strings.Lines(run(t, "", "readelf", "--debug-dump=frames-interp", "-W", path)) {
		line = strings.TrimSpace(line)
		_, bounds, isFDE := strings.Cut(line, " pc=")
		switch fields := strings.Fields(line); {
		case isFDE:
			from, to, _ := strings.Cut(bounds, "..")
			ranges = append(ranges, CodeRange{Start: hexadecimal(t, from), End: hexadecimal(t, to)})
			row = 0
		case strings.Contains(line, " CIE "):
			row = -1
		case row == 0 && len(fields) > 1 && len(fields[0]) == 16:
			row = 1
			ranges[len(ranges)-1].Cold = fields[1] != "rsp+8" && fields[1] != "rsp+16"
		}
	}

	return ranges
}

// The compiler moves the code out of work that destroys its strings when it is left by an
// exception.
const splitC = `
#include <cstdio>
#include <string>
extern "C" __attribute__((noinline)) int work(int n, char **words) {
	std::string first(words[0]), last(words[n - 1]);
	first += last;
	return std::puts(first.c_str());
}
int main(int argc, char **argv) { return work(argc, argv); }
`

func TestFDERange(t *testing.T) {
	for name, path := range map[string]string{
		"program":        compile(t, "g++", splitC, "-O2"),
		"frame pointers": compile(t, "g++", splitC, "-O2", "-fno-omit-frame-pointer"),
		"fixed address":  compile(t, "g++", splitC, "-O2", "-no-pie"),
		"lazily bound":   compile(t, "g++", splitC, "-O2", "-Wl,-z,lazy", "-fcf-protection=none"),
		"library of C++": libcpp,
	} {
		t.Run(name, func(t *testing.T) {
			f, want, inner := open(t, path, path, ""), readelfRanges(t, path), 0
			for _, w := range want {
				for _, at := range []uint64{w.Start, (w.Start + w.End) / 2, w.End - 1} {
					if got, ok := f.FDERange(at); !ok || got != w {
						t.Errorf("%#x is in %+v, %v; readelf prints %+v", at, got, ok, w)
					}
				}

				if w.Cold {
					inner++
				}
			}

			if len(want) < 5 || inner == 0 {
				t.Errorf("readelf lists %d ranges, %d of them moved away", len(want), inner)
			}

			for _, at := range []uint64{0, 1, 1 << 40, 1<<64 - 1} {
				if got, ok := f.FDERange(at); ok {
					t.Errorf("%#x is in %+v", at, got)
				}
			}
		})
	}

	t.Run("without unwind information", func(t *testing.T) {
		path := compile(t, "gcc", "int _start(void) { return 0; }",
			"-fno-asynchronous-unwind-tables", "-nostdlib", "-static")
		if got, ok := open(t, path, path, "").FDERange(0x401000); ok {
			t.Errorf("%+v", got)
		}
	})
}

func TestColdRanges(t *testing.T) {
	path := compile(t, "g++", splitC, "-O2")
	f := open(t, path, path, "")
	ranges := f.ColdRanges("work")

	if len(ranges) != 1 || !slices.Contains(readelfRanges(t, path), ranges[0]) {
		t.Errorf("ranges %+v of %+v", ranges, readelfRanges(t, path))
	}

	if ranges := f.ColdRanges("main"); len(ranges) != 0 {
		t.Errorf("main has ranges %+v", ranges)
	}

	run(t, "", "strip", path)
	if ranges := open(t, path, path, "").ColdRanges("work"); len(ranges) != 0 {
		t.Errorf("without symbols there are %+v", ranges)
	}
}

// Each byte of the unwind information in turn is set to each of some values.
func TestFDERangeDamaged(t *testing.T) {
	whole := read(t, compile(t, "g++", splitC, "-O2"))
	frames := fromBytes(t, whole).image.frames
	entry, _ := fromBytes(t, whole).FDERange(binary.LittleEndian.Uint64(whole[0x18:]))

	for at := frames.Off; at < frames.Off+frames.Filesz+400; at++ {
		for _, value := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			data := slices.Clone(whole)
			data[at] = value
			for _, vaddr := range []uint64{entry.Start, entry.End, 1<<64 - 1} {
				if p, ok := fromBytes(t, data).FDERange(vaddr); ok &&
					(vaddr < p.Start || vaddr >= p.End) {
					t.Errorf("%#x is in %+v", vaddr, p)
				}
			}
		}
	}
}
