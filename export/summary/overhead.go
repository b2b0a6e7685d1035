package summary

// Overhead is what tracing has cost, and what was done to keep that within its limit.
type Overhead struct {
	// Limit is the largest share of the traced processes' CPU time that tracing was allowed, 0.03 being 3 %; absent: there was none.
	Limit float64 `json:"limit,omitempty"`
	// Share that it took: InProbesS and OwnS of TracedS; absent: not measured.
	Share *float64 `json:"share,omitempty"`
	// InProbesS is the CPU time that probes took in the traced processes, by calibrated prices; absent: not measured.
	InProbesS *float64 `json:"in_probes_s,omitempty"`
	// OwnS is the CPU time of allocscope itself, after its start; TracedS that of the traced processes, without that of the probes.
	// Absent: not measured.
	OwnS    float64 `json:"own_s,omitempty"`
	TracedS float64 `json:"traced_s,omitempty"`
	// Mode of source heap at the end: one of the constants Heap….
	Mode string `json:"mode"`
	// Windows in which the allocator was probed, and OpenS, how long they were together.
	Bursts int     `json:"bursts"`
	OpenS  float64 `json:"open_s"`
	// LagS is how old an object must be to count, where there were windows; absent: there were none.
	LagS float64 `json:"lag_s,omitempty"`
	// IntervalBytes is the mean number of bytes between samples at the end.
	IntervalBytes uint64 `json:"interval_bytes"`
	// StepBeforeS and StepSinceS are the time of a training step before heap was probed, and since; absent: too few were seen.
	StepBeforeS *float64 `json:"step_before_s,omitempty"`
	StepSinceS  *float64 `json:"step_since_s,omitempty"`
	// StepBetweenS is that of the later steps without probes, between windows; absent: too few were seen.
	StepBetweenS *float64 `json:"step_between_s,omitempty"`
	// Changes in what is watched, in the order of time.
	Changes []OverheadChange `json:"changes"`
}

// Modes of source heap.
const (
	HeapFull   = "full"   // every call is probed
	HeapBursts = "bursts" // calls are probed now and then
	HeapOff    = "off"    // none is
)

// An OverheadChange is what was changed and why, in a sentence for people, and the mode of source heap from then on.
type OverheadChange struct {
	AtS  float64 `json:"at_s"`
	Mode string  `json:"mode"`
	Text string  `json:"text"`
}

// InWindows tells that holders of heap memory are known from windows; false of nil.
func (o *Overhead) InBursts() bool { return o != nil && o.Bursts > 0 }

// listed is a copy whose list is one for JSON.
func (o *Overhead) withLists() *Overhead {
	if o == nil {
		return nil
	}
	out := *o
	out.Changes = list(o.Changes)
	return &out
}
