// Package ranks compares the ranks of a job: which one grows unlike the others, and by what.
package ranks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/outlier"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Schema is the version of the form of `allocscope ranks --json`. It changes when a field goes or
// changes its meaning; fields may be added at any time.
const Schema = "allocscope-ranks/1"

// MaxRanks bounds the ranks of a job.
const MaxRanks = 100_000

// An Outcome is whether a rank stands out.
type Outcome string

// The outcomes.
const (
	OutcomeOutlier Outcome = "outlier" // at least one rank stands out
	OutcomeNone    Outcome = "none"    // the ranks grow alike
	OutcomeUnknown Outcome = "unknown" // too few ranks have a known growth, or ranks are missing
)

// A Result is the comparison of the ranks of a job. Unknown values are absent.
type Result struct {
	Schema string `json:"schema"`
	// Outcome is one of the constants Outcome…. Name is it in words, and Sentence the details.
	Outcome  Outcome `json:"outcome"`
	Name     string  `json:"name"`
	Sentence string  `json:"sentence"`
	// Job is the ID of the job.
	Job string `json:"job_id,omitempty"`
	// Judged is the number of ranks whose growth is known. Median and MAD are the median of their
	// growth and the median absolute deviation from it, in bytes a minute.
	Judged int      `json:"judged"`
	Median *float64 `json:"median_bytes_per_min,omitempty"`
	MAD    *float64 `json:"mad_bytes_per_min,omitempty"`
	// MaxChance is the chance of being noise below which a rank stands out.
	MaxChance float64 `json:"max_chance"`
	// Ranks by growth, the largest first; ranks of unknown growth are last.
	Ranks []Rank `json:"ranks"`
	// Comparison of the growth profiles of two ranks; absent where there are none to compare.
	Comparison *Comparison `json:"comparison,omitempty"`
	// Notes on the limits of the comparison, a sentence each.
	Notes []string `json:"notes"`

	// outliers and median are indices of Ranks; median is -1 where no growth is known.
	outliers []int
	median   int
	unused   int // traces of ranks that have a later one
	// of and with are the growth profiles of the two ranks of the Comparison. with counts by a
	// factor.
	of, with *pprof.Profile
	factor   float64
}

// A Rank is one process of a job. Unknown values are absent.
type Rank struct {
	// Name is "rank 3", "rank 3 on node-1" where other nodes have one, too, or the PID of a process
	// that is no rank.
	Name string `json:"name"`
	Rank *int   `json:"rank,omitempty"`
	// Node, Pod and Container are where it runs, and PID the process, in traces.
	Node      string `json:"node,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	PID       int    `json:"pid,omitempty"`
	// Folder of its trace, for people, and Path, where that is.
	Folder string `json:"folder,omitempty"`
	Path   string `json:"-"`
	// RSS at the end of the trace, or now.
	RSS *int64 `json:"rss_bytes,omitempty"`
	// Rate at which its RSS grows, by the verdict, with the 95% interval.
	Rate     *float64 `json:"rate_bytes_per_min,omitempty"`
	RateLow  *float64 `json:"rate_low_bytes_per_min,omitempty"`
	RateHigh *float64 `json:"rate_high_bytes_per_min,omitempty"`
	// Verdict on its RSS.
	Verdict verdict.Class `json:"verdict,omitempty"`
	// Z is the robust z-score of its growth; absent, too, where it is infinite: the others do not
	// differ at all. Chance is the probability that noise alone has a rank of this job so far out.
	Z      *float64 `json:"z,omitempty"`
	Chance *float64 `json:"chance,omitempty"`
	// StandsOut: Chance is below Result.MaxChance, and it grows more than the others.
	StandsOut bool `json:"stands_out,omitempty"`
	// Where is the call site that accumulates most.
	Where string `json:"where,omitempty"`

	// IsLocal: the number counts the ranks of its node alone.
	IsLocal bool `json:"-"`
	// At is when its trace began, or the time of its last sample.
	At time.Time `json:"-"`
	// TraceEnded and TraceLength are of its last trace, by the agent's metrics; 0: unknown.
	TraceEnded  time.Time     `json:"-"`
	TraceLength time.Duration `json:"-"`

	job       string
	worldSize int   // ranks of the job; 0: unknown
	earlier   *Rank // the trace before; nil: there is none
	continues bool  // its trace has the rows of the one before
}

// A Site is whether the median rank grows by the call site of the rank that stands out.
type Site string

// The sites.
const (
	SiteSame    Site = "same"       // the median rank grows there, too
	SiteOnly    Site = "only-there" // nothing is proven to grow there on the median rank
	SiteAlone   Site = "alone"      // the median rank has no profile, so that all growth counts
	SiteUnknown Site = "unknown"    // no call site is proven to grow more
)

// A Comparison is the difference between the growth profiles of a rank and of the median rank. In
// its parts, before is the median rank, and after the other one.
type Comparison struct {
	// Rank and MedianRank are the names of the two. The median rank is the one whose growth is
	// nearest to the median.
	Rank       string `json:"rank"`
	MedianRank string `json:"median_rank"`
	// Site is one of the constants Site…, of the call site that differs most; Where is that.
	Site  Site   `json:"site"`
	Where string `json:"where,omitempty"`
	// SampleType that was compared, and the Unit of the numbers below, one of compare.Unit….
	SampleType string `json:"sample_type"`
	Unit       string `json:"unit"`
	// Total is the sum of all stacks. Components and Stacks come with the largest proven difference
	// first.
	Total      compare.Difference     `json:"total"`
	Components []compare.ComponentRow `json:"components"`
	Stacks     []compare.StackRow     `json:"stacks"`

	result *compare.Result
}

// Find compares ranks. Of several with one number, the latest counts, on each node if the number is
// local; maxChance is the largest chance of being noise with which one stands out.
func Find(job string, ranks []Rank, maxChance float64) *Result {
	r := &Result{
		Schema: Schema, Job: job, MaxChance: maxChance, Ranks: []Rank{}, Notes: []string{}, median: -1,
	}
	r.take(ranks)
	r.score()
	if r.unused > 0 {
		r.Notes = append(r.Notes, words.RanksRepeated(r.unused))
	}
	r.say()
	return r
}

// take takes over the ranks, the largest growth first, and the latest of several with one number.
func (r *Result) take(ranks []Rank) {
	ranks = slices.Clone(ranks)
	slices.SortStableFunc(ranks, func(a, b Rank) int {
		return cmp.Or(b.At.Compare(a.At), boolCompare(b.Rate != nil, a.Rate != nil))
	})

	type trace struct {
		began  int64
		node   string
		pid    int
		number int
	}
	type place struct {
		number int
		node   string // empty: any
	}
	seen, traces := make(map[place]int), make(map[trace]bool) // index in r.Ranks
	same := 0
	for _, rank := range ranks {
		t := trace{rank.At.UnixNano(), rank.Node, rank.PID, rank.number()}
		if rank.PID != 0 && traces[t] { // by another name, such as allocscope-latest
			same++
			continue
		}
		traces[t] = true
		if rank.Rank != nil {

			anywhere, here := place{*rank.Rank, ""}, place{*rank.Rank, rank.Node}
			at, isKnown := seen[anywhere]
			if rank.IsLocal {
				at, isKnown = seen[here]
			}
			if isKnown {
				if at < len(r.Ranks) && r.Ranks[at].earlier == nil && !r.Ranks[at].continues {
					r.Ranks[at].earlier = &rank
				}
				continue
			}
			seen[anywhere], seen[here] = len(r.Ranks), len(r.Ranks)
		}
		if len(r.Ranks) < MaxRanks {
			r.Ranks = append(r.Ranks, rank)
		}
	}
	r.unused = len(ranks) - len(r.Ranks) - same
	r.nameNodes()

	slices.SortStableFunc(r.Ranks, func(a, b Rank) int {
		return cmp.Or(
			cmp.Compare(b.growth(), a.growth()),
			cmp.Compare(a.number(), b.number()),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node),
		)
	})
	for i := range r.Ranks {
		if r.Ranks[i].Rate != nil {
			r.Judged++
		}
	}
}

// nameNodes adds the node to the names of ranks whose number is there more than once.
func (r *Result) nameNodes() {
	count := make(map[int]int)
	for i := range r.Ranks {
		count[r.Ranks[i].number()]++
	}

	for i := range r.Ranks {
		if k := &r.Ranks[i]; k.Rank != nil && k.Node != "" && count[*k.Rank] > 1 {
			k.Name += " on " + k.Node
		}
	}
}

// maxListedRanks bounds the missing ranks that a note lists.
const maxListedRanks = 5

// missing returns how many ranks the job has, by a rank's own data and by the largest number; how
// many of them are not there; and the first of these.
func (r *Result) missing() (total, count int, first []int) {
	there := make(map[int]bool)
	for i := range r.Ranks {
		if k := &r.Ranks[i]; k.Rank != nil {
			there[*k.Rank] = true
			total = max(total, k.worldSize, *k.Rank+1)
		}
	}

	count = total - len(there)

	for n := 0; len(first) < min(count, maxListedRanks); n++ {
		if !there[n] {
			first = append(first, n)
		}
	}

	return total, count, first
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// growth is the rate for sorting: an unknown one is below all others.
func (k *Rank) growth() float64 {
	if k.Rate == nil {
		return math.Inf(-1)
	}
	return *k.Rate
}

func (k *Rank) number() int {
	if k.Rank == nil {
		return math.MaxInt
	}
	return *k.Rank
}

// label is the number, or the name where there is none.
func (k *Rank) label() string {
	if k.Rank == nil {
		return k.Name
	}
	return strconv.Itoa(*k.Rank)
}

// score gives each rank whose growth is known its score. These are the first ones.
func (r *Result) score() {
	members, earlier := make([]outlier.Member, r.Judged), []outlier.Member(nil)
	for i := range members {
		k := &r.Ranks[i]
		members[i] = k.member()
		if k.earlier != nil && k.earlier.Rate != nil {
			earlier = append(earlier, k.earlier.member())
		}
	}
	if len(members) == 0 {
		return
	}

	found := outlier.Find(members)
	if len(earlier) == len(members) {
		found = outlier.FindTwice(earlier, members)
		r.Notes = append(r.Notes, words.RanksTwice)
		r.unused -= len(earlier)
	}
	r.Median, r.MAD = summary.Finite(60*found.Median), summary.Finite(60*found.MAD)
	for i, s := range found.Scores {
		r.Ranks[i].Z, r.Ranks[i].Chance = summary.Finite(s.Z), summary.Finite(s.Chance)
	}
	for _, i := range found.Outliers(r.MaxChance) {
		// By its verdict, if there is one, it must grow: among ranks that do not, a few bytes are
		// far out.
		if v := r.Ranks[i].Verdict; v == "" || v.Grows() {
			r.Ranks[i].StandsOut = true
			r.outliers = append(r.outliers, i)
		}
	}

	for i := range members {
		if r.median < 0 || r.fromMedian(i) < r.fromMedian(r.median) {
			r.median = i
		}
	}
}

// member is the rank with a known growth.
func (k *Rank) member() outlier.Member {
	return outlier.Member{
		Growth: *k.Rate / 60, Error: outlier.ErrorOf(*k.RateLow/60, *k.RateHigh/60),
	}
}

func (r *Result) fromMedian(i int) float64 { return math.Abs(*r.Ranks[i].Rate - *r.Median) }

// say sets the outcome and its words.
func (r *Result) say() {
	total, missing, first := r.missing()
	w := words.Ranks{
		Total: len(r.Ranks), Judged: r.Judged, Others: r.medianOfOthers(), MaxChance: r.MaxChance,
		Missing: missing,
	}
	for i := range r.Ranks[:r.Judged] {
		if k := &r.Ranks[i]; k.StandsOut || i == 0 {
			w.Rows = append(w.Rows, words.RankGrowth{
				Name: k.Name, Rate: k.rateVerdict(), StandsOut: k.StandsOut, Chance: k.Chance,
			})
		}
	}

	tooFew := len(r.outliers) == 0 && (r.Judged < MinJudged || r.Judged < (len(r.Ranks)+1)/2)
	switch {
	case len(r.outliers) > 0:
		r.Outcome = OutcomeOutlier
	case tooFew || missing > 0:
		r.Outcome = OutcomeUnknown
	default:
		r.Outcome = OutcomeNone
	}
	r.Name, r.Sentence = w.Text(tooFew)
	if unknown := len(r.Ranks) - r.Judged; unknown > 0 && !tooFew {
		r.Notes = append(r.Notes, words.RanksUnknown(unknown, len(r.Ranks)))
	}
	if missing > 0 {
		r.Notes = append(r.Notes, words.RanksMissing(missing, total, first))
	}
}

// medianOfOthers is the median growth of the ranks that do not stand out; nil: there are none. They
// are in order.
func (r *Result) medianOfOthers() *float64 {
	var rates []float64
	for i := range r.Ranks[:r.Judged] {
		if k := &r.Ranks[i]; !k.StandsOut {
			rates = append(rates, *k.Rate)
		}
	}
	n := len(rates)
	if n == 0 {
		return nil
	}
	return summary.Finite((rates[(n-1)/2] + rates[n/2]) / 2)
}

// MinJudged is the number of ranks with a known growth from which the ranks can be said to grow
// alike.
const MinJudged = 3

// rateVerdict is the rate in the form in which words writes it.
func (k *Rank) rateVerdict() summary.Verdict {
	return summary.Verdict{Rate: k.Rate, RateLow: k.RateLow, RateHigh: k.RateHigh}
}

// Pair returns the indices of the two ranks whose profiles are to be compared: the rank with the
// number, or, where number is nil, the first that stands out; and the median rank. ok is false
// where there are no two.
func (r *Result) Pair(number *int) (rank, median int, ok bool) {
	rank = -1
	if number == nil && len(r.outliers) > 0 {
		rank = r.outliers[0]
	}
	if number != nil {
		rank = slices.IndexFunc(r.Ranks, func(k Rank) bool { return k.Rank != nil && *k.Rank == *number })
	}
	median = r.median
	return rank, median, rank >= 0 && median >= 0 && rank != median
}

// maxExact is the magnitude up to which a float64 holds every whole number.
const maxExact = 1 << 53

// SetRate sets the rate and its interval, in bytes a minute, where they are known, in order and not
// forged: a rate without an interval may be any.
func (k *Rank) SetRate(rate, low, high float64) {
	if !(-maxExact <= low && low <= rate && rate <= high && high <= maxExact) {
		return
	}
	k.Rate, k.RateLow, k.RateHigh = &rate, &low, &high
}

// SetNumber sets the number of the rank, and its name.
func (k *Rank) SetNumber(number int) { k.Rank, k.Name = &number, fmt.Sprintf("rank %d", number) }

// SetRSS sets the RSS in bytes, where it is one.
func (k *Rank) SetRSS(bytes float64) {
	if bytes >= 0 && bytes <= maxExact {
		k.RSS = new(int64(bytes))
	}
}

// WriteJSON writes the result, indented. The error comes from w, unwrapped.
func (r *Result) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// maxListedJobs bounds the jobs that an error lists.
const maxListedJobs = 5

// OfJob returns the ranks of a job, and its ID. Where no job is named, all must be of one: ranks
// whose job is unknown count as its. Without any rank of the job the error lists those that there
// are.
func OfJob(ranks []Rank, job string) (string, []Rank, error) {
	var jobs []string
	for i := range ranks {
		if ranks[i].job != "" {
			jobs = append(jobs, ranks[i].job)
		}
	}
	slices.Sort(jobs)
	jobs = slices.Compact(jobs)

	if job == "" {
		if len(jobs) > 1 {
			return "", nil, fmt.Errorf("the traces are of %d jobs (choose one with --job): %s", len(jobs),
				list(jobs))
		}
		return strings.Join(jobs, ""), ranks, nil
	}

	of := slices.DeleteFunc(slices.Clone(ranks), func(k Rank) bool { return k.job != job })
	if len(of) == 0 {
		return "", nil, fmt.Errorf("no trace is of job %s: there are %s", job,
			cmp.Or(list(jobs), "none whose job is known"))
	}
	return job, of, nil
}

// list joins the first few names.
func list(names []string) string {
	text := strings.Join(names[:min(maxListedJobs, len(names))], ", ")
	if len(names) > maxListedJobs {
		text += ", ..."
	}
	return text
}
