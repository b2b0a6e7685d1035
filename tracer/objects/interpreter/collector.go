package interpreter

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
)

// Collections returns how often the oldest generation of the garbage collector has run in all
// interpreters together. It is not known of the incremental collector of 3.14.0 to 3.14.4, which
// never collects the old objects at once.
func (r *Runtime) Collections() (int64, bool) {
	if r.interpreter.State.Hex < r.version.FirstFullGC {
		return 0, false
	}

	const attempts = 8 // the collector may change the lists meanwhile
	for range attempts {
		if collections, ok := r.newReader().collections(); ok {
			return collections, true
		}
	}
	return 0, false
}

func (r *reader) collections() (sum int64, ok bool) {
	states := r.gcStates()
	for _, state := range states {
		collections, ok := r.collectionsOf(state)
		if !ok {
			return 0, false
		}
		sum += collections
	}
	return sum, len(states) > 0
}

// gcStates returns the addresses of the garbage collectors' states: one in _PyRuntime in 3.8, since
// then one in each interpreter.
func (r *reader) gcStates() (states []uint64) {
	interpreters := r.interpreters()
	if published := r.interpreter.State.GC; published != 0 {
		for _, interpreter := range interpreters {
			states = append(states, interpreter+uint64(published))
		}
		return states
	}

	// The main interpreter may lie in _PyRuntime.
	for _, begin := range append(interpreters, r.interpreter.State.Runtime) {
		for at := begin; at < begin+stateBytes; at += 8 {
			if _, ok := r.collectionsOf(at); ok && !slices.Contains(states, at) {
				states = append(states, at)
			}
		}
	}

	return states
}

// collectionsOf returns the collections that a struct _gc_runtime_state has counted. Its lists of
// objects have to be lists.
func (r *reader) collectionsOf(state uint64) (int64, bool) {
	first := state + r.version.GCGenerations
	if at := r.version.GCGeneration0; at != cpython.Absent {
		generation0, ok := r.word(state + at)
		if !ok || !r.version.IsFirstGeneration(generation0, state) {
			return 0, false
		}
		first = generation0
	}

	for i := range uint64(cpython.GCNumGenerations) {
		head := first + i*cpython.GCGenerationSize
		next, ok := r.word(head)
		if !ok {
			return 0, false
		}
		back, ok := r.word(next&^cpython.GCFlags + cpython.GCPrev)
		if !ok || back&^cpython.GCFlags != head {
			return 0, false
		}
	}

	const statsSize = cpython.GCNumGenerations * cpython.GCGenerationStatSize
	stats := r.bytes(state+r.version.GCGenerationStats, statsSize)
	if stats == nil {
		return 0, false
	}
	var collections [cpython.GCNumGenerations]int64
	for i := range collections {
		at := uint64(i) * cpython.GCGenerationStatSize
		collections[i] = int64(mem.Word(stats, at))
		collected := int64(mem.Word(stats, at+cpython.GCStatCollected))
		if collections[i] < 0 || collections[i] > 1<<40 || collected < 0 || collected > 1<<50 {
			return 0, false
		}
	}

	return collections[cpython.GCNumGenerations-1], true
}
