package fleet

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestRanks follows a leak as a person would who has thousands of ranks: the agent's verdict turns
// and it traces; Prometheus names the rank; Pyroscope has its growth; `allocscope ranks` prints both.
func TestRanks(t *testing.T) {
	t.Run("Pyroscope with storage v1, Prometheus 2", func(t *testing.T) {
		followLeak(t, startPyroscope(t, storageV1), prometheus2)
	})
	t.Run("Pyroscope with storage v2, Prometheus 3", func(t *testing.T) {
		followLeak(t, startPyroscope(t, storageV2), prometheus3(t))
	})
}

func followLeak(t *testing.T, pyroscope *pyroscope, prometheusProgram string) {
	const job, size, leaking = "run-8", 8, 5
	a := startAgent(t, "--env=TORCHELASTIC_RUN_ID="+job, "--min-rss=32MiB",
		"--duration=30s", "--speed=100", "--push="+pyroscope.url)
	prometheus := startPrometheus(t, prometheusProgram, fmt.Sprintf(scrapeEachSecond, a.address))
	startRanks(t, job, size, leaking, 4_000_000, 64_000_000)
	page := func() (string, error) { return get("http://" + a.address + "/metrics") }
	awaitRanks(t, page, job, "0", "1", "2", "3", "4", "5", "6", "7")

	t.Run("the verdict of the rank turns, and it is traced", func(t *testing.T) {
		await(t, "rank 5 is a leak, and is traced", func() string {
			text, err := page()
			if err != nil {
				return err.Error()
			}
			var verdicts []string
			for _, p := range points(t, text, "allocscope_process_verdict") {
				if p.labels["job_id"] == job && p.value == 1 {
					verdicts = append(verdicts, p.labels["rank"]+" "+p.labels["verdict"])
				}
			}
			traced := points(t, text, "allocscope_trace_timestamp_seconds")
			if len(traced) == 0 {
				return fmt.Sprintf("verdicts %v, no trace", verdicts)
			}
			if traced[0].labels["rank"] != itoa(leaking) || len(traced) > 1 {
				t.Errorf("traced: %v", traced)
			}
			return ""
		})
	})

	t.Run("Prometheus names it", func(t *testing.T) {
		const growth = "allocscope_process_growth_bytes_per_second"
		query := "topk(1, " + growth + " - on(job_id) group_left quantile by (job_id) (0.5, " +
			growth + "))"
		prometheus.awaitRank(t, query, leaking)
	})

	t.Run("the alert on a leak with a trace names it", func(t *testing.T) {
		prometheus.awaitRank(t, ruleExpressions(t)["AllocscopeLeakConfirmed"], leaking)
	})

	t.Run("Pyroscope has its growth", func(t *testing.T) {
		selector := fmt.Sprintf(`{job_id=%q,phase="growth"}`, job)
		await(t, "the profile arrives", func() string {
			got, err := pyroscope.sums(residentIn, selector, "rank")
			if err != nil || len(got) != 1 || got[itoa(leaking)] < 4_000_000*10 {
				return fmt.Sprintf("%v %v", got, err)
			}
			return ""
		})
		if names := pyroscope.names(t, residentIn, selector); !strings.Contains(
			strings.Join(names, "\n"), "keep") {
			t.Errorf("functions: %v", names)
		}
	})

	t.Run("allocscope ranks prints both", func(t *testing.T) {
		out := run(t, exec.Command(allocscope(t), "ranks", "--prometheus", prometheus.url,
			"--pyroscope", pyroscope.url, "--job", job))
		t.Log("\n" + out)
		for _, want := range []string{"RANK 5 STANDS OUT", lineOf(t, "leaky.py", "# the leak")} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q", want)
			}
		}
	})
}
