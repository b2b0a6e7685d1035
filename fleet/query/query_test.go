package query

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/ranks"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// prometheusOf is a Prometheus whose answers a handler makes.
func prometheusOf(t *testing.T, answer http.HandlerFunc) Prometheus {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return Prometheus{Server{Name: "Prometheus", URL: server.URL}}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

const noSamples = `{"status":"success","data":{"resultType":"vector","result":[]}}`

// testdata/prometheus.json is the answer of Prometheus 2.42 on the metrics of 8 ranks and a data
// loader, whose values the test has again.
func TestRecordedRanks(t *testing.T) {
	recorded := tracertest.Must(os.ReadFile("testdata/prometheus.json"))(t)
	p := prometheusOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query" || !strings.Contains(r.FormValue("query"), `job_id="resnet50-17"`) {
			t.Errorf("%s %s", r.URL, r.FormValue("query"))
		}
		_, _ = w.Write(recorded)
	})

	got, err := p.Ranks(t.Context(), "resnet50-17", time.Hour)
	if err != nil || len(got) != 8 {
		t.Fatalf("%d ranks, %v", len(got), err)
	}
	perSecond := map[int][3]float64{
		0: {2.10e4, 2.0e4, 2.2e4}, 1: {2.05e4, 1.95e4, 2.15e4}, 2: {2.12e4, 2.0e4, 2.24e4},
		3: {1.9e5, 1.85e5, 1.95e5}, 4: {2.08e4, 2.0e4, 2.16e4}, 5: {2.2e4, 2.1e4, 2.3e4},
		6: {2.0e4, 1.9e4, 2.1e4},
	}
	for _, k := range got {
		n := *k.Rank
		if *k.RSS != int64(2e8+1e6*float64(n)) || k.Node != fmt.Sprintf("node-%d", n/4) {
			t.Errorf("%s: RSS %d on %s", k.Name, *k.RSS, k.Node)
		}

		want, isKnown := perSecond[n]
		class := verdict.ClassGrowing
		switch n {
		case 3:
			class = verdict.ClassLeak
		case 7:
			class = verdict.ClassTooShort
		}
		if k.Verdict != class || isKnown != (k.Rate != nil) {
			t.Errorf("%s: %s, rate %v", k.Name, k.Verdict, k.Rate)
		}
		if isKnown && (*k.Rate != 60*want[0] || *k.RateLow != 60*want[1] || *k.RateHigh != 60*want[2]) {
			t.Errorf("%s: %g, %g-%g", k.Name, *k.Rate, *k.RateLow, *k.RateHigh)
		}
	}
}

// A job that has ended has no samples now, but in the time before.
func TestEndedJob(t *testing.T) {
	p := prometheusOf(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.FormValue("query"), "last_over_time({__name__=~") {
			fmt.Fprint(w, noSamples)
			return
		}
		if !strings.Contains(r.FormValue("query"), "}[7200s])") {
			t.Error(r.FormValue("query"))
		}
		fmt.Fprint(w, vector(`{"__name__":"allocscope_process_resident_bytes","rank":"4","role":"rank"}`, "7"))
	})
	got, err := p.Ranks(t.Context(), "x", 2*time.Hour)
	if err != nil || len(got) != 1 || *got[0].Rank != 4 {
		t.Errorf("%+v, %v", got, err)
	}
}

// vector is an answer of Prometheus with one sample.
func vector(labels, value string) string {
	return fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[`+
		`{"metric":%s,"value":[1795659502.031,%q]}]}}`, labels, value)
}

// vectorOf is an answer of Prometheus with several samples: labels and values in turn.
func vectorOf(samples ...string) string {
	var all []string
	for i := 0; i < len(samples); i += 2 {
		all = append(all, fmt.Sprintf(`{"metric":%s,"value":[1,%q]}`, samples[i], samples[i+1]))
	}

	return fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[%s]}}`,
		strings.Join(all, ","))
}

// Rank 3 of two nodes: it was started again on the other one, or each node counts its own ranks.
func TestTwoNodes(t *testing.T) {
	const (
		node0  = `"rank":"3","role":"rank","node":"node-0"`
		node9  = `"rank":"3","role":"rank","node":"node-9"`
		growth = `{"__name__":"allocscope_process_growth_bytes_per_second",`
		times  = `timestamp(allocscope_process_resident_bytes{job_id="x"})`
	)

	for _, hasEnded := range []bool{false, true} {
		for node0Seen, isLocal := range map[string]bool{"1795659490.5": true, "1795659262": false} {
			p := prometheusOf(t, func(w http.ResponseWriter, r *http.Request) {
				question := r.FormValue("query")
				switch {
				case hasEnded && !strings.Contains(question, "_over_time"):
					fmt.Fprint(w, noSamples)
				case strings.Contains(question, times):
					fmt.Fprint(w, vectorOf("{"+node9+"}", "1795659500", "{"+node0+"}", node0Seen))
				default:
					fmt.Fprint(w, vectorOf(growth+node9+"}", "5", growth+node0+"}", "7"))
				}
			})

			got, err := p.Ranks(t.Context(), "x", time.Hour)
			if err != nil || len(got) != 2 {
				t.Fatalf("%+v, %v", got, err)
			}
			if got[0].IsLocal != isLocal || got[1].IsLocal != isLocal {
				t.Errorf("ended %t, node-0 seen at %s: %+v", hasEnded, node0Seen, got)
			}

			want := map[bool]string{true: "node-0 node-9", false: "node-9"}[isLocal]
			var nodes []string
			for _, k := range ranks.Find("x", got, 0.05).Ranks {
				nodes = append(nodes, k.Node)
			}
			if strings.Join(nodes, " ") != want {
				t.Errorf("ended %t, node-0 seen at %s: ranks of %q", hasEnded, node0Seen, nodes)
			}
		}
	}
}

func TestLastTrace(t *testing.T) {
	for length, want := range map[string]time.Duration{
		"75.5": 75500 * time.Millisecond, "-1": 0, "NaN": 0, "1e300": 0,
	} {
		p := prometheusOf(t, says(vectorOf(
			`{"__name__":"allocscope_trace_timestamp_seconds","rank":"1"}`, "1795659262.25",
			`{"__name__":"allocscope_trace_duration_seconds","rank":"1"}`, length)))

		got, err := p.Ranks(t.Context(), "x", time.Hour)
		if err != nil || len(got) != 1 || got[0].TraceLength != want ||
			want > 0 && !got[0].TraceEnded.Equal(time.UnixMilli(1795659262250)) {
			t.Errorf("%s: %+v, %v", length, got, err)
		}
	}
}

func TestHostileSamples(t *testing.T) {
	growth := func(rank, role, value string) string {
		labels, err := json.Marshal(map[string]string{
			"__name__": metricGrowth, "rank": rank, "role": role, "node": "<script>\x1b[31m" + strings.Repeat("n", 1000),
		})
		tracertest.NoError(t, err)
		return vector(string(labels), value)
	}
	for what, test := range map[string]struct {
		answer string
		ranks  int
	}{
		"NaN":                {growth("1", "rank", "NaN"), 1},
		"infinite":           {growth("1", "rank", "+Inf"), 1},
		"huge":               {growth("1", "rank", "1e308"), 1},
		"no number":          {growth("x", "rank", "1"), 0},
		"negative number":    {growth("-1", "rank", "1"), 0},
		"huge number":        {growth("99999999999", "rank", "1"), 0},
		"a worker":           {growth("1", "dataloader-worker", "1"), 0},
		"a launcher":         {growth("1", "launcher", "1"), 0},
		"no labels":          {vector("{}", "1"), 0},
		"null labels":        {vector("null", "1"), 0},
		"another metric":     {vector(`{"__name__":"up","rank":"1"}`, "1"), 0},
		"an unknown verdict": {vector(`{"__name__":"allocscope_process_verdict","rank":"1","verdict":"\u001b[31m"}`, "1"), 1},
	} {
		p := prometheusOf(t, says(test.answer))
		got, err := p.Ranks(t.Context(), "x", time.Hour)
		if len(got) != test.ranks || err == nil && len(got) == 0 {
			t.Errorf("%s: %d ranks, %v", what, len(got), err)
		}
		for _, k := range got {
			if k.Rate != nil || len(k.Node) > 400 || strings.Contains(k.Node+string(k.Verdict), "\x1b") {
				t.Errorf("%s: %+v", what, k)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://elsewhere.example/")
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		}
	}
	for what, test := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"nothing there":  {says(noSamples), "no metrics of allocscope's agents"},
		"a web page":     {says("<html>hello"), "not one of Prometheus"},
		"other JSON":     {says(`{"status":"ok"}`), "not one of Prometheus"},
		"a matrix":       {says(`{"status":"success","data":{"resultType":"matrix"}}`), "not one of Prometheus"},
		"a bad value":    {says(vector("{}", "much")), "not one of Prometheus"},
		"a bad question": {status(400, `{"status":"error","error":"parse error\u001b[31m"}`), "400 Bad Request: parse error?[31m"},
		"no password":    {status(401, "who?"), "--token-file"},
		"another path":   {status(404, "no such page"), "is it Prometheus?"},
		"moved":          {status(302, ""), "give that URL"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			chunk := []byte(strings.Repeat(" ", 1<<20))
			for range maxAnswerBytes>>20 + 1 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "larger than 64 MiB"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "{")
		}, "read the answer of Prometheus"},
	} {
		_, err := prometheusOf(t, test.answer).Ranks(t.Context(), "x", time.Hour)
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v, want %q", what, err, test.says)
		}
	}

	jobs := prometheusOf(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.FormValue("query"), "topk") {
			fmt.Fprint(w, vector(`{"job_id":"resnet"}`, "8"))
			return
		}
		fmt.Fprint(w, noSamples)
	})
	_, err := jobs.Ranks(t.Context(), `x"} or {a="`, time.Hour)
	if err == nil || !strings.Contains(err.Error(), "it has jobs resnet") {
		t.Errorf("no such job: %v", err)
	}
}

// The name of a job cannot leave its quotes.
func TestQuotedJob(t *testing.T) {
	const job = "a\"} or vector(1) #\\\n"
	p := prometheusOf(t, func(w http.ResponseWriter, r *http.Request) {
		if q := r.FormValue("query"); !strings.HasPrefix(q, "topk") && !strings.Contains(q, `job_id="a\"} or vector(1) #\\\n"}`) {
			t.Error(q)
		}
		fmt.Fprint(w, noSamples)
	})
	_, _ = p.Ranks(t.Context(), job, time.Hour)
}

// The address is checked, and the secrets for it: see also TestOpenRefuses of export/push.
func TestCheck(t *testing.T) {
	for _, s := range []Server{
		{URL: "http://u:secret@host"},
		{URL: "http://host", User: "u"},
		{URL: "http://host", PasswordFile: "p"},
		{URL: "https://host", User: "u", PasswordFile: "p", TokenFile: "t"},
		{URL: "http://host", TokenFile: "t"},
		{URL: "http://localhost.example", User: "u", PasswordFile: "p"},
	} {
		if err := s.Check(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, url := range []string{
		"https://host:9090/prometheus/", "http://127.0.0.2:9090", "http://[::1]:9090", "http://localhost",
	} {
		if err := (Server{URL: url, TokenFile: "t"}).Check(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	secret := func(name, text string) string {
		path := filepath.Join(dir, name)
		tracertest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	var got http.Header
	p := prometheusOf(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		fmt.Fprint(w, noSamples)
	})

	p.TokenFile, p.Tenant = secret("token", "t0ken\n"), "team"
	_, _ = p.Ranks(t.Context(), "x", time.Hour)
	if got.Get("Authorization") != "Bearer t0ken" || got.Get("X-Scope-OrgID") != "team" {
		t.Errorf("%v", got)
	}

	p.TokenFile, p.User, p.PasswordFile = "", "me", secret("password", "pa:ss")
	_, _ = p.Ranks(t.Context(), "x", time.Hour)
	if user, password, ok := (&http.Request{Header: got}).BasicAuth(); !ok || user != "me" || password != "pa:ss" {
		t.Errorf("%v", got)
	}

	got = nil
	p.PasswordFile = filepath.Join(dir, "none")
	if _, err := p.Ranks(t.Context(), "x", time.Hour); err == nil || got != nil {
		t.Errorf("without its password: %v, sent %v", err, got)
	}
}

// A redirect leads nowhere, with the secret or without.
func TestRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer elsewhere.Close()
	p := prometheusOf(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if _, err := p.Ranks(t.Context(), "x", time.Hour); err == nil || !strings.Contains(err.Error(), "leads elsewhere") {
		t.Error(err)
	}
}
