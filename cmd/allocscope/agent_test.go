package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// leakingRank keeps 128 KiB more every 20 ms, by line 5.
const leakingRank = `import time
kept = [bytearray(8 << 20)]

def keep_batch():
    kept.append(bytearray(1 << 17))

print("ready", flush=True)
while True:
    keep_batch()
    time.sleep(0.02)
`

// startLeakingRank starts it as rank 3 of a job.
func startLeakingRank(t *testing.T, job string) *tracertest.Target {
	t.Helper()
	script := filepath.Join(t.TempDir(), "train.py")
	writeFile(t, script, leakingRank, 0o600)
	command := exec.Command("/usr/bin/python3", script)
	command.Env = append(os.Environ(), "SLURM_JOB_ID="+job, "RANK=3", "WORLD_SIZE=8")
	return ready(tracertest.StartCommand(t, command))
}

// addressOf is where an agent listens.
func addressOf(agent *command) string {
	agent.t.Helper()
	const before, after = "metrics on http://", "/metrics"
	agent.awaitLine(before)
	_, address, _ := strings.Cut(agent.stderr.String(), before)
	address, _, _ = strings.Cut(address, after)
	return address
}

// get gets a page that is there.
func get(t *testing.T, url string) string {
	t.Helper()
	status, text := fetch(t, url, "")
	if status != http.StatusOK {
		t.Fatalf("%s: status %d", url, status)
	}
	return text
}

// The agent sees a rank leak and traces it. Killed meanwhile, it goes on where it was, and takes over
// the result.
func TestAgent(t *testing.T) {
	t.Parallel()
	const job = "agent-whole"
	target := startLeakingRank(t, job)
	dir := filepath.Join(t.TempDir(), "agent")
	arguments := []string{
		"agent", "--directory", dir, "--env", "SLURM_JOB_ID=" + job, "--min-rss", "1MiB", "--speed", "400",
		"--duration", "6s", "--trace-every", "1h", "--overhead", "off",
		"--listen", "127.0.0.1:0",
	}

	first := begin(t, allocscope(t, arguments...))
	addressOf(first)
	other := call(t, "agent", "--directory", dir, "--listen", "")
	if other.wait() != 2 {
		t.Errorf("a second agent ends with %v", other.ProcessState)
	}
	mustSay(t, "stderr", other.stderr.String(),
		"another agent uses it (give each agent a --directory of its own)")

	first.awaitLine("tracing into ")
	who := fmt.Sprintf("job %s, rank 3, PID %d (python3 train.py): ", job, target.PID())
	mustSay(t, "stderr", first.stderr.String(), who+"watched from now on, RSS ",
		"warn: "+who+"LEAK SUSPECTED: +", who+"tracing into "+dir+"/traces/"+job+"-3-")

	first.await("the trace is in the state", func() bool {
		state, err := os.ReadFile(filepath.Join(dir, "state.json"))
		return err == nil && strings.Contains(string(state), `"running"`)
	})
	first.signal(syscall.SIGKILL)
	first.wait()

	second := begin(t, allocscope(t, arguments...))
	second.awaitLine("traced: ")
	mustSay(t, "stderr", second.stderr.String(), who+"watched on after the restart of the agent",
		who+"traced: ", "train.py:5  keep_batch()")
	folders, err := filepath.Glob(filepath.Join(dir, "traces", job+"-3-*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("folders %q, %v", folders, err)
	}
	s := readSummary(t, folders[0])
	if s.Process.PID != target.PID() || s.Ended != summary.EndedDuration {
		t.Errorf("a trace of %d, ended by %s", s.Process.PID, s.Ended)
	}
	mustSay(t, "the summary", strings.Join(s.Text.Where, "\n"), "train.py:5  keep_batch()")

	address := addressOf(second)
	mustSay(t, "/metrics", get(t, "http://"+address+"/metrics"),
		fmt.Sprintf(`allocscope_process_resident_bytes{job_id=%q,`, job),
		`outcome="done"} 1`, `row="heap"`, `component="train.py"`)
	mustSay(t, "/healthz", get(t, "http://"+address+"/healthz"), "ok")

	second.signal(syscall.SIGTERM)
	second.mustEnd(0)
	if strings.Contains(second.stderr.String(), "tracing into") {
		t.Errorf("it traces again:\n%s", second.stderr.String())
	}
}

// Package fleet proves which rules and folders are refused.
func TestAgentRefusals(t *testing.T) {
	t.Parallel()

	byVariable := allocscope(t, "agent", "--listen", "")
	byVariable.Env = append(byVariable.Env, "ALLOCSCOPE_DIRECTORY=/nowhere/a/b", "ALLOCSCOPE_NO_FLAG=1")
	c := begin(t, byVariable)
	c.mustEndSaying(2, "open /nowhere/a/b: ", "no flag for the environment variable ALLOCSCOPE_NO_FLAG")

	for arguments, want := range map[string]string{
		"--rules /nowhere":              "no such file or directory",
		"--rules /nowhere --name x":     "give one of them",
		"--env X":                       `--env "X" is not NAME=VALUE`,
		"--user no-such-user":           `there is no user "no-such-user"`,
		"--job-id x":                    "needs a flag that chooses processes",
		"--duration 2h":                 "longer than the time between two",
		"--keep 0":                      "0 folders are to be kept",
		"--min-rss many":                "is not a size",
		"x":                             "unknown command",
		"--traces-per-day -1 --name sh": "-1 traces a day",
		"--label x=y":                   "without --push",
	} {
		c := call(t, append([]string{agentName, "--listen", ""}, strings.Fields(arguments)...)...)
		if c.wait() != 2 {
			t.Errorf("agent %s ends with %v", arguments, c.ProcessState)
		}
		mustSay(t, "agent "+arguments, c.stderr.String(), want)
	}
}
