package cpython

// From 3.13 on _PyRuntime begins with a struct _Py_DebugOffsets: a cookie, PY_VERSION_HEX, whether
// the build is free-threaded, and offsets of 64 bits each, whose order depends on the version.
// https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h
const (
	DebugCookie       = "xdebugpy" // _Py_Debug_Cookie
	DebugVersion      = 8
	DebugFreeThreaded = 16
	DebugHeaderSize   = 24  // bytes
	DebugOffsetsSize  = 824 // bytes of the longest version that are used
)

// DebugOffsets are the positions of the offsets in the struct _Py_DebugOffsets of a version, in
// bytes. A field is named by the member of _Py_DebugOffsets and the member of that.
type DebugOffsets struct {
	RuntimeStateInterpretersHead   uint64
	InterpreterStateNext           uint64
	InterpreterStateThreadsHead    uint64
	InterpreterStateGC             uint64
	InterpreterStateImportsModules uint64

	ThreadStateNext           uint64
	ThreadStateInterp         uint64
	ThreadStateCurrentFrame   uint64
	ThreadStateThreadID       uint64
	ThreadStateNativeThreadID uint64

	InterpreterFramePrevious     uint64
	InterpreterFrameExecutable   uint64
	InterpreterFrameInstrPtr     uint64
	InterpreterFrameLocalsplus   uint64
	InterpreterFrameOwner        uint64
	InterpreterFrameStackpointer uint64
	InterpreterFrameTlbcIndex    uint64

	CodeObjectFilename        uint64
	CodeObjectName            uint64
	CodeObjectQualname        uint64
	CodeObjectLinetable       uint64
	CodeObjectFirstlineno     uint64
	CodeObjectArgcount        uint64
	CodeObjectLocalsplusnames uint64
	CodeObjectCoCodeAdaptive  uint64
	CodeObjectCoTlbc          uint64

	PyobjectObType                        uint64
	TypeObjectTpName                      uint64
	TypeObjectTpFlags                     uint64
	TypeObjectTpBasicsize                 uint64
	TypeObjectTpDictoffset                uint64
	HeapTypeObjectHtCachedKeys            uint64
	TupleObjectObItem                     uint64
	ListObjectObItem                      uint64
	SetObjectUsed                         uint64
	SetObjectTable                        uint64
	SetObjectMask                         uint64
	DictObjectMaKeys                      uint64
	DictObjectMaValues                    uint64
	BytesObjectObSize                     uint64
	BytesObjectObSval                     uint64
	UnicodeObjectState                    uint64
	UnicodeObjectLength                   uint64
	UnicodeObjectAsciiobjectSize          uint64
	UnicodeObjectCompactunicodeobjectSize uint64
	GCCollecting                          uint64
	GenObjectGiIframe                     uint64
	GenObjectGiFrameState                 uint64
}

// A Fixed is an offset that _Py_DebugOffsets has, at a position in it, and that every release of
// the version has to have.
type Fixed struct {
	Member         string
	Position, Want uint64
}

// Fixed returns the offsets of a version that both its file and _Py_DebugOffsets have. A release
// whose structures differ from its version's publishes others.
func (v *Version) Fixed() (fixed []Fixed) {
	at := v.DebugOffsets
	if at == nil {
		return nil
	}

	for _, f := range []Fixed{
		{"interpreter_frame.localsplus", at.InterpreterFrameLocalsplus, v.FrameLocalsplus},
		{"interpreter_frame.owner", at.InterpreterFrameOwner, v.FrameOwner},
		{"interpreter_frame.stackpointer", at.InterpreterFrameStackpointer, v.FrameStackpointer},
		{"code_object.argcount", at.CodeObjectArgcount, v.CodeArgcount},
		{"code_object.localsplusnames", at.CodeObjectLocalsplusnames, v.CodeLocalsplusnames},
		{"type_object.tp_name", at.TypeObjectTpName, v.TypeName},
		{"type_object.tp_flags", at.TypeObjectTpFlags, v.TypeFlags},
		{"type_object.tp_basicsize", at.TypeObjectTpBasicsize, v.TypeBasicsize},
		{"type_object.tp_dictoffset", at.TypeObjectTpDictoffset, v.TypeDictoffset},
		{"heap_type_object.ht_cached_keys", at.HeapTypeObjectHtCachedKeys, v.HTCachedKeys},
		{"tuple_object.ob_item", at.TupleObjectObItem, v.TupleItem},
		{"list_object.ob_item", at.ListObjectObItem, v.ListItem},
		{"set_object.used", at.SetObjectUsed, v.SetUsed},
		{"set_object.table", at.SetObjectTable, v.SetTable},
		{"set_object.mask", at.SetObjectMask, v.SetMask},
		{"dict_object.ma_keys", at.DictObjectMaKeys, v.DictKeys},
		{"dict_object.ma_values", at.DictObjectMaValues, v.DictValues},
		{"gc.collecting", at.GCCollecting, v.GCGenerationStats + v.GCStatsForm.sizeInState()},
		{"gen_object.gi_iframe", at.GenObjectGiIframe, v.GenIframe},
		{"gen_object.gi_frame_state", at.GenObjectGiFrameState, v.GenFrameState},
	} {
		if f.Position != Absent {
			fixed = append(fixed, f)
		}
	}
	return fixed
}
