// Package objects reads from outside what objects a process has in its memory, and who keeps them. It
// counts the objects of CPython by type, and finds the variable that leads to an object. It sets no
// probe, stops nothing and writes nothing. All memory that it reads is hostile input: any contents
// cost bounded work and yield some answer.
package objects

import (
	"context"
	"errors"
	"time"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Heap is the memory of a process in which objects are. It is not safe for concurrent use.
type Heap struct {
	process *process.Process
}

// ErrNoPython means that the process has no CPython whose objects can be counted.
var ErrNoPython = errors.New("no CPython of a known version")

// Open opens the memory of a process. The caller closes the process.
func Open(p *process.Process) (*Heap, error) {
	return &Heap{process: p}, nil
}

// CensusOptions limit a census.
type CensusOptions struct {
	// Share is the part of the small-object memory that is read, from 0 to 1; 0: all of it.
	Share float64
	// Samples is how many addresses of each type are kept, at random.
	Samples int
	// Before is an earlier census: samples are only of objects that it has not seen.
	Before *Census
}

// A Census is a count of objects, with samples of them.
type Census struct {
	census.Result
	// Samples are addresses of objects of each type that is worth a search, by name.
	Samples map[string][]uint64
}

// Census counts the objects. The error wraps ErrNoPython, or is that of reading.
func (h *Heap) Census(ctx context.Context, options CensusOptions) (*Census, error) {
	return nil, ErrNoPython
}

// A Suspect is a set of objects whose keeper is searched for: those of a stack or those of a type.
type Suspect struct {
	Stack   uint64 // ID; 0: they are those of a type
	Type    string
	Objects []uint64 // addresses
}

// Search finds who keeps the objects of the suspects, within a limit of CPU time. It returns a result for each
// suspect, in order.
func (h *Heap) Search(
	ctx context.Context, suspects []Suspect, limit time.Duration,
) ([]keeper.Search, error) {
	return nil, ErrNoPython
}
