package outlier

import (
	"cmp"
	"math"
	"slices"
)

// madToDeviation makes a MAD of normal noise a standard deviation: 1/Φ⁻¹(3/4).
const madToDeviation = 1.4826022185

// MaxChance is the chance up to which a member is called an outlier.
const MaxChance = 0.05

// minRatio is the growth of an outlier, as a multiple of the median, that is worth a word: ranks that
// do the same work can be so alike that a hundredth more is no noise.
const minRatio = 1.2

// Find scores members. One whose growth is not a finite number has the score NaN and the chance 1, and
// is not counted. Of two, neither is known to be the outlier: both have the chance 1.
func Find(members []Member) Result {
	r := Result{Scores: make([]Score, len(members)), members: members}
	var values, variances []float64
	for _, m := range members {
		if isFinite(m.Growth) {
			values = append(values, m.Growth)
			variances = append(variances, m.variance())
		}
	}

	r.Median = median(values)
	r.MAD = median(distances(values, r.Median))

	deviation, usual := madToDeviation*r.MAD, median(variances)
	spread := max(0, deviation*deviation-usual)
	for i, m := range members {
		// Where most errors are large, the spread is not known better than they are.
		variance := spread + max(usual, m.variance())
		r.Scores[i].Z = score(m.Growth-r.Median, math.Sqrt(variance))
	}

	chance := chances(r.Scores, len(values))
	for i := range r.Scores {
		r.Scores[i].Chance = chance(r.Scores[i].Z)
	}

	return r
}

// FindTwice scores members by two windows in a row, of which the latest counts as in Find. The chance
// of a member is the smaller one of two, times two (Bonferroni): by the latest window, or by the score
// that it has in both. Heavy tails of noise that comes and goes seldom hit one member twice. Noise that
// stays in both windows shows in the scores of all, and gains nothing.
func FindTwice(earlier, latest []Member) Result {
	r, before := Find(latest), Find(earlier)
	both := make([]Member, len(latest))
	for i, s := range before.Scores {
		both[i].Growth = agreed(s.Z, r.Scores[i].Z)
	}

	for i, s := range Find(both).Scores {
		chance := r.Scores[i].Chance
		if before.Scores[i].Z*r.Scores[i].Z > 0 { // it was on the same side twice
			chance = min(chance, s.Chance)
		}
		r.Scores[i].Chance = min(1, 2*chance)
	}
	return r
}

// agreed is the score that two windows agree on: the smaller one, with the sign of their sum. That
// makes no score 0, unlike the smaller one of the scores that have one sign alone.
func agreed(a, b float64) float64 {
	const most = 1e9 // of infinite scores
	a, b = max(-most, min(a, most)), max(-most, min(b, most))
	return math.Copysign(min(math.Abs(a), math.Abs(b)), a+b)
}

// Outliers returns the members that grow by more than minRatio times the median, and would so with
// at most this chance if there were no outlier: the largest scores first. A member that grows less
// fills no memory, and is none.
func (r Result) Outliers(maxChance float64) []int {
	var found []int
	for i, s := range r.Scores {
		growth := r.members[i].Growth
		if s.Z > 0 && s.Chance <= maxChance && growth > max(0, minRatio*r.Median) {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(r.Scores[b].Z, r.Scores[a].Z) })
	return found
}

// ErrorOf returns the standard error of a rate with this 95% interval; NaN where that is not known.
func ErrorOf(low, high float64) float64 {
	const errors = 2 * 1.959964 // in the interval of a normal distribution
	return (high - low) / errors
}

// variance is the square of the standard error; infinite where that is unknown.
func (m Member) variance() float64 {
	if !(m.Error >= 0) {
		return math.Inf(1)
	}
	return m.Error * m.Error
}

// score is a distance in units of a deviation. Where all others are equal and exact, any distance is
// infinitely many.
func score(distance, deviation float64) float64 {
	switch {
	case !isFinite(distance):
		return math.NaN()
	case distance == 0 || math.IsInf(deviation, 1):
		return 0
	}
	return distance / deviation
}

// chances returns the function from a score to its chance among so many finite ones.
func chances(scores []Score, n int) func(z float64) float64 {
	if first := quantiles[0].members; n < first+len(quantiles) {
		return func(z float64) float64 {
			if n < first || math.IsNaN(z) {
				return 1
			}
			return quantiles[n-first].chance(math.Abs(z))
		}
	}

	t := newTail(scores)
	return t.chance
}

// A quantileRow is the scores that the largest of so many members exceeds with each of
// quantileChances.
type quantileRow struct {
	members int
	scores  [len(quantileChances)]float64
}

// chance is the probability that the largest score is at least z. It is interpolated on logarithmic
// scales. Beyond the last column it falls as between the last two.
func (q quantileRow) chance(z float64) float64 {
	if z <= q.scores[0] {
		return 1 - (1-quantileChances[0])*z/q.scores[0]
	}
	i := 1
	for i < len(q.scores)-1 && z > q.scores[i] {
		i++
	}
	part := math.Log(z/q.scores[i-1]) / math.Log(q.scores[i]/q.scores[i-1])
	return quantileChances[i-1] * math.Pow(quantileChances[i]/quantileChances[i-1], part)
}

// A tail is the largest scores of either sign, as a generalised Pareto distribution above a
// threshold (peaks over threshold): noise that is not normal has more large scores, and these show
// it. The distribution is exponential or falls like a power: their chances are weighted.
type tail struct {
	threshold    float64
	above, below excess // of positive scores, and of negative ones
	both         excess
	// power is the probability that the tail falls like a power, given the scores. Then powerMean is
	// the mean of their excess on the scale of toExponential.
	power, powerMean float64
}

// An excess is how far this many scores are beyond the threshold, on average.
type excess struct{ count, mean float64 }

const (
	minTail = 15 // scores, of at least 32 members
	// bend is θ of a power tail, in units of 1/mean: its shape is bend/(1+bend), 0.2, as in
	// Student's t with 5 degrees of freedom.
	bend = 0.25
	// evenCount is the number of scores where both tails are as likely before any is seen. Of more
	// ranks the chance is extrapolated further, so that to mistake a power tail costs more.
	evenCount = 48
)

// newTail fits the tail to the scores without outliers. These are the most, up to half, of which the
// smallest is beyond the tail of the others. So they hide neither each other nor themselves, and
// noise seldom has such a gap.
func newTail(scores []Score) tail {
	var all []float64
	for _, s := range scores {
		if !math.IsNaN(s.Z) {
			all = append(all, s.Z)
		}
	}
	slices.SortFunc(all, func(a, b float64) int { return cmp.Compare(math.Abs(b), math.Abs(a)) })

	for outliers := (len(all) - 1) / 2; outliers > 0; outliers-- {
		// The exponential tail alone is fast, and has the smaller chance.
		t, smallest := fitExponential(all[outliers:]), all[outliers-1]
		if t.chance(smallest) > MaxChance {
			continue
		}
		if t.weigh(all[outliers:]); t.chance(smallest) <= MaxChance {
			return t
		}
	}

	t := fitExponential(all)
	t.weigh(all)
	return t
}

// fitExponential fits a tail to the 5√n largest of these scores in descending order, at least to
// minTail, at most to half of them.
func fitExponential(scores []float64) tail {
	n := len(scores)
	count := min(max(minTail, int(5*math.Sqrt(float64(n)))), (n-1)/2)
	t := tail{threshold: math.Abs(scores[count])}
	var above, both float64
	for _, z := range scores[:count] {
		both += math.Abs(z) - t.threshold
		if z > 0 {
			above += z - t.threshold
			t.above.count++
		}
	}

	t.both = excess{float64(count), both / float64(count)}
	t.above.mean = above / max(1, t.above.count)
	t.below.count = t.both.count - t.above.count
	t.below.mean = (both - above) / max(1, t.below.count)
	return t
}

// weigh sets the probability of the power tail, by Bayes' rule. On the scale of toExponential its
// scores are exponential. So the ratio of the likelihoods of the two tails, with 1/mean as the prior
// of the mean, is exp(-count bend powerMean) / powerMean^count.
func (t *tail) weigh(scores []float64) {
	count, mean := t.both.count, t.both.mean
	if mean == 0 {
		return
	}
	for _, z := range scores[:int(count)] {
		t.powerMean += toExponential((math.Abs(z)-t.threshold)/mean) / count
	}
	odds := count / evenCount * math.Exp(-count*(bend*t.powerMean+math.Log(t.powerMean)))
	t.power = 1 / (1 + 1/odds) // odds may be infinite
}

// toExponential makes an excess of a power tail, in units of its mean, exponential
// (Zhang and Stephens 2009, https://doi.org/10.1198/tech.2009.08017).
func toExponential(excess float64) float64 { return math.Log1p(bend*excess) / bend }

// chance is the probability that the largest score of the members on this side is at least z. Skewed
// noise has the longer tail on one side: there its own mean counts.
func (t *tail) chance(z float64) float64 {
	side := t.above
	if z < 0 {
		side = t.below
	}
	mean := max(t.both.mean, side.mean)
	if !(math.Abs(z) > t.threshold) || math.IsInf(mean, 1) || math.IsNaN(mean) {
		return 1
	}

	ratio := (math.Abs(z) - t.threshold) / mean
	exceeds := (1 - t.power) * t.lomax(ratio)
	if t.power > 0 {
		exceeds += t.power * t.lomax(toExponential(ratio)/t.powerMean)
	}
	// One more: that there are none so far does not prove that there can be none.
	return -math.Expm1((side.count + 1) * math.Log1p(-exceeds))
}

// lomax is the probability that one more exceeds the mean by this ratio. The mean of few scores is
// uncertain, so that it is a Lomax distribution, not an exponential one.
func (t *tail) lomax(ratio float64) float64 { return math.Pow(1+ratio/t.both.count, -t.both.count) }

// median of values, in any order; NaN: there are none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	if low, high := sorted[(n-1)/2], sorted[n/2]; low != high {
		return low + (high-low)/2
	}
	return sorted[n/2]
}

func distances(values []float64, from float64) []float64 {
	all := make([]float64, len(values))
	for i, v := range values {
		all[i] = math.Abs(v - from)
	}
	return all
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
