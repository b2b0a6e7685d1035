package cpython

var v314 = Version{
	Minor:       14,
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
		FrameOwner:       74,
		FrameTlbcIndex:   Published,

		CodeAdaptive: Published,
		CodeTlbc:     Published,
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
		HasWideInterned: true,
	},

	Structures: Structures{
		// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_obmalloc.h
		PoolSize: 16384,

		// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_gc.h
		GCHead:            16,
		PreHeader:         16,
		HasManagedWeakref: true,
		ManagedDict:       -24,
		ManagedValues:     Absent,
		TagsManagedDict:   false,
		InlineValues:      true,
		ImmortalRefcnt:    1 << 30,
		HasLongTag:        true,

		// https://github.com/python/cpython/blob/v3.14.0/Include/cpython/object.h
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
		TupleItem: 32,

		// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_dict.h
		DictUsed:       16,
		DictKeys:       32,
		DictValues:     40,
		KeysHeader:     32,
		HasKeysKind:    true,
		ValuesForm:     ValuesSized,
		ValuesHeader:   8,
		ValuesHeaderAt: 0,

		// https://github.com/python/cpython/blob/v3.14.0/Include/cpython/setobject.h
		SetUsed:       24,
		SetMask:       32,
		SetTable:      40,
		SetSmalltable: 64,
		SetEntrySize:  16,

		// https://github.com/python/cpython/blob/v3.14.0/Modules/_collectionsmodule.c
		DequeLeftblock:  24,
		DequeRightblock: 32,
		DequeLeftindex:  40,
		DequeRightindex: 48, DequeMaxlen: 64,
		BlockLeftlink:  0,
		BlockData:      8,
		BlockRightlink: 520,

		// https://github.com/python/cpython/blob/v3.14.0/Include/cpython/funcobject.h
		FuncGlobals:    16,
		FuncQualname:   40,
		FuncCode:       48,
		FuncDefaults:   56,
		FuncKwdefaults: 64,
		FuncClosure:    72,
		FuncDict:       88,
		FuncModule:     104,

		// https://github.com/python/cpython/blob/v3.14.0/Include/cpython/code.h
		CodeArgcount:        52,
		CodeKwonlyargcount:  60,
		CodeStacksize:       64,
		CodeVarnames:        Absent,
		CodeCellvars:        Absent,
		CodeFreevars:        Absent,
		CodeNlocalsplus:     72,
		CodeNfreevars:       88,
		CodeLocalsplusnames: 96,

		// https://github.com/python/cpython/blob/v3.14.0/Modules/_functoolsmodule.c
		LRUFunc: 88, LRUCache: 72, LRUMaxsize: 96,

		WeakrefSize: 64,
		ModuleDict:  16,

		// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h
		FrameValuestack:   Absent,
		FrameFStacktop:    Absent,
		FrameStackdepth:   Absent,
		FrameGen:          Absent,
		FrameFrame:        24,
		FrameData:         72,
		FrameGlobals:      24,
		FrameLocalsplus:   80,
		FrameObject:       48,
		FrameStacktop:     Absent,
		FrameStackpointer: 64,
		StackRefTags:      3,
		GenFrame:          Absent,
		GenIframe:         72,
		FrameExecuting:    0,
		GenFrameState:     67,

		// https://github.com/python/cpython/blob/v3.14.5/Include/internal/pycore_interp_structs.h
		GCEnabled:         12,
		GCGenerations:     24,
		GCGenerationStats: 120,
		GCStatsForm:       StatsPlain,
		GCGeneration0:     Absent,
		GCLongLivedTotal:  240,
		FirstFullGC:       0x030e05a0,
	},

	// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h
	DebugOffsets: &DebugOffsets{
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
	},
}
