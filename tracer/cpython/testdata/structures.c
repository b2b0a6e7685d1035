/* Prints where the members of CPython's structures are, a line each: the name of the field of
 * cpython.Version, and its value in bytes. It is compiled against the headers of one version. */
#define Py_BUILD_CORE 1
#include <Python.h>

#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include <structmember.h>

#include "internal/pycore_pystate.h"
#if PY_MINOR_VERSION >= 9
#include "internal/pycore_gc.h"
#include "internal/pycore_interp.h"
#else
#include "internal/pycore_pymem.h"
#endif
#if PY_MINOR_VERSION >= 10
#include "internal/pycore_moduleobject.h"
#endif
#if PY_MINOR_VERSION >= 11
#include "internal/pycore_dict.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_genobject.h"
#include "internal/pycore_object.h"
#endif
#if PY_MINOR_VERSION >= 12
#include "internal/pycore_obmalloc.h"
#endif
#if PY_MINOR_VERSION >= 14
#include "internal/pycore_interpframe_structs.h"
#include "internal/pycore_stackref.h"
#endif

static void print(const char *name, long value) { printf("%s %ld\n", name, value); }

#define MEMBER(name, type, member) print(#name, (long)offsetof(type, member))

static void print_types(void) {
	MEMBER(TypeName, PyTypeObject, tp_name);
	MEMBER(TypeBasicsize, PyTypeObject, tp_basicsize);
	MEMBER(TypeItemsize, PyTypeObject, tp_itemsize);
	MEMBER(TypeFlags, PyTypeObject, tp_flags);
	MEMBER(TypeDictoffset, PyTypeObject, tp_dictoffset);
	MEMBER(TypeWeaklistoffset, PyTypeObject, tp_weaklistoffset);
	MEMBER(TypeDict, PyTypeObject, tp_dict);
	MEMBER(TypeBase, PyTypeObject, tp_base);
	MEMBER(HTQualname, PyHeapTypeObject, ht_qualname);
	MEMBER(HTCachedKeys, PyHeapTypeObject, ht_cached_keys);
}

static void print_containers(void) {
	MEMBER(ListItem, PyListObject, ob_item);
	MEMBER(TupleItem, PyTupleObject, ob_item);
	MEMBER(DictUsed, PyDictObject, ma_used);
	MEMBER(DictKeys, PyDictObject, ma_keys);
	MEMBER(DictValues, PyDictObject, ma_values);
#if PY_MINOR_VERSION >= 11
	MEMBER(KeysHeader, PyDictKeysObject, dk_indices);
#endif
	MEMBER(SetUsed, PySetObject, used);
	MEMBER(SetMask, PySetObject, mask);
	MEMBER(SetTable, PySetObject, table);
	MEMBER(SetSmalltable, PySetObject, smalltable);
	print("SetEntrySize", sizeof(setentry));
}

static void print_functions(void) {
	MEMBER(FuncGlobals, PyFunctionObject, func_globals);
	MEMBER(FuncQualname, PyFunctionObject, func_qualname);
	MEMBER(FuncCode, PyFunctionObject, func_code);
	MEMBER(FuncDefaults, PyFunctionObject, func_defaults);
	MEMBER(FuncKwdefaults, PyFunctionObject, func_kwdefaults);
	MEMBER(FuncClosure, PyFunctionObject, func_closure);
	MEMBER(FuncDict, PyFunctionObject, func_dict);
	MEMBER(FuncModule, PyFunctionObject, func_module);

	MEMBER(CodeArgcount, PyCodeObject, co_argcount);
	MEMBER(CodeKwonlyargcount, PyCodeObject, co_kwonlyargcount);
	MEMBER(CodeStacksize, PyCodeObject, co_stacksize);
#if PY_MINOR_VERSION >= 11
	MEMBER(CodeNlocalsplus, PyCodeObject, co_nlocalsplus);
	MEMBER(CodeNfreevars, PyCodeObject, co_nfreevars);
	MEMBER(CodeLocalsplusnames, PyCodeObject, co_localsplusnames);
#else
	MEMBER(CodeVarnames, PyCodeObject, co_varnames);
	MEMBER(CodeCellvars, PyCodeObject, co_cellvars);
	MEMBER(CodeFreevars, PyCodeObject, co_freevars);
#endif
}

static void print_objects(void) {
	print("WeakrefSize", sizeof(PyWeakReference));
#if PY_MINOR_VERSION >= 10
	MEMBER(ModuleDict, PyModuleObject, md_dict);
#endif
}

static void print_frames(void) {
#if PY_MINOR_VERSION < 11
	MEMBER(FrameGlobals, PyFrameObject, f_globals);
	MEMBER(FrameValuestack, PyFrameObject, f_valuestack);
	MEMBER(FrameLocalsplus, PyFrameObject, f_localsplus);
	MEMBER(FrameGen, PyFrameObject, f_gen);
	MEMBER(GenFrame, PyGenObject, gi_frame);
#if PY_MINOR_VERSION < 10
	MEMBER(FrameFStacktop, PyFrameObject, f_stacktop);
#else
	MEMBER(FrameStackdepth, PyFrameObject, f_stackdepth);
#endif
#else
	MEMBER(FrameFrame, PyFrameObject, f_frame);
	MEMBER(FrameData, PyFrameObject, _f_frame_data);
	MEMBER(FrameGlobals, struct _PyInterpreterFrame, f_globals);
	MEMBER(FrameObject, struct _PyInterpreterFrame, frame_obj);
	MEMBER(FrameOwner, struct _PyInterpreterFrame, owner);
	MEMBER(FrameLocalsplus, struct _PyInterpreterFrame, localsplus);
	MEMBER(GenIframe, PyGenObject, gi_iframe);
	MEMBER(GenFrameState, PyGenObject, gi_frame_state);
	print("FrameExecuting", FRAME_EXECUTING);
#if PY_MINOR_VERSION < 14
	MEMBER(FrameStacktop, struct _PyInterpreterFrame, stacktop);
#else
	MEMBER(FrameStackpointer, struct _PyInterpreterFrame, stackpointer);
	print("StackRefTags", Py_TAG_BITS);
#endif
#endif
}

static void print_collector(void) {
#if PY_MINOR_VERSION >= 12
	print("PoolSize", POOL_SIZE);
#endif
	MEMBER(GCGenerations, struct _gc_runtime_state, generations);
	MEMBER(GCEnabled, struct _gc_runtime_state, enabled);
#if PY_MINOR_VERSION != 14
	MEMBER(GCGeneration0, struct _gc_runtime_state, generation0);
#endif
	MEMBER(GCGenerationStats, struct _gc_runtime_state, generation_stats);
	MEMBER(GCLongLivedTotal, struct _gc_runtime_state, long_lived_total);
	print("GCHead", sizeof(PyGC_Head));
}

/* The structures that lead to frames, where the interpreter does not publish their members. */
#if PY_MINOR_VERSION < 13
static void print_threads(void) {
	MEMBER(InterpretersHead, _PyRuntimeState, interpreters.head);
	MEMBER(InterpreterNext, PyInterpreterState, next);
	MEMBER(ThreadNext, PyThreadState, next);
	MEMBER(ThreadInterp, PyThreadState, interp);
	MEMBER(ThreadID, PyThreadState, thread_id);
#if PY_MINOR_VERSION < 11
	MEMBER(InterpreterThreadsHead, PyInterpreterState, tstate_head);
	MEMBER(ThreadFrame, PyThreadState, frame);
	MEMBER(FrameCode, PyFrameObject, f_code);
	MEMBER(FramePrevious, PyFrameObject, f_back);
	MEMBER(FrameInstruction, PyFrameObject, f_lasti);
#else
	MEMBER(InterpreterThreadsHead, PyInterpreterState, threads.head);
	MEMBER(NativeThreadID, PyThreadState, native_thread_id);
	MEMBER(ThreadFrame, PyThreadState, cframe);
	MEMBER(CFrameCurrentFrame, _PyCFrame, current_frame);
	MEMBER(FrameCode, struct _PyInterpreterFrame, f_code);
	MEMBER(FramePrevious, struct _PyInterpreterFrame, previous);
	MEMBER(FrameInstruction, struct _PyInterpreterFrame, prev_instr);
#if PY_MINOR_VERSION == 11
	MEMBER(FrameIsEntry, struct _PyInterpreterFrame, is_entry);
#endif
	MEMBER(CodeAdaptive, PyCodeObject, co_code_adaptive);
#endif
}

static void print_code(void) {
	MEMBER(Filename, PyCodeObject, co_filename);
	MEMBER(Name, PyCodeObject, co_name);
	MEMBER(Firstlineno, PyCodeObject, co_firstlineno);
#if PY_MINOR_VERSION < 10
	MEMBER(Linetable, PyCodeObject, co_lnotab);
#else
	MEMBER(Linetable, PyCodeObject, co_linetable);
#endif
#if PY_MINOR_VERSION >= 11
	MEMBER(Qualname, PyCodeObject, co_qualname);
	MEMBER(FirstTraceable, PyCodeObject, _co_firsttraceable);
#endif
	MEMBER(BytesSize, PyVarObject, ob_size);
	MEMBER(BytesData, PyBytesObject, ob_sval);
	MEMBER(UnicodeLength, PyASCIIObject, length);
	MEMBER(UnicodeState, PyASCIIObject, state);
	print("ASCIIData", sizeof(PyASCIIObject));
	print("CompactData", sizeof(PyCompactUnicodeObject));
}

static void print_published(void) {}
#else
static void print_threads(void) {}
static void print_code(void) {}

#define POSITION(name, of, member) MEMBER(name, _Py_DebugOffsets, of.member)

static void print_published(void) {
	POSITION(RuntimeStateInterpretersHead, runtime_state, interpreters_head);
	POSITION(InterpreterStateNext, interpreter_state, next);
	POSITION(InterpreterStateThreadsHead, interpreter_state, threads_head);
	POSITION(InterpreterStateGC, interpreter_state, gc);
	POSITION(InterpreterStateImportsModules, interpreter_state, imports_modules);
	POSITION(ThreadStateNext, thread_state, next);
	POSITION(ThreadStateInterp, thread_state, interp);
	POSITION(ThreadStateCurrentFrame, thread_state, current_frame);
	POSITION(ThreadStateThreadID, thread_state, thread_id);
	POSITION(ThreadStateNativeThreadID, thread_state, native_thread_id);
	POSITION(InterpreterFramePrevious, interpreter_frame, previous);
	POSITION(InterpreterFrameExecutable, interpreter_frame, executable);
	POSITION(InterpreterFrameInstrPtr, interpreter_frame, instr_ptr);
	POSITION(InterpreterFrameLocalsplus, interpreter_frame, localsplus);
	POSITION(InterpreterFrameOwner, interpreter_frame, owner);
	POSITION(CodeObjectFilename, code_object, filename);
	POSITION(CodeObjectName, code_object, name);
	POSITION(CodeObjectQualname, code_object, qualname);
	POSITION(CodeObjectLinetable, code_object, linetable);
	POSITION(CodeObjectFirstlineno, code_object, firstlineno);
	POSITION(CodeObjectArgcount, code_object, argcount);
	POSITION(CodeObjectLocalsplusnames, code_object, localsplusnames);
	POSITION(CodeObjectCoCodeAdaptive, code_object, co_code_adaptive);
	POSITION(PyobjectObType, pyobject, ob_type);
	POSITION(TypeObjectTpName, type_object, tp_name);
	POSITION(TypeObjectTpFlags, type_object, tp_flags);
	POSITION(TupleObjectObItem, tuple_object, ob_item);
	POSITION(ListObjectObItem, list_object, ob_item);
	POSITION(DictObjectMaKeys, dict_object, ma_keys);
	POSITION(DictObjectMaValues, dict_object, ma_values);
	POSITION(BytesObjectObSize, bytes_object, ob_size);
	POSITION(BytesObjectObSval, bytes_object, ob_sval);
	POSITION(UnicodeObjectState, unicode_object, state);
	POSITION(UnicodeObjectLength, unicode_object, length);
	POSITION(UnicodeObjectAsciiobjectSize, unicode_object, asciiobject_size);
	POSITION(GCCollecting, gc, collecting);
#if PY_MINOR_VERSION >= 14
	POSITION(InterpreterFrameStackpointer, interpreter_frame, stackpointer);
	POSITION(InterpreterFrameTlbcIndex, interpreter_frame, tlbc_index);
	POSITION(CodeObjectCoTlbc, code_object, co_tlbc);
	POSITION(SetObjectUsed, set_object, used);
	POSITION(SetObjectTable, set_object, table);
	POSITION(SetObjectMask, set_object, mask);
	POSITION(GenObjectGiIframe, gen_object, gi_iframe);
	POSITION(GenObjectGiFrameState, gen_object, gi_frame_state);
#endif
#if PY_MINOR_VERSION >= 15
	POSITION(TypeObjectTpBasicsize, type_object, tp_basicsize);
	POSITION(TypeObjectTpDictoffset, type_object, tp_dictoffset);
	POSITION(HeapTypeObjectHtCachedKeys, heap_type_object, ht_cached_keys);
	POSITION(UnicodeObjectCompactunicodeobjectSize, unicode_object, compactunicodeobject_size);
#endif
}

/* Members that _Py_DebugOffsets leaves out lie beside members that it has. */
_Static_assert(sizeof(PyCompactUnicodeObject) == sizeof(PyASCIIObject) + 16, "CompactData");
_Static_assert(offsetof(PyCodeObject, _co_firsttraceable) + 16 ==
				   offsetof(PyCodeObject, co_code_adaptive),
			   "FirstTraceable");
#endif

_Static_assert(offsetof(PyObject, ob_refcnt) == 0, "ObRefcnt");
_Static_assert(offsetof(PyObject, ob_type) == 8, "ObType");
_Static_assert(offsetof(PyVarObject, ob_size) == 16, "ObSize");
_Static_assert(sizeof(PyObject) == 16, "ObjectHead");
_Static_assert(offsetof(PyTypeObject, tp_members) == 240, "TypeMembers");
_Static_assert(offsetof(PyWeakReference, wr_callback) == 24, "WeakrefCallback");
_Static_assert(sizeof(PyMemberDef) == 40, "MemberDefSize");
_Static_assert(PySet_MINSIZE == 8, "SetMinsize");
_Static_assert(offsetof(struct _gc_runtime_state, long_lived_pending) ==
		       offsetof(struct _gc_runtime_state, long_lived_total) + 8,
	       "GCLongLivedTotal");
_Static_assert(offsetof(struct _gc_runtime_state, permanent_generation) +
			       sizeof(struct gc_generation) ==
		       offsetof(struct _gc_runtime_state, generation_stats),
	       "PermanentGeneration");
_Static_assert(sizeof(struct gc_generation) == 24, "GCGenerationSize");
_Static_assert(offsetof(struct gc_generation, threshold) == 16, "GCGenerationThreshold");
_Static_assert(offsetof(struct gc_generation, count) == 20, "GCGenerationCount");
#if PY_MINOR_VERSION < 15
_Static_assert(sizeof(struct gc_generation_stats) == 24, "plainStatSize");
_Static_assert(offsetof(struct gc_generation_stats, collections) == 0, "plainCollections");
_Static_assert(offsetof(struct gc_generation_stats, collected) == 8, "plainCollected");
#else
_Static_assert(sizeof(struct gc_generation_stats) == 64, "ringStatSize");
_Static_assert(offsetof(struct gc_generation_stats, collections) == 16, "ringCollections");
_Static_assert(offsetof(struct gc_generation_stats, collected) == 24, "ringCollected");
_Static_assert(GC_YOUNG_STATS_SIZE == 11 && GC_OLD_STATS_SIZE == 3, "youngRing, oldRing");
_Static_assert(offsetof(struct gc_young_stats_buffer, index) == 11 * 64 &&
		       sizeof(struct gc_young_stats_buffer) == 11 * 64 + 8 &&
		       sizeof(struct gc_old_stats_buffer) == 3 * 64 + 8 &&
		       offsetof(struct gc_stats, old) == 11 * 64 + 8,
	       "ringIndexSize");
#endif
_Static_assert(offsetof(PyGC_Head, _gc_prev) == 8, "GCPrev");
#if PY_MINOR_VERSION >= 11
_Static_assert(FRAME_OWNED_BY_THREAD == 0, "FrameOwnedByThread");
_Static_assert(FRAME_OWNED_BY_GENERATOR == 1, "FrameOwnedByGenerator");
_Static_assert(FRAME_OWNED_BY_FRAME_OBJECT == 2, "FrameOwnedByFrameObject");
#endif

int main(void) {
	print("Minor", PY_MINOR_VERSION);
	print_types();
	print_containers();
	print_functions();
	print_objects();
	print_frames();
	print_collector();
	print_threads();
	print_code();
	print_published();
	return 0;
}
