package cpython

// Frames are the offsets of the structures that lead to the frames of all threads.
type Frames struct {
	// _PyRuntimeState and PyInterpreterState.
	InterpretersHead       uint64 // interpreters.head: the newest interpreter
	InterpreterNext        uint64 // next
	InterpreterThreadsHead uint64 // threads.head, before 3.11 tstate_head: the newest thread

	// PyThreadState.
	ThreadNext     uint64 // next
	ThreadInterp   uint64 // interp
	ThreadID       uint64 // thread_id
	NativeThreadID uint64 // native_thread_id: the kernel's thread ID
	// ThreadFrame is the pointer to the innermost frame: frame, and current_frame since 3.13. In
	// 3.11 and 3.12 it is cframe, and the _PyCFrame there has the pointer at CFrameCurrentFrame.
	ThreadFrame, CFrameCurrentFrame uint64

	// _PyInterpreterFrame, before 3.11 PyFrameObject.
	FrameCode     uint64 // f_executable, before 3.13 f_code
	FramePrevious uint64 // previous, before 3.11 f_back
	// FrameInstruction is instr_ptr, in 3.11 and 3.12 prev_instr: a pointer to the instruction.
	// Before 3.11 it is f_lasti, a number of LastiUnit bytes, an int.
	FrameInstruction, LastiUnit uint64
	FrameIsEntry                uint64 // is_entry: a bool
	FrameOwner                  uint64 // owner: a byte
	FrameTlbcIndex              uint64 // tlbc_index, in free-threaded builds

	// PyCodeObject.
	CodeAdaptive uint64 // co_code_adaptive: the bytecode
	CodeTlbc     uint64 // co_tlbc, in free-threaded builds
}

// HasFrameObjects reports whether the frames that run are PyFrameObjects: before 3.11.
func (f *Frames) HasFrameObjects() bool { return f.LastiUnit != Absent }

// Owners of frames (enum _frameowner) since 3.11. From FrameOwnedByCStack on, which 3.14 calls
// FRAME_OWNED_BY_INTERPRETER, they are shims, at which a run of the evaluation loop begins.
// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_frame.h
// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h
const (
	FrameOwnedByThread      = 0
	FrameOwnedByGenerator   = 1
	FrameOwnedByFrameObject = 2
	FrameOwnedByCStack      = 3
)

// A CodeLayout holds the offsets by which the name, the file and the lines of a function are read.
type CodeLayout struct {
	// PyCodeObject.
	// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/code.h
	Filename       uint64 // co_filename: pointer to a str
	Name           uint64 // co_name: pointer to a str
	Qualname       uint64 // co_qualname: pointer to a str
	Firstlineno    uint64 // co_firstlineno: int
	Linetable      uint64 // co_linetable, before 3.10 co_lnotab: pointer to a bytes
	LineForm       LineForm
	FirstTraceable uint64 // _co_firsttraceable: int, in code units of 2 bytes

	// PyBytesObject.
	BytesSize uint64 // ob_size: a word
	BytesData uint64 // ob_sval

	// PyASCIIObject and PyCompactUnicodeObject, the compact forms of a str.
	// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/unicodeobject.h
	UnicodeLength uint64 // length: characters, a word
	UnicodeState  uint64 // state: bit fields, 32 bits together
	ASCIIData     uint64 // sizeof(PyASCIIObject), behind which its characters lie
	CompactData   uint64 // sizeof(PyCompactUnicodeObject), behind which its characters lie
	// HasWideInterned is set if the bit field `interned` of some builds has 8 or 16 bits, and not 2.
	HasWideInterned bool
}

// A LineForm is the form of a line table.
type LineForm uint8

// Forms of line tables.
const (
	Lnotab        LineForm = iota + 1 // co_lnotab
	Linetable310                      // co_linetable of 3.10
	LocationTable                     // co_linetable since 3.11
)
