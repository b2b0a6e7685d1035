package metrics

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// table is the part of the reference page that has the metrics.
func table() string {
	var text strings.Builder
	text.WriteString("| metric | labels | what it is | absent if |\n|---|---|---|---|\n")
	for _, f := range families {
		kind := ""
		if f.kind == prometheus.CounterValue {
			kind = "Counter. "
		}
		labels := ""
		if len(f.labels) > 0 {
			labels = "`" + strings.Join(f.labels, "`, `") + "`"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s%s | %s |\n", f.name, labels, kind, f.help, f.absent)
	}

	return text.String()
}

// TestReference compares the page with the metrics. -update writes its table.
func TestReference(t *testing.T) {
	const (
		path = "../../docs/reference/metrics.md"
		from = "<!-- made by: go test ./export/metrics -update -->\n\n"
		to   = "\n<!-- end of the table -->\n"
	)
	page := tracertest.Must(os.ReadFile(path))(t)
	before, rest, ok := strings.Cut(string(page), from)
	got, after, ended := strings.Cut(rest, to)
	if !ok || !ended {
		t.Fatalf("%s has no place for the table", path)
	}

	if *exporttest.Update {
		tracertest.NoError(t, os.WriteFile(path, []byte(before+from+table()+to+after), 0o644))
		return
	}
	if got != table() {
		t.Errorf("the table of %s is not the present one: write it with -update", path)
	}

	for _, label := range []string{memoryLabel, limitLabel, verdictLabel, rowLabel, componentLabel, lossLabel, outcomeLabel} {
		if !strings.Contains(after, "\n| `"+label+"` |") {
			t.Errorf("%s does not explain the label %s", path, label)
		}
	}
}
