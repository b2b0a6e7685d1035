package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
)

// pyroscope is a server that answers all pushes with a status. It keeps the growth that it got.
type pyroscope struct {
	status int

	mu     sync.Mutex
	n      int
	phase  map[string]int64 // sums of inuse_space
	labels map[string]string
}

func (p *pyroscope) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Retry-After", "600") // longer than a trace waits
	w.WriteHeader(p.status)
	_, _ = io.WriteString(w, "{}")
	p.n++

	var message struct {
		Series []struct {
			Labels  []struct{ Name, Value string }
			Samples []struct{ RawProfile []byte }
		}
	}
	if json.NewDecoder(r.Body).Decode(&message) != nil || len(message.Series) != 1 {
		return
	}
	p.labels = make(map[string]string)
	for _, l := range message.Series[0].Labels {
		p.labels[l.Name] = l.Value
	}
	got, err := profile.ParseData(message.Series[0].Samples[0].RawProfile)
	if err != nil {
		return
	}
	i, err := got.SampleIndexByName("inuse_space")
	if err != nil {
		return
	}
	for _, s := range got.Sample {
		p.phase[p.labels["phase"]] += s.Value[i]
	}
}

func TestPush(t *testing.T) {
	t.Run("profiles reach the server", func(t *testing.T) {
		t.Parallel()
		taken := &pyroscope{status: http.StatusOK, phase: make(map[string]int64)}
		server := httptest.NewServer(taken)
		defer server.Close()
		target, spool := startSteps(t), filepath.Join(t.TempDir(), "spool")
		c, dir := tracing(t, target, "--push", server.URL, "--push-spool", spool, "--label",
			"team=vision")
		do(target, "leak 10 1000000")
		c.interrupt()

		if taken.n < 2 || taken.labels["team"] != "vision" || taken.labels["role"] == "" ||
			taken.labels["service_name"] != "allocscope" {
			t.Errorf("%d profiles, labels %v", taken.n, taken.labels)
		}
		var grown int64
		p := readProfile(t, dir, folder.GrowthFile)
		for _, s := range p.Sample {
			grown += max(0, s.Value[3])
		}
		if p.SampleType[3].Type != "inuse_space" || grown < 10_000_000 ||
			taken.phase["growth"] != grown {
			t.Errorf("the server got %v, want a growth of %d", taken.phase, grown)
		}
		mustSay(t, "stderr", c.stderr.String(), "profiles to "+server.URL)
	})

	// The trace ends as it would without the server, and says where the profiles are.
	t.Run("server that takes nothing", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(&pyroscope{status: http.StatusServiceUnavailable})
		defer server.Close()
		spool := filepath.Join(t.TempDir(), "spool")
		c, _ := tracing(t, startSteps(t), "--push", server.URL, "--push-spool", spool)
		c.interrupt()
		mustSay(t, "stderr", c.stderr.String(), "not pushed yet", "503 Service Unavailable",
			spool, "--push "+server.URL+" and the same tenant sends them")
		files, err := filepath.Glob(filepath.Join(spool, "*", "*.json"))
		if err != nil || len(files) == 0 {
			t.Errorf("%q wait, %v", files, err)
		}
	})
}
