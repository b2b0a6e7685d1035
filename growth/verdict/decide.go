package verdict

import "math"

// Findings are the facts that are known besides the series of a verdict. The zero value overrides
// nothing.
type Findings struct {
	// StacksAccumulate: stacks that accumulate explain growth that is too short for a leak.
	StacksAccumulate bool
	// AppendOnly: a container that keeps most of the growth has gained entries, and lost none.
	AppendOnly bool
	// WriteOnly: that container has no limit, and no code of the program reads it, removes from it
	// or replaces it.
	WriteOnly bool
	// Fragmentation: freed memory that malloc keeps is most of the growth.
	Fragmentation bool
	// Garbage: most of the growth is cycles of objects that no variable leads to, and it is known
	// why the garbage collector does not get to them.
	Garbage bool
	// WithoutFiles is the verdict on the memory besides mapped files, where pages of files are most
	// of the growth; else nil.
	WithoutFiles *Verdict
	// Bound is the known end of the growth; nil: none is known.
	Bound *Bound
	// Streak of the checks of a trace that is judged repeatedly, and how much longer it must be, in
	// X, until enough of them can agree: Rechecks.AddTo sets both. Zero: it is judged once.
	Streak      Streak
	UntilEnough float64
	// Workers is the verdict on the memory of workers of the tree, none of which is traced, where it
	// grows; nil: there are none.
	Workers *Verdict
	// Replaced: workers of the tree grow until others take their place.
	Replaced bool
	// Outside is the verdict on memory of the job outside of the traced processes, where it grows: files
	// in RAM, memory of the kernel, or other processes of the container; nil: there is none. IsHeld:
	// other processes hold it.
	Outside *Verdict
	IsHeld  bool
	// Other is a process that the traced one has started and that grows in its place, while the traced
	// one does nothing itself; nil: there is none.
	Other *OtherGrowth
	// Lost are objects of the growth that nothing refers to; nil: none are proven to be.
	Lost *Lost
	// Halted is the share of the time, 0 to 1, in which the process was stopped or frozen.
	Halted float64
	// HasEnded: the process has ended, so that it meets no limit any more.
	HasEnded bool
}

// A Bound is the end of growth that lies in memory of a known size, such as an array that is filled
// for the first time, or in a container with a limit.
type Bound struct {
	Of BoundOf
	// Share of the growth, 0 to 1, that lies in memory whose end is known.
	Share float64
	// Left is how many bytes are still to come there, at most. Now is the present size of the
	// process.
	Left, Now float64
}

// BoundOf is the reason for which the growth ends.
type BoundOf string

// The bounds.
const (
	BoundMemory    BoundOf = "memory"    // the size of blocks and mappings that are being touched
	BoundContainer BoundOf = "container" // the limit of a container, such as deque(maxlen)
)

// minBoundShare is the share of the growth from which on its end is the end of the growth.
const minBoundShare = 0.8

// An override replaces a part of a verdict where a finding calls for it.
type override struct {
	name  string
	apply func(*Verdict, Findings)
}

// overrides are all changes of a verdict after Judge, in their order. Each sees the verdict as the
// earlier ones have left it: a cause takes a leak away before its checks are counted, and another
// process matters only where no growth is left.
var overrides = []override{
	{"stacks accumulate", suspectStacks},
	{"append only", suspectContainer},
	{"fragmentation", nameFragmentation},
	{"garbage", nameGarbage},
	{"without files", leaveOutFiles},
	{"fills up", nameBound},
	{"workers", judgeWorkers},
	{"outside processes", judgeOutside},
	{"replaced workers", nameReplaced},
	{"few checks", requireStreak},
	{"write only", findWriteOnly},
	{"lost", proveLeak},
	{"halted", undecideHalted},
	{"other process", nameOther},
	{"has ended", endForecast},
}

// Decide returns the verdict on a process: the verdict on its series, with the overrides that the
// findings call for.
func Decide(judged Verdict, f Findings) Verdict {
	for _, o := range overrides {
		o.apply(&judged, f)
	}
	return judged
}

// suspectStacks suspects a leak before the series alone can: a warm-up may grow as steadily, but
// then its stacks free again.
func suspectStacks(v *Verdict, f Findings) {
	if f.StacksAccumulate && v.Class == ClassGrowing {
		v.Class, v.Reason = ClassSuspected, ReasonStacksAccumulate
	}
}

// suspectContainer suspects a leak where the container that keeps the growth gives nothing back: a
// cache with a limit would have, and a table that is still filled has an end that is not known.
func suspectContainer(v *Verdict, f Findings) {
	if f.AppendOnly && v.Class.Grows() && v.Class != ClassLeak {
		v.Class, v.Reason = ClassSuspected, ReasonAppendOnly
	}
}

// findWriteOnly makes growth a leak whose container the program only writes: it is of no use to the
// program, and no code there is that could end its growth. That needs no more checks, and says
// nothing of memory outside of it.
func findWriteOnly(v *Verdict, f Findings) {
	if !f.WriteOnly || !v.Class.Grows() {
		return
	}
	switch v.Reason {
	case ReasonFragmentation, ReasonGarbage, ReasonWorkers, ReasonOutside, ReasonBounded:
		return
	}

	if v.Class != ClassLeak {
		v.Reason = ReasonWriteOnly
	}
	v.Class, v.Streak, v.Longer = ClassLeak, Streak{}, 0
}

// nameFragmentation names freed memory as the growth. The class stays: the memory is in use all the
// same.
func nameFragmentation(v *Verdict, f Findings) {
	if f.Fragmentation && v.Class.Grows() {
		v.Reason = ReasonFragmentation
	}
}

// nameGarbage names garbage as the growth. The class stays: the collection that it waits for may
// never come.
func nameGarbage(v *Verdict, f Findings) {
	if f.Garbage && v.Class.Grows() && v.Reason != ReasonFragmentation {
		v.Reason = ReasonGarbage
	}
}

// leaveOutFiles judges the memory besides mapped files in place of RSS, where it does not grow: the
// kernel takes pages of files back before it runs out of memory.
func leaveOutFiles(v *Verdict, f Findings) {
	if f.WithoutFiles == nil || !v.Class.Grows() || f.WithoutFiles.Class.Grows() {
		return
	}

	*v = *f.WithoutFiles
	switch v.Class {
	case ClassPlateau, ClassSpikyPlateau:
		v.Reason = ReasonPageCache
	}
	v.Level, v.LevelAt = math.NaN(), math.NaN() // it is no level of the RSS
}

// nameBound names the end of growth that lies in memory of a known size. That is no leak, and needs
// no more checks. Where the limit is met first, the class stays: the process ends all the same.
func nameBound(v *Verdict, f Findings) {
	b := f.Bound
	if b == nil || b.Share < minBoundShare || !v.Class.Grows() || !(v.Rate > 0) {
		return
	}

	rate := b.Share * v.Rate
	fill := &Fill{
		Of: b.Of, Left: b.Left, Level: b.Now + b.Left, In: b.Left / rate,
		InLow: b.Left / max(rate, b.Share*v.RateHigh), InHigh: math.Inf(1),
	}
	if v.RateLow > 0 {
		fill.InHigh = b.Left / (b.Share * v.RateLow)
	}
	fill.MeetsLimit = v.ToLimit < fill.In

	v.Reason, v.Fill = ReasonBounded, fill
	if fill.MeetsLimit {
		return
	}
	v.Class, v.Longer = ClassFillsUp, 0
	v.ToLimit, v.ToLimitLow, v.ToLimitHigh = math.NaN(), math.NaN(), math.NaN()
}

// judgeWorkers judges the workers in place of a process that grows less surely.
func judgeWorkers(v *Verdict, f Findings) { v.giveWayTo(f.Workers, ReasonWorkers) }

// minFaster is how many times as fast as a process other memory must grow to be the result.
const minFaster = 10

// judgeOutside judges the memory outside of the traced processes in place of a process that grows less
// surely. Memory that no process holds also counts where it grows far faster, unless the process leaks
// for certain.
func judgeOutside(v *Verdict, f Findings) {
	o := f.Outside
	if o != nil && !f.IsHeld && !f.WriteOnly && f.Lost == nil && v.Class.Grows() &&
		o.Rate >= minFaster*v.Rate && o.Class.Severity() >= v.Class.Severity() {
		v.replaceBy(o, ReasonOutside)
		return
	}
	v.giveWayTo(o, ReasonOutside)
}

// nameReplaced names workers that grow until they are replaced, where nothing else grows. The class
// stays: their end gives the memory back.
func nameReplaced(v *Verdict, f Findings) {
	if !f.Replaced {
		return
	}

	switch v.Class {
	case ClassPlateau, ClassSpikyPlateau, ClassTooShort:
		v.Reason = ReasonReplaced
	}
}

// giveWayTo takes over a verdict on other memory, where that grows and the process neither does nor
// fills up.
func (v *Verdict) giveWayTo(other *Verdict, reason Reason) {
	if other == nil || !other.Class.Grows() || v.Class.Grows() || v.Class == ClassFillsUp {
		return
	}
	v.replaceBy(other, reason)
}

// replaceBy takes over a verdict on other memory.
func (v *Verdict) replaceBy(other *Verdict, reason Reason) {
	*v = *other
	v.Reason = reason
	v.Level, v.LevelAt = math.NaN(), math.NaN() // it is no level of the RSS
}

// requireStreak suspects a leak that too few checks in a row have found: a trace that is judged
// often is wrong more often. Freed memory, garbage and a known end stay the reason where they are
// one: the user can act on them.
func requireStreak(v *Verdict, f Findings) {
	if v.Class != ClassLeak || f.Streak.Found >= f.Streak.Needed {
		return
	}

	v.Class = ClassSuspected
	switch v.Reason {
	case ReasonFragmentation, ReasonGarbage, ReasonBounded, ReasonWorkers, ReasonOutside: // the cause
	default:
		v.Reason, v.Streak = ReasonFewRechecks, f.Streak
	}
	v.Longer = max(v.Longer, f.UntilEnough)
}

// maxHaltedShare is the share of the time in which a process may be halted for a verdict that it does
// not grow.
const maxHaltedShare = 0.5

// undecideHalted takes back that a process does not grow, where it could not: it hardly ran.
func undecideHalted(v *Verdict, f Findings) {
	if f.Halted <= maxHaltedShare {
		return
	}
	switch v.Class {
	case ClassPlateau, ClassSpikyPlateau, ClassTooShort:
		v.Class, v.Reason = ClassTooShort, ReasonHalted
	}
}

// nameOther names a process that grows, where the traced one has only started it: the wrong one is
// traced. A cache that fills is growth of its own.
func nameOther(v *Verdict, f Findings) {
	if f.Other == nil {
		return
	}

	switch v.Class {
	case ClassPlateau, ClassSpikyPlateau, ClassTooShort:
		v.Class, v.Reason, v.Other = ClassWrongProcess, ReasonOtherProcess, f.Other
	}
}

// endForecast takes the time to the limit away from a process that has ended.
func endForecast(v *Verdict, f Findings) {
	if !f.HasEnded || math.IsNaN(v.ToLimit) {
		return
	}

	v.ToLimit, v.ToLimitLow, v.ToLimitHigh = math.NaN(), math.NaN(), math.NaN()
	v.EndedBeforeLimit = true
}
