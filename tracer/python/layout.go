package python

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
)

// A layout holds the offsets of the structures of one CPython, in bytes.
type layout struct {
	version *cpython.Version
	frames  cpython.Frames     // without a published one
	code    cpython.CodeLayout // without a published one

	gc, modules uint16 // PyInterpreterState.gc and .imports.modules; 0 before 3.13

	hex          uint32 // PY_VERSION_HEX; 0 before 3.11
	freeThreaded bool   // Py_GIL_DISABLED
}

// layoutOf returns the layout of a version that publishes no offsets.
func layoutOf(v *cpython.Version) *layout {
	return &layout{version: v, frames: v.Frames, code: v.CodeLayout}
}

// noIndirection marks layouts whose PyThreadState points to the innermost frame without a _PyCFrame
// between them.
const noIndirection = ^uint16(0)

// kernelOffsets returns the offsets that the BPF programs need for an interpreter with this layout
// whose _PyRuntime is at an address.
func (l *layout) kernelOffsets(pyRuntime uint64) bpf.Python {
	f, c := &l.frames, &l.code
	kernel := bpf.Python{
		Interpreters:        pyRuntime + f.InterpretersHead,
		InterpreterNext:     uint16(f.InterpreterNext),
		InterpreterThreads:  uint16(f.InterpreterThreadsHead),
		ThreadNext:          uint16(f.ThreadNext),
		ThreadKey:           uint16(f.ThreadID),
		ThreadFrame:         uint16(f.ThreadFrame),
		ThreadFrameIndirect: noIndirection,
		FrameCode:           uint16(f.FrameCode),
		FrameBack:           uint16(f.FramePrevious),
		FrameInstruction:    uint16(f.FrameInstruction),

		CodeName: uint16(nameOf(c)), CodeFile: uint16(c.Filename), CodeLines: uint16(c.Linetable),
		BytesSize: uint16(c.BytesSize), TextLength: uint16(c.UnicodeLength),
	}
	if f.CFrameCurrentFrame != cpython.Absent {
		kernel.ThreadFrameIndirect = uint16(f.CFrameCurrentFrame)
	}

	switch {
	case f.HasFrameObjects():
		kernel.Style = bpf.PythonObjects
		kernel.InstructionScale = uint8(f.LastiUnit)
	case f.FrameIsEntry != cpython.Absent:
		kernel.Style = bpf.PythonEntryFlag
		kernel.FrameEntry = uint16(f.FrameIsEntry)
		kernel.CodeBytes = uint16(f.CodeAdaptive)
	default:
		kernel.Style = bpf.PythonEntryFrame
		kernel.FrameEntry, kernel.FirstEntryOwner = uint16(f.FrameOwner), cpython.FrameOwnedByCStack
		kernel.CodeBytes = uint16(f.CodeAdaptive)
	}
	if f.CodeTlbc != cpython.Absent {
		kernel.FrameTlbc, kernel.CodeTlbc = uint16(f.FrameTlbcIndex), uint16(f.CodeTlbc)
	}

	kernel.FrameBytes = max(kernel.FrameCode, kernel.FrameBack, kernel.FrameInstruction,
		kernel.FrameEntry, kernel.FrameTlbc)/8*8 + 8
	return kernel
}

// check returns an error unless the newest thread state of the newest interpreter points back to
// that interpreter, as it does in every version. An interpreter that has not started yet passes.
// Threads come and go meanwhile, so one success in several attempts counts.
func (l *layout) check(m Memory, kernel bpf.Python) error {
	const attempts = 16
	for range attempts {
		interpreter, err := readWord(m, kernel.Interpreters)
		if err != nil {
			return err
		}
		if interpreter == 0 {
			return nil
		}

		thread, err := readWord(m, interpreter+uint64(kernel.InterpreterThreads))
		if err != nil {
			continue
		}
		if thread == 0 {
			return nil
		}

		back, err := readWord(m, thread+l.frames.ThreadInterp)
		if err == nil && back == interpreter {
			return nil
		}
	}

	return fmt.Errorf("%w: its threads are not where CPython 3.%d keeps them (a modified build?)",
		ErrUnsupported, l.version.Minor)
}

// readDebugOffsets returns the layout that the struct _Py_DebugOffsets at pyRuntime describes,
// nil if there is none: before 3.13.
func readDebugOffsets(m Memory, pyRuntime uint64) (*layout, error) {
	table := make([]byte, cpython.DebugOffsetsSize)
	if err := m.ReadMemory(pyRuntime, table[:cpython.DebugHeaderSize]); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(table, []byte(cpython.DebugCookie)) {
		return nil, nil
	}
	if _, _, err := parseDebugHeader(table); err != nil {
		return nil, err
	}

	if err := m.ReadMemory(pyRuntime, table); err != nil {
		return nil, err
	}

	return parseDebugOffsets(table)
}

// parseDebugHeader returns the version that publishes a table. It refuses versions that are not
// known.
func parseDebugHeader(table []byte) (*cpython.Version, uint32, error) {
	hex := mem.Word(table, cpython.DebugVersion)
	v, err := versionOfHex(hex)
	if err == nil && v.DebugOffsets == nil {
		err = unsupportedVersion(fmt.Sprintf("CPython 3.%d", v.Minor))
	}

	return v, uint32(hex), err
}

// parseDebugOffsets turns a table of cpython.DebugOffsetsSize bytes into a layout. Every offset is
// checked.
func parseDebugOffsets(table []byte) (*layout, error) {
	v, hex, err := parseDebugHeader(table)
	if err != nil {
		return nil, err
	}

	at, t := v.DebugOffsets, offsetReader{table: table}
	l := layoutOf(v)
	l.hex, l.freeThreaded = hex, mem.Word(table, cpython.DebugFreeThreaded) != 0
	l.gc = uint16(t.offset(at.InterpreterStateGC, 8))
	l.modules = uint16(t.offset(at.InterpreterStateImportsModules, 8))
	t.readFrames(&l.frames, at)
	t.readCodeLayout(&l.code, at)

	var wantType uint64 = cpython.ObType
	if l.freeThreaded {
		wantType = cpython.FreeThreadedObType
	}
	t.require(t.offset(at.PyobjectObType, 8) == wantType,
		"the type of an object is not where it should be")

	l.frames.FrameTlbcIndex, l.frames.CodeTlbc = cpython.Absent, cpython.Absent
	if l.freeThreaded && at.CodeObjectCoTlbc != cpython.Absent {
		l.frames.FrameTlbcIndex = t.offset(at.InterpreterFrameTlbcIndex, 4)
		l.frames.CodeTlbc = t.offset(at.CodeObjectCoTlbc, 8)
		// co_tlbc lies between co_extra and the bytecode.
		l.code.FirstTraceable -= pointerSize
	}

	if t.err != nil {
		return nil, fmt.Errorf("%w: CPython 3.%d with unknown structures: %w (a modified build?)",
			ErrUnsupported, v.Minor, t.err)
	}

	return l, nil
}

func (t *offsetReader) readFrames(f *cpython.Frames, at *cpython.DebugOffsets) {
	f.InterpretersHead = t.offset(at.RuntimeStateInterpretersHead, 8)
	f.InterpreterNext = t.offset(at.InterpreterStateNext, 8)
	f.InterpreterThreadsHead = t.offset(at.InterpreterStateThreadsHead, 8)
	f.ThreadNext = t.offset(at.ThreadStateNext, 8)
	f.ThreadInterp = t.offset(at.ThreadStateInterp, 8)
	f.ThreadID = t.offset(at.ThreadStateThreadID, 8)
	f.NativeThreadID = t.offset(at.ThreadStateNativeThreadID, 8)
	f.ThreadFrame = t.offset(at.ThreadStateCurrentFrame, 8)
	f.FrameCode = t.offset(at.InterpreterFrameExecutable, 8)
	f.FramePrevious = t.offset(at.InterpreterFramePrevious, 8)
	f.FrameInstruction = t.offset(at.InterpreterFrameInstrPtr, 8)
	f.FrameOwner = t.offset(at.InterpreterFrameOwner, 1)
	f.CodeAdaptive = t.offset(at.CodeObjectCoCodeAdaptive, 8)
}

func (t *offsetReader) readCodeLayout(code *cpython.CodeLayout, at *cpython.DebugOffsets) {
	code.Filename = t.offset(at.CodeObjectFilename, 8)
	code.Name = t.offset(at.CodeObjectName, 8)
	code.Qualname = t.offset(at.CodeObjectQualname, 8)
	code.Linetable = t.offset(at.CodeObjectLinetable, 8)
	code.Firstlineno = t.offset(at.CodeObjectFirstlineno, 4)
	code.BytesSize = t.offset(at.BytesObjectObSize, 8)
	code.BytesData = t.offset(at.BytesObjectObSval, 1)
	code.UnicodeLength = t.offset(at.UnicodeObjectLength, 8)
	code.UnicodeState = t.offset(at.UnicodeObjectState, 4)
	code.ASCIIData = t.offset(at.UnicodeObjectAsciiobjectSize, 8)

	// Members that the table leaves out have to be computed from their neighbours.
	code.CompactData = code.ASCIIData + 2*pointerSize // behind utf8_length and utf8
	if at.UnicodeObjectCompactunicodeobjectSize != cpython.Absent {
		code.CompactData = t.offset(at.UnicodeObjectCompactunicodeobjectSize, 8)
	}
	// In a row: _co_firsttraceable, co_extra, co_code_adaptive.
	bytecode := t.offset(at.CodeObjectCoCodeAdaptive, 8)
	code.FirstTraceable = bytecode - 2*pointerSize

	t.require(code.Qualname == code.Name+pointerSize && code.Linetable == code.Qualname+pointerSize,
		"names and line table of code objects are not in a row")
	t.require(bytecode >= 3*pointerSize, "code objects begin with bytecode")
}

const pointerSize = 8 // bytes

// maxOffset bounds the offsets that are believed, in bytes. The largest of 3.13 is 7,344, of the
// threads in an interpreter.
const maxOffset = 1 << 15

// An offsetReader reads a struct _Py_DebugOffsets and keeps the first problem.
type offsetReader struct {
	table []byte
	err   error
}

// offset returns the offset at a position in the table. It has to be a multiple of align.
func (t *offsetReader) offset(position, align uint64) uint64 {
	value := mem.Word(t.table, position)
	if value > maxOffset || value%align != 0 {
		t.require(false, fmt.Sprintf("offset %d at %d of the table", value, position))
		return 0
	}

	return value
}

// require keeps the problem unless condition holds.
func (t *offsetReader) require(condition bool, problem string) {
	if !condition && t.err == nil {
		t.err = errors.New(problem)
	}
}
