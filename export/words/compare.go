package words

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

const (
	// GPUMemoryUnknown is why nothing is known of the GPU memory of a trace.
	GPUMemoryUnknown = "its GPU memory is unknown"
	// NoIntervals limits profiles that do not name their sampling interval.
	NoIntervals = "the profiles do not name their sampling interval: their values count as exact"

	// TooWide is why a change is not decidable, though both rates are known.
	TooWide = "the intervals are too wide, watch longer"
	// RestUnknown is why growth that is slower is not called gone.
	RestUnknown = "too short to exclude a rest"
)

// BeforeAfter has the values before and after.
func BeforeAfter(before, after string) string { return before + " before, " + after + " after" }

// Inconclusive names the sides that have no usable verdict, each with its reason. The reason of the
// other side is empty.
func Inconclusive(before, after string) string {
	switch {
	case before == "":
		return "after is not conclusive (" + after + ")"
	case after == "":
		return "before is not conclusive (" + before + ")"
	}
	return "before (" + before + ") and after (" + after + ") are not conclusive"
}

// OfWorkers is a note on traces in which workers grow that were not traced. inTree: the memory of the
// whole tree is compared.
func OfWorkers(inTree bool) string {
	if inTree {
		return "workers grow that were not traced: the tables are about the whole process tree, by kind"
	}
	return "workers grow that were not traced: the tables have nothing of them"
}

// Rest is the largest growth that may be left, in bytes per unit: "/min" or "/step".
func Rest(bytes float64, unit string) string {
	return "up to " + units.Bytes(bytes) + unit + " may be left"
}

// maxPaceRatio is the ratio of two rates of training steps above which they are not comparable.
const maxPaceRatio = 1.2

// A TracePair is two traces that are compared: the growth by training step or by minute, and
// resident memory or another one.
type TracePair struct {
	Before, After         *summary.Summary
	IsPerStep, IsResident bool
}

// Notes name what makes the traces hard to compare, a sentence each.
func (p TracePair) Notes() []string {
	var notes []string
	if p.isSameTrace() {
		notes = append(notes, "both are the same trace")
	}

	if a, b := program(p.Before), program(p.After); a != b {
		notes = append(notes, "the programs differ: "+BeforeAfter(a, b))
	}

	if a, b := heapModeOf(p.Before), heapModeOf(p.After); a != b {
		notes = append(notes, BeforeAfter(a, b)+": in bursts, stacks of the heap have larger "+
			"errors, and lack young objects")
	}

	if a, b := p.Before.StepsPerMin(), p.After.StepsPerMin(); a > 0 && b > 0 && !p.IsPerStep &&
		math.Abs(math.Log(a/b)) > math.Log(maxPaceRatio) {
		notes = append(notes, "the rates of training steps differ, "+
			BeforeAfter(units.Count(a)+" steps/min", units.Count(b))+": compare with --per step")
	}

	return slices.Concat(notes, p.sideNotes("before", p.Before), p.sideNotes("after", p.After))
}

func (p TracePair) isSameTrace() bool {
	a, b := p.Before, p.After
	return !a.Started.IsZero() && a.Started.Equal(b.Started) && a.Process.PID == b.Process.PID
}

// sideNotes are those on one trace.
func (p TracePair) sideNotes(when string, s *summary.Summary) []string {
	var notes []string
	if !HeapKnown(s) {
		notes = append(notes,
			when+", source heap was not attached: heap memory has no stacks to compare")
	}

	if scanned := Scanned(s.MainResident()); scanned != "" && p.IsResident {
		notes = append(notes,
			fmt.Sprintf("%s, %s of the pages were scanned, so resident memory has a large error "+
				"(compare live bytes with --sample inuse_space)", when, scanned))
	}

	if losses := losses(s); losses != "" {
		notes = append(notes, "lost "+when+": "+losses)
	}

	return notes
}

// program is the program that ran: its command, or the name of its file.
func program(s *summary.Summary) string {
	return units.Name(cmp.Or(s.Process.Command, path.Base(s.Process.Executable)))
}

// heapModeOf is how the heap of a trace was probed. A summary that does not say is of a trace that
// probed it all the time.
func heapModeOf(s *summary.Summary) string {
	switch o := s.Overhead; {
	case o == nil || !HeapKnown(s):
		return HeapMode(growth.HeapFull)
	case o.InBursts():
		return HeapMode(growth.HeapBursts)
	default:
		return HeapMode(o.Mode)
	}
}

// losses lists the most frequent ones.
func losses(s *summary.Summary) string {
	const most = 3
	losses := slices.SortedStableFunc(slices.Values(s.Losses),
		func(a, b growth.Loss) int { return cmp.Compare(b.Count, a.Count) })

	var texts []string
	for _, l := range losses[:min(most, len(losses))] {
		texts = append(texts, lossLine(l))
	}

	if more := len(losses) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more in summary.json", more))
	}

	return strings.Join(texts, ", ")
}

// A RankGrowth is how fast one rank grows.
type RankGrowth struct {
	Name string // "rank 3"
	Rate summary.Verdict
	// StandsOut: it grows unlike the others. Chance is the probability that noise alone has it so.
	StandsOut bool
	Chance    *float64
}

// Ranks are the ranks of a job: those that stand out, or else the one that grows most.
type Ranks struct {
	// Total of the job, and those that were Judged: whose growth is known.
	Total, Judged int
	Rows          []RankGrowth
	// Others is the median growth of those that do not stand out, in bytes a minute.
	Others *float64
	// MaxChance is the chance of being noise below which a rank stands out.
	MaxChance float64
	// Missing ranks of the job are not among Total.
	Missing int
}

// Text says whether a rank stands out: a name such as "RANK 3 STANDS OUT", and a sentence.
// tooFew: too few have a known growth.
func (r Ranks) Text(tooFew bool) (name, sentence string) {
	var out []RankGrowth
	for _, k := range r.Rows {
		if k.StandsOut {
			out = append(out, k)
		}
	}

	switch {
	case tooFew && r.Judged == 0:
		return "CANNOT TELL", "the growth of no rank is known"
	case tooFew && r.Judged < r.Total:
		return "CANNOT TELL", fmt.Sprintf("the growth of %d of %s is known", r.Judged, ranksOf(r.Total))
	case tooFew:
		return "CANNOT TELL", fmt.Sprintf("%s: too few to tell which is unlike the others",
			ranksOf(r.Total))
	case len(out) == 0 && r.Missing > 0:
		return "CANNOT TELL", fmt.Sprintf("none of %s stands out, but the job has more",
			ranksOf(r.Judged))
	case len(out) == 0:
		return "NO RANK STANDS OUT", fmt.Sprintf("of %s, %s grows most, by %s; %s",
			ranksOf(r.Judged), r.Rows[0].Name, Rate(r.Rows[0].Rate), r.asNoise(r.Rows[0].Chance))
	}

	name = strings.ToUpper(out[0].Name) + " STANDS OUT"
	if more := len(out) - 1; more > 0 {
		name = strings.ToUpper(out[0].Name) + fmt.Sprintf(" AND %d MORE STAND OUT", more)
	}
	return name, fmt.Sprintf("it grows by %s, %s; the chance that this is noise is %s",
		Rate(out[0].Rate), r.beside(out[0].Rate, len(out)), Chance(out[0].Chance))
}

// asNoise says what a chance above the largest one means.
func (r Ranks) asNoise(chance *float64) string {
	if chance == nil || *chance <= r.MaxChance {
		return "that is too little to stand out"
	}
	return "noise alone does as much with a chance of " + Chance(chance)
}

// maxRatio is the largest ratio of two rates that says anything.
const maxRatio = 1000

// beside compares a rate with the rates of the ranks that do not stand out.
func (r Ranks) beside(v summary.Verdict, out int) string {
	others := fmt.Sprintf("the other %d", r.Judged-out)
	rate, median := *v.Rate, *r.Others
	if ratio := rate / median; median > 0 && ratio < maxRatio {
		return fmt.Sprintf("%sx as fast as %s (median %s/min)", ratioText(ratio), others,
			units.Signed(median))
	}
	return fmt.Sprintf("%s grow by %s/min (median)", others, units.Signed(median))
}

// ratioText is a ratio with two digits: "1.4", "6.1", "31".
func ratioText(ratio float64) string {
	if ratio < 9.95 {
		return units.Fixed(ratio, 1)
	}
	return units.Fixed(ratio, 0)
}

func ranksOf(n int) string { return units.Plural(n, "rank", "ranks") }

// Chance is a probability for people: "34%", "0.4%", "below 0.01%".
func Chance(p *float64) string {
	const least = 1e-4
	switch {
	case p == nil:
		return "unknown"
	case *p < least:
		return "below 0.01%"
	case *p < 0.01:
		return fmt.Sprintf("%.2g%%", 100**p)
	}
	return units.Percent(min(*p, 1))
}

// RanksUnknown is a note on ranks whose growth is unknown.
func RanksUnknown(unknown, all int) string {
	return fmt.Sprintf("the growth of %d of %s is unknown: too short, or not traced", unknown,
		ranksOf(all))
}

// RanksMissing is a note on ranks of the job that are not there, and names the first of them.
func RanksMissing(missing, all int, first []int) string {
	var names []string
	for _, n := range first {
		names = append(names, strconv.Itoa(n))
	}

	if missing > len(first) {
		names = append(names, "...")
	}

	return fmt.Sprintf("%s missing of the job's %d: %s",
		units.Plural(missing, "rank is", "ranks are"), all, strings.Join(names, ", "))
}

// RanksTwice is a note on ranks that all have an earlier trace.
const RanksTwice = "each rank has an earlier trace: one stands out by the latest, or by both in a row"

// RanksRepeated is a note on ranks that are there more than once.
func RanksRepeated(more int) string {
	return fmt.Sprintf("%s of a rank left out: the latest of each counts",
		units.Plural(more, "earlier run", "earlier runs"))
}

// RanksDiffer says by which call site a rank grows unlike the median rank.
func RanksDiffer(rank, median, where string, isSame, isKnown bool) string {
	switch {
	case !isKnown:
		return fmt.Sprintf("no call site of %s grows much more than on %s (the median)", rank,
			median)
	case isSame:
		return fmt.Sprintf("same call site: %s grows there, too, on %s (the median)", where, median)
	}
	return fmt.Sprintf("only there: %s grows on %s, and not on %s (the median)", where, rank, median)
}

// RankAlone says by which call site a rank grows, where the median rank has no profile.
func RankAlone(rank, median, where string) string {
	return fmt.Sprintf("%s grows most by %s; whether %s (the median) grows there, too, is not known",
		rank, where, median)
}

// RanksNotes name what makes the profiles of two ranks hard to compare, a sentence each.
func RanksNotes(names [2]string, traces [2]*summary.Summary, isResident bool) []string {
	var notes []string
	p := TracePair{IsResident: isResident}
	for i, s := range traces {
		notes = append(notes, p.sideNotes("on "+names[i], s)...)
	}
	return notes
}

// NoGrowthProfile is why two ranks are not compared stack by stack.
func NoGrowthProfile(rank, why string) string {
	return fmt.Sprintf("%s has no growth profile: %s", rank, why)
}

// TraceLengthsUnknown is why the growth of two ranks, of profiles without a rate, is not compared.
func TraceLengthsUnknown(rank, median string) string {
	return fmt.Sprintf("the traces of %s and %s are not compared: the agents' metrics do not have "+
		"the length of both", rank, median)
}

// RankRate is a rate of a table in MiB a minute, and its interval; "?" where it is unknown.
func RankRate(v summary.Verdict) (rate, interval string) {
	text, interval := RateParts(v)
	if text == "" {
		return "?", ""
	}
	text = strings.TrimSuffix(text, rateUnit(v))
	if *v.Rate > 0 && strings.ContainsAny(text, "123456789") {
		text = "+" + text
	}
	return text, strings.TrimPrefix(interval, "95% CI ")
}

// Z is a z-score for people: "34", "-0.7"; "inf" where the others do not differ at all.
func Z(z *float64) string {
	if z == nil {
		return "inf"
	}
	if math.Abs(*z) < 9.95 {
		return units.Fixed(*z, 1)
	}
	return fmt.Sprintf("%.0f", max(-9999, min(*z, 9999)))
}

// MoreRanks sums up rows that a table leaves out.
func MoreRanks(n int, low, high *float64) string {
	text := units.Plural(n, "more rank", "more ranks")
	if low == nil || high == nil {
		return text
	}
	return fmt.Sprintf("%s, %s/min to %s/min", text, units.Signed(*low), units.Signed(*high))
}

// CallSite is the nearest function with a source line that allocates, for narrow columns.
func CallSite(a summary.Accumulation) string {
	for _, frame := range a.Stack {
		if profile.FrameWithLine.MatchString(frame) {
			return Frame(frame)
		}
	}
	return a.Function
}
