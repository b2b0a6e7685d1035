package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/bpf"
)

// From 3.13 on the runtime begins with a table of offsets for debuggers, struct _Py_DebugOffsets: a cookie, the version,
// whether the build is free-threaded, and offsets of 64 bits each, in an order that is the version's own.
// https://github.com/python/cpython/blob/3.14/Include/internal/pycore_debug_offsets.h
const (
	debugCookie     = "xdebugpy"
	debugHeaderSize = 24
	debugSize       = 648 // of what is used of the longest table
)

// debugPositions says where in the table the offsets are, in bytes.
type debugPositions struct {
	interpreters                                               int
	interpreterNext, interpreterThreads                        int
	threadNext, threadInterpreter, threadFrame                 int
	threadID, nativeThread                                     int
	frameBack, frameCode, frameInstruction, frameOwner         int
	fileName, name, qualifiedName, lineTable, firstLine, bytes int
	objectType, bytesSize, bytesData                           int
	textState, textLength, textASCII                           int
}

var debugVersions = map[int]debugPositions{
	13: {
		interpreters: 40, interpreterNext: 64, interpreterThreads: 72,
		threadNext: 168, threadInterpreter: 176, threadFrame: 184, threadID: 192, nativeThread: 200,
		frameBack: 232, frameCode: 240, frameInstruction: 248, frameOwner: 264,
		fileName: 280, name: 288, qualifiedName: 296, lineTable: 304, firstLine: 312, bytes: 344,
		objectType: 360, bytesSize: 520, bytesData: 528, textState: 544, textLength: 552, textASCII: 560,
	},
	14: {
		interpreters: 40, interpreterNext: 64, interpreterThreads: 72,
		threadNext: 192, threadInterpreter: 200, threadFrame: 208, threadID: 216, nativeThread: 224,
		frameBack: 256, frameCode: 264, frameInstruction: 272, frameOwner: 288,
		fileName: 320, name: 328, qualifiedName: 336, lineTable: 344, firstLine: 352, bytes: 384,
		objectType: 408, bytesSize: 600, bytesData: 608, textState: 624, textLength: 632, textASCII: 640,
	},
}

// readDebugLayout reads the table at the start of a runtime. The layout is nil where there is none: before 3.13.
func readDebugLayout(m Memory, runtime uint64) (*layout, error) {
	table := make([]byte, debugSize)
	if err := m.ReadMemory(runtime, table[:debugHeaderSize]); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(table, []byte(debugCookie)) {
		return nil, nil
	}
	if _, _, err := debugHeader(table); err != nil {
		return nil, err
	}
	if err := m.ReadMemory(runtime, table); err != nil {
		return nil, err
	}
	return parseDebugOffsets(table)
}

// debugHeader decodes the version and refuses those that are not known.
func debugHeader(table []byte) (minor int, positions debugPositions, err error) {
	minor, err = releasedMinor(binary.LittleEndian.Uint64(table[8:]))
	if err != nil {
		return 0, debugPositions{}, err
	}
	if binary.LittleEndian.Uint64(table[16:]) != 0 {
		return 0, debugPositions{}, fmt.Errorf("%w: a free-threaded build of CPython 3.%d, whose objects lie in an allocator of its own that source heap does not see: mapping and fault measure them (run one with the GIL)", ErrUnsupported, minor)
	}
	positions, known := debugVersions[minor]
	if !known {
		return 0, debugPositions{}, unsupportedVersion(fmt.Sprintf("CPython 3.%d", minor))
	}
	return minor, positions, nil
}

// parseDebugOffsets turns a table of debugSize bytes into a layout. All it says is checked.
func parseDebugOffsets(table []byte) (*layout, error) {
	minor, at, err := debugHeader(table)
	if err != nil {
		return nil, err
	}
	t := offsetTable{bytes: table}
	l := &layout{
		kernel: bpf.KernelPython{
			Style:               bpf.KernelPythonStylePYTHON_ENTRY_FRAME,
			InterpreterNext:     t.offset(at.interpreterNext, 8),
			InterpreterThreads:  t.offset(at.interpreterThreads, 8),
			ThreadNext:          t.offset(at.threadNext, 8),
			ThreadKey:           t.offset(at.threadID, 8),
			ThreadFrame:         t.offset(at.threadFrame, 8),
			ThreadFrameIndirect: noIndirection,
			FrameCode:           t.offset(at.frameCode, 8),
			FrameBack:           t.offset(at.frameBack, 8),
			FrameInstruction:    t.offset(at.frameInstruction, 8),
			FrameEntry:          t.offset(at.frameOwner, 1),
			FirstEntryOwner:     firstEntryOwner,
			CodeBytes:           t.offset(at.bytes, 8),
		},
		code:              debugCodeLayout(&t, at, minor),
		interpreters:      t.offset(at.interpreters, 8),
		threadInterpreter: t.offset(at.threadInterpreter, 8),
		nativeThread:      t.offset(at.nativeThread, 8),
	}
	t.require(t.offset(at.objectType, 8) == 8, "the type of an object is not its second word")
	if t.problem != nil {
		return nil, fmt.Errorf("%w: CPython 3.%d with unknown structures: %w (a modified build?)", ErrUnsupported, minor, t.problem)
	}
	return l, nil
}

func debugCodeLayout(t *offsetTable, at debugPositions, minor int) CodeLayout {
	code := CodeLayout{
		Minor:         minor,
		FileName:      t.offset(at.fileName, 8),
		Name:          t.offset(at.name, 8),
		QualifiedName: t.offset(at.qualifiedName, 8),
		LineTable:     t.offset(at.lineTable, 8),
		FirstLine:     t.offset(at.firstLine, 4),
		BytesSize:     t.offset(at.bytesSize, 8),
		BytesData:     t.offset(at.bytesData, 1),
		TextLength:    t.offset(at.textLength, 8),
		TextState:     t.offset(at.textState, 4),
		TextASCII:     t.offset(at.textASCII, 8),
	}
	const pointer = 8
	code.TextCompact = code.TextASCII + 2*pointer           // utf8_length and utf8 lie between
	code.FirstTraceable = t.offset(at.bytes, 8) - 2*pointer // _co_firsttraceable, co_extra, the bytecode
	t.require(code.QualifiedName == code.Name+pointer && code.LineTable == code.QualifiedName+pointer,
		"names and line table of code objects are not in a row")
	t.require(t.offset(at.bytes, 8) >= 2*pointer, "code objects begin with bytecode")
	return code
}

// maxOffset bounds the offsets that are believed. The largest of 3.13 is 7,344, of the threads in an interpreter.
const maxOffset = 1 << 15

// An offsetTable gives offsets and keeps the first thing that was wrong.
type offsetTable struct {
	bytes   []byte
	problem error
}

// offset reads one offset, a multiple of align.
func (t *offsetTable) offset(position int, align uint64) uint16 {
	value := binary.LittleEndian.Uint64(t.bytes[position:])
	if value > maxOffset || value%align != 0 {
		t.require(false, fmt.Sprintf("offset %d at %d of the table", value, position))
		return 0
	}
	return uint16(value)
}

func (t *offsetTable) require(condition bool, otherwise string) {
	if !condition && t.problem == nil {
		t.problem = errors.New(otherwise)
	}
}
