package fleet

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// A prometheusServer is a server that scrapes each second.
type prometheusServer struct{ url string }

// startPrometheus starts a server that scrapes an address, such as 127.0.0.1:9753.
func startPrometheus(t *testing.T, target string) prometheusServer {
	t.Helper()
	folder := t.TempDir()
	config := filepath.Join(folder, "prometheus.yml")
	text := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: allocscope
    static_configs: [{targets: [%q]}]
`, target)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	address := "127.0.0.1:" + strconv.Itoa(freePorts(t, 1)[0])
	start(t, exec.Command("prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address))
	p := prometheusServer{url: "http://" + address}
	await(t, "prometheus is ready", func() string {
		if _, err := get(p.url + "/-/ready"); err != nil {
			return err.Error()
		}
		return ""
	})
	return p
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
