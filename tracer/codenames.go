package tracer

import (
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
	known       map[codeKey]*python.Code
}

// A codeKey tells code objects apart: another may follow at the same address.
type codeKey struct {
	address     uint64
	fingerprint uint32
}

func newCodeNames(p *process.Process) *codeNames {
	return &codeNames{process: p, known: make(map[codeKey]*python.Code)}
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
	if code.Internal(offset) {
		return growth.Frame{}, false
	}
	return growth.Frame{
		Python: true, Function: code.Function, File: code.File, Line: code.Line(offset), StartLine: code.FirstLine,
	}, true
}

// told keeps a code object that the kernel side has read, in memory that the process may have put to other use since.
func (c *codeNames) told(record *codeRecord) {
	if c.interpreter == nil {
		return
	}
	record.rest = c.process
	if code, err := python.ReadCode(record, record.address, c.interpreter.Code); err == nil {
		c.keep(codeKey{record.address, record.fingerprint}, code)
	}
}

// code gives a code object; nil: there is another in its place, or none.
func (c *codeNames) code(key codeKey) *python.Code {
	code, ok := c.known[key]
	if !ok {
		code = c.read(key)
		c.keep(key, code)
	}
	return code
}

func (c *codeNames) keep(key codeKey, code *python.Code) {
	if len(c.known) >= mostCodes {
		clear(c.known)
	}
	c.known[key] = code
}

// read reads a code object that the kernel side has not told, or that was forgotten.
func (c *codeNames) read(key codeKey) *python.Code {
	if c.interpreter == nil {
		return nil
	}
	layout := c.interpreter.Code
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
