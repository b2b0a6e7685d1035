package overhead

// OwnOf returns the CPU time of allocscope so far.
func OwnOf(m *Meter) OwnCPU { return m.own.take(false) }

// End has the CPU time from now on count for the end of the trace.
func End(m *Meter) { m.own.end() }
