package cpython

var v313 = v312.with(func(v *Version) {
	v.Minor = 13

	v.InterpretersHead = Published
	v.InterpreterNext = Published
	v.InterpreterThreadsHead = Published

	v.ThreadNext = Published
	v.ThreadInterp = Published
	v.ThreadID = Published
	v.NativeThreadID = Published
	v.ThreadFrame = Published
	v.CFrameCurrentFrame = Absent

	v.FrameCode = Published
	v.FramePrevious = Published
	v.FrameInstruction = Published

	v.CodeAdaptive = Published

	v.Filename = Published
	v.Name = Published
	v.Qualname = Published
	v.Firstlineno = Published
	v.Linetable = Published
	v.FirstTraceable = Published

	v.BytesSize = Published
	v.BytesData = Published

	v.UnicodeLength = Published
	v.UnicodeState = Published
	v.ASCIIData = Published
	v.CompactData = Published

	// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_gc.h
	v.TagsManagedDict = false
	v.InlineValues = true

	// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_dict.h
	v.ValuesForm = ValuesSized
	v.ValuesHeaderAt = 0

	// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_frame.h
	v.FrameData = 64

	// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h
	v.DebugOffsets = &DebugOffsets{
		RuntimeStateInterpretersHead:   40,
		InterpreterStateNext:           64,
		InterpreterStateThreadsHead:    72,
		InterpreterStateGC:             80,
		InterpreterStateImportsModules: 88,

		ThreadStateNext:           168,
		ThreadStateInterp:         176,
		ThreadStateCurrentFrame:   184,
		ThreadStateThreadID:       192,
		ThreadStateNativeThreadID: 200,

		InterpreterFramePrevious:     232,
		InterpreterFrameExecutable:   240,
		InterpreterFrameInstrPtr:     248,
		InterpreterFrameLocalsplus:   256,
		InterpreterFrameOwner:        264,
		InterpreterFrameStackpointer: Absent,
		InterpreterFrameTlbcIndex:    Absent,

		CodeObjectFilename:        280,
		CodeObjectName:            288,
		CodeObjectQualname:        296,
		CodeObjectLinetable:       304,
		CodeObjectFirstlineno:     312,
		CodeObjectArgcount:        320,
		CodeObjectLocalsplusnames: 328,
		CodeObjectCoCodeAdaptive:  344,
		CodeObjectCoTlbc:          Absent,

		PyobjectObType:                        360,
		TypeObjectTpName:                      376,
		TypeObjectTpFlags:                     392,
		TypeObjectTpBasicsize:                 Absent,
		TypeObjectTpDictoffset:                Absent,
		HeapTypeObjectHtCachedKeys:            Absent,
		TupleObjectObItem:                     408,
		ListObjectObItem:                      432,
		SetObjectUsed:                         Absent,
		SetObjectTable:                        Absent,
		SetObjectMask:                         Absent,
		DictObjectMaKeys:                      456,
		DictObjectMaValues:                    464,
		BytesObjectObSize:                     520,
		BytesObjectObSval:                     528,
		UnicodeObjectState:                    544,
		UnicodeObjectLength:                   552,
		UnicodeObjectAsciiobjectSize:          560,
		UnicodeObjectCompactunicodeobjectSize: Absent,
		GCCollecting:                          576,
		GenObjectGiIframe:                     Absent,
		GenObjectGiFrameState:                 Absent,
	}
})
