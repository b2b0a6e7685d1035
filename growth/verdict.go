package growth

// A Class is what a series is judged to be.
type Class string

// The classes of verdicts, as files write them.
const (
	ClassLeak         Class = "leak"           // steady growth that warm-up does not explain
	ClassSuspected    Class = "leak-suspected" // not long enough for a leak, but stacks accumulate: never from a series alone
	ClassGrowing      Class = "growing"        // grows, too early to tell
	ClassSaturating   Class = "saturating"     // grows, and slows down
	ClassPlateau      Class = "plateau"        // no growth beyond the bound
	ClassSpikyPlateau Class = "spiky-plateau"  // the same under spikes that come and go
	ClassTooShort     Class = "too-short"      // nothing can be said yet
	ClassWrongProcess Class = "wrong-process"  // something else grows: never from a series alone
)

// A Verdict is the judgement of a series. Rates are in bytes per X of the series; what is not known is NaN.
type Verdict struct {
	Class Class
	// Why, in a few words.
	Why string
	// Rate of the last regime with its 95 % interval; Bound is the one-sided 95 % upper bound, at least 0.
	Rate, RateLow, RateHigh, Bound float64
	// Level is the median of the last regime's base, in bytes, and LevelAt that of its X: the fitted line runs through both.
	Level, LevelAt float64
	// From is where the last regime begins: the end of the warm-up. NaN where no earlier regime was seen.
	From float64
	// Length of the last regime, in X; of all that was judged where there are too few samples.
	Length float64
	// Start of the data that was judged: of the last restart, else of the series.
	Start     float64
	Restarted bool
	// HeadsFor is the level that a saturating regime tends to, in bytes, known to some percent. NaN: it does not, or none is known.
	HeadsFor float64
	// Spikes above the base; nil where there are none to speak of.
	Spikes *Spikes
	// ToLimit is the time from the last sample to the limit, in X. Of a leak it is a forecast, with its 95 % interval; of what
	// only grows it is a hazard, "if this pace holds", and has none. 0 where spikes reach the limit already.
	ToLimit, ToLimitLow, ToLimitHigh float64
	// Longer is how much longer to watch at least, in X; 0: the verdict is settled.
	Longer float64
	// Phases from the start of what was judged to its end, each from where the one before ends.
	Phases []Phase
}

// Spikes are excursions above the base that come and go.
type Spikes struct {
	// Share of the samples that lie in spikes, 0 to 1; Height is their 95th percentile above the base, in bytes.
	Share, Height float64
	// Spans are where they lie on the X axis, in order.
	Spans []Span
}

// A Span is a stretch of the X axis, its ends included.
type Span struct{ From, To float64 }

// A Phase is a stretch of the series with one behaviour.
type Phase struct {
	Kind PhaseKind
	// From and To on the X axis.
	From, To float64
	// Rate in bytes per X.
	Rate float64
}

// A PhaseKind names the behaviour of a phase.
type PhaseKind string

// The kinds of phases.
const (
	PhaseWarmup   PhaseKind = "warm-up"    // growth before the last regime
	PhaseFlat     PhaseKind = "flat"       // no growth to speak of, before the last regime
	PhaseRelease  PhaseKind = "release"    // a fall before the last regime
	PhasePlateau  PhaseKind = "plateau"    // the last regime, without proven growth
	PhaseGrowth   PhaseKind = "growth"     // the last regime, growing
	PhaseSlowdown PhaseKind = "saturating" // the last regime, growing and slowing
	PhaseOpen     PhaseKind = "open"       // the last regime, about which nothing can be said yet
)
