package overhead

import "time"

// OwnOf returns the CPU time of allocscope so far.
func OwnOf(m *Meter) OwnCPU { return m.own.take(false) }

// AddStart has so much of the CPU time until now count for the start.
func AddStart(m *Meter, cost time.Duration) { m.own.addStart(cost) }

// End has the CPU time from now on count for the end of the trace.
func End(m *Meter) { m.own.end() }
