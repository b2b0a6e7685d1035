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

	above, below := newTail(scores, 1), newTail(scores, -1)
	return func(z float64) float64 {
		if z < 0 {
			return below.chance(-z)
		}
		return above.chance(z)
	}
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

// A tail is the largest scores on one side of the median, as an exponential distribution above a
// threshold: noise that is not normal has more large scores, and these show it (peaks over
// threshold).
type tail struct {
	threshold, mean float64 // of the growth that exceeds it
	count           int     // of the scores above it
}

const minTail = 15 // of at least 32 members

// newTail fits the tail on one side, 1 or -1, to the scores without outliers. These are the most, up
// to half, of which the smallest is beyond the tail of the others. So they hide neither each
// other nor themselves, and noise seldom has such a gap.
func newTail(scores []Score, side float64) tail {
	var all []float64
	for _, s := range scores {
		if !math.IsNaN(s.Z) {
			all = append(all, side*s.Z)
		}
	}

	slices.Sort(all)
	slices.Reverse(all)

	for outliers := (len(all) - 1) / 2; outliers > 0; outliers-- {
		if t := fitTail(all[outliers:]); t.chance(all[outliers-1]) <= MaxChance {
			return t
		}
	}

	return fitTail(all)
}

// fitTail fits a tail to the 2√n largest scores of those in descending order, at least to minTail, at
// most to half of them.
func fitTail(scores []float64) tail {
	n := len(scores)
	count := min(max(minTail, int(2*math.Sqrt(float64(n)))), (n-1)/2)
	t := tail{threshold: scores[count], count: count}
	for _, s := range scores[:count] {
		t.mean += s - t.threshold
	}
	t.mean /= float64(count)
	return t
}

// chance is the probability that the largest score of the members is at least z. The mean of few scores
// is uncertain, so that one more exceeds it as a Lomax distribution, not as an exponential one.
func (t tail) chance(z float64) float64 {
	if !(z > t.threshold) || math.IsInf(t.mean, 1) || math.IsNaN(t.mean) {
		return 1
	}
	count := float64(t.count)
	exceeds := math.Pow(1+(z-t.threshold)/(count*t.mean), -count)
	return -math.Expm1(count * math.Log1p(-exceeds))
}

// median of values, in any order; NaN: there are none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
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
