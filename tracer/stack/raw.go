package stack

import (
	"encoding/binary"
	"unsafe"

	"github.com/allocscope/allocscope/bpf"
)

// Raw is a stack as the kernel side tells it.
type Raw struct {
	ID     uint64
	TGID   uint32
	end    bpf.StackEnd
	python bpf.PythonError
	words  []word
}

// lastNative is the index of the last native frame; -1: there is none.
func (s Raw) lastNative() int {
	last := -1
	for i := 0; i < len(s.words); i++ {
		if s.words[i].kind() == bpf.WordPython {
			i++ // its second word is of no kind
			continue
		}
		last = i
	}
	return last
}

// A word is a native frame, or one of the two of a Python frame.
type word uint64

const wordKindShift = 56

func (w word) kind() bpf.WordKind { return bpf.WordKind(w >> wordKindShift) }
func (w word) address() uint64    { return uint64(w & (1<<wordKindShift - 1)) }

// DecodeStack reads a record of the ring buffer, which the kernel side cuts after the words used; false: it is too short.
func DecodeStack(record []byte) (Raw, bool) {
	var s bpf.Stack
	if len(record) < int(unsafe.Offsetof(s.Words)) {
		return Raw{}, false
	}
	native := binary.NativeEndian
	length := int(native.Uint32(record[unsafe.Offsetof(s.Length):]))
	body := record[unsafe.Offsetof(s.Words):]
	if length > bpf.MaxWords || len(body) < 8*length {
		return Raw{}, false
	}
	raw := Raw{
		ID:     native.Uint64(record[unsafe.Offsetof(s.Id):]),
		TGID:   native.Uint32(record[unsafe.Offsetof(s.Tgid):]),
		end:    bpf.StackEnd(native.Uint32(record[unsafe.Offsetof(s.End):])),
		python: bpf.PythonError(native.Uint32(record[unsafe.Offsetof(s.Python):])),
		words:  make([]word, length),
	}
	for i := range raw.words {
		raw.words[i] = word(native.Uint64(body[8*i:]))
	}
	return raw, true
}
