package stack

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func encode(t testing.TB, value any) []byte {
	t.Helper()
	return tracertest.Must(binary.Append(nil, binary.NativeEndian, value))(t)
}

func wordOf(kind bpf.WordKind, address uint64) uint64 {
	return uint64(kind)<<bpf.WordKindShift | address
}

// stackRecord returns a record that ends behind its words, as the BPF programs submit it.
func stackRecord(t testing.TB, words ...uint64) []byte {
	t.Helper()
	s := bpf.Stack{
		Kind: bpf.EventStack, Tgid: 7, Id: 99, Length: uint32(len(words)),
		End: bpf.EndNoRule, Python: bpf.PythonMemory,
	}
	copy(s.Words[:], words)
	return encode(t, s)[:int(unsafe.Offsetof(s.Words))+8*len(words)]
}

func TestDecodeStack(t *testing.T) {
	const highest = 1<<bpf.WordKindShift - 1
	record := stackRecord(t, wordOf(bpf.WordInterrupted, highest), wordOf(bpf.WordPython, 0x1000),
		^uint64(0))

	t.Run("complete", func(t *testing.T) {
		raw, ok := DecodeStack(record)
		if !ok || raw.ID != 99 || raw.TGID != 7 || len(raw.words) != 3 || raw.words[2] != ^word(0) {
			t.Fatalf("%+v, %t", raw, ok)
		}
		if w := raw.words[0]; w.kind() != bpf.WordInterrupted || w.address() != highest {
			t.Errorf("kind %d, address %#x", w.kind(), w.address())
		}
		want := "code without unwind information, Python frames not readable"
		if got := raw.truncation(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})

	t.Run("too short", func(t *testing.T) {
		for size := range record {
			if raw, ok := DecodeStack(record[:size]); ok {
				t.Errorf("%d bytes: %+v", size, raw)
			}
		}
	})

	t.Run("too many words", func(t *testing.T) {
		for _, length := range []uint32{bpf.MaxWords + 1, 1 << 31, ^uint32(0)} {
			hostile := slices.Concat(record, make([]byte, 8*bpf.MaxWords))
			offset := unsafe.Offsetof(bpf.Stack{}.Length)
			binary.NativeEndian.PutUint32(hostile[offset:], length)
			if raw, ok := DecodeStack(hostile); ok {
				t.Errorf("%d words: %+v", length, raw)
			}
		}
	})
}

// shortenedRecord returns the record of a stack without its middle. Word i of the record is i.
func shortenedRecord(t testing.TB, length, tail, oldest uint32) []byte {
	s := bpf.Stack{
		Kind: bpf.EventStack, Id: 1, Length: length, LeftOut: 5, Tail: tail, Oldest: oldest,
	}
	for i := range s.Words {
		s.Words[i] = uint64(i)
	}
	return encode(t, s)
}

func TestDecodeShortenedStack(t *testing.T) {
	for _, c := range []struct {
		name                 string
		length, tail, oldest uint32
		want                 []word // from tail - 1 to tail + 1, and the last one
	}{
		{"ring that begins at its start", bpf.MaxWords, 160, 160, []word{159, 160, 161, 319}},
		{"ring that begins within", bpf.MaxWords, 161, 200, []word{160, 200, 201, 199}},
		{"ring that begins with its last word", bpf.MaxWords, 160, 319, []word{159, 319, 160, 318}},
		{"a word that is not in use", bpf.MaxWords - 1, 160, 200, []word{159, 200, 201, 198}},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, ok := DecodeStack(shortenedRecord(t, c.length, c.tail, c.oldest))
			if !ok || len(raw.words) != int(c.length) || raw.gap != int(c.tail) {
				t.Fatalf("%d words, gap at %d, %t", len(raw.words), raw.gap, ok)
			}
			at := raw.gap
			got := []word{raw.words[at-1], raw.words[at], raw.words[at+1], raw.words[c.length-1]}
			if !slices.Equal(got, c.want) {
				t.Errorf("words %d, want %d", got, c.want)
			}
		})
	}

	t.Run("ring outside", func(t *testing.T) {
		for _, c := range [][3]uint32{
			{bpf.MaxWords + 1, 160, 160},
			{100, 160, 160},
			{bpf.MaxWords, 160, 159},
			{bpf.MaxWords, 160, bpf.MaxWords + 1},
			{bpf.MaxWords, 1 << 31, 1 << 31},
		} {
			if raw, ok := DecodeStack(shortenedRecord(t, c[0], c[1], c[2])); ok {
				t.Errorf("%d: %+v", c, raw)
			}
		}

		record := shortenedRecord(t, 200, 160, 160)
		if _, ok := DecodeStack(record[:len(record)-1]); ok {
			t.Error("decoded a record that is too short for the ring")
		}
	})
}

func FuzzDecodeStack(f *testing.F) {
	f.Add(stackRecord(f))
	f.Add(stackRecord(f, wordOf(bpf.WordNative, 1), wordOf(bpf.WordPython, 2), 3))
	f.Add(shortenedRecord(f, bpf.MaxWords, 161, 200))
	f.Fuzz(func(t *testing.T, record []byte) {
		raw, ok := DecodeStack(record)
		if !ok {
			return
		}
		if len(raw.words) > bpf.MaxWords || 8*len(raw.words) > len(record) {
			t.Errorf("%d words in %d bytes", len(raw.words), len(record))
		}
		if last := raw.lastNative(); last < -1 || last >= len(raw.words) {
			t.Errorf("last native frame is word %d of %d", last, len(raw.words))
		}

		n := testNamer()
		n.Codes.interpreter = nil // so that no process is read
		n.stack(raw, n.maps)      // does not panic
	})
}

func TestEveryReasonIsNamed(t *testing.T) {
	for end := bpf.EndComplete + 1; end < bpf.NumStackEnds; end++ {
		if endReasons[end] == "" {
			t.Errorf("end %d has no reason", end)
		}
	}
	for err := bpf.PythonOk + 1; err < bpf.NumPythonErrors; err++ {
		if pythonErrors[err] == "" {
			t.Errorf("Python error %d has no reason", err)
		}
	}
}

// fakeMemory is readable between its addresses, and each byte is the low byte of its address.
type fakeMemory struct{ start, end uint64 }

func (f fakeMemory) ReadMemory(address uint64, buffer []byte) error {
	if address < f.start || address+uint64(len(buffer)) > f.end {
		return errNotRecorded
	}
	for i := range buffer {
		buffer[i] = byte(address + uint64(i))
	}
	return nil
}

func TestDecodeCode(t *testing.T) {
	code := bpf.Code{Kind: bpf.EventCode, Tgid: 7, Address: 0x1000, Fingerprint: 3}
	memory := fakeMemory{0, ^uint64(0)}
	for i, piece := range [...][]byte{code.Object[:], code.Name[:], code.File[:], code.Lines[:]} {
		code.Pieces[i].Address = uint64(i+1) * 0x1000
		code.Pieces[i].Length = 16
		tracertest.NoError(t, memory.ReadMemory(code.Pieces[i].Address, piece))
	}
	code.Pieces[3].Length = 1 << 40 // hostile: more than the record has
	whole := encode(t, code)

	record, ok := DecodeCode(whole)
	if !ok || record.TGID != 7 || record.address != 0x1000 || record.fingerprint != 3 {
		t.Fatalf("%+v, %t", record, ok)
	}
	if _, ok := DecodeCode(whole[:len(whole)-1]); ok {
		t.Error("decoded a record that is too short")
	}

	lines := uint64(len(code.Lines))
	for _, c := range []struct {
		name          string
		address, size uint64
		rest          fakeMemory
		isError       bool
	}{
		{"in a piece", 0x2004, 12, fakeMemory{}, false},
		{"across a piece's end, rest readable", 0x2004, 20, fakeMemory{0x2010, 0x2018}, false},
		{"across a piece's end, rest unreadable", 0x2004, 20, fakeMemory{}, true},
		{"in no piece", 0x9000, 8, fakeMemory{0x9000, 0x9008}, false},
		{"end of a hostile piece", 0x4000 + lines - 8, 8, fakeMemory{}, false},
		{"beyond a hostile piece", 0x4000 + lines - 8, 9, fakeMemory{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, want := make([]byte, c.size), make([]byte, c.size)
			record.rest = c.rest
			err := record.ReadMemory(c.address, got)
			if (err != nil) != c.isError {
				t.Fatalf("error %v, want one: %t", err, c.isError)
			}
			_ = memory.ReadMemory(c.address, want)
			if err == nil && !bytes.Equal(got, want) {
				t.Errorf("% x, want % x", got, want)
			}
		})
	}

	record.rest = nil
	if err := record.ReadMemory(0x9000, make([]byte, 8)); err == nil {
		t.Error("read beyond the pieces without a process")
	}
}
