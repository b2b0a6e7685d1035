package push

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A received profile is a profile sent to a server, decoded by pprof.
type received struct {
	id     string
	labels map[string]string
	*pprof.Profile
}

// A server takes profiles as Pyroscope does. answer may do something else with a request; it returns
// false where the server is to take it.
type server struct {
	*httptest.Server
	answer func(n int, w http.ResponseWriter, r *http.Request, body []byte) bool

	mu     sync.Mutex
	n      int
	taken  []received
	bodies map[string][]byte // by ID
}

func newServer(t *testing.T) *server {
	s := &server{bodies: make(map[string][]byte)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(t, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) serve(t *testing.T, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	s.mu.Lock()
	s.n++
	n, answer := s.n, s.answer
	s.mu.Unlock()

	var message struct {
		Series []struct {
			Labels  []struct{ Name, Value string }
			Samples []struct {
				ID         string
				RawProfile []byte
			}
		}
	}
	if err := json.Unmarshal(body, &message); err != nil || len(message.Series) != 1 ||
		len(message.Series[0].Samples) != 1 || r.Method != http.MethodPost ||
		!strings.HasSuffix(r.URL.Path, "/push.v1.PusherService/Push") ||
		r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s %v: %.200s", r.Method, r.URL, err, body)
	}
	series := message.Series[0]
	got := received{id: series.Samples[0].ID, labels: make(map[string]string)}
	for _, l := range series.Labels {
		if _, again := got.labels[l.Name]; again {
			t.Errorf("label %s is there twice", l.Name)
		}
		got.labels[l.Name] = l.Value
	}
	if got.Profile, err = pprof.ParseData(series.Samples[0].RawProfile); err == nil {
		err = got.CheckValid()
	}
	if err != nil {
		t.Error(err)
	}

	s.mu.Lock()
	if earlier := s.bodies[got.id]; earlier != nil && !bytes.Equal(earlier, body) {
		t.Errorf("profile %s differs when it is sent again", got.id)
	}
	s.bodies[got.id] = body
	s.mu.Unlock()

	if answer != nil && answer(n, w, r, body) {
		return
	}
	s.mu.Lock()
	s.taken = append(s.taken, got)
	s.mu.Unlock()
	_, _ = io.WriteString(w, "{}")
}

// once checks that the server has taken so many profiles, each once.
func (s *server) once(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := make(map[string]bool)
	for _, r := range s.taken {
		if seen[r.id] {
			t.Errorf("profile %s was taken twice", r.id)
		}
		seen[r.id] = true
	}
	if len(s.taken) != want {
		t.Errorf("%d profiles were taken, want %d", len(s.taken), want)
	}
}

func open(t *testing.T, o Options) *Pusher {
	t.Helper()
	if o.Spool == "" {
		o.Spool = filepath.Join(t.TempDir(), "spool")
	}
	p := tracertest.Must(Open(o))(t)
	p.firstPause = time.Millisecond
	t.Cleanup(func() { _ = p.Close() })
	return p
}

var (
	program = &growth.Module{Path: "/opt/trainer", Start: 0x400000, Limit: 0x500000}
	malloc  = growth.Frame{Function: "malloc", Module: program, Address: 0x400010}
)

// stack is one of a process: the allocator, a function, main.
func stack(pid int, function string) *growth.Stack {
	return &growth.Stack{ID: uint64(pid), PID: pid, Frames: []growth.Frame{
		malloc,
		{Function: function, File: "train.py", Line: 7, Module: program, Address: 0x401000 + uint64(pid)},
		{Function: "main", File: "train.py", Line: 1, Module: program, Address: 0x402000},
	}}
}

func heap(s *growth.Stack, inuse, resident int64) growth.Holding {
	return growth.Holding{
		Stack: s, Kind: growth.KindHeap, InuseObjects: 1, InuseBytes: inuse, ResidentBytes: resident,
		AllocObjects: 9, AllocBytes: 9e6,
	}
}

// trace is the folder of a trace that ended at a time.
type trace struct {
	*folder.Folder
	summary *summary.Summary
}

var ends = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newTrace(t *testing.T, processes []summary.TreeProcess, held ...growth.Holding) trace {
	t.Helper()
	f, err := folder.Create(filepath.Join(t.TempDir(), "out"),
		folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}, false)
	tracertest.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })

	for _, name := range []string{folder.WarmupFile, folder.PlateauFile, folder.GrowthFile} {
		info := profile.Info{
			Time: ends.Add(-time.Hour), Duration: time.Minute, Interval: 1, Executable: program.Path,
			Comments: []string{"kernel 6.18", "trace of " + name},
		}
		if err := f.WriteFile(name, func(w io.Writer) error {
			return profile.Write(w, held, info)
		}); err != nil {
			t.Fatal(err)
		}
	}

	return trace{f, &summary.Summary{
		Started: ends.Add(-3 * time.Hour), DurationS: (3 * time.Hour).Seconds(),
		Process: summary.Process{PID: 10}, Processes: processes,
	}}
}

// onlyTrace is a trace of one process, with three profiles.
func onlyTrace(t *testing.T) trace {
	return newTrace(t, nil, heap(stack(10, "leak"), 1000, 4096))
}

func (p *Pusher) addTrace(t *testing.T, tr trace) {
	t.Helper()
	tracertest.NoError(t, p.AddFolder(tr.Folder, tr.summary))
}
