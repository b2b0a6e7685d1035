package cpython

var v312 = Version{
	Minor:       12,
	FirstExport: "",

	Frames: Frames{
		InterpretersHead:       40,
		InterpreterNext:        0,
		InterpreterThreadsHead: 72,

		ThreadNext:         8,
		ThreadInterp:       16,
		ThreadID:           136,
		NativeThreadID:     144,
		ThreadFrame:        56,
		CFrameCurrentFrame: 0,

		FrameCode:        0,
		FramePrevious:    8,
		FrameInstruction: 56,
		LastiUnit:        Absent,
		FrameIsEntry:     Absent,
		FrameOwner:       70,
		FrameTlbcIndex:   Absent,

		CodeAdaptive: 192,
		CodeTlbc:     Absent,
	},

	CodeLayout: CodeLayout{
		Filename:       112,
		Name:           120,
		Qualname:       128,
		Firstlineno:    68,
		Linetable:      136,
		LineForm:       LocationTable,
		FirstTraceable: 176,

		BytesSize: 16,
		BytesData: 32,

		UnicodeLength:   16,
		UnicodeState:    32,
		ASCIIData:       40,
		CompactData:     56,
		HasWideInterned: false,
	},

	Structures: Structures{
		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_obmalloc.h
		PoolSize: 16384,

		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_gc.h
		GCHead:            16,
		PreHeader:         16,
		HasManagedWeakref: true,
		ManagedDict:       -24,
		ManagedValues:     Absent,
		TagsManagedDict:   true,
		InlineValues:      false,
		ImmortalRefcnt:    1 << 30,
		HasLongTag:        true,

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/object.h
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

		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_dict.h
		DictUsed:       16,
		DictKeys:       32,
		DictValues:     40,
		KeysHeader:     32,
		HasKeysKind:    true,
		ValuesForm:     ValuesPrefixed,
		ValuesHeader:   8,
		ValuesHeaderAt: -8,

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/setobject.h
		SetUsed:       24,
		SetMask:       32,
		SetTable:      40,
		SetSmalltable: 64,
		SetEntrySize:  16,

		// https://github.com/python/cpython/blob/v3.12.0/Modules/_collectionsmodule.c
		DequeLeftblock:  24,
		DequeRightblock: 32,
		DequeLeftindex:  40,
		DequeRightindex: 48, DequeMaxlen: 64,
		BlockLeftlink:  0,
		BlockData:      8,
		BlockRightlink: 520,

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/funcobject.h
		FuncGlobals:    16,
		FuncQualname:   40,
		FuncCode:       48,
		FuncDefaults:   56,
		FuncKwdefaults: 64,
		FuncClosure:    72,
		FuncDict:       88,
		FuncModule:     104,

		// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/code.h
		CodeArgcount:        52,
		CodeKwonlyargcount:  60,
		CodeStacksize:       64,
		CodeVarnames:        Absent,
		CodeCellvars:        Absent,
		CodeFreevars:        Absent,
		CodeNlocalsplus:     72,
		CodeNfreevars:       88,
		CodeLocalsplusnames: 96,

		// https://github.com/python/cpython/blob/v3.12.0/Modules/_functoolsmodule.c
		LRUFunc: 88, LRUCache: 72, LRUMaxsize: 96,

		WeakrefSize: 64,
		ModuleDict:  16,

		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_frame.h
		FrameValuestack:   Absent,
		FrameFStacktop:    Absent,
		FrameStackdepth:   Absent,
		FrameGen:          Absent,
		FrameFrame:        24,
		FrameData:         48,
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

		// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_gc.h
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
