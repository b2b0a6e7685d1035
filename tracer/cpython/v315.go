package cpython

var v315 = v314.with(func(v *Version) {
	v.Minor = 15

	// https://github.com/python/cpython/blob/v3.15.0/Include/cpython/object.h
	v.HTQualname = 880
	v.HTCachedKeys = 888

	// https://github.com/python/cpython/blob/v3.15.0/Include/internal/pycore_interpframe_structs.h
	v.FrameExecuting = 4

	// https://github.com/python/cpython/blob/v3.15.0/Include/internal/pycore_interp_structs.h
	v.GCEnabled = 0
	v.GCGenerations = 8
	v.GCGenerationStats = 104
	v.GCStatsForm = StatsRings
	v.GCGeneration0 = 168
	v.GCLongLivedTotal = 152
	v.FirstFullGC = 0

	// https://github.com/python/cpython/blob/v3.15.0/Include/internal/pycore_debug_offsets.h
	v.DebugOffsets = &DebugOffsets{
		RuntimeStateInterpretersHead:   40,
		InterpreterStateNext:           64,
		InterpreterStateThreadsHead:    72,
		InterpreterStateGC:             88,
		InterpreterStateImportsModules: 96,

		ThreadStateNext:           192,
		ThreadStateInterp:         200,
		ThreadStateCurrentFrame:   208,
		ThreadStateThreadID:       240,
		ThreadStateNativeThreadID: 248,

		InterpreterFramePrevious:     320,
		InterpreterFrameExecutable:   328,
		InterpreterFrameInstrPtr:     336,
		InterpreterFrameLocalsplus:   344,
		InterpreterFrameOwner:        352,
		InterpreterFrameStackpointer: 360,
		InterpreterFrameTlbcIndex:    368,

		CodeObjectFilename:        384,
		CodeObjectName:            392,
		CodeObjectQualname:        400,
		CodeObjectLinetable:       408,
		CodeObjectFirstlineno:     416,
		CodeObjectArgcount:        424,
		CodeObjectLocalsplusnames: 432,
		CodeObjectCoCodeAdaptive:  448,
		CodeObjectCoTlbc:          456,

		PyobjectObType:                        472,
		TypeObjectTpName:                      488,
		TypeObjectTpFlags:                     504,
		TypeObjectTpBasicsize:                 512,
		TypeObjectTpDictoffset:                520,
		HeapTypeObjectHtCachedKeys:            536,
		TupleObjectObItem:                     552,
		ListObjectObItem:                      576,
		SetObjectUsed:                         600,
		SetObjectTable:                        608,
		SetObjectMask:                         616,
		DictObjectMaKeys:                      632,
		DictObjectMaValues:                    640,
		BytesObjectObSize:                     696,
		BytesObjectObSval:                     704,
		UnicodeObjectState:                    720,
		UnicodeObjectLength:                   728,
		UnicodeObjectAsciiobjectSize:          736,
		UnicodeObjectCompactunicodeobjectSize: 744,
		GCCollecting:                          760,
		GenObjectGiIframe:                     808,
		GenObjectGiFrameState:                 816,
	}
	v.FuncGlobals = 16
	v.FuncCode = 48
})
