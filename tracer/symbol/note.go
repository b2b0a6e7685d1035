package symbol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
)

// A note is a section or segment of notes.
type note struct {
	span
	align uint64 // bytes: 8, or anything else for 4
}

// findBuildID returns the first GNU build ID among the notes, "" if there is
// none. The note: https://fedoraproject.org/wiki/Releases/FeatureBuildId
func (m *image) findBuildID() string {
	for i, n := range m.notes {
		if i == maxNotes {
			break
		}
		buf, err := m.bytes(n.span, maxNote)
		if err != nil {
			continue // names a note in a file that this one was split from, or is damaged
		}
		if id := buildID(buf, n.align); len(id) >= 2 && len(id) <= maxBuildID {
			return hex.EncodeToString(id)
		}
	}
	return ""
}

// buildID returns the description of the first NT_GNU_BUILD_ID note in buf, nil
// if there is none. Note layout: elf(5), "Notes (Nhdr)".
func buildID(buf []byte, align uint64) []byte {
	const typeBuildID = 3 // NT_GNU_BUILD_ID in elf.h
	const header = 12     // bytes of Elf64_Nhdr
	if align != 8 {
		align = 4
	}
	for len(buf) >= header {
		nameSize := uint64(binary.LittleEndian.Uint32(buf))
		descSize := uint64(binary.LittleEndian.Uint32(buf[4:]))
		kind := binary.LittleEndian.Uint32(buf[8:])
		desc := roundUp(header+nameSize, align)
		if desc+descSize > uint64(len(buf)) {
			return nil
		}
		if kind == typeBuildID && bytes.Equal(buf[header:header+nameSize], []byte("GNU\x00")) {
			return buf[desc : desc+descSize]
		}
		buf = buf[min(roundUp(desc+descSize, align), uint64(len(buf))):]
	}
	return nil
}

// roundUp rounds n up to a multiple of align, a power of two.
func roundUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }
