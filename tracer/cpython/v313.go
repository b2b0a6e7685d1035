package cpython

var v313 = Version{
	Minor:       13,
	FirstExport: "",

	Frames: Frames{
		InterpretersHead:       Published,
		InterpreterNext:        Published,
		InterpreterThreadsHead: Published,

		ThreadNext:         Published,
		ThreadInterp:       Published,
		ThreadID:           Published,
		NativeThreadID:     Published,
		ThreadFrame:        Published,
		CFrameCurrentFrame: Absent,

		FrameCode:        Published,
		FramePrevious:    Published,
		FrameInstruction: Published,
		LastiUnit:        Absent,
		FrameIsEntry:     Absent,
		FrameOwner:       70,
		FrameTlbcIndex:   Absent,

		CodeAdaptive: Published,
		CodeTlbc:     Absent,
	},

	CodeLayout: CodeLayout{
		Filename:       Published,
		Name:           Published,
		Qualname:       Published,
		Firstlineno:    Published,
		Linetable:      Published,
		LineForm:       LocationTable,
		FirstTraceable: Published,

		BytesSize: Published,
		BytesData: Published,

		UnicodeLength:   Published,
		UnicodeState:    Published,
		ASCIIData:       Published,
		CompactData:     Published,
		HasWideInterned: false,
	},

	Structures: Structures{
		// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_obmalloc.h
		PoolSize: 16384,

		// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_gc.h
		GCHead:            16,
		PreHeader:         16,
		HasManagedWeakref: true,
		ManagedDict:       -24,
		ManagedValues:     Absent,
		TagsManagedDict:   false,
		InlineValues:      true,
		ImmortalRefcnt:    1 << 30,
		HasLongTag:        true,

		// https://github.com/python/cpython/blob/v3.13.0/Include/cpython/object.h
		TypeName:           24,
		TypeBasicsize:      32,
		TypeItemsize:       40,
		TypeFlags:          168,
		TypeDictoffset:     288,
		TypeWeaklistoffset: 208,
		TypeDict:           264,
		TypeBase:           256,
		HTQualname:         872,
		HTCachedKeys:       880,

		ListItem:  24,
		TupleItem: 24,

		// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_dict.h
		DictUsed:       16,
		DictKeys:       32,
		DictValues:     40,
		KeysHeader:     32,
		HasKeysKind:    true,
		ValuesForm:     ValuesSized,
		ValuesHeader:   8,
		ValuesHeaderAt: 0,

		// https://github.com/python/cpython/blob/v3.13.0/Include/cpython/setobject.h
		SetUsed:       24,
		SetMask:       32,
		SetTable:      40,
		SetSmalltable: 64,
		SetEntrySize:  16,

		// https://github.com/python/cpython/blob/v3.13.0/Modules/_collectionsmodule.c
		DequeLeftblock:  24,
		DequeRightblock: 32,
		DequeLeftindex:  40,
		DequeRightindex: 48, DequeMaxlen: 64,
		BlockLeftlink:  0,
		BlockData:      8,
		BlockRightlink: 520,

		// https://github.com/python/cpython/blob/v3.13.0/Include/cpython/funcobject.h
		FuncGlobals:    16,
		FuncQualname:   40,
		FuncCode:       48,
		FuncDefaults:   56,
		FuncKwdefaults: 64,
		FuncClosure:    72,
		FuncDict:       88,
		FuncModule:     104,

		// https://github.com/python/cpython/blob/v3.13.0/Include/cpython/code.h
		CodeArgcount:        52,
		CodeKwonlyargcount:  60,
		CodeStacksize:       64,
		CodeVarnames:        Absent,
		CodeCellvars:        Absent,
		CodeFreevars:        Absent,
		CodeNlocalsplus:     72,
		CodeNfreevars:       88,
		CodeLocalsplusnames: 96,

		// https://github.com/python/cpython/blob/v3.13.0/Modules/_functoolsmodule.c
		LRUFunc: 88, LRUCache: 72, LRUMaxsize: 96,

		WeakrefSize: 64,
		ModuleDict:  16,

		// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_frame.h
		FrameValuestack:   Absent,
		FrameFStacktop:    Absent,
		FrameStackdepth:   Absent,
		FrameGen:          Absent,
		FrameFrame:        24,
		FrameData:         64,
		FrameGlobals:      24,
		FrameLocalsplus:   72,
		FrameObject:       48,
		FrameStacktop:     64,
		FrameStackpointer: Absent,
		StackRefTags:      0,
		GenFrame:          Absent,
		GenIframe:         72,
		FrameExecuting:    0,
		GenFrameState:     67,

		// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_gc.h
		GCEnabled:         12,
		GCGenerations:     24,
		GCGenerationStats: 128,
		GCStatsForm:       StatsPlain,
		GCGeneration0:     96,
		GCLongLivedTotal:  224,
		FirstFullGC:       0,
	},

	// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h
	DebugOffsets: &DebugOffsets{
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
	},
}
