package metrics

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestCollector(t *testing.T) {
	t.Run("full state", testFull)
	t.Run("unknown values", testUnknown)
	t.Run("equal labels", testEqualLabels)
	t.Run("hostile state", testHostile)
	t.Run("every class", testClasses)
	t.Run("series of a process", testSeries)
}

// full has a value of each family.
func full() State {
	traced := Process{
		Job: "llm-7b", Rank: 3, Role: growth.RoleRank, Count: 1,
		RSS: 9 << 30, Anonymous: 8 << 30, File: 512 << 20, Shmem: 512 << 20, Swap: 0,
		Headroom: growth.Headroom{Left: 7 << 30, Bytes: 16 << 30, Of: growth.LimitCgroup},
		Verdict:  verdict.ClassLeak, Growth: 2e6, GrowthLow: 1.8e6, GrowthHigh: 2.2e6, ToLimit: 3758,
		Trace: &Trace{
			At: time.Unix(1_700_000_000, 250e6), Duration: 5 * time.Minute,
			Verdict:    verdict.ClassLeak,
			Rows:       map[growth.Kind]int64{growth.KindHeap: 6 << 30, growth.KindUnexplained: -4096},
			Components: map[string]float64{"pil": 1.9e6, "other": 1e3, "torch": -2e4},
			Slowdown:   0.004, OwnShare: 0.02,
			Losses: map[growth.LossKind]uint64{growth.LossEvents: 12},
		},
	}

	return State{
		Version: "v1.2.3", Node: "gpu7",
		Processes: []Process{traced, {
			Rank: growth.Unknown, Role: growth.RoleTrainer, Count: 2,
			RSS: 1 << 30, Anonymous: growth.Unknown, File: growth.Unknown, Shmem: growth.Unknown,
			Swap: growth.Unknown, Headroom: growth.Headroom{Left: 1 << 34, Of: growth.LimitMachine},
			Verdict: verdict.ClassPlateau, Growth: 0, GrowthLow: -10, GrowthHigh: 10,
			ToLimit: math.Inf(1),
		}},
		Watched: 3, Ignored: 1, OOMKills: 2, FolderBytes: 1 << 20,
		Traces: map[TraceOutcome]uint64{TraceDone: 4, TraceRefused: 2},
		Push:   &push.Stats{Sent: 12, Retried: 3, Refused: 1, Dropped: 2, Waiting: 5, WaitingBytes: 640},
	}
}

func registryOf(t *testing.T, s State) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	tracertest.NoError(t, registry.Register(NewCollector(func() State { return s })))
	return registry
}

// textOf is a scrape, as text.
func textOf(t *testing.T, s State) string {
	t.Helper()
	gathered := tracertest.Must(registryOf(t, s).Gather())(t)
	var text bytes.Buffer
	for _, f := range gathered {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// parse parses a scrape as Prometheus' own library does.
func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed := tracertest.Must(parser.TextToMetricFamilies(strings.NewReader(text)))(t)
	return parsed
}

func testFull(t *testing.T) {
	problems, err := testutil.GatherAndLint(registryOf(t, full()))
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}

	got := textOf(t, full())
	exporttest.Golden(t, "full.txt", got)

	parsed := parse(t, got)
	for _, f := range families {
		if parsed[f.name] == nil {
			t.Errorf("%s: the full state has no series of it", f.name)
		}
	}
}

func testUnknown(t *testing.T) {
	nan, unknown := math.NaN(), int64(growth.Unknown)
	got := textOf(t, State{Processes: []Process{{
		Rank: 0, Role: growth.RoleRank, Count: 1, RSS: unknown, Anonymous: unknown, File: unknown,
		Shmem: unknown, Swap: unknown, Growth: nan, GrowthLow: nan, GrowthHigh: nan, ToLimit: nan,
		Trace: &Trace{
			At: time.Unix(1, 0), Slowdown: nan, OwnShare: nan, Components: map[string]float64{"a": nan},
		},
	}}})
	var names []string
	for name := range parse(t, got) {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{
		"allocscope_build_info", "allocscope_folder_bytes", "allocscope_ignored_processes",
		"allocscope_oom_kills_total", "allocscope_processes", "allocscope_trace_duration_seconds",
		"allocscope_trace_timestamp_seconds", "allocscope_traces_total",
		"allocscope_watched_processes",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// valueOf is the value of the only series with these labels.
func valueOf(t *testing.T, f *dto.MetricFamily, labels map[string]string) float64 {
	t.Helper()
	var found []*dto.Metric
	for _, m := range f.GetMetric() {
		matches := 0
		for _, l := range m.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				matches++
			}
		}
		if matches == len(labels) {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s%v: %d series", f.GetName(), labels, len(found))
	}
	return found[0].GetGauge().GetValue()
}

// Two processes of one label set are one series.
func testEqualLabels(t *testing.T) {
	nan := math.NaN()
	one := Process{
		Job: "j", Rank: 1, Role: growth.RoleRank, Count: 1, RSS: 100, Anonymous: 60, File: 40,
		Swap: growth.Unknown, Headroom: growth.Headroom{Left: 900, Bytes: 1000, Of: growth.LimitCgroup},
		Verdict: verdict.ClassPlateau, Growth: 5, GrowthLow: 4, GrowthHigh: 6, ToLimit: nan,
	}
	other := one
	other.RSS, other.Swap = 10, 7
	other.Headroom = growth.Headroom{Left: 50, Bytes: 60, Of: growth.LimitHigh}
	other.Verdict, other.Growth, other.ToLimit = verdict.ClassLeak, 3, 17
	early := one
	early.Verdict, early.Growth = "", nan // too early for a verdict

	for name, order := range map[string][]Process{
		"milder first": {early, one, other}, "most severe first": {other, one, early},
	} {
		parsed := parse(t, textOf(t, State{Processes: order}))
		of := map[string]string{"job_id": "j", "rank": "1", "role": "rank"}
		for metric, want := range map[string]float64{
			"allocscope_processes":                       3,
			"allocscope_process_resident_bytes":          210,
			"allocscope_process_growth_bytes_per_second": 3,
			"allocscope_process_time_to_limit_seconds":   17,
			"allocscope_process_headroom_bytes":          50,
			"allocscope_process_limit_bytes":             60,
		} {
			if got := valueOf(t, parsed[metric], of); got != want {
				t.Errorf("%s: %s: %v, want %v", name, metric, got, want)
			}
		}
		of["memory"] = "swap"
		if got := valueOf(t, parsed["allocscope_process_memory_bytes"], of); got != 7 {
			t.Errorf("%s: swap: %v", name, got)
		}
	}
}

// hostile is a state that a node full of hostile processes could cause.
func hostile() State {
	text := "evil\xff\n\"} 1\n# HELP x\u202e" + strings.Repeat("é", 500)
	s := full()
	s.Node, s.Version = text, text
	p := s.Processes[0]
	p.Job, p.Role, p.Verdict, p.Headroom.Of = text, growth.Role(text), verdict.Class(text), text
	p.Trace.Verdict = verdict.Class(text)
	p.Trace.At = time.Time{}
	p.Trace.Slowdown = math.Inf(-1)
	for i := range 100 {
		name := fmt.Sprint(i, text)
		p.Trace.Rows[growth.Kind(name)] = math.MinInt64
		p.Trace.Components[name] = math.MaxFloat64
		p.Trace.Losses[growth.LossKind(name)] = math.MaxUint64
	}
	for i := range 1200 {
		p.Rank = i / 2
		p.RSS, p.Count = math.MaxInt64, math.MaxInt
		if i == 20 {
			p.Trace = nil // the texts take long
		}
		s.Processes = append(s.Processes, p)
	}
	p.Rank = math.MinInt
	s.Processes = append(s.Processes, p)
	return s
}

func testHostile(t *testing.T) {
	const (
		maxOfProcess = 150 // series
		maxLabel     = 160 // bytes
	)
	text := textOf(t, hostile())
	series := 0
	for name, f := range parse(t, text) {
		series += len(f.GetMetric())
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				v := l.GetValue()
				if len(v) > maxLabel || !utf8.ValidString(v) || strings.ContainsAny(v, "\n\u202e") {
					t.Fatalf("%s: label %s is %q", name, l.GetName(), v)
				}
			}
		}
	}
	if series > 512*maxOfProcess || series < 512 {
		t.Errorf("%d series", series)
	}
}

func seriesOf(t *testing.T, s State) (n int) {
	t.Helper()
	for _, f := range parse(t, textOf(t, s)) {
		n += len(f.GetMetric())
	}
	return n
}

// The numbers of docs/reference/metrics.md, from which the guide computes the cost of a cluster.
func testSeries(t *testing.T) {
	s := hostile()
	p := s.Processes[2] // with more rows, components and losses than there can be
	p.Verdict, p.Headroom.Of = verdict.ClassLeak, growth.LimitCgroup
	p.Trace.Verdict, p.Trace.Slowdown = verdict.ClassLeak, 0
	s.Processes = nil
	agent := seriesOf(t, s)
	s.Processes = []Process{p}
	traced := seriesOf(t, s)
	s.Processes[0].Trace = nil
	untraced := seriesOf(t, s)
	if agent != 15 || untraced-agent != 21 || traced-untraced != 88 {
		t.Errorf("%d of the agent, %d of a process, %d of its trace", agent, untraced-agent,
			traced-untraced)
	}
}
