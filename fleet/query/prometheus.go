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
	metricEnded   = "allocscope_trace_timestamp_seconds"
	metricLength  = "allocscope_trace_duration_seconds"
)

// gauges have one sample for each rank, and so has metricVerdict among those that are 1.
var gauges = []string{metricRSS, metricGrowth, metricLow, metricHigh, metricEnded, metricLength}

// maxSamples bounds the samples of an answer: the samples of ranks.MaxRanks.
const maxSamples = 7 * ranks.MaxRanks

// maxScrapeInterval is the largest time between two samples of a series that is alive. A query finds a
// sample for 5 minutes, so that targets are scraped more often than every two.
const maxScrapeInterval = 2 * time.Minute

// A Prometheus has the metrics of agents.
type Prometheus struct{ Server }

// Ranks returns the ranks of a job as they are now, or, where the job has ended, as they were at last
// since then. Where several nodes have a rank of one number at the same time, that number is local.
// That there are no ranks is an error, which lists the jobs that there are.
func (p Prometheus) Ranks(ctx context.Context, job string, since time.Duration) ([]ranks.Rank, error) {
	series := fmt.Sprintf("{__name__=~%s,job_id=%s}",
		strconv.Quote(strings.Join(gauges, "|")), strconv.Quote(job))
	classes := fmt.Sprintf("%s{job_id=%s}", metricVerdict, strconv.Quote(job))

	times := fmt.Sprintf("timestamp(%s{job_id=%s})", metricRSS, strconv.Quote(job))
	seconds := max(1, int64(since.Seconds()))
	within := fmt.Sprintf("[%ds]", seconds)

	for _, question := range []struct{ samples, times string }{
		{fmt.Sprintf("%s or %s == 1", series, classes), times},
		{
			fmt.Sprintf("last_over_time(%s%s) or last_over_time(%s%s) == 1",
				series, within, classes, within),
			fmt.Sprintf("max_over_time(%s[%ds:%ds])", times, seconds, max(30, seconds/1000)),
		},
	} {
		samples, err := p.query(ctx, question.samples)
		if err != nil {
			return nil, err
		}
		if found := ranksOf(samples); len(found) > 0 {
			return found, p.setTimes(ctx, found, question.times)
		}
	}
	return nil, p.noRanks(ctx, job, within)
}

// setTimes sets apart ranks with one number on several nodes, by their last samples: either the number
// is local, or the rank was started again on another node.
func (p Prometheus) setTimes(ctx context.Context, found []ranks.Rank, question string) error {
	numbers := make(map[int]bool)
	for i := range found {
		numbers[*found[i].Rank] = true
	}
	if len(numbers) == len(found) {
		return nil
	}

	samples, err := p.query(ctx, question)
	if err != nil {
		return err
	}

	seen, newest := make(map[place]time.Time), make(map[int]time.Time)
	for i := range samples {
		at, ok := placeOf(samples[i].Metric)

		if t := timeOf(float64(samples[i].Value)); ok && t.After(seen[at]) {
			seen[at] = t
			if t.After(newest[at.number]) {
				newest[at.number] = t
			}
		}
	}

	current := make(map[int][]*ranks.Rank)
	for i := range found {
		k := &found[i]
		k.At = seen[place{*k.Rank, k.Node}]

		if newest[*k.Rank].Sub(k.At) <= maxScrapeInterval {
			current[*k.Rank] = append(current[*k.Rank], k)
		}
	}

	for _, same := range current {
		for _, k := range same {
			k.IsLocal = len(same) > 1
		}
	}
	return nil
}

// timeOf is a time in Unix seconds; 0: it is none of this or the next century.
func timeOf(seconds float64) time.Time {
	if !(0 < seconds && seconds < 1<<32) {
		return time.Time{}
	}
	return time.UnixMilli(int64(1000 * seconds))
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

// A place is where a rank is.
type place struct {
	number int
	node   string
}

// placeOf returns the place of a series. It is not ok for a series of no rank, or of a worker.
func placeOf(labels map[string]string) (p place, ok bool) {
	number, err := strconv.ParseUint(labels["rank"], 10, 31)
	role := growth.Role(labels["role"])

	ok = err == nil && !role.IsWorker() && role != growth.RoleLauncher
	return place{int(number), units.Name(labels["node"])}, ok
}

// ranksOf groups samples by rank and node. Samples of no rank, and of workers, are left out.
func ranksOf(samples []sample) []ranks.Rank {
	type values struct {
		rss, rate, low, high, ended, length *float64
		class                               verdict.Class
	}
	found := make(map[place]*values)
	var keys []place

	for i := range samples {
		s := &samples[i]
		name := s.Metric["__name__"]
		k, ok := placeOf(s.Metric)
		if !ok || name != metricVerdict && !slices.Contains(gauges, name) {
			continue
		}

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
		case metricEnded:
			v.ended = &value
		case metricLength:
			v.length = &value
		case metricVerdict:
			v.class = moreSevere(v.class, verdict.Class(s.Metric["verdict"]))
		}
	}

	var out []ranks.Rank
	for _, k := range keys {
		v := found[k]
		rank := ranks.Rank{Node: k.node, Verdict: verdict.Class(units.Name(string(v.class)))}
		rank.SetNumber(k.number)
		if v.rss != nil {
			rank.SetRSS(*v.rss)
		}
		if v.rate != nil {
			rank.SetRate(60**v.rate, perMinute(v.low), perMinute(v.high))
		}
		if v.ended != nil && v.length != nil && 0 < *v.length && *v.length < *v.ended {
			rank.TraceEnded = timeOf(*v.ended)
			rank.TraceLength = time.Duration(*v.length * float64(time.Second))
		}
		out = append(out, rank)
	}
	return out
}

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
