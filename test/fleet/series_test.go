package fleet

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/test/meter"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// unlikeRank is the one of TestSeries that grows 6 MiB a second; the others grow 100 to 200 kB.
const unlikeRank = 2718

// stateOf is the state of a node's agent on eight ranks, each of which has a trace behind it.
func stateOf(node int) metrics.State {
	s := metrics.State{
		Version: "v1", Node: fmt.Sprintf("node-%04d", node), Watched: ranksOfNode,
		Traces: map[metrics.TraceOutcome]uint64{metrics.TraceDone: ranksOfNode},
	}
	for i := range ranksOfNode {
		rank := node*ranksOfNode + i
		p := metrics.Process{
			Job: "series", Rank: rank, Role: growth.RoleRank, Count: 1,
			RSS: 9 << 30, Anonymous: 8 << 30, File: 1 << 30,
			Headroom: growth.Headroom{Of: growth.LimitCgroup, Left: 7 << 30, Bytes: 16 << 30},
			Verdict:  verdict.ClassPlateau, ToLimit: math.Inf(1),
			Growth: 1e5 + float64(rank*7919%1e5),
			Trace: &metrics.Trace{
				At: time.Now(), Duration: 5 * time.Minute, Verdict: verdict.ClassPlateau,
				Slowdown: 0.01, OwnShare: 0.02, Rows: make(map[growth.Kind]int64),
				Components: map[string]float64{"other": 1}, Losses: map[growth.LossKind]uint64{},
			},
		}
		if rank == unlikeRank {
			p.Verdict, p.Growth, p.ToLimit = verdict.ClassLeak, 6<<20, 1200
		}
		p.GrowthLow, p.GrowthHigh = p.Growth*0.9, p.Growth*1.1
		for k := range 12 {
			p.Trace.Rows[growth.Kind(fmt.Sprintf("row-%d", k))] = 1 << 29
		}
		for c := range 10 {
			p.Trace.Components[fmt.Sprintf("component-%d", c)] = float64(c)
		}
		s.Processes = append(s.Processes, p)
	}

	return s
}

// TestSeries has Prometheus scrape the agents of 4,096 ranks, and ask which rank stands out.
func TestSeries(t *testing.T) {
	ranks := number(t, "FLEET_RANKS", 4096)
	mux := http.NewServeMux()
	var targets []string
	port := freePorts(t, 1)[0]
	for node := range ranks / ranksOfNode {
		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics.NewCollector(func() metrics.State { return stateOf(node) }))
		path := fmt.Sprintf("/%d/metrics", node)
		mux.Handle(path, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		targets = append(targets, fmt.Sprintf(
			`{targets: ["127.0.0.1:%d"], labels: {__metrics_path__: %q, instance: "node-%04d"}}`,
			port, path, node))
	}

	agents := &http.Server{Addr: "127.0.0.1:" + strconv.Itoa(port), Handler: mux}
	go agents.ListenAndServe() //nolint:errcheck // it ends with the test
	t.Cleanup(func() { agents.Close() })

	p := startPrometheus(t, prometheus2,
		"global: {scrape_interval: 15s}\nscrape_configs:\n  - job_name: allocscope\n"+
			"    static_configs:\n      - "+strings.Join(targets, "\n      - ")+"\n")

	began := time.Now()
	await(t, "all agents have been scraped twice", func() string {
		got, err := p.query(`count(sum_over_time(up[1h]) >= 2)`)
		if err != nil || len(got) != 1 || got[0].value != float64(ranks/ranksOfNode) {
			return fmt.Sprintf("%v %v", got, err)
		}
		return ""
	})
	elapsed := time.Since(began)

	const growthRate = "allocscope_process_growth_bytes_per_second"
	asked := time.Now()
	got, err := p.query("topk(3, " + growthRate +
		" - on(job_id) group_left quantile by (job_id) (0.5, " + growthRate + "))")
	took := time.Since(asked)
	if err != nil || len(got) != 3 || got[0].labels["rank"] != itoa(unlikeRank) {
		t.Errorf("%v %v", got, err)
	}
	series, err := p.query(`count({job_id="series"})`)
	if err != nil || len(series) != 1 {
		t.Fatalf("%v %v", series, err)
	}
	samples, err := p.query(`sum(scrape_samples_scraped)`)
	if err != nil || len(samples) != 1 {
		t.Fatalf("%v %v", samples, err)
	}

	response := tracertest.Must(get("http://" + agents.Addr + "/0/metrics"))(t)
	resident := meter.RSS(p.process.Process.Pid)
	p.process.stop(t, 15) // SIGTERM
	cpu := p.process.ProcessState.UserTime() + p.process.ProcessState.SystemTime()
	t.Logf("%d ranks on %d nodes: %.0f series of the job, %.1f a rank; %.0f samples of one scrape "+
		"of all, %.1f kB a node uncompressed; Prometheus: RSS %.0f MB, %.1f s of CPU in %.0f s; "+
		"the query: %.0f ms",
		ranks, ranks/ranksOfNode, series[0].value, series[0].value/float64(ranks), samples[0].value,
		float64(len(response))/1e3, float64(resident)/1e6, cpu.Seconds(), elapsed.Seconds(),
		took.Seconds()*1e3)
}
