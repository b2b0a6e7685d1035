// Package objects reads from outside which objects a process has in its memory, and who keeps them.
// It counts the objects of CPython by type, and finds the variable that leads to an object. It sets
// no probe, stops nothing and writes nothing. All memory that it reads is hostile input: any
// contents cost bounded work and yield some answer.
package objects

import (
	"errors"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
	"github.com/allocscope/allocscope/tracer/objects/native"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Heap is the memory of a process in which objects are. It is not safe for concurrent use.
type Heap struct {
	process *process.Process
	// Python is the version of the interpreter, such as "3.11"; empty: there is none that is known.
	Python string
	// NoPython says why there is none; nil: there is one.
	NoPython error

	python     *interpreter.Runtime // nil: there is none
	structures *cpython.Version     // of it
	heads      []uint64             // bytes that may lie before an object in its block
	allocator  liveness.ProcessAllocator

	types    map[uint64]*typeInfo
	notTypes map[uint64]struct{}
	reading  int // types of which one leads to the next, and which are being read

	// The rest is of one moment: see refresh.
	reader  *process.Memory
	memory  *memory
	pages   map[uint64][]byte // that peek has read; nil: not in RAM
	heaps   liveness.Heaps
	statics *native.Statics
	// storages are addresses in files: whether each is the vtable of a StorageImpl of PyTorch.
	storages map[uint64]bool
	stacks   []native.Stack
	modules  map[uint64]interpreter.Module // by the address of their dict
	frames   []interpreter.Frame           // that run, in the order of their addresses
}

// ErrNoPython means that the process has no CPython whose objects can be counted.
var ErrNoPython = errors.New("no CPython in it (" + cpython.Supported +
	", with the GIL, are known)")
