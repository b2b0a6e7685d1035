// Package verdict judges whether a series of sizes over time leaks. It knows nothing of processes,
// stacks or files. docs/reference/verdict.md has the method and the measurements behind its
// thresholds.
package verdict

// A Class is the result of judging a series.
type Class string

// The classes of verdicts, as files have them.
const (
	ClassLeak         Class = "leak"           // steady growth that warm-up does not explain
	ClassSuspected    Class = "leak-suspected" // not long enough for a leak, but stacks accumulate
	ClassGrowing      Class = "growing"        // grows, too early to tell
	ClassFillsUp      Class = "fills-up"       // grows into memory of a known size, and ends with it
	ClassSaturating   Class = "saturating"     // grows, and slows down
	ClassPlateau      Class = "plateau"        // no growth beyond the bound
	ClassSpikyPlateau Class = "spiky-plateau"  // a plateau under transient spikes
	ClassTooShort     Class = "too-short"      // too few data
	ClassWrongProcess Class = "wrong-process"  // another process grows
)

// Severity orders classes: the more severe, the greater.
func (c Class) Severity() int {
	switch c {
	case ClassLeak:
		return 6
	case ClassSuspected:
		return 5
	case ClassGrowing:
		return 4
	case ClassFillsUp:
		return 3
	case ClassSaturating:
		return 2
	case ClassTooShort:
		return 1
	}

	return 0
}

// IsFlat is true of a plateau, with or without spikes.
func (c Class) IsFlat() bool { return c == ClassPlateau || c == ClassSpikyPlateau }

// Grows is true of growth that does not slow down, and whose end is not known.
func (c Class) Grows() bool { return c.Severity() >= ClassGrowing.Severity() }

// Rises is true of all growth: also of growth that slows down, or whose end is known.
func (c Class) Rises() bool { return c.Severity() >= ClassSaturating.Severity() }

// A Reason is why a verdict has its class.
type Reason string

// The reasons.
const (
	ReasonTooShort         Reason = "too-short"         // too few samples
	ReasonPlateauTooYoung  Reason = "plateau-too-young" // shorter than growth before it asks for
	ReasonGrowthEnded      Reason = "growth-ended"      // the same, where the growth was seen
	ReasonTooNoisy         Reason = "too-noisy"         // the bound allows for growth of note
	ReasonNoGrowth         Reason = "no-growth"
	ReasonTolerated        Reason = "tolerated"  // grows less than Setting.Tolerable
	ReasonNotProven        Reason = "not-proven" // residual growth
	ReasonSlowsDown        Reason = "slows-down" // grows, but slows down
	ReasonStillGrowing     Reason = "still-growing"
	ReasonAfterWarmup      Reason = "after-warm-up"     // steady growth after warm-up
	ReasonNoPlateau        Reason = "no-plateau"        // steady growth from the start
	ReasonStacksAccumulate Reason = "stacks-accumulate" // steady growth, explained by stacks
	ReasonAppendOnly       Reason = "append-only"       // their keeper gains entries, and loses none
	ReasonWriteOnly        Reason = "write-only"        // and the program's code only adds to it
	ReasonFewRechecks      Reason = "few-rechecks"      // too few checks in a row found a leak
	ReasonOtherProcess     Reason = "other-process"     // Verdict.Other grows
	ReasonFragmentation    Reason = "fragmentation"     // steady growth of freed memory
	ReasonGarbage          Reason = "garbage"           // it waits for the garbage collector
	ReasonPageCache        Reason = "page-cache"        // only pages of mapped files grow
	ReasonWorkers          Reason = "workers"           // workers that are not traced grow
	ReasonReplaced         Reason = "replaced-workers"  // workers grow until others replace them
	ReasonOutside          Reason = "outside-processes" // memory grows outside of the traced ones
	ReasonLost             Reason = "lost"              // nothing refers to the growth
	ReasonBounded          Reason = "bounded"           // Verdict.Fill: it ends by itself
	ReasonHalted           Reason = "halted"            // it did not run for most of the time
)

// A Verdict is the judgement of a series. Rates are in bytes per X of the series; NaN where
// unknown. Judge never returns ClassSuspected, ClassFillsUp and ClassWrongProcess: Decide does.
type Verdict struct {
	Class  Class
	Reason Reason
	// Other is the process behind ReasonOtherProcess, else nil.
	Other *OtherGrowth
	// Fill is the end of the growth behind ReasonBounded, else nil.
	Fill *Fill
	// Streak of checks behind ReasonFewRechecks, else zero.
	Streak Streak
	// Lost is what ReasonLost is about, else nil.
	Lost *Lost
	// Rate of the last segment with its 95% confidence interval. Bound is the one-sided 95% upper
	// bound, at least 0.
	Rate, RateLow, RateHigh, Bound float64
	// Level is the median of the last segment's lower envelope in bytes, and LevelAt the median of
	// its X. The fitted line runs through both.
	Level, LevelAt float64
	// From is where the last segment begins: the end of the warm-up. NaN without an earlier
	// segment.
	From float64
	// Length of the last segment in X, or of all that was judged where there are too few samples.
	Length float64
	// Start of the data that was judged: the last restart, else the start of the series.
	Start     float64
	Restarted bool
	// ExpectedLevel is the asymptote of a saturating segment in bytes, known to some percent. NaN
	// without one.
	ExpectedLevel float64
	// Spikes above the lower envelope; nil without spikes of note.
	Spikes *Spikes
	// ToLimit is the time from the last sample to the limit, in X; 0 where spikes reach the limit
	// already. For a leak it is a forecast with a 95% confidence interval. For growth it
	// extrapolates the present rate, without an interval.
	ToLimit, ToLimitLow, ToLimitHigh float64
	// EndedBeforeLimit: the process has ended, and would have met the limit. ToLimit is NaN then.
	EndedBeforeLimit bool
	// Longer is how much longer to watch at least, in X; 0: the verdict is final.
	Longer float64
	// Shape is how the last segment runs, for the evidence of a leak.
	Shape Shape
	// Phases from the start of the judged data to its end, each from where the one before ends.
	Phases []Phase
}

// An OtherGrowth is a process outside the traced tree that grows in its place, in bytes.
type OtherGrowth struct {
	PID                int
	Command            string
	Growth, TreeGrowth int64
}

// A Fill is the end of growth that lies in memory of a known size.
type Fill struct {
	// Of names the bound.
	Of BoundOf
	// Left is how many bytes are still to come, at most, and Level the size then.
	Left, Level float64
	// In is the time from the last sample until it is full, in X, with its 95% confidence interval:
	// at the present rate. The upper end is infinite where the growth may end.
	In, InLow, InHigh float64
	// MeetsLimit: the memory limit is met before it is full.
	MeetsLimit bool
}

// A Streak is how many checks in a row have found a leak, of how many that raise the alarm.
type Streak struct{ Found, Needed int }

// Spikes are transient excursions above the lower envelope.
type Spikes struct {
	// Share of the samples that lie in spikes, 0 to 1. Height is their 95th percentile above the
	// envelope, in bytes.
	Share, Height float64
	// Spans on the X axis, in order.
	Spans []Span
}

// A Span is an interval of the X axis, its ends included.
type Span struct{ From, To float64 }

// A Phase is an interval of the series with one behaviour.
type Phase struct {
	Kind PhaseKind
	// From and To on the X axis.
	From, To float64
	// Rate in bytes per X.
	Rate float64
}

// EndedGrowth is the growth of ReasonGrowthEnded; false: the verdict has another reason.
func (v *Verdict) EndedGrowth() (p Phase, ok bool) {
	if v.Reason != ReasonGrowthEnded {
		return Phase{}, false
	}
	return v.Phases[len(v.Phases)-2], true
}

// A PhaseKind is the behaviour of a phase.
type PhaseKind string

// The kinds of phases.
const (
	PhaseWarmup   PhaseKind = "warm-up"    // growth before the last segment
	PhaseFlat     PhaseKind = "flat"       // no growth to speak of, before the last segment
	PhaseRelease  PhaseKind = "release"    // a fall before the last segment
	PhasePlateau  PhaseKind = "plateau"    // the last segment, without proven growth
	PhaseGrowth   PhaseKind = "growth"     // the last segment, growing
	PhaseSlowdown PhaseKind = "saturating" // the last segment, growing and slowing down
	PhaseOpen     PhaseKind = "open"       // the last segment, of unknown behaviour
)
