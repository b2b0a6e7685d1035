package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// rulesFile is the alerts and the recording rules.
const rulesFile = "../../deploy/prometheus/allocscope.rules.yaml"

// ruleFile has the keys that the tests need of a file of rules of Prometheus.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr string
			Annotations         map[string]string
		}
	}
}

func readRules(t *testing.T) (rules ruleFile) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err == nil {
		err = yaml.Unmarshal(text, &rules)
	}
	tracertest.NoError(t, err)
	return rules
}

// dashboardExpressions are all expressions of the dashboard, and the queries of its variables.
func dashboardExpressions(t *testing.T) (expressions []string) {
	t.Helper()
	text := tracertest.Must(os.ReadFile("../../deploy/grafana/allocscope.json"))(t)
	var dashboard any
	tracertest.NoError(t, json.Unmarshal(text, &dashboard))

	var collect func(part any)
	collect = func(part any) {
		switch part := part.(type) {
		case []any:
			for _, p := range part {
				collect(p)
			}
		case map[string]any:
			for key, p := range part {
				if text, ok := p.(string); ok && (key == "expr" || key == "definition") {
					expressions = append(expressions, text)
				}
				collect(p)
			}
		}
	}

	collect(dashboard)
	return expressions
}

var (
	metricPattern  = regexp.MustCompile(`[\w:]*\ballocscope_[\w:]+(\{[^}]*\})?`)
	matcherPattern = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
)

// TestDeployed checks that dashboard and alerts ask for metrics and labels that there are.
func TestDeployed(t *testing.T) {
	labels := make(map[string][]string)
	for _, f := range families {
		labels[f.name] = append(slices.Clone(f.labels), nodeLabel)
	}

	rules := readRules(t)
	var expressions []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			expressions = append(expressions, rule.Expr)
			if rule.Record != "" {
				labels[rule.Record] = append(ofProcess(), nodeLabel)
			}
		}
	}
	expressions = append(expressions, dashboardExpressions(t)...)
	if len(expressions) < 40 {
		t.Errorf("found %d expressions", len(expressions))
	}

	used := make(map[string]bool)
	for _, expression := range expressions {
		for _, found := range metricPattern.FindAllString(expression, -1) {
			name, matchers, _ := strings.Cut(found, "{")
			used[name] = true
			if labels[name] == nil {
				t.Errorf("%s: there is no metric %s", expression, name)
				continue
			}
			for _, m := range matcherPattern.FindAllStringSubmatch(matchers, -1) {
				if !slices.Contains(labels[name], m[1]) {
					t.Errorf("%s: %s has no label %s", expression, name, m[1])
				}
				checkValue(t, expression, m[1], m[2])
			}
		}
	}

	for _, f := range families {
		if !used[f.name] && f != traceDuration && f != processes {
			t.Errorf("neither the dashboard nor an alert shows %s", f.name)
		}
	}
}

// checkValue checks the value of a label with a fixed set of values.
func checkValue(t *testing.T, expression, label, value string) {
	t.Helper()
	values := map[string][]string{
		verdictLabel: textsOf(classes),
		outcomeLabel: append(textsOf(outcomes), "sent", "retried", "dropped", "refused", "damaged"),
	}[label]
	for one := range strings.SplitSeq(value, "|") {
		if values != nil && !slices.Contains(values, one) {
			t.Errorf("%s: %s is never %q", expression, label, one)
		}
	}
}

// TestRunbooks checks that each alert leads to a heading of the guide, which explains it.
func TestRunbooks(t *testing.T) {
	guide := tracertest.Must(os.ReadFile("../../docs/guides/prometheus.md"))(t)
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			url := "https://github.com/allocscope/allocscope/blob/main/docs/guides/prometheus.md#" +
				strings.ToLower(rule.Alert)
			if rule.Annotations["runbook_url"] != url {
				t.Errorf("%s leads to %s", rule.Alert, rule.Annotations["runbook_url"])
			}
			if !strings.Contains(string(guide), "\n### "+rule.Alert+"\n") {
				t.Errorf("the guide does not explain %s", rule.Alert)
			}
		}
	}
}
