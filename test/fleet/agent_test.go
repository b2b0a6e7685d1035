package fleet

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// An agent is where `allocscope agent` is reached, and its directory.
type agent struct {
	address, socket, directory string
}

// startAgent starts an agent that listens on loopback.
func startAgent(t *testing.T, flags ...string) agent {
	t.Helper()
	folder := t.TempDir()
	a := agent{
		address:   fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0]),
		directory: filepath.Join(folder, "state"), socket: filepath.Join(folder, "agent.sock"),
	}
	start(t, exec.Command(allocscope(t), append([]string{
		"agent", "--listen", a.address, "--directory", a.directory, "--socket", a.socket,
	}, flags...)...))
	return a
}

// A point is a value of a metric.
type point struct {
	labels map[string]string
	value  float64
}

// points returns the values of a metric in a page of /metrics.
func points(t *testing.T, page, name string) (all []point) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatalf("%v\n%s", err, page)
	}
	for _, m := range families[name].GetMetric() {
		p := point{labels: make(map[string]string)}
		for _, l := range m.GetLabel() {
			p.labels[l.GetName()] = l.GetValue()
		}
		p.value = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		all = append(all, p)
	}

	return all
}

// ranksOf are the ranks of a job that have a metric, in order.
func ranksOf(all []point, job string) (ranks []string) {
	for _, p := range all {
		if p.labels["job_id"] == job && p.labels["rank"] != "" {
			ranks = append(ranks, p.labels["rank"])
		}
	}
	slices.Sort(ranks)
	return ranks
}

// awaitRanks waits until an agent watches these ranks of a job.
func awaitRanks(t *testing.T, page func() (string, error), job string, want ...string) {
	t.Helper()
	await(t, fmt.Sprintf("ranks %v of job %s are watched", want, job), func() string {
		text, err := page()
		if err != nil {
			return err.Error()
		}
		got := ranksOf(points(t, text, "allocscope_process_resident_bytes"), job)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("ranks %v", got)
		}
		return ""
	})
}

// request asks for a trace on a socket, as root, and returns its folder.
func request(t *testing.T, socket, job string, rank int) string {
	t.Helper()
	text := run(t, exec.Command(allocscope(t), "agent", "trace", "--socket", socket, "--job", job,
		"--rank", itoa(rank), "--json"))
	var answer struct{ Folder string }
	tracertest.NoError(t, json.Unmarshal([]byte(text), &answer))
	return answer.Folder
}

// A result is the result in summary.json of a trace.
type result struct {
	Processes []struct {
		Rank     *int
		Traced   bool
		Identity map[string]any
	}
	Sources []struct{ Name, State, Reason, Detail string }
}

// awaitTrace waits until a trace has written its files, and returns its summary.
func awaitTrace(t *testing.T, folder string) (r result, text string) {
	t.Helper()
	await(t, "the trace in "+folder+" ends", func() string {
		raw, err := os.ReadFile(filepath.Join(folder, "summary.json"))
		if err != nil {
			return err.Error()
		}
		text = string(raw)
		return ""
	})
	tracertest.NoError(t, json.Unmarshal([]byte(text), &r))
	return r, text
}

// lineOf is where a file has a comment: "leaky.py:25".
func lineOf(t *testing.T, path, comment string) string {
	t.Helper()
	place, err := harness.Line(path, func(line string) bool { return strings.Contains(line, comment) })
	tracertest.NoError(t, err)
	return place
}

// startRanks starts the ranks of a job, of which one leaks so many bytes a second.
func startRanks(t *testing.T, job string, size, leaking, rate, base int) {
	t.Helper()
	for rank := range size {
		command := exec.Command("/usr/bin/python3", filepath.Join(root(t), "test/fleet/leaky.py"),
			itoa(leaking), itoa(rate), itoa(base))
		command.Env = append(os.Environ(), "RANK="+itoa(rank), "LOCAL_RANK="+itoa(rank),
			"WORLD_SIZE="+itoa(size), "TORCHELASTIC_RUN_ID="+job)
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		start(t, command)
	}
}
