package gpusnapshot

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"github.com/allocscope/allocscope/growth"
)

// Opcodes of protocol 2 of Python's pickle module, by their names there:
// https://github.com/python/cpython/blob/main/Lib/pickle.py. The reader of PyTorch's MemoryViz.js
// knows these, too.
const (
	opProto      = 0x80
	opStop       = '.'
	opMark       = '('
	opEmptyDict  = '}'
	opSetItems   = 'u'
	opEmptyList  = ']'
	opAppends    = 'e'
	opTuple2     = 0x86
	opBinInt     = 'J'
	opBinInt1    = 'K'
	opBinInt2    = 'M'
	opLong1      = 0x8a
	opNewTrue    = 0x88
	opNewFalse   = 0x89
	opBinUnicode = 'X'
	opBinPut     = 'q'
	opLongBinPut = 'r'
	opBinGet     = 'h'
	opLongBinGet = 'j'
)

const (
	protocol = 2
	// maxTextBytes bounds a text.
	maxTextBytes = 4096
	// maxAppends is how many items are appended at once, as in Python: a reader has all of them on
	// its stack.
	maxAppends = 1000
)

// A pickler writes one value as a pickle. Values of which it keeps the number can be written again
// as references.
type pickler struct {
	w     *bufio.Writer // it keeps the first error
	memos uint32        // numbers given
	texts map[string]uint32
}

func newPickler(w io.Writer) *pickler {
	return &pickler{w: bufio.NewWriterSize(w, 1<<16), texts: make(map[string]uint32)}
}

// pickle writes the value that write writes. The error comes from the writer.
func (p *pickler) pickle(write func()) error {
	p.op(opProto, protocol)
	write()
	p.op(opStop)
	return p.w.Flush()
}

func (p *pickler) op(bytes ...byte) { p.w.Write(bytes) }

// dict writes a dictionary, whose keys and values write writes.
func (p *pickler) dict(write func()) {
	p.op(opEmptyDict, opMark)
	write()
	p.op(opSetItems)
}

// listOf writes a list, each item of which write writes.
func listOf[T any](p *pickler, items []T, write func(*T)) {
	p.op(opEmptyList)
	for len(items) > 0 {
		batch := items[:min(maxAppends, len(items))]
		items = items[len(batch):]

		p.op(opMark)
		for i := range batch {
			write(&batch[i])
		}
		p.op(opAppends)
	}
}

// once writes the value of a key with write the first time, and later a reference to it.
func once[K comparable](p *pickler, written map[K]uint32, key K, write func()) {
	if memo, ok := written[key]; ok {
		p.numbered(opBinGet, opLongBinGet, memo)
		return
	}

	write()
	written[key] = p.memos
	p.numbered(opBinPut, opLongBinPut, p.memos)
	p.memos++
}

// numbered writes an operation with a number of a value.
func (p *pickler) numbered(short, long byte, memo uint32) {
	if memo <= math.MaxUint8 {
		p.op(short, byte(memo))
		return
	}
	p.op(long)
	p.w.Write(binary.LittleEndian.AppendUint32(nil, memo))
}

// text writes a text. It is made printable, and truncated after 4,096 bytes.
func (p *pickler) text(text string) {
	if len(text) > maxTextBytes {
		text = growth.Truncate(text, maxTextBytes)
	}

	text = growth.Printable(text)
	once(p, p.texts, text, func() {
		p.op(opBinUnicode)
		p.w.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
		p.w.WriteString(text)
	})
}

func (p *pickler) int(n int64) {
	switch {
	case n >= 0 && n <= math.MaxUint8:
		p.op(opBinInt1, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		p.op(opBinInt2, byte(n), byte(n>>8))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.op(opBinInt)
		p.w.Write(binary.LittleEndian.AppendUint32(nil, uint32(n)))
	default:
		p.op(opLong1, 8)
		p.w.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
}

func (p *pickler) bool(b bool) {
	if b {
		p.op(opNewTrue)
		return
	}
	p.op(opNewFalse)
}

// textAt, intAt and boolAt write a key of a dictionary and its value.
func (p *pickler) textAt(key, value string) {
	p.text(key)
	p.text(value)
}

func (p *pickler) intAt(key string, value int64) {
	p.text(key)
	p.int(value)
}

func (p *pickler) boolAt(key string, value bool) {
	p.text(key)
	p.bool(value)
}
