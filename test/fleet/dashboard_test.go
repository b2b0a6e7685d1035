package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/fleet/serve"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// leakingRank of 16 grows unlike the others.
const leakingRank = 11

// simulated is an agent with 16 ranks that were all traced.
type simulated struct{ began time.Time }

func (simulated) Healthy() error { return nil }

func (simulated) Ready() error { return nil }

func (simulated) RequestTrace(context.Context, serve.Request) (serve.Answer, error) {
	return serve.Answer{}, nil
}

func (s simulated) State() metrics.State {
	state := metrics.State{
		Version: "v1", Node: "gpu7", Watched: 16, Ignored: 1, FolderBytes: 1 << 20,
		Traces: map[metrics.TraceOutcome]uint64{metrics.TraceDone: 16},
		Push:   &push.Stats{Sent: 48, Waiting: 1, WaitingBytes: 2048},
	}
	for rank := range 16 {
		class, traced := verdict.ClassPlateau, verdict.ClassPlateau
		rate := float64(10_240 + 500*rank)
		if rank == leakingRank {
			class, traced, rate = verdict.ClassLeak, verdict.ClassGrowing, 1<<20
		}
		grown := int64(rate * time.Since(s.began).Seconds())
		state.Processes = append(state.Processes, metrics.Process{
			Job: "llm", Rank: rank, Role: growth.RoleRank, Count: 1,
			RSS: 9<<30 + grown, Anonymous: 8<<30 + grown, File: 1 << 29, Shmem: 1 << 29,
			Headroom: growth.Headroom{Left: 7<<30 - grown, Bytes: 16 << 30, Of: growth.LimitCgroup},
			Verdict:  class, Growth: rate, GrowthLow: rate - 100, GrowthHigh: rate + 100,
			ToLimit: (7 << 30) / rate,
			Trace: &metrics.Trace{
				At: s.began, Duration: 5 * time.Minute, Verdict: traced,
				Slowdown: 0.004, OwnShare: 0.02,
				Rows:       map[growth.Kind]int64{growth.KindHeap: 8 << 30, growth.KindFile: 1 << 30},
				Components: map[string]float64{"pil": rate, "other": 10},
				Losses:     map[growth.LossKind]uint64{growth.LossEvents: 3},
			},
		})
	}

	return state
}

// ruleExpressions are the expressions of the recording rules and of the alerts, by their names.
func ruleExpressions(t *testing.T) map[string]string {
	t.Helper()
	text := read(t, "../../deploy/prometheus/allocscope.rules.yaml")
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	tracertest.NoError(t, yaml.Unmarshal([]byte(text), &file))
	expressions := make(map[string]string)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			expressions[rule.Record+rule.Alert] = rule.Expr // it has one of the two
		}
	}
	return expressions
}

// recorded matches a series of a recording rule, with its matchers.
var recorded = regexp.MustCompile(`\bjob_id\w*:[\w:]+(\{[^}]*\})?`)

// inline replaces the series of recording rules by their expressions.
func inline(expression string, rules map[string]string) string {
	for recorded.MatchString(expression) {
		expression = recorded.ReplaceAllStringFunc(expression, func(series string) string {
			name, _, _ := strings.Cut(series, "{")
			return "(" + rules[name] + ")"
		})
	}
	return expression
}

// expressionsOf are all expressions of a dashboard.
func expressionsOf(part any) (all []string) {
	switch part := part.(type) {
	case []any:
		for _, p := range part {
			all = append(all, expressionsOf(p)...)
		}
	case map[string]any:
		if text, ok := part["expr"].(string); ok {
			all = append(all, text)
		}
		for _, p := range part {
			all = append(all, expressionsOf(p)...)
		}
	}

	return all
}

// TestDashboard asks each Prometheus, which scrapes an agent, for each expression of the dashboard, and
// for the rank that stands out.
func TestDashboard(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	server, err := serve.Listen(ctx, serve.Options{Listen: "127.0.0.1:0"}, simulated{time.Now()})
	tracertest.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for name, program := range map[string]string{
		"Prometheus 2": prometheus2, "Prometheus 3": prometheus3(t),
	} {
		t.Run(name, func(t *testing.T) {
			config := fmt.Sprintf(scrapeEachSecond, server.Address().String())
			askDashboard(t, startPrometheus(t, program, config))
		})
	}
}

func askDashboard(t *testing.T, p prometheusServer) {
	text := read(t, "../../deploy/grafana/allocscope.json")
	var dashboard any
	tracertest.NoError(t, json.Unmarshal([]byte(text), &dashboard))
	rules := ruleExpressions(t)
	variable := regexp.MustCompile(`\$\w+`)
	all := expressionsOf(dashboard)
	if len(all) < 30 {
		t.Errorf("the dashboard has %d expressions", len(all))
	}
	for _, expression := range all {
		query := inline(variable.ReplaceAllString(expression, ".*"), rules)
		await(t, expression+" has a result", func() string {
			samples, err := p.query(query)
			if err != nil || len(samples) == 0 {
				return fmt.Sprintf("%d samples, %v", len(samples), err)
			}
			return ""
		})
	}

	samples, err := p.query(inline("job_id_rank:allocscope_process_growth:zscore > 8", rules))
	if err != nil || len(samples) != 1 || samples[0].labels["rank"] != fmt.Sprint(leakingRank) {
		t.Errorf("stands out: %v, %v", samples, err)
	}
}
