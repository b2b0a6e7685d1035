package verdict

// Lost are objects or blocks of the growth that are alive, and that nothing in the process refers to:
// a leak by definition. package keeper has the premises.
type Lost struct {
	// Samples is how many were lost, Of of all that were searched for and alive. The sweeps were
	// Seconds apart.
	Samples, Of int
	Seconds     float64
	// Type of the objects of Python; empty: memory without one.
	Type string
	// Share of the growth that is lost, 0 to 1.
	Share float64
	Taker
}

// A Taker is the code of C that made or took the last reference to lost memory. The zero value: it
// is not known.
type Taker struct {
	// Library is a module of Python, or a file. Caller is the function of Python that calls its
	// Function. Each may be empty: not known, or not the same on all stacks.
	Library, Function, Caller string
	// CallsPython: Python made the objects, and the Function calls it.
	CallsPython bool
}

// MinLostShare is the share of the growth that has to be lost: less of it is a leak beside another
// growth, which the verdict is about.
const MinLostShare = 0.5

// proveLeak makes growth a leak of which most is lost, whatever the series alone would need. It
// says nothing of freed memory, nor of memory of other processes or of none.
func proveLeak(v *Verdict, f Findings) {
	if f.Lost == nil || f.Lost.Share < MinLostShare || !v.Class.Grows() {
		return
	}
	switch v.Reason {
	case ReasonFragmentation, ReasonWorkers, ReasonOutside:
		return
	}

	v.Class, v.Reason, v.Lost = ClassLeak, ReasonLost, f.Lost
	v.Streak, v.Longer, v.Fill = Streak{}, 0, nil
}
