package cpython

import (
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/tracer/python"
)

// A Runtime is the CPython of a process.
type Runtime struct {
	memory      python.Memory
	interpreter *python.Interpreter
	structures  Structures
	typeType    uint64
}

// Bounds of what is walked. What is beyond them is left out.
const (
	maxInterpreters = 64
	maxThreads      = 1 << 13 // of all interpreters
	maxModules      = 1 << 16
	maxBases        = 64 // types up to the root
)

// Open returns the runtime of an interpreter that python.Find has found in memory. The error wraps
// python.ErrUnsupported if its structures are not those of its version.
func Open(m python.Memory, interpreter *python.Interpreter) (*Runtime, error) {
	structures := structuresOf(interpreter.CodeLayout.Minor)
	if structures == nil {
		return nil, fmt.Errorf("%w: the structures of CPython %s", python.ErrUnsupported,
			interpreter.Version)
	}
	if state := interpreter.State; state.Modules != 0 && state.GC != 0 {
		structures.InterpreterModules = uint64(state.Modules)
		structures.InterpreterGC = uint64(state.GC)
	}
	r := &Runtime{memory: m, interpreter: interpreter, structures: *structures}

	// The type of type is type itself.
	v := newView(m)
	typeType, ok := v.pointer(interpreter.State.Objects["PyType_Type"] + 8)
	if back, known := v.pointer(typeType + 8); !ok || !known || back != typeType {
		return nil, fmt.Errorf("%w: PyType_Type of CPython %s is no type (a modified build?)",
			python.ErrUnsupported, interpreter.Version)
	}
	r.typeType = typeType
	return r, nil
}

// Structures returns the structures of the interpreter's version. They are not to be changed.
func (r *Runtime) Structures() *Structures { return &r.structures }

// TypeType returns the address of PyType_Type.
func (r *Runtime) TypeType() uint64 { return r.typeType }

// typeOf returns the type of an object.
func (v *view) typeOf(object uint64) (uint64, bool) {
	if !isPointer(object) {
		return 0, false
	}
	return v.pointer(object + 8)
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
		t, ok = v.pointer(t + r.structures.TypeBase)
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

// A Module is an entry of sys.modules.
type Module struct {
	Name         string // its key
	File         string // its __file__; empty if it has none
	Object, Dict uint64 // addresses of the module and of its dict
}

var errNoModules = errors.New("sys.modules is not where it has to be")

// Modules returns the entries of sys.modules of all interpreters that are modules, or of a type
// derived from them. It is an error if no interpreter has a sys.modules.
func (r *Runtime) Modules() ([]Module, error) {
	v := newView(r.memory)
	found := false
	var modules []Module
	for _, state := range r.interpreters(v) {
		dict, ok := v.pointer(state + r.structures.InterpreterModules)
		if !ok {
			continue
		}
		found = r.entries(v, dict, maxModules, func(key, value uint64) bool {
			if m, ok := r.module(v, key, value); ok {
				modules = append(modules, m)
			}
			return len(modules) < maxModules
		}) || found
	}
	if !found || len(modules) == 0 {
		return nil, errNoModules
	}
	return modules, nil
}

func (r *Runtime) module(v *view, key, value uint64) (m Module, ok bool) {
	if m.Name, ok = r.text(v, key, maxText); !ok || !r.isSubtype(v, value, "PyModule_Type") {
		return Module{}, false
	}
	m.Object = value
	if m.Dict, ok = v.pointer(value + r.structures.ModuleDict); !ok {
		return Module{}, false
	}
	if file, ok := r.lookup(v, m.Dict, "__file__"); ok {
		m.File, _ = r.text(v, file, maxPath)
	}
	return m, true
}

// Collections returns how often the oldest generation of the garbage collector has run in all
// interpreters together. It is not known of the incremental collector of 3.14.0 to 3.14.4, which never
// collects the old objects at once.
func (r *Runtime) Collections() (int64, bool) {
	if r.interpreter.State.Hex>>16 == 0x030e && r.interpreter.State.Hex < 0x030e05a0 {
		return 0, false
	}

	const attempts = 8 // the collector may change the lists meanwhile
	for range attempts {
		v := newView(r.memory)
		if collections, ok := r.collections(v); ok {
			return collections, true
		}
	}
	return 0, false
}

func (r *Runtime) collections(v *view) (sum int64, ok bool) {
	s := &r.structures
	states := []uint64{r.interpreter.State.Runtime + s.RuntimeGC}
	if s.RuntimeGC == 0 {
		states = nil
		for _, state := range r.interpreters(v) {
			states = append(states, state+s.InterpreterGC)
		}
	}
	for _, state := range states {
		collections, ok := r.collectionsOf(v, state)
		if !ok {
			return 0, false
		}
		sum += collections
	}
	return sum, len(states) > 0
}

// collectionsOf returns the collections that a struct _gc_runtime_state has counted. Its lists of
// objects have to be lists.
func (r *Runtime) collectionsOf(v *view, state uint64) (int64, bool) {
	const prevMask = 3 // flags in the lowest bits of _gc_prev and _gc_next
	first := state + r.structures.GCGenerations
	if at := r.structures.GCGeneration0; at != 0 {
		// Later releases of 3.13 align PyGC_Head to 4 bytes, so that the lists begin 4 bytes earlier.
		generation0, ok := v.word(state + at)
		if !ok || generation0 != first && generation0 != first-4 {
			return 0, false
		}
		first = generation0
	}
	for i := range uint64(gcGenerations) {
		head := first + i*gcGenerationSize
		next, ok := v.word(head)
		if !ok {
			return 0, false
		}
		if back, ok := v.word(next&^prevMask + 8); !ok || back&^prevMask != head {
			return 0, false
		}
	}

	stats := v.bytes(state+r.structures.GCGenerationStats, gcGenerations*gcGenerationStatSize)
	if stats == nil {
		return 0, false
	}
	var collections [gcGenerations]int64
	for i := range collections {
		collections[i] = int64(wordAt(stats, uint64(i)*gcGenerationStatSize))
		collected := int64(wordAt(stats, uint64(i)*gcGenerationStatSize+8))
		if collections[i] < 0 || collections[i] > 1<<40 || collected < 0 || collected > 1<<50 {
			return 0, false
		}
	}
	return collections[gcGenerations-1], true
}
