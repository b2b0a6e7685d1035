package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// agent is a source that answers at once, and remembers its requests.
type agent struct {
	mu       sync.Mutex
	health   error
	problem  error // of Ready
	refusal  error
	requests []Request
	state    metrics.State
	states   int // how often it was asked for
}

func (a *agent) State() metrics.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.states++
	return a.state
}

func (a *agent) Healthy() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.health
}

func (a *agent) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.problem
}

func (a *agent) RequestTrace(_ context.Context, r Request) (Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r)
	if a.refusal != nil {
		return Answer{}, a.refusal
	}
	return Answer{PID: 42, Folder: "/var/lib/allocscope/42", LengthS: 300}, nil
}

func (a *agent) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.requests)
}

// shortLimits let a test wait until a bound is reached.
var shortLimits = limits{
	header: 100 * time.Millisecond, read: 200 * time.Millisecond, write: 10 * time.Second,
	idle: 200 * time.Millisecond, shutdown: time.Second, connections: 64,
}

// start serves until the test ends.
func start(t *testing.T, o Options, a *agent, l limits) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := listen(ctx, o, a, l)
	if err != nil {
		cancel()
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

const secret = "0123456789abcdef0123456789abcdef"

func writeToken(t *testing.T, token string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	tracertest.NoError(t, os.WriteFile(path, []byte(token), mode))
	tracertest.NoError(t, os.Chmod(path, mode))
	return path
}

// ask sends a request to an address, and returns the answer with its body.
func ask(t *testing.T, s *Server, method, path, body string, header map[string]string) (
	status int, text string, headers http.Header,
) {
	t.Helper()
	request, err := http.NewRequest(method, "http://"+s.Address().String()+path,
		strings.NewReader(body))
	tracertest.NoError(t, err)
	for name, value := range header {
		request.Header.Set(name, value)
	}
	if host := header["Host"]; host != "" {
		request.Host = host
	}

	response, err := http.DefaultTransport.RoundTrip(request) // which follows no redirection
	tracertest.NoError(t, err)
	defer response.Body.Close()
	read := tracertest.Must(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(read), response.Header
}

func TestServer(t *testing.T) {
	t.Run("metrics", testMetrics)
	t.Run("many scrapes", testManyScrapes)
	t.Run("health", testHealth)
	t.Run("requests for traces", testTraces)
	t.Run("token file", testTokenFile)
	t.Run("new token", testNewToken)
	t.Run("addresses", testAddresses)
}

func testMetrics(t *testing.T) {
	a := &agent{state: metrics.State{Node: "gpu7", Watched: 2, Processes: []metrics.Process{{
		Job: "evil\n\"}\xff", Rank: 1, Role: growth.RoleRank, Count: 1, RSS: 1 << 30,
	}}}}
	s := start(t, Options{Listen: "127.0.0.1:0"}, a, defaultLimits)
	status, text, header := ask(t, s, "GET", "/metrics", "", nil)
	if status != http.StatusOK || header.Get("Access-Control-Allow-Origin") != "" ||
		header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
		t.Errorf("status %d, %v", status, header)
	}

	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed := tracertest.Must(parser.TextToMetricFamilies(strings.NewReader(text)))(t)
	for _, name := range []string{
		"allocscope_process_resident_bytes", "allocscope_watched_processes",
		"process_resident_memory_bytes", "process_cpu_seconds_total",
	} {
		if parsed[name] == nil {
			t.Errorf("no %s", name)
		}
	}
}

// Scrapes are answered with a copy while the copy is young, and with a new one then.
func testManyScrapes(t *testing.T) {
	copied := patientLimits()
	copied.pause, copied.maxAge = 0, time.Hour
	a := &agent{state: metrics.State{Node: "before"}}
	s := start(t, Options{Listen: "127.0.0.1:0"}, a, copied)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 50 {
				_, text, _ := ask(t, s, "GET", "/metrics", "", nil)
				_, plain, _ := ask(t, s, "GET", "/metrics", "", map[string]string{"Accept-Encoding": "x"})
				if text != plain || !strings.Contains(text, `node="before"`) {
					t.Errorf("got %.300q", plain)
				}
			}
		})
	}
	clients.Wait()
	if a.states != 1 {
		t.Errorf("the agent was asked %d times", a.states)
	}

	copied.maxAge = 0
	s = start(t, Options{Listen: "127.0.0.1:0"}, a, copied)
	for _, node := range []string{"one", "two"} {
		a.state.Node = node
		if _, text, _ := ask(t, s, "GET", "/metrics", "", nil); !strings.Contains(text, `node="`+node) {
			t.Errorf("the metrics are not those of now: %.300s", text)
		}
	}
}

func testHealth(t *testing.T) {
	a := &agent{}
	s := start(t, Options{Listen: "127.0.0.1:0"}, a, defaultLimits)
	check := func(path string, wantStatus int, want string) {
		t.Helper()
		if status, text, _ := ask(t, s, "GET", path, "", nil); status != wantStatus || text != want {
			t.Errorf("%s: %d %q", path, status, text)
		}
	}

	check("/healthz", 200, "ok\n")
	check("/readyz", 200, "ok\n")

	a.mu.Lock()
	a.problem = errors.New("no space left\x1b[2J in /var/lib/allocscope")
	a.mu.Unlock()
	check("/healthz", 200, "ok\n")
	check("/readyz", 503, "no space left?[2J in /var/lib/allocscope\n")

	a.mu.Lock()
	a.health = errors.New("the last sample is 2m0s old")
	a.mu.Unlock()
	check("/healthz", 503, "the last sample is 2m0s old\n")
}

func testTraces(t *testing.T) {
	asJSON := "application/json"
	large := `{"job_id":"` + strings.Repeat("x", maxBodyBytes) + `"}`
	for _, test := range []struct {
		name, authorization, kind, body string
		want                            int
	}{
		{"pid", "Bearer " + secret, asJSON, `{"pid":42}`, 200},
		{"rank", "bearer " + secret, asJSON + "; charset=utf-8", `{"job_id":"a","rank":0}`, 200},
		{"job", "Bearer " + secret, asJSON, `{"job_id":"a"}`, 200},
		{"no token", "", asJSON, `{"pid":42}`, 401},
		{"wrong token", "Bearer " + secret[1:] + "0", asJSON, `{"pid":42}`, 401},
		{"prefix of the token", "Bearer " + secret[:31], asJSON, `{"pid":42}`, 401},
		{"empty token", "Bearer ", asJSON, `{"pid":42}`, 401},
		{"other scheme", "Basic " + secret, asJSON, `{"pid":42}`, 401},
		{"a form", "Bearer " + secret, "text/plain", `{"pid":42}`, 415},
		{"no type", "Bearer " + secret, "", `{"pid":42}`, 415},
		{"large body", "Bearer " + secret, asJSON, large, 413},
		{"large body without a token", "", asJSON, large, 401},
		{"no body", "Bearer " + secret, asJSON, "", 400},
		{"no process", "Bearer " + secret, asJSON, `{}`, 400},
		{"two of them", "Bearer " + secret, asJSON, `{"pid":1,"job_id":"a"}`, 400},
		{"negative pid", "Bearer " + secret, asJSON, `{"pid":-1}`, 400},
		{"negative rank", "Bearer " + secret, asJSON, `{"job_id":"a","rank":-1}`, 400},
		{"rank alone", "Bearer " + secret, asJSON, `{"rank":1}`, 400},
		{"huge pid", "Bearer " + secret, asJSON, `{"pid":1e99}`, 400},
		{"unknown key", "Bearer " + secret, asJSON, `{"pid":1,"output":"/etc"}`, 400},
		{"two values", "Bearer " + secret, asJSON, `{"pid":1}{"pid":2}`, 400},
		{"nested", "Bearer " + secret, asJSON, strings.Repeat("[", 4000), 400},
		{"long job", "Bearer " + secret, asJSON, `{"job_id":"` + strings.Repeat("x", 300) + `"}`, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &agent{}
			s := start(t, Options{
				Listen: "127.0.0.1:0", TokenFile: writeToken(t, secret+"\n", 0o600),
			}, a, defaultLimits)
			status, text, _ := ask(t, s, "POST", "/trace", test.body, map[string]string{
				"Authorization": test.authorization, "Content-Type": test.kind,
			})
			if status != test.want || len(text) > 2*maxReasonBytes {
				t.Errorf("status %d, %q, want %d", status, text, test.want)
			}
			if started := a.asked() == 1; started != (test.want == 200) {
				t.Errorf("the agent was asked %d times", a.asked())
			}
			if want := `{"pid":42,"folder":"/var/lib/allocscope/42","length_s":300}` + "\n"; status == 200 &&
				text != want {
				t.Errorf("got %s", text)
			}
		})
	}

	t.Run("refused by the agent", func(t *testing.T) {
		a := &agent{refusal: errors.New("too soon after the last one")}
		s := start(t, Options{Listen: "127.0.0.1:0", TokenFile: writeToken(t, secret, 0o600)}, a,
			defaultLimits)
		status, text, _ := ask(t, s, "POST", "/trace", `{"pid":42}`, map[string]string{
			"Authorization": "Bearer " + secret, "Content-Type": asJSON,
		})
		if status != http.StatusConflict || text != "too soon after the last one\n" {
			t.Errorf("%d %q", status, text)
		}
	})
	t.Run("off by default", func(t *testing.T) {
		a := &agent{}
		s := start(t, Options{Listen: "127.0.0.1:0"}, a, defaultLimits)
		status, text, _ := ask(t, s, "POST", "/trace", `{"pid":42}`, map[string]string{
			"Authorization": "Bearer " + secret, "Content-Type": asJSON,
		})
		if status != http.StatusForbidden || !strings.Contains(text, "no token file") || a.asked() != 0 {
			t.Errorf("%d %q", status, text)
		}
	})
}

// TestReadSecret of export/push has the files that are no secrets.
func testTokenFile(t *testing.T) {
	for name, path := range map[string]string{
		"readable by others": writeToken(t, secret, 0o644),
		"short":              writeToken(t, "password\n", 0o600),
		"long":               writeToken(t, strings.Repeat("x", 5000), 0o600),
	} {
		s, err := Listen(context.Background(), Options{Listen: "127.0.0.1:0", TokenFile: path}, &agent{})
		if err == nil {
			s.close()
			t.Errorf("one that is %s is used", name)
		}
	}
}

// The file is read for each request.
func testNewToken(t *testing.T) {
	a, path := &agent{}, writeToken(t, secret, 0o600)
	s := start(t, Options{Listen: "127.0.0.1:0", TokenFile: path}, a, defaultLimits)
	ask := func(token string) int {
		status, _, _ := ask(t, s, "POST", "/trace", `{"pid":42}`, map[string]string{
			"Authorization": "Bearer " + token, "Content-Type": "application/json",
		})
		return status
	}

	const second = "another-token-of-some-length"
	if got := ask(secret); got != 200 {
		t.Errorf("the token: %d", got)
	}
	tracertest.NoError(t, os.WriteFile(path, []byte(second), 0o600))
	if got := ask(secret); got != 401 {
		t.Errorf("the old token: %d", got)
	}
	if got := ask(second); got != 200 {
		t.Errorf("the new token: %d", got)
	}
	tracertest.NoError(t, os.Chmod(path, 0o604))
	if got := ask(second); got != 403 {
		t.Errorf("a token that others can read: %d", got)
	}
}

func testAddresses(t *testing.T) {
	s := start(t, Options{Listen: ":0"}, &agent{}, defaultLimits)
	if !s.Address().IP.IsLoopback() {
		t.Errorf("no host is %v", s.Address())
	}
	for _, wrong := range []string{"9753", "127.0.0.1", "127.0.0.1:http:x", "256.0.0.1:0"} {
		if s, err := Listen(context.Background(), Options{Listen: wrong}, &agent{}); err == nil {
			s.close()
			t.Errorf("%s is an address", wrong)
		}
	}
}
