package cpython

var v314 = v313.with(func(v *Version) {
	v.Minor = 14

	v.FrameOwner = 74
	v.FrameTlbcIndex = Published

	v.CodeTlbc = Published

	v.HasWideInterned = true

	// https://github.com/python/cpython/blob/v3.14.0/Include/cpython/object.h
	v.TupleItem = 32

	// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h
	v.FrameData = 72
	v.FrameLocalsplus = 80
	v.FrameStacktop = Absent
	v.FrameStackpointer = 64
	v.StackRefTags = 3

	// https://github.com/python/cpython/blob/v3.14.5/Include/internal/pycore_interp_structs.h
	v.GCGenerationStats = 120
	v.GCGeneration0 = Absent
	v.GCLongLivedTotal = 240
	v.FirstFullGC = 0x030e05a0

	// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h
	v.DebugOffsets = &DebugOffsets{
		RuntimeStateInterpretersHead:   40,
		InterpreterStateNext:           64,
		InterpreterStateThreadsHead:    72,
		InterpreterStateGC:             88,
		InterpreterStateImportsModules: 96,

		ThreadStateNext:           192,
		ThreadStateInterp:         200,
		ThreadStateCurrentFrame:   208,
		ThreadStateThreadID:       216,
		ThreadStateNativeThreadID: 224,

		InterpreterFramePrevious:     256,
		InterpreterFrameExecutable:   264,
		InterpreterFrameInstrPtr:     272,
		InterpreterFrameLocalsplus:   280,
		InterpreterFrameOwner:        288,
		InterpreterFrameStackpointer: 296,
		InterpreterFrameTlbcIndex:    304,

		CodeObjectFilename:        320,
		CodeObjectName:            328,
		CodeObjectQualname:        336,
		CodeObjectLinetable:       344,
		CodeObjectFirstlineno:     352,
		CodeObjectArgcount:        360,
		CodeObjectLocalsplusnames: 368,
		CodeObjectCoCodeAdaptive:  384,
		CodeObjectCoTlbc:          392,

		PyobjectObType:                        408,
		TypeObjectTpName:                      424,
		TypeObjectTpFlags:                     440,
		TypeObjectTpBasicsize:                 Absent,
		TypeObjectTpDictoffset:                Absent,
		HeapTypeObjectHtCachedKeys:            Absent,
		TupleObjectObItem:                     456,
		ListObjectObItem:                      480,
		SetObjectUsed:                         504,
		SetObjectTable:                        512,
		SetObjectMask:                         520,
		DictObjectMaKeys:                      536,
		DictObjectMaValues:                    544,
		BytesObjectObSize:                     600,
		BytesObjectObSval:                     608,
		UnicodeObjectState:                    624,
		UnicodeObjectLength:                   632,
		UnicodeObjectAsciiobjectSize:          640,
		UnicodeObjectCompactunicodeobjectSize: Absent,
		GCCollecting:                          656,
		GenObjectGiIframe:                     680,
		GenObjectGiFrameState:                 688,
	}
	v.FuncGlobals = 16
	v.FuncCode = 48
})
