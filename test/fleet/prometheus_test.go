package fleet

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// A prometheusServer is a server that scrapes agents.
type prometheusServer struct {
	url     string
	process *process
}

// scrapeEachSecond is the configuration of a server that scrapes an address, such as 127.0.0.1:9753.
const scrapeEachSecond = `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: allocscope
    static_configs: [{targets: [%q]}]
`

// prometheus2 is Debian's program, by which the sizes of docs/reference/sizing.md were measured.
const prometheus2 = "prometheus"

// prometheus3 is the program that the run script has built.
func prometheus3(t *testing.T) string { return program(t, "ALLOCSCOPE_PROMETHEUS") }

// startPrometheus starts a server, by its program, with a configuration.
func startPrometheus(t *testing.T, program, config string) prometheusServer {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, "prometheus.yml")
	write(t, path, config)

	address := "127.0.0.1:" + itoa(freePorts(t, 1)[0])
	p := prometheusServer{url: "http://" + address}
	p.process = start(t, exec.Command(program, "--config.file="+path,
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address))
	awaitPage(t, "prometheus is ready", p.url+"/-/ready")
	return p
}

// awaitRank waits until a query has one sample, of a rank.
func (p prometheusServer) awaitRank(t *testing.T, query string, rank int) {
	t.Helper()
	await(t, query+" has the rank", func() string {
		got, err := p.query(query)
		if err != nil || len(got) != 1 || got[0].labels["rank"] != itoa(rank) {
			return fmt.Sprintf("%v %v", got, err)
		}
		return ""
	})
}

// A sample is a value of an instant query.
type sample struct {
	labels map[string]string
	value  float64
}

// query evaluates an expression now.
func (p prometheusServer) query(expression string) ([]sample, error) {
	body, err := get(p.url + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return nil, err
	}

	var samples []sample
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expression, err)
		}
		samples = append(samples, sample{labels: r.Metric, value: value})
	}
	return samples, nil
}
