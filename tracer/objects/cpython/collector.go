package cpython

import "slices"

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
	states := r.gcStates(v)
	for _, state := range states {
		collections, ok := r.collectionsOf(v, state)
		if !ok {
			return 0, false
		}
		sum += collections
	}
	return sum, len(states) > 0
}

// gcStates returns the addresses of the garbage collectors' states: one in _PyRuntime in 3.8, since then
// one in each interpreter.
func (r *Runtime) gcStates(v *view) (states []uint64) {
	interpreters := r.interpreters(v)
	if published := r.interpreter.State.GC; published != 0 {
		for _, interpreter := range interpreters {
			states = append(states, interpreter+uint64(published))
		}
		return states
	}

	// The main interpreter may lie in _PyRuntime.
	for _, begin := range append(interpreters, r.interpreter.State.Runtime) {
		for at := begin; at < begin+stateBytes; at += 8 {
			if _, ok := r.collectionsOf(v, at); ok && !slices.Contains(states, at) {
				states = append(states, at)
			}
		}
	}
	return states
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
