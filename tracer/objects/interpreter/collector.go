package interpreter

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
)

// A Collector is what the garbage collectors of all interpreters have done together.
type Collector struct {
	// Collections is how often the oldest generation has been collected, and Collected how many objects
	// all generations have lost to it.
	Collections, Collected int64
	// IsWhole: there is one interpreter, and no object is kept from its collector by gc.freeze().
	IsWhole bool
}

// Collector returns what the garbage collector has done. It is not known of the incremental collector of
// 3.14.0 to 3.14.4, which never collects the old objects at once.
func (r *Runtime) Collector() (Collector, bool) {
	if r.interpreter.State.Hex < r.version.FirstFullGC {
		return Collector{}, false
	}

	const attempts = 8 // the collector may change the lists meanwhile
	for range attempts {
		if c, ok := r.newReader().collector(); ok {
			return c, true
		}
	}
	return Collector{}, false
}

func (r *reader) collector() (sum Collector, ok bool) {
	states := r.gcStates()
	sum.IsWhole = len(states) == 1
	for _, state := range states {
		c, ok := r.collectorAt(state)
		if !ok {
			return Collector{}, false
		}
		sum.Collections += c.Collections
		sum.Collected += c.Collected
		sum.IsWhole = sum.IsWhole && c.IsWhole
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
			if _, ok := r.collectorAt(at); ok && !slices.Contains(states, at) {
				states = append(states, at)
			}
		}
	}

	return states
}

// collectorAt returns the counts of a struct _gc_runtime_state. Its lists of objects have to be lists.
func (r *reader) collectorAt(state uint64) (c Collector, ok bool) {
	first := state + r.version.GCGenerations
	if at := r.version.GCGeneration0; at != cpython.Absent {
		generation0, ok := r.word(state + at)
		if !ok || !r.version.IsFirstGeneration(generation0, state) {
			return c, false
		}
		first = generation0
	}

	for i := range uint64(cpython.GCNumGenerations) {
		head := first + i*cpython.GCGenerationSize
		next, ok := r.word(head)
		if !ok {
			return c, false
		}
		back, ok := r.word(next&^cpython.GCFlags + cpython.GCPrev)
		if !ok || back&^cpython.GCFlags != head {
			return c, false
		}
	}

	const statsSize = cpython.GCNumGenerations * cpython.GCGenerationStatSize
	stats := r.bytes(state+r.version.GCGenerationStats, statsSize)
	if stats == nil {
		return c, false
	}
	for i := range uint64(cpython.GCNumGenerations) {
		at := i * cpython.GCGenerationStatSize
		c.Collections = int64(mem.Word(stats, at)) // of the oldest generation, at last
		collected := int64(mem.Word(stats, at+cpython.GCStatCollected))
		if c.Collections < 0 || c.Collections > 1<<40 || collected < 0 || collected > 1<<50 {
			return c, false
		}
		c.Collected += collected
	}

	// The objects of gc.freeze() are in a list of their own, permanent_generation, before the counts.
	frozen := state + r.version.GCGenerationStats - cpython.GCGenerationSize
	next, ok := r.word(frozen)
	c.IsWhole = next == frozen
	return c, ok
}
