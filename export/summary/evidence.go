package summary

import (
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
)

// Evidence has the facts of a trace for a leak and against one. Package words has the sentences.
type Evidence struct {
	// For and Against have the facts, by their weight.
	For     []conclude.Fact `json:"for,omitempty"`
	Against []conclude.Fact `json:"against,omitempty"`
	// Excluded are other explanations that were checked, and do not hold.
	Excluded []conclude.Exclusion `json:"excluded,omitempty"`
	// Limits keep the answer from being better.
	Limits []Limitation `json:"limits,omitempty"`
	// UntilLeak is for how much longer the growth must last to be a leak, in the unit of the axis;
	// absent: it is one, or no length alone proves it.
	UntilLeak *float64 `json:"until_leak,omitempty"`
}

// Pins is the fact that objects are kept that can pin freed memory, if it is one.
func (e *Evidence) Pins() (f conclude.Fact, ok bool) { return e.fact(conclude.FactPins) }

// Gains is the fact that a container only gains entries, where memory does not grow or most of its
// growth has no cause, if it is one.
func (e *Evidence) Gains() (f conclude.Fact, ok bool) { return e.fact(conclude.FactGains) }

// Threads is the fact that threads pile up, if it is one.
func (e *Evidence) Threads() (f conclude.Fact, ok bool) { return e.fact(conclude.FactThreads) }

// fact returns a fact for a leak; false: there is none of the code.
func (e *Evidence) fact(code conclude.FactCode) (f conclude.Fact, ok bool) {
	if e == nil {
		return f, false
	}
	i := slices.IndexFunc(e.For, func(f conclude.Fact) bool { return f.Code == code })
	if i < 0 {
		return f, false
	}
	return e.For[i], true
}

// A Limitation is a gap in the data that keeps an answer from being better. It has the numbers of its
// code; all others are absent.
type Limitation struct {
	Code LimitationCode `json:"code"`
	// Share of the whole that the code names, and Count of things.
	Share float64 `json:"share,omitempty"`
	Count int64   `json:"count,omitempty"`
	// OpenS is how long the heap was probed.
	OpenS float64 `json:"open_s,omitempty"`
	// Cause is why most stacks lack frames.
	Cause growth.Truncation `json:"cause,omitempty"`
	// Runtime runs the language whose functions have no names on the stacks. IsListed: some have, as
	// the runtime lists its generated code.
	Runtime  growth.Runtime `json:"runtime,omitempty"`
	IsListed bool           `json:"is_listed,omitempty"`
	// File has functions without names on the stacks: it has no symbols. Package has them, which
	// Manager installs; absent where it is not known.
	File    string                `json:"file,omitempty"`
	Manager growth.PackageManager `json:"manager,omitempty"`
	Package string                `json:"package,omitempty"`
}

// A LimitationCode is the code of a limitation.
type LimitationCode string

// The limitations.
const (
	LimitedNoHeap  LimitationCode = "no-heap"          // malloc was not traced
	LimitedRuntime LimitationCode = "language-frames"  // functions in Runtime lack names
	LimitedSymbols LimitationCode = "symbols"          // functions in File lack names
	LimitedPython  LimitationCode = "no-python"        // stacks have no Python frames
	LimitedThreads LimitationCode = "python-frames"    // Share of the stacks lack Python frames
	LimitedStacks  LimitationCode = "truncated-stacks" // Share of the stacks
	LimitedBursts  LimitationCode = "bursts"           // the heap was probed in Count bursts, for OpenS
	LimitedCensus  LimitationCode = "census"           // objects were counted in Share of their memory
)

// LimitationCodes are all of them.
var LimitationCodes = []LimitationCode{
	LimitedNoHeap, LimitedRuntime, LimitedSymbols, LimitedPython, LimitedThreads, LimitedStacks,
	LimitedBursts, LimitedCensus,
}

const (
	// minShortStacks is the share of the stacks that is worth a word where they lack frames.
	minShortStacks = 0.1
	// minCensus is the share of the memory of small objects from which on a census is a whole one.
	minCensus = 0.95
)

// EvidenceOf converts evidence; nil: there is none.
func EvidenceOf(e conclude.Evidence) *Evidence {
	out := &Evidence{
		For: rounded(e.For), Against: rounded(e.Against), UntilLeak: milli(e.UntilLeak),
	}
	for _, x := range e.Excluded {
		x.Share = thousandth(x.Share)
		out.Excluded = append(out.Excluded, x)
	}
	if len(e.For) == 0 && len(e.Against) == 0 && len(e.Excluded) == 0 && out.UntilLeak == nil {
		return nil
	}
	return out
}

// rounded are facts with as many decimals as they deserve.
func rounded(facts []conclude.Fact) (out []conclude.Fact) {
	for _, f := range facts {
		f.Share, f.Ratio = thousandth(f.Share), thousandth(f.Ratio)
		f.PerMinute, f.Length = thousandth(f.PerMinute), thousandth(f.Length)
		out = append(out, f)
	}
	return out
}

// thousandth rounds a number, and makes one that is not finite 0, which is absent.
func thousandth(x float64) float64 {
	if rounded := milli(x); rounded != nil {
		return *rounded
	}
	return 0
}

// AddLimits adds the gaps that keep the answer from being better to the evidence, by the other
// fields. debugOf finds the package with the symbols of a file.
func (s *Summary) AddLimits(debugOf func(file string) growth.DebugPackage) {
	limits := limitationsOf(s, debugOf)
	if len(limits) == 0 {
		return
	}
	if s.Evidence == nil {
		s.Evidence = &Evidence{}
	}
	s.Evidence.Limits = limits
}

// limitationsOf are the gaps in the data of a trace, by their weight.
func limitationsOf(
	s *Summary, debugOf func(file string) growth.DebugPackage,
) (all []Limitation) {
	for _, source := range s.Sources {
		isOwn := source.PID == 0 || source.PID == s.Process.PID
		if !isOwn || source.State != SourceFailed {
			continue
		}
		switch source.Name {
		case "heap":
			if source.Reason == growth.SourceGo {
				continue // it has no malloc
			}
			all = append(all, Limitation{Code: LimitedNoHeap})
		case "python":
			all = append(all, Limitation{Code: LimitedPython})
		}
	}

	if l, ok := unnamedLanguage(s); ok {
		all = append(all, l)
	}
	if file := unnamedFile(s); file != "" {
		debug := debugOf(file)
		all = append(all, Limitation{
			Code: LimitedSymbols, File: file, Manager: debug.Manager, Package: debug.Name,
		})
	}
	if l, ok := shortStacks(s, growth.LossPythonFrames); ok {
		l.Code = LimitedThreads
		all = append(all, l)
	}
	if o := s.Overhead; o.InBursts() {
		all = append(all, Limitation{Code: LimitedBursts, Count: int64(o.Bursts), OpenS: o.OpenS})
	}
	if l, ok := shortStacks(s, growth.LossTruncatedStacks); ok {
		l.Code = LimitedStacks
		all = append(all, l)
	}
	if o := s.Objects; o != nil && o.Share > 0 && o.Share < minCensus {
		all = append(all, Limitation{Code: LimitedCensus, Share: o.Share})
	}
	return all
}

// unnamedLanguage is the runtime of a language whose functions have no names where most memory
// grows.
func unnamedLanguage(s *Summary) (l Limitation, ok bool) {
	if len(s.Suspects) == 0 {
		return l, false
	}
	l.Code = LimitedRuntime
	l.Runtime, l.IsListed = s.Suspects[0].UnnamedLanguage()
	return l, l.Runtime != ""
}

// unnamedFile is the file without symbols whose functions would say more about where most memory
// grows; empty: there is none. A library that the user's code calls is of interest where it loses the
// memory.
func unnamedFile(s *Summary) string {
	if len(s.Suspects) == 0 {
		return ""
	}

	c := &s.Suspects[0]
	file := c.UnnamedFile()
	if _, at := c.UserFrame(); at >= 0 && s.Lost == nil && !growth.IsOwnModule(file) {
		return ""
	}
	return file
}

// shortStacks is the share of the stacks that lack frames in one way, and the cause of most; false:
// few do.
func shortStacks(s *Summary, kind growth.LossKind) (l Limitation, ok bool) {
	var most, sum uint64
	for _, loss := range s.Losses {
		isOwn := loss.PID == 0 || loss.PID == s.Process.PID
		if loss.Kind != kind || !isOwn {
			continue
		}
		sum += loss.Count
		if loss.Count > most {
			most, l.Cause = loss.Count, loss.Cause
		}
	}

	l.Share = min(1, float64(sum)/float64(max(1, s.Events.Stacks)))
	return l, l.Share >= minShortStacks
}
