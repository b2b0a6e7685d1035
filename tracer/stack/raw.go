package stack

import (
	"encoding/binary"
	"strings"
	"unsafe"

	"github.com/allocscope/allocscope/bpf"
)

// A Raw is a stack of addresses, as the BPF programs report it.
type Raw struct {
	ID     uint64
	TGID   uint32
	end    bpf.StackEnd
	python bpf.PythonError
	words  []word
	gap    int // index in words behind which frames were left out; 0: none were
	check  int // of generated code, when the stack was reported
}

// A word is a native frame, or one of the two words of a Python frame.
type word uint64

func (w word) kind() bpf.WordKind { return bpf.WordKind(w >> bpf.WordKindShift) }
func (w word) address() uint64    { return uint64(w & (1<<bpf.WordKindShift - 1)) }

// DecodeStack decodes a record of the ring buffer, which ends behind the last word in use. Words
// that the BPF programs kept in a ring get their order. ok is false if the record is too short for
// its words, has more than a stack can have, or its ring lies outside.
func DecodeStack(record []byte) (raw Raw, ok bool) {
	var s bpf.Stack
	if len(record) < int(unsafe.Offsetof(s.Words)) {
		return Raw{}, false
	}

	native := binary.NativeEndian
	length := int(native.Uint32(record[unsafe.Offsetof(s.Length):]))
	words := record[unsafe.Offsetof(s.Words):]
	tail := int(native.Uint32(record[unsafe.Offsetof(s.Tail):]))
	oldest := int(native.Uint32(record[unsafe.Offsetof(s.Oldest):]))
	isShortened := native.Uint32(record[unsafe.Offsetof(s.LeftOut):]) > 0

	inUse := bpf.MaxWords // the ring may have a word that is not in use
	if !isShortened {
		tail, oldest, inUse = length, length, length
	}
	if length > bpf.MaxWords || len(words) < 8*inUse || tail > length || oldest < tail ||
		oldest > bpf.MaxWords {
		return Raw{}, false
	}

	raw = Raw{
		ID:     native.Uint64(record[unsafe.Offsetof(s.Id):]),
		TGID:   native.Uint32(record[unsafe.Offsetof(s.Tgid):]),
		end:    bpf.StackEnd(native.Uint32(record[unsafe.Offsetof(s.End):])),
		python: bpf.PythonError(native.Uint32(record[unsafe.Offsetof(s.Python):])),
		words:  make([]word, length),
	}

	for i := range raw.words {
		at := i
		if i >= tail {
			at = tail + (oldest-tail+i-tail)%(bpf.MaxWords-tail)
		}
		raw.words[i] = word(native.Uint64(words[8*at:]))
	}
	if isShortened {
		raw.gap = tail
	}
	return raw, true
}

// lastNative returns the index of the last native frame, or -1 if there is none.
func (r Raw) lastNative() int {
	last := -1
	for i := 0; i < len(r.words); i++ {
		if r.words[i].kind() == bpf.WordPython {
			i++ // the second word of a Python frame has no kind
			continue
		}
		last = i
	}

	return last
}

// truncation returns why the stack is incomplete, or "" if it is not.
func (r Raw) truncation() string {
	var reasons []string
	if reason := endReasons[r.end]; reason != "" {
		reasons = append(reasons, reason.String())
	}
	if reason := pythonErrors[r.python]; reason != "" {
		reasons = append(reasons, reason.String())
	}
	return strings.Join(reasons, ", ")
}
