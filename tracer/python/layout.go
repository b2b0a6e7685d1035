package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/bpf"
)

// A layout holds the offsets of the structures of one CPython, in bytes.
type layout struct {
	kernel bpf.Python // for the BPF programs: offsets only, no addresses
	code   CodeLayout

	interpretersHead uint16 // _PyRuntimeState.interpreters.head: the newest interpreter
	interp           uint16 // PyThreadState.interp
	nativeThreadID   uint16 // PyThreadState.native_thread_id, the kernel's thread ID; 0 before 3.11
	gc, modules      uint16 // PyInterpreterState.gc and .imports.modules; 0 before 3.13

	hex          uint32 // PY_VERSION_HEX; 0 before 3.11
	freeThreaded bool   // Py_GIL_DISABLED
}

// noIndirection marks layouts whose PyThreadState points to the innermost frame without a _PyCFrame
// between them.
const noIndirection = ^uint16(0)

// frameOwnedByCStack is FRAME_OWNED_BY_CSTACK of 3.12 and 3.13. In 3.14
// FRAME_OWNED_BY_INTERPRETER has this value and FRAME_OWNED_BY_CSTACK the next. Frames with these
// owners are shims, at which a run of the evaluation loop begins.
// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h
const frameOwnedByCStack = 3

// staticLayouts holds the layouts of CPython 3.8 to 3.12 on 64-bit machines, which are the same in
// all releases of a minor version. `ptype /o` of gdb prints the offsets of struct _ts, struct _is,
// struct _frame, struct _PyInterpreterFrame, PyCodeObject, PyBytesObject and PyUnicodeObject.
var staticLayouts = map[int]layout{
	8:  frameObjectLayout(8, 104, 1),
	9:  frameObjectLayout(9, 104, 1),
	10: frameObjectLayout(10, 96, 2),
	11: {
		kernel: bpf.Python{
			Style:              bpf.PythonEntryFlag, // is_entry
			InterpreterThreads: 16,
			ThreadNext:         8, ThreadKey: 152,
			ThreadFrame: 56, ThreadFrameIndirect: 8, // cframe, current_frame
			FrameCode: 32, FrameBack: 48, FrameInstruction: 56, FrameEntry: 68,
			CodeBytes: 184,
		},
		code: CodeLayout{
			Minor: 11, Filename: 112, Name: 120, Qualname: 128, Firstlineno: 72, Linetable: 136,
			FirstTraceable: 168, BytesSize: 16, BytesData: 32,
			UnicodeLength: 16, UnicodeState: 32, ASCIIData: 48, CompactData: 72,
		},
		interpretersHead: 40, interp: 16, nativeThreadID: 160,
	},
	12: {
		kernel: bpf.Python{
			Style:              bpf.PythonEntryFrame, // owner
			InterpreterThreads: 72,
			ThreadNext:         8, ThreadKey: 136,
			ThreadFrame: 56, ThreadFrameIndirect: 0, // cframe, current_frame
			FrameCode: 0, FrameBack: 8, FrameInstruction: 56, FrameEntry: 70,
			FirstEntryOwner: frameOwnedByCStack,
			CodeBytes:       192,
		},
		code: CodeLayout{
			Minor: 12, Filename: 112, Name: 120, Qualname: 128, Firstlineno: 68, Linetable: 136,
			FirstTraceable: 176, BytesSize: 16, BytesData: 32,
			UnicodeLength: 16, UnicodeState: 32, ASCIIData: 40, CompactData: 56,
		},
		interpretersHead: 40, interp: 16, nativeThreadID: 144,
	},
}

// frameObjectLayout returns the layout of a version whose frames are PyFrameObjects. lasti is the
// offset of f_lasti, scale the bytes that f_lasti counts in.
func frameObjectLayout(minor int, lasti uint16, scale uint8) layout {
	return layout{
		kernel: bpf.Python{
			Style:              bpf.PythonObjects,
			InterpreterThreads: 8, // tstate_head
			ThreadNext:         8, ThreadKey: 176,
			ThreadFrame: 24, ThreadFrameIndirect: noIndirection,
			FrameCode: 32, FrameBack: 24, FrameInstruction: lasti, InstructionScale: scale,
		},
		code: CodeLayout{
			Minor: minor, Filename: 104, Name: 112, Firstlineno: 40, Linetable: 120,
			BytesSize: 16, BytesData: 32,
			UnicodeLength: 16, UnicodeState: 32, ASCIIData: 48, CompactData: 72,
		},
		interpretersHead: 32, interp: 16,
	}
}

// kernelOffsets returns the offsets that the BPF programs need for an interpreter with this layout
// whose _PyRuntime is at an address.
func (l layout) kernelOffsets(pyRuntime uint64) bpf.Python {
	kernel := l.kernel
	kernel.Interpreters = pyRuntime + uint64(l.interpretersHead)
	kernel.FrameBytes = max(kernel.FrameCode, kernel.FrameBack, kernel.FrameInstruction,
		kernel.FrameEntry, kernel.FrameTlbc)/8*8 + 8

	kernel.CodeName, kernel.CodeFile = l.code.Name, l.code.Filename
	kernel.CodeLines = l.code.Linetable
	if l.code.Qualname != 0 {
		kernel.CodeName = l.code.Qualname
	}

	kernel.BytesSize, kernel.TextLength = l.code.BytesSize, l.code.UnicodeLength

	return kernel
}

// check returns an error unless the newest thread state of the newest interpreter points back to
// that interpreter, as it does in every version. An interpreter that has not started yet passes.
// Threads come and go meanwhile, so one success in several attempts counts.
func (l layout) check(m Memory, kernel bpf.Python) error {
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

		back, err := readWord(m, thread+uint64(l.interp))
		if err == nil && back == interpreter {
			return nil
		}
	}

	return fmt.Errorf("%w: its threads are not where CPython 3.%d keeps them (a modified build?)",
		ErrUnsupported, l.code.Minor)
}

// From 3.13 on _PyRuntime begins with a struct _Py_DebugOffsets: a cookie, PY_VERSION_HEX,
// whether the build is free-threaded, and offsets of 64 bits each, whose order depends on the
// minor version.
// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h
const (
	debugCookie     = "xdebugpy" // _Py_Debug_Cookie
	debugHeaderSize = 24         // bytes
	debugTableSize  = 648        // bytes of the longest version that are used
)

// debugOffsets shows where in struct _Py_DebugOffsets each offset lies, in bytes. The fields have
// the names of its members.
type debugOffsets struct {
	interpretersHead                                 int // runtime_state
	interpreterNext, interpreterThreadsHead          int // interpreter_state
	interpreterGC, interpreterModules                int // interpreter_state
	threadNext, threadInterp, threadCurrentFrame     int // thread_state
	threadID, nativeThreadID                         int // thread_state
	framePrevious, frameExecutable                   int // interpreter_frame
	frameInstrPtr, frameOwner                        int // interpreter_frame
	frameTlbcIndex                                   int // interpreter_frame; 0 before 3.14
	codeFilename, codeName, codeQualname             int // code_object
	codeLinetable, codeFirstlineno, coCodeAdaptive   int // code_object
	coTlbc                                           int // code_object; 0 before 3.14
	obType                                           int // pyobject
	bytesObSize, bytesObSval                         int // bytes_object
	unicodeState, unicodeLength, unicodeASCIIObjSize int // unicode_object
}

// debugOffsetsOf holds the positions of each minor version.
var debugOffsetsOf = map[int]debugOffsets{
	13: {
		interpretersHead: 40, interpreterNext: 64, interpreterThreadsHead: 72,
		interpreterGC: 80, interpreterModules: 88,
		threadNext: 168, threadInterp: 176, threadCurrentFrame: 184,
		threadID: 192, nativeThreadID: 200,
		framePrevious: 232, frameExecutable: 240, frameInstrPtr: 248, frameOwner: 264,
		codeFilename: 280, codeName: 288, codeQualname: 296,
		codeLinetable: 304, codeFirstlineno: 312, coCodeAdaptive: 344,
		obType: 360, bytesObSize: 520, bytesObSval: 528,
		unicodeState: 544, unicodeLength: 552, unicodeASCIIObjSize: 560,
	},
	14: {
		interpretersHead: 40, interpreterNext: 64, interpreterThreadsHead: 72,
		interpreterGC: 88, interpreterModules: 96,
		threadNext: 192, threadInterp: 200, threadCurrentFrame: 208,
		threadID: 216, nativeThreadID: 224,
		framePrevious: 256, frameExecutable: 264, frameInstrPtr: 272, frameOwner: 288,
		frameTlbcIndex: 304,
		codeFilename:   320, codeName: 328, codeQualname: 336,
		codeLinetable: 344, codeFirstlineno: 352, coCodeAdaptive: 384, coTlbc: 392,
		obType: 408, bytesObSize: 600, bytesObSval: 608,
		unicodeState: 624, unicodeLength: 632, unicodeASCIIObjSize: 640,
	},
}

// readDebugOffsets returns the layout that the struct _Py_DebugOffsets at pyRuntime describes,
// nil if there is none: before 3.13.
func readDebugOffsets(m Memory, pyRuntime uint64) (*layout, error) {
	table := make([]byte, debugTableSize)
	if err := m.ReadMemory(pyRuntime, table[:debugHeaderSize]); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(table, []byte(debugCookie)) {
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

// parseDebugHeader returns the minor version, and where that version has its offsets. It refuses
// versions that are not known.
func parseDebugHeader(table []byte) (minor int, at debugOffsets, err error) {
	minor, err = minorOfHex(binary.LittleEndian.Uint64(table[8:]))
	if err != nil {
		return 0, debugOffsets{}, err
	}
	at, known := debugOffsetsOf[minor]
	if !known {
		return 0, debugOffsets{}, unsupportedVersion(fmt.Sprintf("CPython 3.%d", minor))
	}

	return minor, at, nil
}

// parseDebugOffsets turns a table of debugTableSize bytes into a layout. Every offset is checked.
func parseDebugOffsets(table []byte) (*layout, error) {
	minor, at, err := parseDebugHeader(table)
	if err != nil {
		return nil, err
	}

	t := offsetReader{table: table}
	l := &layout{
		kernel: bpf.Python{
			Style:               bpf.PythonEntryFrame,
			InterpreterNext:     t.offset(at.interpreterNext, 8),
			InterpreterThreads:  t.offset(at.interpreterThreadsHead, 8),
			ThreadNext:          t.offset(at.threadNext, 8),
			ThreadKey:           t.offset(at.threadID, 8),
			ThreadFrame:         t.offset(at.threadCurrentFrame, 8),
			ThreadFrameIndirect: noIndirection,
			FrameCode:           t.offset(at.frameExecutable, 8),
			FrameBack:           t.offset(at.framePrevious, 8),
			FrameInstruction:    t.offset(at.frameInstrPtr, 8),
			FrameEntry:          t.offset(at.frameOwner, 1),
			FirstEntryOwner:     frameOwnedByCStack,
			CodeBytes:           t.offset(at.coCodeAdaptive, 8),
		},
		code:             parseCodeLayout(&t, at, minor),
		interpretersHead: t.offset(at.interpretersHead, 8),
		interp:           t.offset(at.threadInterp, 8),
		nativeThreadID:   t.offset(at.nativeThreadID, 8),
		gc:               t.offset(at.interpreterGC, 8),
		modules:          t.offset(at.interpreterModules, 8),
		hex:              uint32(binary.LittleEndian.Uint64(table[8:])),
		freeThreaded:     binary.LittleEndian.Uint64(table[16:]) != 0,
	}

	const (
		typeAt             = 8  // PyObject.ob_type: behind ob_refcnt
		freeThreadedTypeAt = 24 // behind ob_tid, flags, and the two reference counts
	)
	wantType := uint16(typeAt)
	if l.freeThreaded {
		wantType = freeThreadedTypeAt
	}
	t.require(t.offset(at.obType, 8) == wantType, "the type of an object is not where it should be")

	if l.freeThreaded && at.coTlbc != 0 {
		l.kernel.FrameTlbc = t.offset(at.frameTlbcIndex, 4)
		l.kernel.CodeTlbc = t.offset(at.coTlbc, 8)
		// co_tlbc lies between co_extra and the bytecode.
		l.code.FirstTraceable -= pointerSize
	}

	if t.err != nil {
		return nil, fmt.Errorf("%w: CPython 3.%d with unknown structures: %w (a modified build?)",
			ErrUnsupported, minor, t.err)
	}

	return l, nil
}

func parseCodeLayout(t *offsetReader, at debugOffsets, minor int) CodeLayout {
	code := CodeLayout{
		Minor:         minor,
		Filename:      t.offset(at.codeFilename, 8),
		Name:          t.offset(at.codeName, 8),
		Qualname:      t.offset(at.codeQualname, 8),
		Linetable:     t.offset(at.codeLinetable, 8),
		Firstlineno:   t.offset(at.codeFirstlineno, 4),
		BytesSize:     t.offset(at.bytesObSize, 8),
		BytesData:     t.offset(at.bytesObSval, 1),
		UnicodeLength: t.offset(at.unicodeLength, 8),
		UnicodeState:  t.offset(at.unicodeState, 4),
		ASCIIData:     t.offset(at.unicodeASCIIObjSize, 8),
	}

	// Two members that the table leaves out have to be computed from their neighbours.
	code.CompactData = code.ASCIIData + 2*pointerSize // behind utf8_length and utf8
	// In a row: _co_firsttraceable, co_extra, co_code_adaptive.
	code.FirstTraceable = t.offset(at.coCodeAdaptive, 8) - 2*pointerSize

	t.require(code.Qualname == code.Name+pointerSize && code.Linetable == code.Qualname+pointerSize,
		"names and line table of code objects are not in a row")
	t.require(t.offset(at.coCodeAdaptive, 8) >= 3*pointerSize, "code objects begin with bytecode")

	return code
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
func (t *offsetReader) offset(position int, align uint64) uint16 {
	value := binary.LittleEndian.Uint64(t.table[position:])
	if value > maxOffset || value%align != 0 {
		t.require(false, fmt.Sprintf("offset %d at %d of the table", value, position))
		return 0
	}

	return uint16(value)
}

// require keeps the problem unless condition holds.
func (t *offsetReader) require(condition bool, problem string) {
	if !condition && t.err == nil {
		t.err = errors.New(problem)
	}
}
