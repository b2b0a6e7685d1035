package python

import "github.com/allocscope/allocscope/bpf"

// Offsets of CPython 3.8 to 3.12 on 64-bit machines, as `ptype /o` of gdb gives them for struct _ts, struct _is, struct
// _frame, struct _PyInterpreterFrame, PyCodeObject, PyBytesObject and PyUnicodeObject. They stay the same in all releases
// of a version.
var staticLayouts = map[int]layout{
	8:  objectsLayout(8, 104, 1),
	9:  objectsLayout(9, 104, 1),
	10: objectsLayout(10, 96, 2),
	11: {
		kernel: bpf.KernelPython{
			Style:              bpf.KernelPythonStylePYTHON_ENTRY_FLAG,
			InterpreterThreads: 16,
			ThreadNext:         8, ThreadKey: 152, ThreadFrame: 56, ThreadFrameIndirect: 8, // cframe, current_frame
			FrameCode: 32, FrameBack: 48, FrameInstruction: 56, FrameEntry: 68,
			CodeBytes: 184,
		},
		code: CodeLayout{
			Minor: 11, FileName: 112, Name: 120, QualifiedName: 128, FirstLine: 72, LineTable: 136,
			FirstTraceable: 168, BytesSize: 16, BytesData: 32, TextLength: 16, TextState: 32, TextASCII: 48, TextCompact: 72,
		},
		interpreters: 40, threadInterpreter: 16, nativeThread: 160,
	},
	12: {
		kernel: bpf.KernelPython{
			Style:              bpf.KernelPythonStylePYTHON_ENTRY_FRAME,
			InterpreterThreads: 72,
			ThreadNext:         8, ThreadKey: 136, ThreadFrame: 56, ThreadFrameIndirect: 0, // cframe, current_frame
			FrameCode: 0, FrameBack: 8, FrameInstruction: 56, FrameEntry: 70, FirstEntryOwner: firstEntryOwner,
			CodeBytes: 192,
		},
		code: CodeLayout{
			Minor: 12, FileName: 112, Name: 120, QualifiedName: 128, FirstLine: 68, LineTable: 136,
			FirstTraceable: 176, BytesSize: 16, BytesData: 32, TextLength: 16, TextState: 32, TextASCII: 40, TextCompact: 56,
		},
		interpreters: 40, threadInterpreter: 16, nativeThread: 144,
	},
}

// firstEntryOwner is FRAME_OWNED_BY_CSTACK of 3.12 and 3.13; 3.14 has FRAME_OWNED_BY_INTERPRETER there and
// FRAME_OWNED_BY_CSTACK behind it.
const firstEntryOwner = 3

// objectsLayout is for versions whose frames are objects. lasti is the offset of f_lasti, scale the bytes that it counts.
func objectsLayout(minor int, lasti uint16, scale uint8) layout {
	return layout{
		kernel: bpf.KernelPython{
			Style:              bpf.KernelPythonStylePYTHON_OBJECTS,
			InterpreterThreads: 8,
			ThreadNext:         8, ThreadKey: 176, ThreadFrame: 24, ThreadFrameIndirect: noIndirection,
			FrameCode: 32, FrameBack: 24, FrameInstruction: lasti, InstructionScale: scale,
		},
		code: CodeLayout{
			Minor: minor, FileName: 104, Name: 112, FirstLine: 40, LineTable: 120,
			BytesSize: 16, BytesData: 32, TextLength: 16, TextState: 32, TextASCII: 48, TextCompact: 72,
		},
		interpreters: 32, threadInterpreter: 16,
	}
}
