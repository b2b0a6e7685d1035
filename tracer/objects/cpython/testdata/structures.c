/* Prints where the members of CPython's structures are, a line each: the name of the field of
 * cpython.Structures, and its value in bytes. It is compiled against the headers of one version. */
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
	MEMBER(TypeMro, PyTypeObject, tp_mro);
	MEMBER(HTName, PyHeapTypeObject, ht_name);
	MEMBER(HTQualname, PyHeapTypeObject, ht_qualname);
	MEMBER(HTCachedKeys, PyHeapTypeObject, ht_cached_keys);
#if PY_MINOR_VERSION >= 9
	MEMBER(HTModule, PyHeapTypeObject, ht_module);
#endif
	print("HeapTypeSize", sizeof(PyHeapTypeObject));
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
	MEMBER(CellRef, PyCellObject, ob_ref);
}

static void print_functions(void) {
	MEMBER(FuncGlobals, PyFunctionObject, func_globals);
	MEMBER(FuncName, PyFunctionObject, func_name);
	MEMBER(FuncQualname, PyFunctionObject, func_qualname);
	MEMBER(FuncCode, PyFunctionObject, func_code);
	MEMBER(FuncDefaults, PyFunctionObject, func_defaults);
	MEMBER(FuncKwdefaults, PyFunctionObject, func_kwdefaults);
	MEMBER(FuncClosure, PyFunctionObject, func_closure);
	MEMBER(FuncDict, PyFunctionObject, func_dict);
	MEMBER(FuncModule, PyFunctionObject, func_module);
	MEMBER(MethodFunc, PyMethodObject, im_func);
	MEMBER(MethodSelf, PyMethodObject, im_self);

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
	MEMBER(WeakrefObject, PyWeakReference, wr_object);
	print("WeakrefSize", sizeof(PyWeakReference));
#if PY_MINOR_VERSION >= 10
	MEMBER(ModuleDict, PyModuleObject, md_dict);
	MEMBER(ModuleName, PyModuleObject, md_name);
#endif
	MEMBER(ExceptionDict, PyBaseExceptionObject, dict);
	MEMBER(ExceptionArgs, PyBaseExceptionObject, args);
	MEMBER(ExceptionTraceback, PyBaseExceptionObject, traceback);
	MEMBER(ExceptionContext, PyBaseExceptionObject, context);
	MEMBER(ExceptionCause, PyBaseExceptionObject, cause);
	MEMBER(TracebackNext, PyTracebackObject, tb_next);
	MEMBER(TracebackFrame, PyTracebackObject, tb_frame);
}

static void print_frames(void) {
#if PY_MINOR_VERSION < 11
	MEMBER(FrameGlobals, PyFrameObject, f_globals);
	MEMBER(FrameValuestack, PyFrameObject, f_valuestack);
	MEMBER(FrameLocalsplus, PyFrameObject, f_localsplus);
	MEMBER(GenFrame, PyGenObject, gi_frame);
#if PY_MINOR_VERSION < 10
	MEMBER(FrameStacktop, PyFrameObject, f_stacktop);
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
#if PY_MINOR_VERSION < 14
	MEMBER(GCGeneration0, struct _gc_runtime_state, generation0);
#endif
	MEMBER(GCGenerationStats, struct _gc_runtime_state, generation_stats);
	print("GCHead", sizeof(PyGC_Head));
}

_Static_assert(sizeof(struct gc_generation) == 24, "gcGenerationSize");
_Static_assert(sizeof(struct gc_generation_stats) == 24, "gcGenerationStatSize");

int main(void) {
	print("Minor", PY_MINOR_VERSION);
	print_types();
	print_containers();
	print_functions();
	print_objects();
	print_frames();
	print_collector();
	return 0;
}
