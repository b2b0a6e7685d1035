package ranks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const mib = 1 << 20

// ranksOf are ranks 0, 1, ... with these rates in MiB/min, each ± 0.1.
func ranksOf(rates ...float64) (all []Rank) {
	for i, rate := range rates {
		k := Rank{Verdict: verdict.ClassGrowing, Node: fmt.Sprintf("node-%d", i/4)}
		k.SetNumber(i)
		k.SetRSS(1 << 30)
		if !math.IsNaN(rate) {
			k.SetRate(rate*mib, (rate-0.1)*mib, (rate+0.1)*mib)
		}
		all = append(all, k)
	}
	return all
}

// leakingThird are eight ranks of which rank 3 leaks.
func leakingThird() []Rank { return ranksOf(10, 10.1, 9.9, 60, 10.2, 9.8, 10, 10.1) }

// oneLeaks is their result, with the places of rank 3 and of the median one.
func oneLeaks() (r *Result, rank, median int) {
	r = Find("", leakingThird(), 0.01)
	rank, median, _ = r.Pair(nil)
	return r, rank, median
}

func TestFind(t *testing.T) {
	nan := math.NaN()
	for what, test := range map[string]struct {
		ranks   []Rank
		outcome Outcome
		says    string
		first   string
	}{
		"one leaks": {
			leakingThird(), OutcomeOutlier,
			"6.0x as fast as the other 7 (median +10.0 MiB/min)", "rank 3",
		},
		"none leaks":     {ranksOf(10, 10.1, 9.9, 10.2, 9.8, 10, 10.1, 9.9), OutcomeNone, "of 8 ranks, rank 3 grows most", "rank 3"},
		"all are flat":   {ranksOf(0, 0, 0, 0, 0), OutcomeNone, "grows most", "rank 0"},
		"one shrinks":    {ranksOf(10, 10.1, 9.9, -500, 10.2, 9.8, 10, 10.1), OutcomeNone, "grows most", "rank 4"},
		"none":           {nil, OutcomeUnknown, "no rank is known", ""},
		"two":            {ranksOf(1, 100), OutcomeUnknown, "2 ranks: too few", "rank 1"},
		"mostly unknown": {ranksOf(1, 1, 1, 1, nan, nan, nan, nan, nan), OutcomeUnknown, "4 of 9 ranks is known", "rank 0"},
		"others shrink": {
			ranksOf(-1, -1.1, -0.9, 60, -1.2, -0.8, -1, -1.1), OutcomeOutlier, "the other 7 grow by -1.00 MiB/min",
			"rank 3",
		},
	} {
		r := Find("job", test.ranks, 0.01)
		if r.Outcome != test.outcome || !strings.Contains(r.Sentence, test.says) {
			t.Errorf("%s: %s: %s: %s", what, r.Outcome, r.Name, r.Sentence)
		}
		if len(test.ranks) > 0 && r.Ranks[0].Name != test.first {
			t.Errorf("%s: %s is first", what, r.Ranks[0].Name)
		}
		for i, k := range r.Ranks {
			if k.StandsOut != (test.outcome == OutcomeOutlier && i == 0) {
				t.Errorf("%s: %s stands out: %t", what, k.Name, k.StandsOut)
			}
		}
	}
}

// Among ranks that do not grow, a few bytes are no outlier.
func TestFlat(t *testing.T) {
	all := ranksOf(0, 0, 0, 0.01, 0, 0, 0, 0)
	for i := range all {
		all[i].Verdict = verdict.ClassPlateau
		all[i].SetRate(*all[i].Rate, *all[i].Rate, *all[i].Rate)
	}
	if r := Find("", all, 0.05); r.Outcome != OutcomeNone || r.Ranks[0].Z != nil {
		t.Errorf("%s, z %v: %s", r.Outcome, r.Ranks[0].Z, r.Sentence)
	}
}

func TestRepeated(t *testing.T) {
	all := ranksOf(10, 11, 12, 13, 14, 15, 16, 17)
	for i := range all {
		all[i].PID, all[i].At = 100+i, time.Unix(1, 0)
	}
	link := all[2] // the same trace, by allocscope-latest
	later := all[5]
	later.PID, later.At = 200, time.Unix(60, 0)
	later.SetRate(mib, mib, mib)

	r := Find("", append(all, link, later), 0.01)
	if len(r.Ranks) != 8 || r.Judged != 8 || len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "1 earlier run") {
		t.Fatalf("%d ranks, notes %q", len(r.Ranks), r.Notes)
	}
	if last := r.Ranks[7]; last.Name != "rank 5" || last.PID != 200 {
		t.Errorf("%s of PID %d, not the latest trace of rank 5", last.Name, last.PID)
	}
}

// TestTwice: a rank that grows more in two traces in a row stands out by less.
func TestTwice(t *testing.T) {
	rates := []float64{10, 10.2, 9.7, 10.1, 9.9, 10.3, 9.8, 12}
	all := ranksOf(rates...)
	other := ranksOf(10.1, 9.8, 10.2, 9.9, 10.3, 9.7, 10, 12.1)
	for i := range all {
		all[i].PID, all[i].At = 100+i, time.Unix(60, 0)
		other[i].PID, other[i].At = 200+i, time.Unix(1, 0)
	}
	once, twice := Find("", all, 0.05), Find("", append(other, all...), 0.05)
	if len(twice.Ranks) != 8 || *twice.Ranks[0].Rate != *once.Ranks[0].Rate ||
		*twice.Ranks[0].Z != *once.Ranks[0].Z || *twice.Ranks[0].Chance >= 2**once.Ranks[0].Chance {
		t.Errorf("%+v, once %+v", twice.Ranks[0], once.Ranks[0])
	}
	isTwice := func(r *Result) bool { return slices.Contains(r.Notes, words.RanksTwice) }
	if !isTwice(twice) || isTwice(once) {
		t.Errorf("%q, once %q", twice.Notes, once.Notes)
	}

	if len(twice.Notes) != 1 {
		t.Errorf("%q: no trace was left out", twice.Notes)
	}
	for i := range all {
		all[i].continues = true
	}
	if longer := Find("", append(other, all...), 0.05); isTwice(longer) {
		t.Errorf("%q, of one window", longer.Notes)
	}
	for i := range all {
		all[i].continues = false
	}

	some := Find("", append(other[:7], all...), 0.05) // rank 7 has no earlier trace
	if isTwice(some) || *some.Ranks[0].Chance != *once.Ranks[0].Chance {
		t.Errorf("%q, %+v", some.Notes, some.Ranks[0])
	}
}

// Two nodes have ranks 0 to 3 each, with the variables of torch.distributed.launch.
func TestLocalNumbers(t *testing.T) {
	summaryOf := func(identity summary.Identity) *summary.Summary {
		return &summary.Summary{Processes: []summary.TreeProcess{
			{PID: 7, Rank: identity.Rank, Identity: &identity},
		}}
	}

	var all []Rank
	for i := range 8 {
		number, rate := i%4, 10*mib+float64(i)*mib/100
		if i == 2 {
			rate = 60 * mib
		}

		s := summaryOf(summary.Identity{
			Rank: &number, LocalRank: &number, Node: fmt.Sprintf("node-%d", i/4),
		})
		s.Started = time.Unix(int64(i), 0)

		k := rankOf(s, &s.Processes[0], "trace")
		k.SetRate(rate, rate-mib/10, rate+mib/10)
		all = append(all, k)
	}

	again := all[2] // an earlier trace of the same rank
	again.At, again.PID = time.Unix(0, 0), 6

	r := Find("", append(all, again), 0.05)
	if r.Outcome != OutcomeOutlier || r.Name != "RANK 2 ON NODE-0 STANDS OUT" || len(r.Ranks) != 8 {
		t.Errorf("%s of %d ranks: %s", r.Name, len(r.Ranks), r.Sentence)
	}
	if len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "1 earlier run") {
		t.Errorf("notes %q", r.Notes)
	}

	// One that knows the number of all ranks was started again on another node.
	number, size := 2, 8
	s := summaryOf(summary.Identity{
		Rank: &number, LocalRank: &number, WorldSize: &size, Node: "node-0",
	})
	if k := rankOf(s, &s.Processes[0], "trace"); k.IsLocal {
		t.Error("rank 2 of 8 is local")
	}

	all = ranksOf(10, 10.1, 9.9, 60)
	all[3].At = time.Unix(9, 0)
	before := all[3]
	before.Node, before.At = "node-9", time.Unix(8, 0)
	before.SetRate(10*mib, 10*mib, 10*mib)

	r = Find("", append([]Rank{before}, all...), 0.05)
	first := r.Ranks[0]
	if len(r.Ranks) != 4 || first.Name != "rank 3" || first.Node != "node-0" || len(r.Notes) != 1 {
		t.Errorf("%d ranks, first %s on %s, notes %q", len(r.Ranks), first.Name, first.Node,
			r.Notes)
	}
}

func TestMissing(t *testing.T) {
	all := leakingThird()

	withoutThird := slices.Concat(all[:3], all[4:])
	ofTen := slices.Clone(withoutThird)
	ofTen[0].worldSize = 10
	hostile := slices.Clone(all)
	hostile[0].worldSize = math.MaxInt32

	for what, test := range map[string]struct {
		ranks   []Rank
		outcome Outcome
		note    string
	}{
		"none":            {all, OutcomeOutlier, ""},
		"by the largest":  {withoutThird, OutcomeUnknown, "1 rank is missing of the job's 8: 3"},
		"by WORLD_SIZE":   {ofTen, OutcomeUnknown, "3 ranks are missing of the job's 10: 3, 8, 9"},
		"beside an other": {all[2:], OutcomeOutlier, "2 ranks are missing of the job's 8: 0, 1"},
		"hostile": {
			hostile, OutcomeOutlier,
			"2147483639 ranks are missing of the job's 2147483647: 8, 9, 10, 11, 12, ...",
		},
	} {
		r := Find("", test.ranks, 0.05)
		if r.Outcome != test.outcome || strings.Join(r.Notes, "") != test.note {
			t.Errorf("%s: %s: %s, notes %q", what, r.Name, r.Sentence, r.Notes)
		}
		if isUnknown := test.outcome == OutcomeUnknown; isUnknown != (r.Name == "CANNOT TELL") {
			t.Errorf("%s: %s: %s", what, r.Name, r.Sentence)
		}
	}
}

func TestForgedRates(t *testing.T) {
	inf := math.Inf(1)
	for _, rate := range [][3]float64{
		{math.NaN(), 0, 1},
		{inf, inf, inf},
		{-inf, -inf, 0},
		{1e300, 0, 1e300},
		{5, 6, 7},
		{5, 3, 4},
		{1, -inf, 2},
		{1, 0, inf},
		{5, math.NaN(), 7}, // the interval is not known
	} {
		var k Rank
		if k.SetRate(rate[0], rate[1], rate[2]); k.Rate != nil {
			t.Errorf("%v is a rate", rate)
		}
	}
	var k Rank
	for _, bytes := range []float64{-1, math.NaN(), inf, 1e300} {
		if k.SetRSS(bytes); k.RSS != nil {
			t.Errorf("%g is an RSS", bytes)
		}
	}
}

func TestOfJob(t *testing.T) {
	all := ranksOf(1, 2, 3, 4)
	all[0].job, all[1].job = "a", "a"
	if job, of, err := OfJob(all, ""); job != "a" || len(of) != 4 || err != nil {
		t.Errorf("one job: %q, %d ranks, %v", job, len(of), err)
	}
	all[2].job = "b"
	if _, _, err := OfJob(all, ""); err == nil || !strings.Contains(err.Error(), "(choose one with --job): a, b") {
		t.Errorf("two jobs: %v", err)
	}
	if job, of, err := OfJob(all, "b"); job != "b" || len(of) != 1 || err != nil {
		t.Errorf("job b: %q, %d ranks, %v", job, len(of), err)
	}
	if _, _, err := OfJob(all, "c"); err == nil || !strings.Contains(err.Error(), "there are a, b") {
		t.Errorf("job c: %v", err)
	}
}

func TestPair(t *testing.T) {
	r := Find("", leakingThird(), 0.01)
	rank, median, ok := r.Pair(nil)
	if !ok || r.Ranks[rank].Name != "rank 3" || math.Abs(*r.Ranks[median].Rate-*r.Median) > 0.06*mib {
		t.Errorf("%d, %d, %t", rank, median, ok)
	}
	five := 5
	if rank, _, ok = r.Pair(&five); !ok || r.Ranks[rank].Name != "rank 5" {
		t.Errorf("%d, %t", rank, ok)
	}
	if _, _, ok = r.Pair(r.Ranks[median].Rank); ok {
		t.Error("the median rank is compared with itself")
	}
	if _, _, ok = Find("", ranksOf(1, 1, 1, 1), 0.01).Pair(nil); ok {
		t.Error("there is a pair, and none stands out")
	}
	if _, _, ok = Find("", nil, 0.01).Pair(&five); ok {
		t.Error("there is a pair of none")
	}
}

// profileOf is a profile of the functions' gains, in bytes.
func profileOf(gained map[string]int64) *pprof.Profile {
	p := &pprof.Profile{
		SampleType:    []*pprof.ValueType{{Type: "resident_space", Unit: "bytes"}},
		DurationNanos: time.Minute.Nanoseconds(),
	}
	for name, bytes := range gained {
		f := &pprof.Function{ID: uint64(len(p.Function) + 1), Name: name, Filename: "/job/train.py"}
		l := &pprof.Location{ID: f.ID, Line: []pprof.Line{{Function: f, Line: 7}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		p.Sample = append(p.Sample, &pprof.Sample{Location: []*pprof.Location{l}, Value: []int64{bytes}})
	}
	return p
}

func TestSite(t *testing.T) {
	for what, test := range map[string]struct {
		of, with map[string]int64
		site     Site
		where    string
	}{
		"same":          {map[string]int64{"step": 100, "load": 5}, map[string]int64{"step": 50, "load": 5}, SiteSame, "step (train.py:7)"},
		"only there":    {map[string]int64{"step": 50, "log": 100}, map[string]int64{"step": 50}, SiteOnly, "log (train.py:7)"},
		"hardly":        {map[string]int64{"step": 50, "log": 100}, map[string]int64{"step": 50, "log": 10}, SiteOnly, "log (train.py:7)"},
		"no stack":      {map[string]int64{"step": 50, "[unexplained]": 80}, map[string]int64{"step": 40}, SiteSame, "step (train.py:7)"},
		"hardly a site": {map[string]int64{"step": 50, "[unexplained]": 900}, map[string]int64{"step": 40}, SiteOnly, "[unexplained] (train.py:7)"},
		"less":          {map[string]int64{"step": 50}, map[string]int64{"step": 60}, SiteUnknown, ""},
		"nothing":       {nil, nil, SiteUnknown, ""},
	} {
		r, rank, median := oneLeaks()
		if err := r.CompareProfiles(rank, median, profileOf(test.of), profileOf(test.with)); err != nil {
			t.Fatal(what, err)
		}
		if c := r.Comparison; c.Site != test.site || c.Where != test.where || c.Rank != "rank 3" {
			t.Errorf("%s: %s, %q of %s", what, c.Site, c.Where, c.Rank)
		}
	}
}

// Two ranks grow alike, and one was traced for longer.
func TestTraceLengths(t *testing.T) {
	r, rank, median := oneLeaks()

	of := profileOf(map[string]int64{"step": 75 * mib})
	with := profileOf(map[string]int64{"step": 6 * mib})
	of.DurationNanos, with.DurationNanos = 75e9, 6e9
	tracertest.NoError(t, r.CompareProfiles(rank, median, of, with))
	if c := r.Comparison; c.Site != SiteUnknown || c.Total.Change.Bytes != 0 {
		t.Errorf("%s, total %+v", c.sentence(), c.Total)
	}

	var file bytes.Buffer
	tracertest.NoError(t, r.WriteProfile(&file))
	p := tracertest.Must(pprof.Parse(&file))(t)
	for _, s := range p.Sample {
		if s.Value[0] != 0 {
			t.Errorf("the profile has %d bytes", s.Value[0])
		}
	}

	with.DurationNanos = 0
	if err := r.CompareProfiles(rank, median, of, with); err == nil {
		t.Error("a trace of unknown length is compared")
	}
}

func TestAlone(t *testing.T) {
	r, rank, median := oneLeaks()
	of := profileOf(map[string]int64{"step": 75 * mib})
	tracertest.NoError(t, r.CompareProfiles(rank, median, of, nil))
	var text bytes.Buffer
	tracertest.NoError(t, r.WriteText(&text, 0))

	const want = "\nrank 3 grows most by step (train.py:7); " +
		"whether rank 0 (the median) grows there, too, is not known\n"
	if r.Comparison.Site != SiteAlone || !strings.Contains(text.String(), want) {
		t.Errorf("%s:\n%s", r.Comparison.Site, text.String())
	}
}

// Without rows there is no table: no title, and no heading.
func TestNoRows(t *testing.T) {
	r, rank, median := oneLeaks()
	of := profileOf(map[string]int64{"step": mib})
	tracertest.NoError(t, r.CompareProfiles(rank, median, of, profileOf(nil)))
	var text bytes.Buffer
	tracertest.NoError(t, r.WriteText(&text, 0))

	const want = "\n\n8 more ranks, +9.80 MiB/min to +60.0 MiB/min: --limit, --json\n"
	if !strings.HasSuffix(text.String(), want) {
		t.Errorf("%q", text.String())
	}
}

// Names in summaries come from others.
func TestHostileNames(t *testing.T) {
	const name = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e"
	all := leakingThird()
	all[3].Node, all[3].Where = name+strings.Repeat("n", 1000), name
	r := Find(name, all, 0.01)
	rank, median, _ := r.Pair(nil)
	of := profileOf(map[string]int64{name: 5})
	tracertest.NoError(t, r.CompareProfiles(rank, median, of, profileOf(nil)))

	var text, page, out bytes.Buffer
	for _, err := range []error{r.WriteText(&text, 20), r.WriteHTML(&page), r.WriteJSON(&out)} {
		tracertest.NoError(t, err)
	}
	for i, line := range strings.Split(text.String(), "\n") {
		if len([]rune(line)) > 100 || strings.ContainsAny(line, "\x1b\u202e") {
			t.Errorf("line %d: %q", i+1, line)
		}
	}
	if strings.Contains(page.String(), "<img") {
		t.Error("the page has the element")
	}
	if !json.Valid(out.Bytes()) {
		t.Error("no JSON")
	}
}

func TestLargeJob(t *testing.T) {
	rates := make([]float64, 4096)
	for i := range rates {
		rates[i] = 10 + math.Sin(float64(i))
	}
	rates[2777] = 40
	r := Find("", ranksOf(rates...), 0.01)
	var text bytes.Buffer
	tracertest.NoError(t, r.WriteText(&text, 2))
	for _, want := range []string{"RANK 2777 STANDS OUT", "4094 more ranks, +9.00 MiB/min to +11.0 MiB/min"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if n := strings.Count(text.String(), "\n"); n > 12 {
		t.Errorf("%d lines", n)
	}
}
