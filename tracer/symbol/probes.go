package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// A Probe is a static tracing probe (USDT) of a file, as its notes describe it:
// https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation
type Probe struct {
	Name string
	// Offset of the probed instruction in the file, in bytes.
	Offset uint64
	// Semaphore is the offset in the file, in bytes, of a counter of 16 bits. The kernel raises the
	// counter in a process while a probe is attached there. 0: there is none.
	Semaphore uint64
	// Arguments is where they are, in the notation of the assembler.
	Arguments string
}

// probeBaseSection is a section whose address shows how far prelink(8) has moved the file.
const probeBaseSection = ".stapsdt.base"

// Probes returns the probes of a provider, in the order of the notes. It is an error if one of them
// is not in code, or its semaphore is none that the kernel can safely write to.
func (f *File) Probes(provider string) (probes []Probe, err error) {
	const typeProbe = 3 // NT_STAPSDT in sys/sdt.h
	m, left := f.image, uint64(maxProbeNotes)
	for i, n := range m.notes {
		if i == maxNotes {
			break
		}
		buf, err := m.bytes(n.span, left)
		if err != nil {
			continue // as in findBuildID
		}
		left -= n.size

		for kind, description := range notesOf(buf, n.align, "stapsdt") {
			note, ok := parseProbe(description)
			if kind != typeProbe || !ok || note.provider != provider {
				continue
			}
			if len(probes) == maxProbes {
				return nil, fmt.Errorf("read probes of %s: more than %d", provider, maxProbes)
			}
			p, err := m.probe(note)
			if err != nil {
				return nil, fmt.Errorf("read probe %s:%s: %w", provider, printed(note.name), err)
			}
			probes = append(probes, p)
		}
	}
	return probes, nil
}

// A probeNote is the description of a note, whose addresses are virtual.
type probeNote struct {
	location, base, semaphore uint64
	provider, name, arguments string
}

func parseProbe(description []byte) (n probeNote, ok bool) {
	const addressBytes = 3 * 8
	if len(description) < addressBytes {
		return n, false
	}
	for i, to := range []*uint64{&n.location, &n.base, &n.semaphore} {
		*to = binary.LittleEndian.Uint64(description[8*i:])
	}

	rest := description[addressBytes:]
	for _, to := range []*string{&n.provider, &n.name, &n.arguments} {
		var text []byte
		if text, rest, ok = bytes.Cut(rest, []byte{0}); !ok || len(text) > maxProbeText {
			return n, false
		}
		*to = string(text)
	}
	return n, true
}

// probe finds a probe in the file.
func (m *image) probe(n probeNote) (p Probe, err error) {
	if m.probeBase != 0 && n.base != 0 {
		n.location += m.probeBase - n.base
		if n.semaphore != 0 {
			n.semaphore += m.probeBase - n.base
		}
	}

	p = Probe{Name: n.name, Arguments: n.arguments}
	if p.Offset, err = m.offsetIn(elf.PF_X, n.location, 1); err != nil || n.semaphore == 0 {
		return p, err
	}

	// Where it crossed the end of a page, the kernel would write to another one (update_ref_ctr,
	// kernel/events/uprobes.c). Single uprobes take an offset of 32 bits.
	const size = 2 // bytes
	p.Semaphore, err = m.offsetIn(elf.PF_W, n.semaphore, size)
	if err == nil && (p.Semaphore%size != 0 || p.Semaphore == 0 || p.Semaphore>>32 != 0) {
		err = fmt.Errorf("semaphore at offset %#x is not supported", p.Semaphore)
	}
	return p, err
}

// offsetIn returns the offset in the file of some bytes at a virtual address, in a segment with
// this flag.
func (m *image) offsetIn(flag elf.ProgFlag, address, size uint64) (uint64, error) {
	for _, s := range m.loads {
		at := address - s.Vaddr
		if elf.ProgFlag(s.Flags)&flag != 0 && address >= s.Vaddr && s.Filesz >= size &&
			at <= s.Filesz-size && s.Off <= m.size && at <= m.size-s.Off {
			return s.Off + at, nil
		}
	}
	return 0, fmt.Errorf("address %#x is in no segment with flag %s", address, flag)
}
