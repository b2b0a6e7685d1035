package stack

import (
	"encoding/binary"
	"errors"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
)

// mostCodes bounds the code objects that are remembered, some 500 bytes each.
const mostCodes = 1 << 16

// codeNames names Python frames. The kernel side reads code objects the moment a stack is new, while they run.
type codeNames struct {
	process     *process.Process
	interpreter *python.Interpreter // nil: none
	Known       map[codeKey]*python.Code
}

// A codeKey tells code objects apart: another may follow at the same address.
type codeKey struct {
	address     uint64
	fingerprint uint32
}

func newCodeNames(p *process.Process) *codeNames {
	return &codeNames{process: p, Known: make(map[codeKey]*python.Code)}
}

// isInterpreter tells whether a mapping is of the interpreter's file.
func (c *codeNames) isInterpreter(m process.Mapping) bool {
	return c.interpreter != nil && m.File() == c.interpreter.Module.File()
}

// frame names a Python frame: a code object, its fingerprint, and where it stands. false: the interpreter made the frame for
// itself.
func (c *codeNames) frame(object, where word) (growth.Frame, bool) {
	offset := int32(uint32(where))
	code := c.code(codeKey{object.address(), uint32(where >> 32)})
	if code == nil {
		return growth.Frame{Python: true, Function: "[Python code that was gone before it could be read]"}, true
	}
	if code.IsIncomplete(offset) {
		return growth.Frame{}, false
	}
	return growth.Frame{
		Python: true, Function: code.Function, File: code.File, Line: code.Line(offset), StartLine: code.FirstLine,
	}, true
}

// told keeps a code object that the kernel side has read, in memory that the process may have put to other use since.
func (c *codeNames) add(record *CodeRecord) {
	if c.interpreter == nil {
		return
	}
	record.rest = c.process
	if code, err := python.ReadCode(record, record.address, c.interpreter.CodeLayout); err == nil {
		c.keep(codeKey{record.address, record.fingerprint}, code)
	}
}

// code gives a code object; nil: there is another in its place, or none.
func (c *codeNames) code(key codeKey) *python.Code {
	code, ok := c.Known[key]
	if !ok {
		code = c.Read(key)
		c.keep(key, code)
	}
	return code
}

func (c *codeNames) keep(key codeKey, code *python.Code) {
	if len(c.Known) >= mostCodes {
		clear(c.Known)
	}
	c.Known[key] = code
}

// read reads a code object that the kernel side has not told, or that was forgotten.
func (c *codeNames) Read(key codeKey) *python.Code {
	if c.interpreter == nil {
		return nil
	}
	layout := c.interpreter.CodeLayout
	code, err := python.ReadCode(c.process, key.address, layout)
	if err != nil {
		return nil
	}
	fingerprint, err := python.ReadFingerprint(c.process, key.address, layout) // afterwards: it has been this one all the time
	if err != nil || fingerprint != key.fingerprint {
		return nil
	}
	return code
}

// A CodeRecord is a code object as the kernel side has read it. It is the process's memory as far as it goes; what lies
// beyond is read from the process.
type CodeRecord struct {
	TGID        uint32
	address     uint64
	fingerprint uint32
	pieces      [4]memoryPiece
	rest        python.Memory // nil: there is none
}

type memoryPiece struct {
	address uint64
	bytes   []byte
}

var errIncomplete = errors.New("memory that the kernel side could not read")

// ReadMemory implements python.Memory.
func (c *CodeRecord) ReadMemory(address uint64, buffer []byte) error {
	for _, p := range c.pieces {
		if offset := address - p.address; offset < uint64(len(p.bytes)) {
			n := copy(buffer, p.bytes[offset:])
			if n == len(buffer) {
				return nil
			}
			return c.readRest(address+uint64(n), buffer[n:])
		}
	}
	return c.readRest(address, buffer)
}

func (c *CodeRecord) readRest(address uint64, buffer []byte) error {
	if c.rest == nil {
		return errIncomplete
	}
	return c.rest.ReadMemory(address, buffer)
}

// DecodeCode reads a record of the ring buffer; false: it is not of the size that the kernel side sends.
func DecodeCode(raw []byte) (*CodeRecord, bool) {
	var code bpf.Code
	if _, err := binary.Decode(raw, binary.NativeEndian, &code); err != nil {
		return nil, false
	}
	record := &CodeRecord{TGID: code.Tgid, address: code.Address, fingerprint: code.Fingerprint}
	for i, bytes := range [...][]byte{code.Object[:], code.Name[:], code.File[:], code.Lines[:]} {
		p := code.Pieces[i]
		record.pieces[i] = memoryPiece{p.Address, bytes[:min(p.Length, uint64(len(bytes)))]}
	}
	return record, true
}
