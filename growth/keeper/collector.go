package keeper

// A Collector is the state of the garbage collector of an interpreter of CPython. Names follow its
// sources.
type Collector struct {
	IsEnabled bool
	// IsIncremental is set for 3.14.0 to 3.14.4, which never collect the oldest objects at once.
	IsIncremental bool
	// Collections is how often the oldest generation was collected, and Collected how many objects
	// all generations have lost to it.
	Collections, Collected int64
	// HasFrozen: gc.freeze() keeps objects from it.
	HasFrozen bool
	// Thresholds of the generations, and their Counts: a generation is collected when its count is
	// above its threshold.
	Thresholds, Counts [3]int
	// LongLived objects have survived a collection of the oldest generation, and Pending ones wait
	// for their first.
	LongLived, Pending int64
}

// A Wait is the event that garbage waits for. It has the numbers of its code; all others are
// absent.
type Wait struct {
	// For has to happen before the collector frees it; absent: no more than the next collection has
	// to, or it is not known.
	For WaitFor `json:"for,omitempty"`
	// Thresholds of the three generations, and Count of the youngest.
	Thresholds []int `json:"thresholds,omitempty"`
	Count      int   `json:"count,omitempty"`
	// LongLived objects, of which a quarter has to be new, and Pending ones, which are.
	LongLived int64 `json:"long_lived,omitempty"`
	Pending   int64 `json:"pending,omitempty"`
}

// WaitFor is the code of a Wait.
type WaitFor string

// The events that garbage waits for.
const (
	// WaitEnable: gc.disable() is in force.
	WaitEnable WaitFor = "enable"
	// WaitThreshold0: gc.set_threshold(0) has the same effect.
	WaitThreshold0 WaitFor = "threshold-0"
	// WaitUnfreeze: gc.freeze() has taken it from the collector.
	WaitUnfreeze WaitFor = "unfreeze"
	// WaitUpgrade: the incremental collector of 3.14.0 to 3.14.4 gets to old objects late.
	WaitUpgrade WaitFor = "upgrade"
	// WaitThresholds: the program has raised the Thresholds.
	WaitThresholds WaitFor = "thresholds"
	// WaitQuarter: the oldest generation is due, and is collected only when a quarter of the
	// long-lived objects is new.
	WaitQuarter WaitFor = "quarter"
)

// usualThresholds are the highest that a release of CPython begins with.
var usualThresholds = [3]int{2000, 10, 10}

// Waits returns the event that garbage waits for, of which a part is frozen.
//
// Garbage does not wait for a collector that is off for a moment: the youngest generation counts on
// while it is off, and exceeds its threshold. Where the program collects young objects itself, the
// next generation does.
func (c *Collector) Waits(frozen, garbage int) Wait {
	isOverdue := c.Counts[0] > c.Thresholds[0] || c.Counts[1] > c.Thresholds[1]+1

	switch {
	case frozen > 0 && 2*frozen >= garbage:
		return Wait{For: WaitUnfreeze}
	case !c.IsEnabled && isOverdue:
		return Wait{For: WaitEnable}
	case !c.IsEnabled:
		return Wait{}
	case c.Thresholds[0] == 0:
		return Wait{For: WaitThreshold0}
	case c.IsIncremental:
		return Wait{For: WaitUpgrade}
	case c.Counts[2] > c.Thresholds[2] && 4*c.Pending < c.LongLived:
		return Wait{For: WaitQuarter, LongLived: c.LongLived, Pending: c.Pending}
	}

	for i, usual := range usualThresholds {
		if c.Thresholds[i] > usual {
			return Wait{For: WaitThresholds, Thresholds: c.Thresholds[:], Count: c.Counts[0]}
		}
	}
	return Wait{}
}
