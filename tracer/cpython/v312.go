package cpython

var v312 = v311.with(func(v *Version) {
	v.Minor = 12

	v.InterpreterThreadsHead = 72

	v.ThreadID = 136
	v.NativeThreadID = 144
	v.CFrameCurrentFrame = 0

	v.FrameCode = 0
	v.FramePrevious = 8
	v.FrameIsEntry = Absent
	v.FrameOwner = 70

	v.CodeAdaptive = 192

	v.Firstlineno = 68
	v.FirstTraceable = 176

	v.ASCIIData = 40
	v.CompactData = 56

	// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_gc.h
	v.HasManagedWeakref = true
	v.ManagedValues = Absent
	v.TagsManagedDict = true
	v.ImmortalRefcnt = 1 << 30
	v.HasLongTag = true

	// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/object.h
	v.HTQualname = 872
	v.HTCachedKeys = 880

	// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/code.h
	v.CodeArgcount = 52
	v.CodeKwonlyargcount = 60
	v.CodeStacksize = 64
	v.CodeNlocalsplus = 72
	v.CodeNfreevars = 88

	// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_frame.h
	v.FrameGlobals = 24
	v.FrameObject = 48
	v.GenIframe = 72
	v.GenFrameState = 67
	v.FuncGlobals = 16
	v.FuncCode = 48
})
