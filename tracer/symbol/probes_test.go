package symbol

import (
	"debug/elf"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A library with the probes of a producer, and one of another provider.
const sourceProbes = `
.macro note provider, name, location, base, semaphore, arguments
.pushsection .note.stapsdt,"","note"
.balign 4
.4byte 8, 994f-993f, 3
.asciz "stapsdt"
993: .8byte \location, \base, \semaphore
.asciz "\provider"
.asciz "\name"
.asciz "\arguments"
994: .balign 4
.popsection
.endm
.section .stapsdt.base,"a",@progbits
base: .space 1
.section .probes,"aw"
semaphore: .2byte 0
.text
here: nop
note otel_memory, alloc, here, base, semaphore, "8@%rdi 8@%rsi -4@16(%rsp)"
note other, free, here, base, semaphore, "8@%rdi"
note otel_memory, free, here, base, 0, ""
`

// notesByReadelf returns the probes of a provider as binutils reads them, by addresses.
func notesByReadelf(t *testing.T, path, provider string) (notes []string) {
	t.Helper()
	pattern := regexp.MustCompile(`Provider: (.*)\n\s+Name: (.*)\n\s+Location: (\w+), Base: \w+, ` +
		`Semaphore: (\w+)\n\s+Arguments: ?(.*)\n`)
	for _, m := range pattern.FindAllStringSubmatch(run(t, "", "readelf", "-n", path), -1) {
		if m[1] == provider {
			notes = append(notes, fmt.Sprintf("%s %#x %#x %s", m[2], hexadecimal(t, m[3][2:]),
				hexadecimal(t, m[4][2:]), m[5]))
		}
	}
	return notes
}

// addresses converts the offsets of probes to readelf's form.
func addresses(t *testing.T, f *File, probes []Probe) (notes []string) {
	t.Helper()
	at := func(offset uint64, flag elf.ProgFlag) uint64 {
		for _, s := range f.image.loads {
			if elf.ProgFlag(s.Flags)&flag != 0 && offset >= s.Off && offset < s.Off+s.Filesz {
				return offset - s.Off + s.Vaddr
			}
		}
		t.Errorf("offset %#x is in no segment", offset)
		return 0
	}
	for _, p := range probes {
		var semaphore uint64
		if p.Semaphore != 0 {
			semaphore = at(p.Semaphore, elf.PF_W)
		}
		notes = append(notes,
			fmt.Sprintf("%s %#x %#x %s", p.Name, at(p.Offset, elf.PF_X), semaphore, p.Arguments))
	}
	return notes
}

func TestProbes(t *testing.T) {
	for _, c := range []struct {
		path, provider string
		least          int
	}{
		{libcpp, "libstdcxx", 3},
		{"/usr/bin/python3", "python", 5},
		{assemble(t, sourceProbes), "otel_memory", 2},
	} {
		f := withoutDebug(t, c.path)
		probes := tracertest.Must(f.Probes(c.provider))(t)
		got, want := addresses(t, f, probes), notesByReadelf(t, c.path, c.provider)
		if len(got) < c.least || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q, readelf says %q", c.path, got, want)
		}
	}
}

// prelink(8) moves the addresses in the file, but not those in notes.
func TestProbesMoved(t *testing.T) {
	source := strings.ReplaceAll(sourceProbes, "here, base, semaphore",
		"here+0x1000, base+0x1000, semaphore+0x1000")
	moved := tracertest.Must(withoutDebug(t, assemble(t, source)).Probes("otel_memory"))(t)
	plain := tracertest.Must(withoutDebug(t, assemble(t, sourceProbes)).Probes("otel_memory"))(t)
	if len(moved) != 2 || moved[0] != plain[0] {
		t.Errorf("%+v, want %+v", moved, plain)
	}
}

func TestProbesRefused(t *testing.T) {
	const note = "note otel_memory, alloc, %s, 0, %s, \"%s\"\n"
	for _, c := range []struct{ location, semaphore, arguments, want string }{
		{"0x7fffffffffff", "0", "", "in no segment"},
		{"0xffffffffffffffff", "0", "", "in no segment"},
		{"semaphore", "0", "", "in no segment"}, // which is data
		{"here", "here", "", "in no segment"},   // which is code
		{"here", "semaphore+1", "", "in no segment|not supported"},
		{"here", "0xfffffffffffffffe", "", "in no segment"},
	} {
		source := sourceProbes + fmt.Sprintf(note, c.location, c.semaphore, c.arguments)
		probes, err := withoutDebug(t, assemble(t, source)).Probes("otel_memory")
		if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%+v: %+v, %v", c, probes, err)
		}
	}

	// Notes that are no probe at all are ignored.
	for _, bad := range []string{
		".4byte 8, 4, 3\n.asciz \"stapsdt\"\n.4byte 0\n",
		".4byte 8, 24, 3\n.asciz \"stapsdt\"\n.8byte 0, 0, 0\n",
		".4byte 8, 28, 3\n.asciz \"stapsdt\"\n.8byte 0, 0, 0\n.ascii \"otel\"\n",
		".4byte 8, 0xffffffff, 3\n.asciz \"stapsdt\"\n",
		".4byte 0xffffffff, 0, 3\n",
	} {
		source := sourceProbes + ".section .note.stapsdt\n.balign 4\n" + bad
		probes, err := withoutDebug(t, assemble(t, source)).Probes("otel_memory")
		if err != nil || len(probes) != 2 {
			t.Errorf("%q: %+v, %v", bad, probes, err)
		}
	}

	many := sourceProbes + ".rept 1200\n" + fmt.Sprintf(note, "here", "0", "") + ".endr\n"
	if _, err := withoutDebug(t, assemble(t, many)).Probes("otel_memory"); err == nil {
		t.Error("any number of probes is read")
	}
}

func FuzzProbeNotes(f *testing.F) {
	owner := "\x08\x00\x00\x00\x28\x00\x00\x00\x03\x00\x00\x00stapsdt\x00"
	f.Add([]byte(owner + strings.Repeat("\x01", 24) + "provider\x00name\x00\x008@\x00"))
	f.Add([]byte(owner + strings.Repeat("\xff", 24) + "a\x00b\x008@%rdi 8@%rsi"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, align := range []uint64{4, 8} {
			size := 0
			for _, description := range notesOf(data, align, "stapsdt") {
				if n, ok := parseProbe(description); ok {
					size += len(n.provider) + len(n.name) + len(n.arguments)
				}
			}
			if size > len(data) {
				t.Errorf("%d bytes of text", size)
			}
		}
	})
}
