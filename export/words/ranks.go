package words

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

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
