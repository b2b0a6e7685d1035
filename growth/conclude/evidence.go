package conclude

import (
	"cmp"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Evidence has the facts of a trace for and against a leak, with their numbers. It decides nothing:
// the verdict does. Facts are in the order of their weight.
type Evidence struct {
	For, Against []Fact
	// Excluded are other explanations that were checked, and do not hold.
	Excluded []Exclusion
	// UntilLeak is for how much longer the growth must last to be a leak, in X of the verdict; NaN:
	// it is one, or no length alone proves it.
	UntilLeak float64
}

// A Fact is one piece of evidence. It has the numbers of its code; all others are 0.
type Fact struct {
	Code FactCode `json:"code"`
	// Share of the growth, or of a whole that the code names. Ratio of two rates.
	Share float64 `json:"share,omitempty"`
	Ratio float64 `json:"ratio,omitempty"`
	// PerMinute and Count are numbers of things. Needed is how many of them are required.
	PerMinute float64 `json:"per_min,omitempty"`
	Count     int64   `json:"count,omitempty"`
	Needed    int64   `json:"needed,omitempty"`
	// Length or point on the X axis of the verdict: seconds, or steps. Of PerMinute entries: for how
	// long they were counted, in seconds.
	Length float64 `json:"length,omitempty"`
}

// A FactCode is the code of a fact. Package words has the sentences.
type FactCode string

// Facts that speak for a leak.
const (
	FactChecks    FactCode = "checks"        // Count checks in a row found a leak, of Needed
	FactMature    FactCode = "mature"        // the process was Length old when it was first seen
	FactWarm      FactCode = "after-warm-up" // a warm-up ended at Length
	FactStraight  FactCode = "straight"      // a straight line but for Share of its rise
	FactFaster    FactCode = "faster"        // the second half rose Ratio times as fast
	FactKeeper    FactCode = "keeper-grows"  // its container gains PerMinute entries
	FactAppended  FactCode = "append-only"   // the same, and it has lost none for Length seconds
	FactWriteOnly FactCode = "write-only"    // the same, and the program's own code only adds
	FactKept      FactCode = "kept"          // a variable keeps it
	FactPins      FactCode = "pins"          // a container that can pin free memory gains PerMinute
	FactThreads   FactCode = "threads"       // PerMinute threads more, whose number never fell
	FactGains     FactCode = "gains"         // a container gains PerMinute, of unknown memory
	FactSites     FactCode = "sites"         // call sites of WHERE explain Share
	FactNoneFreed FactCode = "none-freed"    // they explain Share, and have freed nothing
	FactUnheld    FactCode = "unheld"        // one search found no reference to Count of Needed samples
)

// Facts that speak against a leak, or that leave the growth unexplained.
const (
	FactFewSites   FactCode = "few-sites"  // call sites of WHERE explain only Share
	FactSlower     FactCode = "slower"     // the second half rose Ratio times as fast
	FactNoEpoch    FactCode = "no-epoch"   // Count steps were seen, and no end of an epoch
	FactUneven     FactCode = "uneven"     // it is off a straight line by Share of its rise
	FactRecompiles FactCode = "recompiles" // PerMinute kernels are compiled newly
	FactFreedKept  FactCode = "freed-kept" // Share is freed memory that malloc keeps
	FactPageCache  FactCode = "page-cache" // Share is pages of mapped files
	FactNoCause    FactCode = "no-cause"   // the cause of Share is not known
	FactGarbage    FactCode = "garbage"    // most of it waits for the garbage collector
	FactFewChecks  FactCode = "few-checks" // only Count checks in a row found a leak, of Needed
)

// The facts of growth that is no leak yet, one for each verdict.Lack. Length is the age of the
// process, of FactLackLength the length of the growth.
const (
	FactLackLength FactCode = "lack-length"
	FactLackEpoch  FactCode = "lack-epoch"
	FactLackEarly  FactCode = "lack-early"
	FactLackWarmup FactCode = "lack-warm-up"
	FactLackSlow   FactCode = "lack-slow"
	FactLackAge    FactCode = "lack-age"
	FactLackNew    FactCode = "lack-new"
	FactLackSteady FactCode = "lack-steady"
)

// lackCode is the code of a lack.
func lackCode(l verdict.Lack) FactCode { return FactCode("lack-" + l) }

// FactCodes are the codes of all facts.
var FactCodes = []FactCode{
	FactChecks, FactMature, FactWarm, FactStraight, FactFaster, FactKeeper, FactAppended,
	FactWriteOnly, FactKept, FactPins, FactThreads, FactGains, FactSites, FactNoneFreed, FactUnheld,
	FactFewSites, FactSlower, FactNoEpoch, FactUneven, FactRecompiles, FactFreedKept, FactPageCache,
	FactNoCause, FactGarbage, FactFewChecks,
	FactLackLength, FactLackEpoch, FactLackEarly, FactLackWarmup, FactLackSlow, FactLackAge, FactLackNew,
	FactLackSteady,
}

const (
	// maxStraight is the misfit of a straight line, and minUneven of none.
	maxStraight, minUneven = 0.05, 0.1
	// sameHalves is the ratio of the rates of both halves up to which they are alike.
	sameHalves = 1.25
	// minPart of the growth is worth a fact.
	minPart = 0.1
	// minSites is the share from which on call sites are evidence.
	minSites = 0.5
	// minThreads are as many more threads as are worth a fact.
	minThreads = 8
	// maxFreed of the memory that call sites have allocated counts as nothing.
	maxFreed = 0.01
)

// known is the data that rules look at.
type known struct {
	verdict.Verdict
	// result is nil where only a series is known.
	result *Result
}

// A rule finds one fact; false: there is none.
type rule func(*known) (Fact, bool)

// speakFor and speakAgainst are all rules, by their weight: one line a fact.
var (
	speakFor = []rule{
		checks, mature, threads, keeperGrows, pins, gains, unheld, callSites, straight, faster,
		afterWarmup,
	}
	speakAgainst = []rule{
		fewChecks, garbage, recompiles, slower, noEpoch, lacks, freedKept, pageCache, fewSites, uneven,
		noCause,
	}
)

// SeriesEvidence is the evidence of a series alone.
func SeriesEvidence(v verdict.Verdict) Evidence {
	k := known{Verdict: v}
	return k.evidence()
}

// evidence of the main process. Where the verdict is about memory that it does not hold, its code,
// keepers and kinds of memory say nothing of that: the series alone does.
func (t *Trace) evidence(r *Result) Evidence {
	switch r.Main.Reason {
	case verdict.ReasonWorkers, verdict.ReasonReplaced, verdict.ReasonOutside:
		return SeriesEvidence(r.Main.Verdict)
	}

	k := known{Verdict: r.Main.Verdict, result: r}
	e := k.evidence()
	e.Excluded = k.excluded(t)
	return e
}

func (k *known) evidence() Evidence {
	e := Evidence{UntilLeak: math.NaN()}
	if !k.grows() {
		if f, ok := gains(k); ok {
			e.For = []Fact{f}
		}
		return e
	}

	found := func(rules []rule) (facts []Fact) {
		for _, rule := range rules {
			if f, ok := rule(k); ok {
				facts = append(facts, f)
			}
		}
		return facts
	}
	e.For, e.Against = found(speakFor), found(speakAgainst)
	if k.Class != verdict.ClassLeak && k.Class != verdict.ClassSaturating {
		switch {
		case k.Shape.Lack != "":
			e.UntilLeak = k.Shape.UntilLeak
		case k.Longer > 0:
			e.UntilLeak = k.Longer
		}
	}
	return e
}

func (k *known) grows() bool { return k.Class.Grows() || k.Class == verdict.ClassSaturating }

func checks(k *known) (Fact, bool) {
	if k.result == nil {
		return Fact{}, false
	}
	streak := k.result.Main.Findings.Streak
	f := Fact{Code: FactChecks, Count: int64(streak.Found), Needed: int64(streak.Needed)}
	return f, k.Class == verdict.ClassLeak && streak.Needed > 1
}

func fewChecks(k *known) (Fact, bool) {
	f := Fact{Code: FactFewChecks, Count: int64(k.Streak.Found), Needed: int64(k.Streak.Needed)}
	return f, k.Reason == verdict.ReasonFewRechecks
}

func mature(k *known) (Fact, bool) {
	return Fact{Code: FactMature, Length: k.Shape.Age}, k.Shape.IsMature
}

// afterWarmup is a warm-up that was seen to end.
func afterWarmup(k *known) (Fact, bool) {
	isWarmup := func(p verdict.Phase) bool { return p.Kind == verdict.PhaseWarmup }
	return Fact{Code: FactWarm, Length: k.From - k.Start},
		slices.ContainsFunc(k.Phases, isWarmup) && k.From > k.Start
}

func straight(k *known) (Fact, bool) {
	halves := k.Shape.Halves
	return Fact{Code: FactStraight, Share: k.Shape.Misfit, Length: k.Length},
		k.Shape.Misfit <= maxStraight && halves <= sameHalves && halves >= 1/sameHalves
}

func uneven(k *known) (Fact, bool) {
	return Fact{Code: FactUneven, Share: k.Shape.Misfit}, k.Shape.Misfit >= minUneven
}

func faster(k *known) (Fact, bool) {
	return Fact{Code: FactFaster, Ratio: k.Shape.Halves}, k.Shape.Halves > sameHalves
}

func slower(k *known) (Fact, bool) {
	return Fact{Code: FactSlower, Ratio: k.Shape.Halves}, k.Shape.Halves > 0 && k.Shape.Halves < 1/sameHalves
}

// lacks is the condition of a leak that the growth does not meet.
func lacks(k *known) (Fact, bool) {
	f := Fact{Code: lackCode(k.Shape.Lack), Length: k.Shape.Age}
	if k.Shape.Lack == verdict.LackLength {
		f.Length = k.Length
	}
	return f, k.Shape.Lack != "" && k.Class != verdict.ClassLeak &&
		k.Class != verdict.ClassSaturating
}

// noEpoch are steps whose first pass over the data may not be over.
func noEpoch(k *known) (Fact, bool) {
	isOpen := k.Shape.Lack == verdict.LackWarmup || k.Shape.Lack == verdict.LackSlow
	if k.result == nil || k.result.Steps == nil || !isOpen {
		return Fact{}, false
	}
	return Fact{Code: FactNoEpoch, Count: k.result.Steps.Count},
		k.Class.Grows() && k.Class != verdict.ClassLeak
}

// keeperGrows is the container that keeps the memory of the first suspect, or of a type that grows.
func keeperGrows(k *known) (Fact, bool) {
	if k.result == nil {
		return Fact{}, false
	}
	found := mainSearch(&k.result.Main, k.result.Keepers)
	if found == nil {
		return Fact{}, false
	}

	path := &found.Paths[0]
	at := path.GrowingLink()
	if at < 0 { // all that is in use is reachable from a variable without a symbol
		isUnnamed := path.Root.Kind == keeper.RootStatic && path.Root.Name == ""
		return Fact{Code: FactKept}, !isUnnamed && path.Root.Kind != keeper.RootCycle
	}
	l := &path.Links[at]
	if l.Limit > 0 { // it gains entries until then
		return Fact{}, false
	}
	f := Fact{Code: FactKeeper, PerMinute: l.PerMinute, Length: l.GrowthS}
	switch {
	case isWriteOnly(l):
		f.Code = FactWriteOnly
	case isAppendOnly(l):
		f.Code = FactAppended
	}
	return f, true
}

// threads are threads that become more all the time, as the ones that wait for ever do: each keeps
// its stack, and the objects of its functions. A pool that starts its threads once is none.
func threads(k *known) (Fact, bool) {
	if k.result == nil || k.result.Main.History == nil {
		return Fact{}, false
	}
	main := &k.result.Main
	samples := slices.DeleteFunc(slices.Clone(main.History.Timeline), func(s growth.Sample) bool {
		return s.Elapsed < main.Window.From || s.Threads == growth.Unknown
	})
	isRising := slices.IsSortedFunc(samples,
		func(a, b growth.Sample) int { return cmp.Compare(a.Threads, b.Threads) })
	if len(samples) < 3 || !isRising {
		return Fact{}, false
	}

	first, middle, last := samples[0], samples[len(samples)/2], samples[len(samples)-1]
	more := last.Threads - first.Threads
	if more < minThreads || 4*min(middle.Threads-first.Threads, last.Threads-middle.Threads) < more {
		return Fact{}, false
	}
	minutes := (last.Elapsed - first.Elapsed).Minutes()
	return Fact{Code: FactThreads, PerMinute: float64(more) / minutes}, true
}

// gains is a container that has only gained entries, where memory is flat or not known to grow: a
// leak of small objects that fill memory which was free before. Where memory grows and most of that
// has no cause, the container may keep it: the memory of C++ behind its entries is not counted.
func gains(k *known) (Fact, bool) {
	switch {
	case k.result == nil:
		return Fact{}, false
	case k.Reason == verdict.ReasonGrowthEnded: // it may no longer gain any
		return Fact{}, false
	case k.Class.IsFlat(), k.Class == verdict.ClassTooShort:
	case !k.grows(), k.cause(diagnosis.Undecided) < minSites,
		mainSearch(&k.result.Main, k.result.Keepers) != nil:
		return Fact{}, false
	}
	for _, s := range k.result.Keepers {
		if len(s.Paths) == 0 || 2*s.Paths[0].Samples < s.Samples || s.IsEarlier {
			continue
		}
		at := s.Paths[0].GrowingLink()
		if at < 0 {
			continue
		}
		l := &s.Paths[0].Links[at]
		if isAppendOnly(l) || k.grows() && l.AppendOnly && gained(l) >= minAppended {
			return Fact{Code: FactGains, PerMinute: l.PerMinute, Length: l.GrowthS}, true
		}
	}
	return Fact{}, false
}

// pins are objects that something keeps, more of them by the minute, where most of the growth is
// freed memory: malloc returns no page on which such an object lies. PerMinute is 0 where their
// container is not known to grow. Share is 0 where the verdict itself is about the freed memory.
func pins(k *known) (Fact, bool) {
	f := Fact{Code: FactPins}
	isVerdict := k.Reason == verdict.ReasonFragmentation
	if !isVerdict {
		f.Share = k.cause(diagnosis.Fragmentation)
	}
	if k.result == nil || !isVerdict && f.Share < minSites {
		return Fact{}, false
	}
	isKept := false
	for _, s := range k.result.Keepers {
		if len(s.Paths) == 0 {
			continue
		}
		at := s.Paths[0].GrowingLink()
		grows := at >= 0 && 2*s.Paths[0].Samples >= s.Samples
		if grows && gained(&s.Paths[0].Links[at]) >= minAppended {
			f.PerMinute = s.Paths[0].Links[at].PerMinute
			return f, true
		}
		isKept = isKept || grows || isVerdict && s.Type != "" // there are more and more of it
	}
	return f, isKept
}

// unheld are objects to which one search has found no reference: it takes two to prove that none is
// there.
func unheld(k *known) (Fact, bool) {
	if k.result == nil || k.Lost != nil {
		return Fact{}, false
	}
	found := searchThat(&k.result.Main, k.result.Keepers, func(s *keeper.Search) bool {
		return 2*s.Sweep.Unheld() > s.Samples
	})
	if found == nil {
		return Fact{}, false
	}
	lost := int64(found.Sweep.Unheld())
	return Fact{Code: FactUnheld, Count: lost, Needed: int64(found.Samples)}, true
}

// garbage are objects in cycles: the collector frees them when it runs.
func garbage(k *known) (Fact, bool) {
	if k.result == nil {
		return Fact{}, false
	}
	found := garbageSearch(&k.result.Main, k.result.Keepers)
	if found == nil {
		return Fact{}, false
	}
	return Fact{Code: FactGarbage, Count: int64(found.Garbage), Needed: int64(found.Samples)}, true
}

// callSites are the suspects that explain the growth, and whether they have freed anything.
func callSites(k *known) (Fact, bool) {
	share, stacks := k.explained()
	f := Fact{Code: FactSites, Share: share}
	if share < minSites {
		return f, false
	}
	if freed, ok := k.freedBy(stacks); ok && freed <= maxFreed {
		f.Code = FactNoneFreed
	}
	return f, true
}

// fewSites are suspects that explain less than half of the growth.
func fewSites(k *known) (Fact, bool) {
	share, stacks := k.explained()
	return Fact{Code: FactFewSites, Share: share}, len(stacks) > 0 && share < minSites
}

// explained is the share of the growth that suspects explain, and their stacks.
func (k *known) explained() (share float64, stacks map[uint64]bool) {
	stacks = make(map[uint64]bool)
	if k.result == nil || k.Reason == verdict.ReasonFragmentation {
		return 0, stacks
	}
	for _, s := range k.result.Main.Suspects {
		if math.IsNaN(s.Share) || growth.IsLostFrame(s.Frame.Function) {
			continue
		}
		share += s.Share
		for _, id := range s.StackIDs {
			stacks[id] = true
		}
	}

	// Where most of the growth has a cause, WHO has its share: call sites are no more.
	if undecided := k.cause(diagnosis.Undecided); undecided < minSites {
		share = min(share, 1-undecided)
	}
	return min(1, share), stacks
}

// freedBy is the share of the heap memory allocated by stacks since the baseline that they have
// freed again; false where not all calls were probed.
func (k *known) freedBy(stacks map[uint64]bool) (share float64, ok bool) {
	pair, pid := k.result.Pair, k.result.Main.History.PID
	_, isComplete := claim.May(claim.LiveObjects, pid, claim.Missing(pair.End))
	if pair.End.Heap.Bursts > 0 || !isComplete {
		return 0, false
	}

	allocated, kept := 0.0, 0.0
	add := func(s *growth.Snapshot, sign float64) {
		for i := range s.Holdings {
			h := &s.Holdings[i]
			if h.Kind == growth.KindHeap && h.Stack.PID == pid && stacks[h.Stack.ID] {
				allocated += sign * h.AllocBytes
				kept += sign * float64(h.InuseBytes)
			}
		}
	}
	add(pair.End, 1)
	add(pair.Start, -1)

	if allocated <= 0 {
		return 0, false
	}
	return max(0, 1-kept/allocated), true
}

func recompiles(k *known) (Fact, bool) {
	if k.result == nil || len(k.result.Main.Suspects) == 0 {
		return Fact{}, false
	}
	perMinute := 60 * k.result.Main.Suspects[0].NewCode
	return Fact{Code: FactRecompiles, PerMinute: perMinute}, perMinute > 0
}

// freedKept is freed memory beside the growth that is judged. It speaks against a leak, unless kept
// objects can pin it.
func freedKept(k *known) (Fact, bool) {
	if _, ok := pins(k); ok {
		return Fact{}, false
	}
	share := k.cause(diagnosis.Fragmentation)
	return Fact{Code: FactFreedKept, Share: share},
		share >= minPart && k.Reason != verdict.ReasonFragmentation
}

func pageCache(k *known) (Fact, bool) {
	share := k.cause(diagnosis.PageCache)
	return Fact{Code: FactPageCache, Share: share}, share >= minPart
}

// noCause is the part of the growth that neither has a cause nor a call site.
func noCause(k *known) (Fact, bool) {
	explained, _ := k.explained()
	share := min(k.cause(diagnosis.Undecided), 1-explained)
	return Fact{Code: FactNoCause, Share: share}, share >= minPart
}

// cause is the share of the growth that has a cause.
func (k *known) cause(of diagnosis.Cause) (share float64) {
	if k.result == nil {
		return 0
	}
	for _, d := range k.result.Main.Diagnoses {
		if d.Cause == of {
			share += d.Share
		}
	}
	return share
}
