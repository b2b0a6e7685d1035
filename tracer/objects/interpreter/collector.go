package interpreter

import (
	"slices"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
)

// maxFrozen bounds the frozen objects that are read, the last ones first.
const maxFrozen = 1 << 17

// Collectors returns the garbage collector of each interpreter; nil: they are not known.
func (r *Runtime) Collectors() (collectors []keeper.Collector) {
	const attempts = 8 // the collector may change the lists meanwhile
	for range attempts {
		reader := r.newReader()
		collectors = nil
		for _, state := range reader.gcStates() {
			c, ok := reader.collectorAt(state)
			if !ok {
				collectors = nil
				break
			}
			c.IsIncremental = r.isIncremental()
			collectors = append(collectors, c)
		}
		if len(collectors) > 0 {
			return collectors
		}
	}
	return nil
}

// isIncremental is true of 3.14.0 to 3.14.4.
func (r *Runtime) isIncremental() bool { return r.interpreter.State.Hex < r.version.FirstFullGC }

// Frozen returns how many of some objects gc.freeze() has taken from the collectors.
func (r *Runtime) Frozen(objects []uint64) (frozen int) {
	times := make(map[uint64]int)
	for _, object := range objects {
		times[object-r.version.GCHead]++
	}

	reader := r.newReader()
	for _, state := range reader.gcStates() {
		head := state + r.version.PermanentGeneration()
		at := head
		for range maxFrozen {
			back, ok := reader.word(at + cpython.GCPrev)
			if at = back &^ cpython.GCFlags; !ok || at == head {
				break
			}
			frozen += times[at]
		}
	}
	return frozen
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

// collectorAt returns the collector of a struct _gc_runtime_state. Its lists of objects have to be
// lists.
func (r *reader) collectorAt(state uint64) (c keeper.Collector, ok bool) {
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
		if !r.isListHead(head) {
			return c, false
		}
		threshold, _ := r.int32(head + cpython.GCGenerationThreshold)
		count, ok := r.int32(head + cpython.GCGenerationCount)
		if !ok {
			return c, false
		}
		c.Thresholds[i], c.Counts[i] = int(threshold), int(count)
	}

	if !r.addStats(&c, state) {
		return c, false
	}

	enabled, ok := r.int32(state + r.version.GCEnabled)
	lived := r.bytes(state+r.version.GCLongLivedTotal, 16)
	if !ok || lived == nil {
		return c, false
	}
	c.IsEnabled = enabled != 0
	c.LongLived, c.Pending = int64(mem.Word(lived, 0)), int64(mem.Word(lived, 8))

	frozen := state + r.version.PermanentGeneration()
	next, ok := r.word(frozen)
	c.HasFrozen = next != frozen
	return c, ok
}

// addStats adds the statistics of the generations to the collector of a struct _gc_runtime_state.
func (r *reader) addStats(c *keeper.Collector, state uint64) (ok bool) {
	form, at := r.version.GCStatsForm, state+r.version.GCGenerationStats
	if form == cpython.StatsRings {
		if at, ok = r.pointer(at); !ok {
			return false
		}
	}

	newest, ok := form.Newest(r.bytes(at, int(form.Size())))
	for _, stats := range newest {
		c.Collections = stats.Collections // of the oldest generation at last
		if stats.Collections < 0 || stats.Collections > 1<<40 ||
			stats.Collected < 0 || stats.Collected > 1<<50 {
			return false
		}
		c.Collected += stats.Collected
	}
	return ok
}

// isListHead reports whether a PyGC_Head begins a list.
func (r *reader) isListHead(head uint64) bool {
	next, ok := r.word(head)
	if !ok {
		return false
	}
	back, ok := r.word(next&^cpython.GCFlags + cpython.GCPrev)
	return ok && back&^cpython.GCFlags == head
}
