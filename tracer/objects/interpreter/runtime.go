package interpreter

import (
	"bytes"
	"fmt"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/python"
)

// A Runtime is the CPython of a process.
type Runtime struct {
	memory      python.Memory
	interpreter *python.Interpreter
	version     *cpython.Version
	typeType    uint64
	// modules is the offset of the pointer to sys.modules in PyInterpreterState; 0: not found yet.
	modules uint64
}

// Bounds of the walks. Entries beyond them are left out.
const (
	maxInterpreters = 64
	maxThreads      = 1 << 13 // of all interpreters
	maxBases        = 64      // types up to the root
)

// Open returns the runtime of an interpreter that python.Find has found in memory. The error wraps
// python.ErrUnsupported if its structures do not fit its version.
func Open(m python.Memory, interpreter *python.Interpreter) (*Runtime, error) {
	if interpreter.State.FreeThreaded {
		return nil, fmt.Errorf("%w: the objects of CPython %s, which lie in its own mimalloc (run a "+
			"build with the GIL)", python.ErrUnsupported, interpreter.Version)
	}
	r := &Runtime{
		memory: m, interpreter: interpreter, version: interpreter.CPython,
		modules: uint64(interpreter.State.Modules),
	}

	v := newView(m)
	if err := r.checkPublished(v); err != nil {
		return nil, fmt.Errorf("%w: CPython %s with unknown structures: %w", python.ErrUnsupported,
			interpreter.Version, err)
	}

	// The type of type is type itself.
	typeType, ok := v.pointer(interpreter.State.Objects["PyType_Type"] + cpython.ObType)
	if back, known := v.pointer(typeType + cpython.ObType); !ok || !known || back != typeType {
		return nil, fmt.Errorf("%w: PyType_Type of CPython %s is no type (a modified build?)",
			python.ErrUnsupported, interpreter.Version)
	}
	r.typeType = typeType

	if r.hasDebugHooks(v) {
		return nil, fmt.Errorf("%w: the objects of CPython %s with debug hooks on its allocators (run a "+
			"release build without -X dev and PYTHONMALLOC)", python.ErrUnsupported, interpreter.Version)
	}

	return r, nil
}

// checkPublished returns an error if the interpreter publishes other offsets than its version has.
func (r *Runtime) checkPublished(v *view) error {
	for _, f := range r.version.Fixed() {
		got, ok := v.word(r.interpreter.State.Runtime + f.Position)
		if !ok {
			return errUnreadable
		}
		if got != f.Want {
			return fmt.Errorf("%s is at %d instead of %d (a modified build?)", f.Member, got, f.Want)
		}
	}
	return nil
}

// hasDebugHooks reports whether the allocators put a head before each block, which the census does
// not know.
func (r *Runtime) hasDebugHooks(v *view) bool {
	states := r.interpreters(v)
	if r.modules == 0 && !r.findModules(v, states) {
		return false
	}
	for _, state := range states {
		if modules, ok := v.pointer(state + r.modules); ok {
			head := bytes.Repeat([]byte{cpython.ForbiddenByte}, cpython.ForbiddenCount)
			block := modules - r.version.GCHead
			return bytes.Equal(v.bytes(block-cpython.ForbiddenCount, cpython.ForbiddenCount), head)
		}
	}
	return false
}

// Version returns the structures of the interpreter's version. They are not to be changed.
func (r *Runtime) Version() *cpython.Version { return r.version }

// TypeType returns the address of PyType_Type.
func (r *Runtime) TypeType() uint64 { return r.typeType }

// typeOf returns the type of an object.
func (v *view) typeOf(object uint64) (uint64, bool) {
	if !isPointer(object) {
		return 0, false
	}
	return v.pointer(object + cpython.ObType)
}

// is reports whether an object is of exactly the type that the interpreter exports under a name.
func (r *Runtime) is(v *view, object uint64, symbol string) bool {
	want := r.interpreter.State.Objects[symbol]
	got, ok := v.typeOf(object)
	return ok && want != 0 && got == want
}

// isSubtype reports whether an object is of an exported type or of one derived from it.
func (r *Runtime) isSubtype(v *view, object uint64, symbol string) bool {
	want := r.interpreter.State.Objects[symbol]
	t, ok := v.typeOf(object)
	for range maxBases {
		if !ok || want == 0 {
			return false
		}
		if t == want {
			return true
		}
		t, ok = v.pointer(t + r.version.TypeBase)
	}
	return false
}

// interpreters returns the addresses of the PyInterpreterStates, the newest first.
func (r *Runtime) interpreters(v *view) (states []uint64) {
	kernel := &r.interpreter.Kernel
	at := kernel.Interpreters
	for len(states) < maxInterpreters {
		state, ok := v.pointer(at)
		if !ok {
			break
		}
		states = append(states, state)
		at = state + uint64(kernel.InterpreterNext)
	}
	return states
}
