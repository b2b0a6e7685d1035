package words

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A factText says a fact of a verdict.
type factText func(f conclude.Fact, v summary.Verdict) string

// said is a factText that depends on no number.
func said(text string) factText { return func(conclude.Fact, summary.Verdict) string { return text } }

// share is a factText with the share of a fact.
func share(format string) factText {
	return func(f conclude.Fact, _ summary.Verdict) string {
		return fmt.Sprintf(format, sharePercent(f.Share))
	}
}

// ratio is a factText with the ratio of a fact.
func ratio(format string) factText {
	return func(f conclude.Fact, _ summary.Verdict) string {
		return fmt.Sprintf(format, units.Fixed(f.Ratio, 1))
	}
}

// checked is a factText with the checks of a fact.
func checked(format string) factText {
	return func(f conclude.Fact, _ summary.Verdict) string {
		return fmt.Sprintf(format, f.Count, f.Needed)
	}
}

// length is a factText with the length of a fact; without one, it is the other text.
func length(format, without string) factText {
	return func(f conclude.Fact, v summary.Verdict) string {
		if f.Length < 1 {
			return without
		}
		return fmt.Sprintf(format, lengthText(f.Length, v.InSteps()))
	}
}

// gainsText is how many entries a container gains.
func gainsText(f conclude.Fact) string {
	if gained := f.PerMinute / 60 * f.Length; isBrief(f.Length) {
		return fmt.Sprintf("gained %s entries in %s", units.Thousands(units.Round(gained)),
			lengthText(f.Length, false))
	}
	return "gains " + units.Thousands(units.Round(f.PerMinute)) + " entries/min"
}

// factTexts are the texts of all facts. TestFacts fails where one is missing.
var factTexts = map[conclude.FactCode]factText{
	conclude.FactChecks:   checked("%d of %d checks in a row found it"),
	conclude.FactMature:   length("the process was %s old", ""),
	conclude.FactWarm:     length("a warm-up of %s has ended", "a warm-up has ended"),
	conclude.FactStraight: straightText,
	conclude.FactFaster:   ratio("its second half rose %sx as fast as its first"),
	conclude.FactKeeper: func(f conclude.Fact, _ summary.Verdict) string {
		return "what keeps it " + gainsText(f)
	},
	conclude.FactAppended: func(f conclude.Fact, _ summary.Verdict) string {
		return fmt.Sprintf("what keeps it gains %s entries/min and has lost none in %s",
			units.Thousands(units.Round(f.PerMinute)), lengthText(f.Length, false))
	},
	conclude.FactWriteOnly: func(f conclude.Fact, _ summary.Verdict) string {
		return fmt.Sprintf("what keeps it gains %s entries/min, has lost none in %s, "+
			"and the program's own code only adds to it",
			units.Thousands(units.Round(f.PerMinute)), lengthText(f.Length, false))
	},
	conclude.FactKept: said("a variable keeps it"),
	conclude.FactPins: func(f conclude.Fact, _ summary.Verdict) string {
		text := "kept objects can pin it"
		if f.Share > 0 {
			text = sharePercent(f.Share) + " is freed memory that kept objects can pin"
		}
		if f.PerMinute == 0 {
			return text
		}
		return text + ": " + units.Thousands(units.Round(f.PerMinute)) + " more/min"
	},
	conclude.FactThreads: func(f conclude.Fact, _ summary.Verdict) string {
		return units.Thousands(units.Round(f.PerMinute)) + " more threads/min, and their number never fell"
	},
	conclude.FactGains: func(f conclude.Fact, _ summary.Verdict) string {
		return "a container " + gainsText(f)
	},
	conclude.FactSites:     sitesText(""),
	conclude.FactNoneFreed: sitesText(", and has freed nothing"),
	conclude.FactUnheld:    checked("a search of its memory found no reference to %d of %d samples"),

	conclude.FactSlower:   ratio("its second half rose %sx as fast as its first"),
	conclude.FactUneven:   share("it is off a straight line by %s of its rise"),
	conclude.FactFewSites: share("the code in WHERE explains only %s"),
	conclude.FactRecompiles: func(f conclude.Fact, _ summary.Verdict) string {
		return fmt.Sprintf("%.1f kernels/min are compiled", f.PerMinute)
	},
	conclude.FactFreedKept: share("%s is freed, and kept by malloc"),
	conclude.FactPageCache: share("%s is page cache"),
	conclude.FactNoCause:   share("%s has no known cause"),
	conclude.FactFewChecks: checked("only %d of %d checks in a row found it"),
	conclude.FactNoEpoch: func(f conclude.Fact, _ summary.Verdict) string {
		return units.Thousands(f.Count) + " steps may be the first epoch"
	},

	conclude.FactLackLength: length("it has lasted only %s", "it is short"),
	conclude.FactLackEpoch:  said("the first pass over the data has only just ended"),
	conclude.FactLackEarly:  said("it began late, as a new phase of the job does"),
	conclude.FactLackWarmup: length("no warm-up has ended (the trace began when the process was %s old)",
		"no warm-up has ended"),
	conclude.FactLackSlow:   lackSlowText,
	conclude.FactGarbage:    checked("%d of %d samples wait for the garbage collector"),
	conclude.FactLackAge:    length("the process was only %s old", "the process is young"),
	conclude.FactLackNew:    said("it goes back to a level that was held before"),
	conclude.FactLackSteady: said("a few jumps make up most of it"),
}

// sitesText is a factText with how much of the growth call sites explain. WHO has the share by another
// measure: the two never agree to the percent.
func sitesText(more string) factText {
	return func(f conclude.Fact, _ summary.Verdict) string {
		part := "most"
		switch {
		case f.Share >= allShare:
			part = "all"
		case f.Share >= nearlyAll:
			part = "nearly all"
		}
		return "the code in WHERE explains " + part + " of it" + more
	}
}

// nearlyAll is the share from which on call sites explain nearly all of the growth.
const nearlyAll = 0.8

// lackSlowText says that the growth is as fast as growth of another kind can be.
func lackSlowText(f conclude.Fact, v summary.Verdict) string {
	isWarm := slices.ContainsFunc(evidenceOf(v).For, func(f conclude.Fact) bool {
		return f.Code == conclude.FactWarm
	})
	if isWarm {
		return "a new phase of the job can be as fast"
	}
	return length("a warm-up can be as fast (the trace began when the process was %s old)",
		"a warm-up can be as fast")(f, v)
}

// straightText says how straight a line is.
func straightText(f conclude.Fact, _ summary.Verdict) string {
	if f.Share < 0.001 {
		return "a straight line"
	}
	return "a straight line (±" + units.Percent(f.Share) + ")"
}

// facts are the texts of facts that have one.
func facts(all []conclude.Fact, v summary.Verdict) (texts []string) {
	for _, f := range all {
		if text := factTexts[f.Code]; text != nil {
			texts = append(texts, text(f, v))
		}
	}
	return texts
}

// sureRoom is the width of a line of HOW SURE.
const sureRoom = ResultWidth - labelWidth

// packed joins sentences behind a prefix, as many as have room, at least one; empty: there is none.
func packed(prefix string, sentences []string) string { return fit(prefix, "; ", sentences) }

// listed is packed for the names of a list.
func listed(prefix string, names []string) string { return fit(prefix, ", ", names) }

func fit(prefix, separator string, texts []string) string {
	texts = present(slices.Clone(texts)...)
	if len(texts) == 0 {
		return ""
	}

	line := prefix + texts[0]
	for _, text := range texts[1:] {
		if more := line + separator + text; ansi.StringWidth(more) <= sureRoom {
			line = more
		}
	}
	return line
}

// sureLines are the proof of the verdict, its gaps, and the explanations that are excluded.
func sureLines(s *summary.Summary) []string {
	v := s.Verdict
	if left := s.EndsIn(); !math.IsInf(left, 1) {
		v.ToLimit = &left
	}
	lines := Certainty(v)
	switch s.WhyCode {
	case verdict.ReasonReplaced:
		lines = replacedSure(s)
	case verdict.ReasonFragmentation:
		lines = []string{strings.Join(fragmentationLines(s), "; ")}
	case verdict.ReasonGarbage:
		lines = garbageLines(s)
	}

	switch {
	case s.WhyCode == verdict.ReasonFragmentation, !explains(s.Evidence):
		lines = append(lines, accountLine(s))
	case s.MainCause() == nil:
		lines = append(lines, freeUnknownLine(s))
	}

	// A gap in the data outweighs the time that decides, which DO NEXT has, too.
	lines = present(lines...)
	at := len(lines)
	if at > 0 && lines[at-1] == decidesText(v) {
		at--
	}
	return append(slices.Insert(lines, at, limitsLine(s)), excludedLine(s))
}

// explains reports whether evidence says how much of the growth has an explanation.
func explains(e *summary.Evidence) bool {
	return e != nil && slices.ContainsFunc(slices.Concat(e.For, e.Against), func(f conclude.Fact) bool {
		switch f.Code {
		case conclude.FactSites, conclude.FactNoneFreed, conclude.FactFewSites, conclude.FactNoCause:
			return true
		}
		return false
	})
}

// excludedTexts are other explanations of growth.
var excludedTexts = map[conclude.ExclusionCode]string{
	conclude.ExcludedFree: "freed memory", conclude.ExcludedFiles: "page cache",
	conclude.ExcludedShared: "shared memory", conclude.ExcludedGPU: "GPU memory",
	conclude.ExcludedChildren: "of the tree",
}

// excludedLine names the explanations that were checked and do not hold.
func excludedLine(s *summary.Summary) string {
	var texts []string
	for _, e := range evidenceOf(s.Verdict).Excluded {
		text := excludedTexts[e.Code]
		if e.Code == conclude.ExcludedChildren {
			text = units.Plural(int(e.Count), "other process ", "other processes ") + text
		}
		texts = append(texts, text)
	}

	switch {
	case !grows(s):
		return listed("flat as well: ", texts)
	case s.Limit != nil && s.Limit.Of == growth.LimitMachine && !s.HasNote(summary.NoteLimitHidden):
		texts = append(texts, "a cgroup limit")
	}
	return listed("excluded: ", texts)
}

// limitsLine names the gaps that keep the answer from being better, and their remedies.
func limitsLine(s *summary.Summary) string {
	if s.Class == verdict.ClassWrongProcess {
		return ""
	}

	var texts []string
	for _, l := range evidenceOf(s.Verdict).Limits {
		if isHeapLimit := l.Code != summary.LimitedNoHeap; !grows(s) && isHeapLimit {
			continue // nothing is to be named
		}
		texts = append(texts, limitationText(l, s.Process.PID))
	}
	return packed("limited: ", texts)
}

// limitationText is a gap in the data, with its remedy for the process with a PID.
func limitationText(l summary.Limitation, pid int) string {
	switch l.Code {
	case summary.LimitedNoHeap:
		return "malloc was not traced, so that no line of the heap is known"
	case summary.LimitedRuntime:
		return languageText(l, pid)
	case summary.LimitedSymbols:
		return symbolsText(l)
	case summary.LimitedPython:
		return "this Python cannot be read: frames of C alone; CPython 3.8 to 3.15 would help"
	case summary.LimitedThreads:
		return sharePercent(l.Share) + " of the stacks lack Python frames" + inParentheses(l.Cause.String())
	case summary.LimitedBursts:
		return fmt.Sprintf("malloc was seen for %s, in %s; --overhead off would see all of it",
			units.ShortSeconds(l.OpenS), units.Plural(int(l.Count), "burst", "bursts"))
	case summary.LimitedStacks:
		return sharePercent(l.Share) + " of stacks are truncated" + inParentheses(l.Cause.String()) +
			"; sizes are right"
	case summary.LimitedCensus:
		return "objects were counted in " + sharePercent(l.Share) + " of their memory"
	}
	return ""
}

// Certainty is the proof of the verdict, and the data that would change it, a sentence each.
func Certainty(v summary.Verdict) []string {
	switch v.WhyCode {
	case verdict.ReasonFragmentation:
		return []string{"the growth is freed memory that malloc keeps"}
	case verdict.ReasonGarbage:
		return []string{"no variable leads to it: it waits for the garbage collector"}
	case verdict.ReasonPageCache:
		return present("only pages of mapped files grow: the kernel takes them back when it needs memory",
			"of the rest, "+stableText(v))
	case verdict.ReasonBounded:
		return fillLines(v)
	case verdict.ReasonTolerated:
		return []string{"slower than the growth that you call harmless"}
	case verdict.ReasonLost:
		return []string{lostText(v)}
	}

	switch v.Class {
	case verdict.ClassLeak, verdict.ClassSuspected, verdict.ClassGrowing:
		return growthLines(v)
	case verdict.ClassSaturating:
		return slowingLines(v)
	case verdict.ClassPlateau, verdict.ClassSpikyPlateau:
		return present(stableText(v), finerText(v))
	case verdict.ClassWrongProcess:
		return []string{"the traced process does not grow, and has hardly run: it has started the other"}
	}
	return []string{noDataText(v)}
}

// growthLines are the facts for a leak, the facts against one, and the time that decides.
func growthLines(v summary.Verdict) []string {
	e := evidenceOf(v)
	prefix, texts := "for a leak: ", facts(e.For, v)

	switch v.Class {
	case verdict.ClassLeak:
		seen := slices.DeleteFunc(slices.Clone(e.For), func(f conclude.Fact) bool {
			return f.Code == conclude.FactWarm && v.WhyCode == verdict.ReasonAfterWarmup
		})
		prefix, texts = "confirmed: ", facts(seen, v)
		if v.WhyCode != verdict.ReasonWriteOnly { // the facts have it
			texts = append([]string{Reason(v)}, texts...)
		}
	case verdict.ClassSuspected:
		prefix = "likely a leak: "
	}
	return present(packed(prefix, texts), packed("against: ", facts(e.Against, v)), decidesText(v))
}

// slowingLines are the facts for growth that ends.
func slowingLines(v summary.Verdict) []string {
	text := "it slows down, as a warm-up does"
	for _, f := range evidenceOf(v).Against {
		if f.Code == conclude.FactSlower {
			text = "it slows down: " + factTexts[f.Code](f, v)
		}
	}

	return []string{
		text + longerText(v, "; %s more show whether it ends"),
		"a slow leak below it shows only when it has levelled off",
	}
}

// evidenceOf is the evidence of a verdict; nothing in folders of older versions.
func evidenceOf(v summary.Verdict) summary.Evidence {
	if v.Evidence == nil {
		return summary.Evidence{}
	}
	return *v.Evidence
}

// present are the texts that are not empty.
func present(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// decidesText names the verdict that more of the growth would give; empty: this one is final.
func decidesText(v summary.Verdict) string {
	until := evidenceOf(v).UntilLeak
	switch {
	case v.Class == verdict.ClassLeak:
		return ""
	case until == nil:
		return longerText(v, "%s more show whether it goes on")
	}

	more := *until
	if !v.InSteps() {
		more = inMinutes(more)
	}
	span := units.Span(more, v.InSteps(), math.Ceil)

	switch earlier := sooner(v); {
	case v.ToLimit != nil && *v.ToLimit < *until:
		return span + " more would show whether it leaks, but memory ends before: act on what is known"
	case earlier != "":
		return "decided by " + earlier + ", or by " + span + " more (LEAK if it goes on)"
	}
	return "decided by " + span + " more: LEAK if it goes on, LEVELLING OFF if it bends"
}

// sooner names an event that may decide before the time does; empty: there is none.
func sooner(v summary.Verdict) string {
	e := evidenceOf(v)

	for _, f := range slices.Concat(e.Against, e.For) {
		switch f.Code {
		case conclude.FactUnheld:
			return "a second search"
		case conclude.FactGarbage:
			return "gc.collect()"
		case conclude.FactRecompiles:
			return "the end of the compiling"
		case conclude.FactNoEpoch:
			return "the end of the epoch"
		case conclude.FactKeeper, conclude.FactAppended, conclude.FactWriteOnly, conclude.FactKept,
			conclude.FactGains:
			return "whether that variable is meant to grow"
		}
	}
	return ""
}

// stableText names the smallest leak that a plateau excludes.
func stableText(v summary.Verdict) string {
	text := ""
	if v.RateLow != nil && *v.RateLow > 0 {
		text = "the residual growth is not proven to last; "
	}

	// Two bounds would confuse: the upper end of the interval is the larger one.
	bound := v.Bound
	if bound != nil && v.RateHigh != nil && *bound > 0 && *v.RateHigh > *bound {
		bound = v.RateHigh
	}
	switch {
	case bound == nil:
		return text + "how slow a leak it excludes is not known"
	case *bound == 0:
		return text + "memory shrinks: a leak would have been seen"
	}

	rounded := units.RoundedUp(*bound / bytesPerMiB)
	leak := rounded + rateUnit(v)
	if mib, err := strconv.ParseFloat(rounded, 64); err == nil && !v.InSteps() {
		leak += inParentheses(perDay(mib * bytesPerMiB))
	}
	return text + "a leak faster than " + leak + " would have been seen, a slower one not"
}

// finerText is the leak that a longer trace would show: the bound falls as the length grows.
func finerText(v summary.Verdict) string {
	if v.Bound == nil || v.Segment == nil || v.WatchLonger == nil || !(*v.Segment > 0) || *v.Bound <= 0 {
		return ""
	}

	bound := *v.Bound * *v.Segment / (*v.Segment + *v.WatchLonger)
	return longerText(v, "%s more would show one of "+units.RoundedUp(bound/bytesPerMiB)+rateUnit(v))
}

// noDataText is why there is no verdict.
func noDataText(v summary.Verdict) string {
	text := "too short for a verdict"
	switch {
	case v.WhyCode == verdict.ReasonTooNoisy && v.RateLow != nil && v.RateHigh != nil:
		low, high := *v.RateLow/bytesPerMiB, *v.RateHigh/bytesPerMiB
		text = "memory swings too much: " + units.Interval(units.Fixed(low, 0), units.Fixed(high, 0)) +
			rateUnit(v) + " are all possible"
	case v.WhyCode == verdict.ReasonTooNoisy:
		text = "memory swings too much to tell growth from noise"
	case v.WhyCode == verdict.ReasonHalted:
		text = Reason(v)
	case v.Segment == nil || *v.Segment <= 0:
	case v.WhyCode == verdict.ReasonGrowthEnded:
		text = "too short: it has grown until " + lengthText(*v.Segment, v.InSteps()) + " before the end"
	default:
		text = "too short: " + lengthText(*v.Segment, v.InSteps()) + " were judged"
	}
	return text + longerText(v, "; %s more may do")
}

// longerText fills a format with how much longer to watch. It is empty where that is not known, and
// where it is too long to be an advice.
func longerText(v summary.Verdict, format string) string {
	longer := v.WatchLonger
	if longer == nil || *longer == 0 || !v.InSteps() && *longer > maxLongerSeconds {
		return ""
	}
	more := *longer
	if !v.InSteps() {
		more = inMinutes(more)
	}
	return fmt.Sprintf(format, units.Span(more, v.InSteps(), math.Ceil))
}

// inMinutes rounds seconds up to whole minutes.
func inMinutes(seconds float64) float64 { return 60 * math.Ceil(seconds/60) }

// maxLongerSeconds is the longest time to trace that is advised.
const maxLongerSeconds = 2 * 60 * 60
