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

	reader := r.newReader()
	if err := reader.checkPublished(); err != nil {
		return nil, fmt.Errorf("%w: CPython %s with unknown structures: %w", python.ErrUnsupported,
			interpreter.Version, err)
	}

	// The type of type is type itself.
	typeType, ok := reader.pointer(interpreter.State.Objects["PyType_Type"] + cpython.ObType)
	if back, known := reader.pointer(typeType + cpython.ObType); !ok || !known || back != typeType {
		return nil, fmt.Errorf("%w: PyType_Type of CPython %s is no type (a modified build?)",
			python.ErrUnsupported, interpreter.Version)
	}
	r.typeType = typeType

	if r.hasDebugHooks(reader) {
		return nil, fmt.Errorf("%w: the objects of CPython %s with debug hooks on its allocators (run a "+
			"release build without -X dev and PYTHONMALLOC)", python.ErrUnsupported, interpreter.Version)
	}

	return r, nil
}

// hasDebugHooks reports whether the allocators put a head before each block, which the census does
// not know.
func (r *Runtime) hasDebugHooks(reader *reader) bool {
	states := reader.interpreters()
	if r.modules == 0 && !r.findModules(reader, states) {
		return false
	}
	for _, state := range states {
		if modules, ok := reader.pointer(state + r.modules); ok {
			head := bytes.Repeat([]byte{cpython.ForbiddenByte}, cpython.ForbiddenCount)
			block := modules - r.version.GCHead
			return bytes.Equal(reader.bytes(block-cpython.ForbiddenCount, cpython.ForbiddenCount), head)
		}
	}
	return false
}

// Version returns the structures of the interpreter's version. They are not to be changed.
func (r *Runtime) Version() *cpython.Version { return r.version }

// TypeType returns the address of PyType_Type.
func (r *Runtime) TypeType() uint64 { return r.typeType }

// A reader reads the objects of a runtime. It is for one question, as its view is.
type reader struct {
	*view
	interpreter *python.Interpreter
	version     *cpython.Version
}

func (r *Runtime) newReader() *reader {
	return &reader{newView(r.memory), r.interpreter, r.version}
}

// checkPublished returns an error if the interpreter publishes other offsets than its version has.
func (r *reader) checkPublished() error {
	for _, f := range r.version.Fixed() {
		got, ok := r.word(r.interpreter.State.Runtime + f.Position)
		if !ok {
			return errUnreadable
		}
		if got != f.Want {
			return fmt.Errorf("%s is at %d instead of %d (a modified build?)", f.Member, got, f.Want)
		}
	}
	return nil
}

// is reports whether an object is of exactly the type that the interpreter exports under a name.
func (r *reader) is(object uint64, symbol string) bool {
	want := r.interpreter.State.Objects[symbol]
	got, ok := r.typeOf(object)
	return ok && want != 0 && got == want
}

// isSubtype reports whether an object is of an exported type or of one derived from it.
func (r *reader) isSubtype(object uint64, symbol string) bool {
	want := r.interpreter.State.Objects[symbol]
	t, ok := r.typeOf(object)
	for range maxBases {
		if !ok || want == 0 {
			return false
		}
		if t == want {
			return true
		}
		t, ok = r.pointer(t + r.version.TypeBase)
	}
	return false
}

// interpreters returns the addresses of the PyInterpreterStates, the newest first.
func (r *reader) interpreters() (states []uint64) {
	kernel := &r.interpreter.Kernel
	at := kernel.Interpreters
	for len(states) < maxInterpreters {
		state, ok := r.pointer(at)
		if !ok {
			break
		}
		states = append(states, state)
		at = state + uint64(kernel.InterpreterNext)
	}
	return states
}
