package cpython

var v38 = Version{
	Minor:       8,
	FirstExport: "PyCode_NewWithPosOnlyArgs",

	Frames: Frames{
		InterpretersHead:       32,
		InterpreterNext:        0,
		InterpreterThreadsHead: 8,

		ThreadNext:         8,
		ThreadInterp:       16,
		ThreadID:           176,
		NativeThreadID:     Absent,
		ThreadFrame:        24,
		CFrameCurrentFrame: Absent,

		FrameCode:        32,
		FramePrevious:    24,
		FrameInstruction: 104,
		LastiUnit:        1,
		FrameIsEntry:     Absent,
		FrameOwner:       Absent,
		FrameTlbcIndex:   Absent,

		CodeAdaptive: Absent,
		CodeTlbc:     Absent,
	},

	CodeLayout: CodeLayout{
		Filename:       104,
		Name:           112,
		Qualname:       Absent,
		Firstlineno:    40,
		Linetable:      120,
		LineForm:       Lnotab,
		FirstTraceable: Absent,

		BytesSize: 16,
		BytesData: 32,

		UnicodeLength:   16,
		UnicodeState:    32,
		ASCIIData:       48,
		CompactData:     72,
		HasWideInterned: false,
	},

	Structures: Structures{
		// https://github.com/python/cpython/blob/v3.8.0/Objects/obmalloc.c
		PoolSize: 4096,

		// https://github.com/python/cpython/blob/v3.8.0/Include/cpython/objimpl.h
		GCHead:            16,
		PreHeader:         0,
		HasManagedWeakref: false,
		ManagedDict:       Absent,
		ManagedValues:     Absent,
		TagsManagedDict:   false,
		InlineValues:      false,
		ImmortalRefcnt:    Absent,
		HasLongTag:        false,

		// https://github.com/python/cpython/blob/v3.8.0/Include/cpython/object.h
		TypeName:           24,
		TypeBasicsize:      32,
		TypeItemsize:       40,
		TypeFlags:          168,
		TypeDictoffset:     288,
		TypeWeaklistoffset: 208,
		TypeDict:           264,
		TypeBase:           256,
		HTQualname:         864,
		HTCachedKeys:       872,

		ListItem:  24,
		TupleItem: 24,

		// https://github.com/python/cpython/blob/v3.8.0/Objects/dict-common.h
		DictUsed:       16,
		DictKeys:       32,
		DictValues:     40,
		KeysHeader:     40,
		HasKeysKind:    false,
		ValuesForm:     ValuesPlain,
		ValuesHeader:   0,
		ValuesHeaderAt: 0,

		// https://github.com/python/cpython/blob/v3.8.0/Include/setobject.h
		SetUsed:       24,
		SetMask:       32,
		SetTable:      40,
		SetSmalltable: 64,
		SetEntrySize:  16,

		// https://github.com/python/cpython/blob/v3.8.0/Modules/_collectionsmodule.c
		DequeLeftblock:  24,
		DequeRightblock: 32,
		DequeLeftindex:  40,
		DequeRightindex: 48, DequeMaxlen: 64,
		BlockLeftlink:  0,
		BlockData:      8,
		BlockRightlink: 520,

		// https://github.com/python/cpython/blob/v3.8.0/Include/funcobject.h
		FuncGlobals:    24,
		FuncQualname:   104,
		FuncCode:       16,
		FuncDefaults:   32,
		FuncKwdefaults: 40,
		FuncClosure:    48,
		FuncDict:       72,
		FuncModule:     88,

		// https://github.com/python/cpython/blob/v3.8.0/Include/code.h
		CodeArgcount:        16,
		CodeKwonlyargcount:  24,
		CodeStacksize:       32,
		CodeVarnames:        72,
		CodeCellvars:        88,
		CodeFreevars:        80,
		CodeNlocalsplus:     Absent,
		CodeNfreevars:       Absent,
		CodeLocalsplusnames: Absent,

		// https://github.com/python/cpython/blob/v3.8.0/Modules/_functoolsmodule.c
		LRUFunc: 88, LRUCache: 72, LRUMaxsize: 96,

		WeakrefSize: 56,
		ModuleDict:  16,

		// https://github.com/python/cpython/blob/v3.8.0/Include/frameobject.h
		FrameValuestack:   64,
		FrameFStacktop:    72,
		FrameStackdepth:   Absent,
		FrameGen:          96,
		FrameFrame:        Absent,
		FrameData:         Absent,
		FrameGlobals:      48,
		FrameLocalsplus:   360,
		FrameObject:       Absent,
		FrameStacktop:     Absent,
		FrameStackpointer: Absent,
		StackRefTags:      0,
		GenFrame:          16,
		GenIframe:         Absent,
		FrameExecuting:    Absent,
		GenFrameState:     Absent,

		// https://github.com/python/cpython/blob/v3.8.0/Include/internal/pycore_pymem.h
		GCEnabled:         12,
		GCGenerations:     24,
		GCGenerationStats: 128,
		GCStatsForm:       StatsPlain,
		GCGeneration0:     96,
		GCLongLivedTotal:  224,
		FirstFullGC:       0,
	},

	DebugOffsets: nil,
}
