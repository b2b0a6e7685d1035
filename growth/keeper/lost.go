package keeper

import (
	"slices"
	"time"
)

// Ages are when the samples of a search were allocated. All are as Search.Elapsed.
type Ages struct {
	// First and Last bound the births of the samples. Samples were chosen among all objects born
	// from Since to Until.
	First, Last, Since, Until time.Duration
}

// A Sweep is one search of all memory of a process for references to the samples that no path leads
// to.
type Sweep struct {
	// Lost are the addresses of the samples that are alive and that nothing refers to, and Samples
	// is the number of all samples that are alive; 0: there was no sweep.
	Lost    []uint64
	Samples int
	// Premise is the first premise that fails: then Lost is empty, or at PremiseBudget the samples
	// that were to be searched for.
	Premise Premise
	// Cycles is how many of Lost are kept by a cycle of objects alone, which accounts for all
	// references that they count. The garbage collector frees them, unless a type of theirs hides a
	// reference.
	Cycles int
	// Before and After are the collector when the sweep began and ended, where it collects all
	// objects at once; nil: it does not, or is not known. IsEarly: it has not run since the sweep
	// before, and nothing was read.
	Before, After *Collector
	IsEarly       bool
	// Bytes is how much memory PremiseSwapped and PremiseUnread are about. Runtime is the runtime of
	// PremiseRuntime: "V8"; or the interpreter of ReasonRuntime, where none fails.
	Bytes   uint64
	Runtime string
}

// A Premise is a premise of a proof that fails.
type Premise string

// Premises.
const (
	// PremiseHolds: none fails.
	PremiseHolds Premise = ""
	// PremiseSwapped: memory that may refer to the samples is swapped out.
	PremiseSwapped Premise = "swapped"
	// PremiseUnread: memory that may refer to the samples could not be read.
	PremiseUnread Premise = "unread"
	// PremiseBudget: the time was used up.
	PremiseBudget Premise = "budget"
	// PremiseRegisters: the registers of the threads could not be read.
	PremiseRegisters Premise = "registers"
	// PremiseKernel: the kernel or a device may hold pointers that cannot be read: io_uring, AIO,
	// mappings of devices.
	PremiseKernel Premise = "kernel"
	// PremiseRuntime: a runtime has references in a form that is not known.
	PremiseRuntime Premise = "runtime"
)

// A Proof is the agreement of two sweeps for the same samples, some time apart.
type Proof struct {
	// Lost is the number of samples that nothing referred to, both times, and Of the number of all
	// that were alive; 0: nothing is proven.
	Lost, Of int
	// First and Second are when the sweeps were made, as Search.Elapsed.
	First, Second time.Duration
}

// IsProven reports whether the samples are lost.
func (p Proof) IsProven() bool { return p.Lost > 0 }

const (
	// MinLost is the least number of lost samples of a proof, and one sample in maxKept may have a
	// reference: a word that nobody uses any more looks like one.
	MinLost = 8
	maxKept = 8
	// minCollections of the whole heap in the time in which samples were allocated are one that all
	// of the older half have seen.
	minCollections = 2
	// MinSweepGap is the least time between the sweeps of a proof.
	MinSweepGap = 10 * time.Second
)

// AreMany reports whether so many of the samples are lost that a second sweep is worth its time.
func (l *Sweep) AreMany() bool { return l.Premise == PremiseHolds && l.MayProve() }

// Unheld is how many samples nothing refers to, by this sweep alone; 0 where a premise fails.
func (l *Sweep) Unheld() int {
	if l.Premise != PremiseHolds {
		return 0
	}
	return len(l.Lost)
}

// MayProve is AreMany, also where there was no time for the sweep: another one may prove them.
func (l *Sweep) MayProve() bool {
	return (l.Premise == PremiseHolds || l.Premise == PremiseBudget) &&
		len(l.Lost) >= MinLost && isNearlyAll(len(l.Lost), l.Samples)
}

// MinCollections is how many collections must have ended for one of the whole heap to have begun
// after the sweep: one may have been under way. It is 0 where none has to.
func (l *Sweep) MinCollections() int64 {
	if l.Cycles == 0 || l.Premise != PremiseHolds || l.After == nil {
		return 0
	}
	return l.After.Collections + minCollections
}

func isNearlyAll(lost, all int) bool { return maxKept*lost >= (maxKept-1)*all }

// IsAlike reports whether two searches are about the same suspect of the same program.
func (s *Search) IsAlike(other *Search) bool {
	return s.IsOfProgram(other) && s.Stack == other.Stack && s.Type == other.Type
}

// isSpread reports whether the samples are of several ages: from at least half of the time in which
// they were chosen. An object that is about to be stored or freed is of the last moment.
func (s *Search) isSpread() bool {
	a := &s.Ages
	return a.Last > a.First && 2*(a.Last-a.First) >= a.Until-a.Since
}

// DropOldGarbage takes back that samples are garbage where they are older than full collections of
// the garbage collector, which would have freed them. Collections is since the first census. They
// leave out frozen objects.
func (s *Search) DropOldGarbage() {
	isCollected := s.Collections >= minCollections && s.Waits.For != WaitUnfreeze
	if s.Garbage > 0 && isCollected && s.isSpread() {
		s.Garbage, s.Waits = 0, Wait{}
		if s.Reason == ReasonGarbage || s.Reason == ReasonNone {
			s.Reason = ReasonChanging
		}
	}
}

// SweepAgain takes a second sweep for the lost samples, which proves that they are lost, shows that
// they are not, or was made too early or in too little time: then another one follows.
func (s *Search) SweepAgain(second *Search) {
	switch {
	case second.Sweep.IsEarly || second.Sweep.Premise == PremiseBudget:
	case s.Sweep.Premise == PremiseBudget: // it is the first one with an answer
		s.Sweep, s.Elapsed = second.Sweep, second.Elapsed
	default:
		s.Proof, s.Sweep = Prove(s, second), Sweep{}
	}
}

// isUncollected reports whether the collector has collected the whole heap between two sweeps, and
// has not freed the objects. Another object of the same stack may not have taken the place of a
// sample. With samples of a type, this is not known of each object: but so many were not freed that
// the samples were not.
func (s *Search) isUncollected(second *Search) bool {
	before, after := s.Sweep.After, second.Sweep.Before

	return before != nil && after != nil && after.Collections >= s.Sweep.MinCollections() &&
		(s.Stack != 0 || maxKept*float64(after.Collected-before.Collected) <= s.Count)
}

// Prove returns the proof by a second sweep for the lost samples of a first one. The zero Proof: a
// premise of one of them fails, or too few samples are lost.
func Prove(first, second *Search) Proof {
	isLater := second.Elapsed-first.Elapsed >= MinSweepGap
	if !first.IsOfProgram(second) || !isLater || !first.isSpread() ||
		!first.Sweep.AreMany() || second.Sweep.Premise != PremiseHolds {
		return Proof{}
	}

	if first.Sweep.Cycles+second.Sweep.Cycles > 0 && !first.isUncollected(second) {
		return Proof{}
	}

	lost := 0
	for _, address := range second.Sweep.Lost {
		if slices.Contains(first.Sweep.Lost, address) {
			lost++
		}
	}

	freed := max(0, len(first.Sweep.Lost)-second.Sweep.Samples)
	alive := first.Sweep.Samples - freed
	if lost < MinLost || !isNearlyAll(lost, alive) {
		return Proof{}
	}
	return Proof{Lost: lost, Of: alive, First: first.Elapsed, Second: second.Elapsed}
}
