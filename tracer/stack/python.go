package stack

import (
	"encoding/binary"
	"errors"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
)

// maxCodeBytes bounds the memory of the code objects that are remembered. Each takes some 500 bytes,
// but a process can give it a line table of 1 MiB.
const maxCodeBytes = 32 << 20

// codeOverhead is the memory of a code object beside its texts and its line table, in bytes, and
// the memory of one that could not be read.
const codeOverhead = 200

// codeNames names Python frames. The BPF programs read the code objects of a new stack at once,
// because CPython may free them soon after.
type codeNames struct {
	process     *process.Process
	interpreter *python.Interpreter // nil: none was found
	Known       map[codeKey]*python.Code
	bytes       int // of Known
}

// A codeKey identifies a code object. The fingerprint is of its contents: CPython may reuse the
// address for another code object.
type codeKey struct {
	address     uint64
	fingerprint uint32
}

func newCodeNames(p *process.Process) *codeNames {
	return &codeNames{process: p, Known: make(map[codeKey]*python.Code)}
}

// isInterpreter reports whether a mapping is of the interpreter's file.
func (c *codeNames) isInterpreter(m process.Mapping) bool {
	return c.interpreter != nil && m.File() == c.interpreter.Module.File()
}

// frame names a Python frame. The low half of position is the byte offset in the bytecode, the high
// half the fingerprint of the code object. ok is false if CPython leaves the frame out of
// tracebacks.
func (c *codeNames) frame(object, position word) (frame growth.Frame, ok bool) {
	offset := int32(uint32(position))
	code := c.code(codeKey{address: object.address(), fingerprint: uint32(position >> 32)})
	if code == nil {
		return growth.Frame{Python: true, Function: growth.FramePythonGone}, true
	}

	if code.IsIncomplete(offset) {
		return growth.Frame{}, false
	}

	return growth.Frame{
		Python:    true,
		Function:  code.Function,
		File:      code.File,
		Line:      code.Line(offset),
		StartLine: code.FirstLine,
	}, true
}

// add keeps a code object that the BPF programs have read.
func (c *codeNames) add(record *CodeRecord) {
	if c.interpreter == nil {
		return
	}

	record.rest = c.process
	if code, err := python.ReadCode(record, record.address, c.interpreter.CodeLayout); err == nil {
		c.keep(codeKey{address: record.address, fingerprint: record.fingerprint}, code)
	}
}

// code returns a code object, or nil if it is no longer in the process.
func (c *codeNames) code(key codeKey) *python.Code {
	code, ok := c.Known[key]
	if !ok {
		code = c.Read(key)
		c.keep(key, code)
	}
	return code
}

// isFull reports whether the next code object replaces all others.
func (c *codeNames) isFull() bool { return c.bytes >= maxCodeBytes }

func (c *codeNames) keep(key codeKey, code *python.Code) {
	if c.isFull() {
		clear(c.Known)
		c.bytes = 0
	}
	if before, ok := c.Known[key]; ok {
		c.bytes -= codeOverhead + before.TextBytes()
	}
	c.Known[key] = code
	c.bytes += codeOverhead + code.TextBytes()
}

// Read reads a code object from the process. It returns nil if there is none at the address, or
// another one.
func (c *codeNames) Read(key codeKey) *python.Code {
	if c.interpreter == nil {
		return nil
	}

	layout := c.interpreter.CodeLayout
	code, err := python.ReadCode(c.process, key.address, layout)
	if err != nil {
		return nil
	}

	// Only now: if the fingerprint is right, it was while the code object was read.
	fingerprint, err := python.ReadFingerprint(c.process, key.address, layout)
	if err != nil || fingerprint != key.fingerprint {
		return nil
	}
	return code
}

// A CodeRecord is a code object that the BPF programs have read: pieces of the process's memory.
// It is a python.Memory, which reads memory outside of the pieces from the process.
type CodeRecord struct {
	TGID        uint32
	address     uint64
	fingerprint uint32
	pieces      [4]memoryPiece
	rest        python.Memory // the process; nil: reads beyond the pieces fail
}

type memoryPiece struct {
	address uint64
	bytes   []byte
}

// errNotRecorded is the error of a read beyond the pieces of a record.
var errNotRecorded = errors.New("memory is not in the record")

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
		return errNotRecorded
	}
	return c.rest.ReadMemory(address, buffer)
}

// DecodeCode decodes a record of the ring buffer. ok is false if the record is too short.
func DecodeCode(raw []byte) (record *CodeRecord, ok bool) {
	var code bpf.Code
	if _, err := binary.Decode(raw, binary.NativeEndian, &code); err != nil {
		return nil, false
	}

	record = &CodeRecord{TGID: code.Tgid, address: code.Address, fingerprint: code.Fingerprint}
	pieces := [...][]byte{code.Object[:], code.Name[:], code.File[:], code.Lines[:]}
	for i, bytes := range pieces {
		p := code.Pieces[i]
		length := min(p.Length, uint64(len(bytes)))
		record.pieces[i] = memoryPiece{address: p.Address, bytes: bytes[:length]}
	}
	return record, true
}
