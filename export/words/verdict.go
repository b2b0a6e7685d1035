package words

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// VerdictLines says a verdict to people: the Headline, then no more than four lines of what follows from it. limit is what
// happens at the limit: "memory is full".
func VerdictLines(v summary.Verdict, limit string) []string {
	lines := []string{Headline(v)}
	for _, line := range []string{boundLine(v), LimitLine(v, limit), levelsOffLine(v), spikesLine(v), sinceLine(v), longerLine(v)} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Headline is the verdict in a sentence.
func Headline(v summary.Verdict) string {
	switch v.Class {
	case growth.ClassLeak:
		return "LEAK: grows by " + Rate(v) + ", " + v.Why
	case growth.ClassSuspected:
		return "LEAK SUSPECTED: grows by " + Rate(v) + ", " + v.Why
	case growth.ClassGrowing:
		return "GROWING, too early to tell: by " + Rate(v)
	case growth.ClassSaturating:
		return "SATURATING: grows by " + Rate(v) + ", and slows down"
	case growth.ClassPlateau:
		return "NO LEAK (plateau): " + flatText(v)
	case growth.ClassSpikyPlateau:
		return "NO LEAK (spiky plateau): " + flatText(v)
	case growth.ClassWrongProcess:
		return "WRONG PROCESS? " + v.Why
	}
	if v.Why == "too short" {
		return "TOO SHORT to tell"
	}
	return "TOO SHORT: " + v.Why
}

func flatText(v summary.Verdict) string {
	if v.RateLow != nil && *v.RateLow > 0 {
		return "a residual growth of " + Rate(v) + " is seen, but not proven to last"
	}
	return "no growth is seen, the rate is " + Rate(v)
}

func isFlat(v summary.Verdict) bool {
	return v.Class == growth.ClassPlateau || v.Class == growth.ClassSpikyPlateau
}

func boundLine(v summary.Verdict) string {
	bound := either(v.BoundBytesPerMin, v.BoundBytesPerStep)
	switch {
	case !isFlat(v) || bound == nil:
		return ""
	case *bound == 0:
		return "a leak of any size is excluded (95 %)"
	}
	return fmt.Sprintf("if there is a leak, it is below %s (95 %%)", units.RoundedUp(*bound/mebi)+rateUnit(v))
}

// LimitLine is when the limit is met, limit being what happens then: "memory is full in 46 min if this pace holds". Empty: no limit is
// known, or nothing grows.
func LimitLine(v summary.Verdict, limit string) string {
	to := either(v.SecondsToLimit, v.StepsToLimit)
	low, high := either(v.SecondsToLimitLow, v.StepsToLimitLow), either(v.SecondsToLimitHigh, v.StepsToLimitHigh)
	switch {
	case to == nil:
		return ""
	case *to == 0:
		return limit + " now"
	case v.Class != growth.ClassLeak:
		return limit + " in " + units.Span(*to, v.InSteps(), math.Round) + " if this pace holds"
	case low != nil && high != nil:
		return limit + " in " + units.SpanRange(*low, *high, v.InSteps())
	case low != nil:
		return limit + " in " + units.Span(*low, v.InSteps(), math.Floor) + " at the earliest"
	}
	return limit + " in " + units.Span(*to, v.InSteps(), math.Round)
}

func levelsOffLine(v summary.Verdict) string {
	if v.LevelsOffAtBytes == nil || v.Class != growth.ClassSaturating {
		return ""
	}
	return "it heads for " + units.Bytes(*v.LevelsOffAtBytes)
}

func spikesLine(v summary.Verdict) string {
	if v.Spikes == nil {
		return ""
	}
	percent := fmt.Sprintf("%.0f %%", 100*v.Spikes.Share)
	if v.Spikes.Share < 0.1 {
		percent = fmt.Sprintf("%.1f %%", 100*v.Spikes.Share)
	}
	return "spikes of " + units.Bytes(v.Spikes.HeightBytes) + " on top, in " + percent + " of the samples"
}

// sinceLine says which part of the series the verdict is about.
func sinceLine(v summary.Verdict) string {
	what := "at this rate since "
	if isFlat(v) {
		what = "the plateau began at "
	}
	from, restart := either(v.PlateauFromS, v.PlateauFromStep), either(v.RestartedAtS, v.RestartedAtStep)
	switch {
	case v.Class == growth.ClassTooShort || v.Class == growth.ClassWrongProcess:
		from = nil
	case from != nil && restart != nil:
		return what + units.Point(*from, v.InSteps()) + ", after a restart at " + units.Point(*restart, v.InSteps())
	}
	switch {
	case from != nil:
		return what + units.Point(*from, v.InSteps())
	case restart != nil:
		return "only what follows the restart at " + units.Point(*restart, v.InSteps()) + " is judged"
	}
	return ""
}

func longerLine(v summary.Verdict) string {
	longer := either(v.WatchLongerS, v.WatchLongerSteps)
	switch {
	case longer == nil || *longer == 0:
		return ""
	case isFlat(v):
		return "watch at least " + units.Span(*longer, v.InSteps(), math.Ceil) + " more to exclude a smaller one"
	case v.Class == growth.ClassSuspected:
		return "watch at least " + units.Span(*longer, v.InSteps(), math.Ceil) + " more to confirm it"
	}
	return "watch at least " + units.Span(*longer, v.InSteps(), math.Ceil) + " more"
}

const mebi = 1 << 20

// Rate is the rate with its interval, with as many decimals as the interval is worth: "572.2 MiB/min (95 %: 567.8 to 576.6)".
func Rate(v summary.Verdict) string {
	rate := either(v.RateBytesPerMin, v.RateBytesPerStep)
	if rate == nil {
		return "an unknown rate"
	}
	if v.RateLow == nil || v.RateHigh == nil {
		return fmt.Sprintf("%.3g", *rate/mebi) + rateUnit(v)
	}
	low, high := *v.RateLow/mebi, *v.RateHigh/mebi
	decimals := 4
	if width := high - low; width > 0 {
		decimals = min(max(1-int(math.Floor(math.Log10(width))), 0), 4)
	}
	return decimal(*rate/mebi, decimals) + rateUnit(v) + " (95 %: " + decimal(low, decimals) + " to " + decimal(high, decimals) + ")"
}

// decimal writes a number with so many decimals, and zero without a sign.
func decimal(x float64, decimals int) string {
	text := strconv.FormatFloat(x, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		return strings.TrimPrefix(text, "-")
	}
	return text
}

func rateUnit(v summary.Verdict) string {
	if v.InSteps() {
		return " MiB/step"
	}
	return " MiB/min"
}

// either gives the one of two values that is known.
func either(a, b *float64) *float64 {
	if a != nil {
		return a
	}
	return b
}

// AtLimit is what happens at the limit of a process that runs.
const AtLimit = "memory is full"

var headlineParts = regexp.MustCompile(`^([A-Z]+(?: [A-Z]+)*\??(?: \([a-z ]+\)|, too early to tell)?):? ?(.*)$`)

// SplitHeadline parts a Headline into the name of the verdict and what is said of it: "LEAK", "grows by ...".
func SplitHeadline(headline string) (name, sentence string) {
	if m := headlineParts.FindStringSubmatch(headline); m != nil {
		return m[1], m[2]
	}
	return headline, ""
}
