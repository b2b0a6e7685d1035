package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/ranks"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Names of metrics.
const (
	metricRSS     = "allocscope_process_resident_bytes"
	metricGrowth  = "allocscope_process_growth_bytes_per_second"
	metricLow     = "allocscope_process_growth_low_bytes_per_second"
	metricHigh    = "allocscope_process_growth_high_bytes_per_second"
	metricVerdict = "allocscope_process_verdict"
)

var metrics = []string{metricRSS, metricGrowth, metricLow, metricHigh, metricVerdict}

// maxSamples bounds the samples of an answer: those of ranks.MaxRanks.
const maxSamples = 5 * ranks.MaxRanks

// A Prometheus has the metrics of agents.
type Prometheus struct{ Server }

// Ranks returns the ranks of a job as they are now, or, where the job has ended, as they were at last
// since then. That there are none is an error, which lists the jobs that there are.
func (p Prometheus) Ranks(ctx context.Context, job string, since time.Duration) ([]ranks.Rank, error) {
	series := fmt.Sprintf("{__name__=~%s,job_id=%s}",
		strconv.Quote(strings.Join([]string{metricRSS, metricGrowth, metricLow, metricHigh}, "|")),
		strconv.Quote(job))
	classes := fmt.Sprintf("%s{job_id=%s}", metricVerdict, strconv.Quote(job))
	within := fmt.Sprintf("[%ds]", max(1, int64(since.Seconds())))

	for _, question := range []string{
		fmt.Sprintf("%s or %s == 1", series, classes),
		fmt.Sprintf("last_over_time(%s%s) or last_over_time(%s%s) == 1", series, within, classes, within),
	} {
		samples, err := p.query(ctx, question)
		if err != nil {
			return nil, err
		}
		if found := ranksOf(samples); len(found) > 0 {
			return found, nil
		}
	}
	return nil, p.noRanks(ctx, job, within)
}

// noRanks is an error that says which jobs there are.
func (p Prometheus) noRanks(ctx context.Context, job, within string) error {
	jobs, err := p.jobs(ctx, within)
	switch {
	case err != nil:
		return err
	case len(jobs) == 0:
		return errors.New("Prometheus has no metrics of allocscope's agents (does it scrape them?)")
	}
	return fmt.Errorf("Prometheus has no rank of job %q: it has jobs %s", units.Name(job),
		strings.Join(jobs, ", "))
}

// maxListedJobs bounds the jobs that an error lists.
const maxListedJobs = 10

// jobs returns the IDs of some jobs.
func (p Prometheus) jobs(ctx context.Context, within string) ([]string, error) {
	samples, err := p.query(ctx, fmt.Sprintf("topk(%d, count by (job_id)(last_over_time(%s%s)))",
		maxListedJobs, metricRSS, within))
	var jobs []string
	for _, s := range samples {
		if name := s.Metric["job_id"]; name != "" {
			jobs = append(jobs, units.Name(name))
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs), err
}

// A sample is a series with its value at one time. See
// https://prometheus.io/docs/prometheus/latest/querying/api/#instant-vectors.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  sampleValue       `json:"value"`
}

// A sampleValue is written [time, "value"].
type sampleValue float64

// UnmarshalJSON implements json.Unmarshaler.
func (v *sampleValue) UnmarshalJSON(data []byte) error {
	var at float64
	var text string
	pair := []any{&at, &text}
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	value, err := strconv.ParseFloat(text, 64) // "NaN" and "+Inf", too
	*v = sampleValue(value)
	return err
}

// query asks an instant query.
func (p Prometheus) query(ctx context.Context, question string) ([]sample, error) {
	form := url.Values{"query": {question}, "timeout": {"60s"}}
	data, err := p.post(ctx, "/api/v1/query", "application/x-www-form-urlencoded", []byte(form.Encode()))
	if err != nil {
		return nil, err
	}

	var answer struct {
		Status string
		Data   struct {
			ResultType string
			Result     []sample
		}
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("the answer is not one of Prometheus: %w", err)
	}
	switch {
	case answer.Status != "success" || answer.Data.ResultType != "vector":
		return nil, fmt.Errorf("the answer is not one of Prometheus: status %q, a %q",
			units.Name(answer.Status), units.Name(answer.Data.ResultType))
	case len(answer.Data.Result) > maxSamples:
		return nil, fmt.Errorf("Prometheus has more than %d samples of the job", maxSamples)
	}
	return answer.Data.Result, nil
}

// ranksOf groups samples by rank and node. Samples of no rank, and of workers, are left out.
func ranksOf(samples []sample) []ranks.Rank {
	type key struct {
		number int
		node   string
	}
	type values struct {
		rss, rate, low, high *float64
		class                verdict.Class
	}
	found := make(map[key]*values)
	var keys []key

	for i := range samples {
		s := &samples[i]
		number, err := strconv.ParseUint(s.Metric["rank"], 10, 31)
		name := s.Metric["__name__"]
		if err != nil || !slices.Contains(metrics, name) ||
			!mayBeRank(growth.Role(s.Metric["role"])) {
			continue
		}

		k := key{int(number), s.Metric["node"]}
		if found[k] == nil {
			if len(keys) == ranks.MaxRanks {
				continue
			}
			found[k] = new(values)
			keys = append(keys, k)
		}
		v, value := found[k], float64(s.Value)
		switch name {
		case metricRSS:
			v.rss = &value
		case metricGrowth:
			v.rate = &value
		case metricLow:
			v.low = &value
		case metricHigh:
			v.high = &value
		case metricVerdict:
			v.class = moreSevere(v.class, verdict.Class(s.Metric["verdict"]))
		}
	}

	var out []ranks.Rank
	for _, k := range keys {
		v := found[k]
		rank := ranks.Rank{Node: units.Name(k.node), Verdict: verdict.Class(units.Name(string(v.class)))}
		rank.SetNumber(k.number)
		if v.rss != nil {
			rank.SetRSS(*v.rss)
		}
		if v.rate != nil {
			rank.SetRate(60**v.rate, perMinute(v.low), perMinute(v.high))
		}
		out = append(out, rank)
	}
	return out
}

func mayBeRank(role growth.Role) bool { return !role.IsWorker() && role != growth.RoleLauncher }

func moreSevere(a, b verdict.Class) verdict.Class {
	if a == "" || b.Severity() > a.Severity() {
		return b
	}
	return a
}

func perMinute(perSecond *float64) float64 {
	if perSecond == nil {
		return math.NaN()
	}
	return 60 * *perSecond
}
