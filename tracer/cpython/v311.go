package cpython

var v311 = v310.with(func(v *Version) {
	v.Minor = 11
	v.FirstExport = ""

	v.InterpretersHead = 40
	v.InterpreterThreadsHead = 16

	v.ThreadID = 152
	v.NativeThreadID = 160
	v.ThreadFrame = 56
	v.CFrameCurrentFrame = 8

	v.FramePrevious = 48
	v.FrameInstruction = 56
	v.LastiUnit = Absent
	v.FrameIsEntry = 68
	v.FrameOwner = 69

	v.CodeAdaptive = 184

	v.Filename = 112
	v.Name = 120
	v.Qualname = 128
	v.Firstlineno = 72
	v.Linetable = 136
	v.LineForm = LocationTable
	v.FirstTraceable = 168

	// https://github.com/python/cpython/blob/v3.11.0/Include/internal/pycore_gc.h
	v.PreHeader = 16
	v.ManagedDict = -24
	v.ManagedValues = -32

	// https://github.com/python/cpython/blob/v3.11.0/Include/internal/pycore_dict.h
	v.KeysHeader = 32
	v.HasKeysKind = true
	v.ValuesForm = ValuesPrefixed
	v.ValuesHeader = 8
	v.ValuesHeaderAt = -8

	// https://github.com/python/cpython/blob/v3.11.0/Include/cpython/code.h
	v.CodeArgcount = 56
	v.CodeKwonlyargcount = 64
	v.CodeStacksize = 68
	v.CodeVarnames = Absent
	v.CodeCellvars = Absent
	v.CodeFreevars = Absent
	v.CodeNlocalsplus = 76
	v.CodeNfreevars = 92
	v.CodeLocalsplusnames = 96

	// https://github.com/python/cpython/blob/v3.11.0/Modules/_functoolsmodule.c
	v.WeakrefSize = 64

	// https://github.com/python/cpython/blob/v3.11.0/Include/internal/pycore_frame.h
	v.FrameValuestack = Absent
	v.FrameStackdepth = Absent
	v.FrameGen = Absent
	v.FrameFrame = 24
	v.FrameData = 48
	v.FrameGlobals = 8
	v.FrameLocalsplus = 72
	v.FrameObject = 40
	v.FrameStacktop = 64
	v.GenFrame = Absent
	v.GenIframe = 80
	v.FrameExecuting = 0
	v.GenFrameState = 75
	v.FuncGlobals = 16
	v.FuncCode = 48
})
