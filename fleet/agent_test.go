package fleet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/fleet/serve"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func mustSay(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}

// calls of the program in place of the trace.
func calls(t *testing.T, executable string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(executable), "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}

	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// A rank leaks beside one that does not: it is traced once, and the result is in the state.
func TestAgent(t *testing.T) {
	t.Parallel()
	const job = "agent-leak"
	target, still := startLeaking(t, job, 3), startLeaking(t, job, 4, "still")
	executable := newFakeTrace(t)
	options := testOptions(filepath.Join(t.TempDir(), "agent"), job)
	options.Overhead = "1%"
	a := startAgent(t, options, executable)

	turned := a.await(t, EventTurned)
	if turned.PID != target.PID() || turned.Identity.Rank != 3 || turned.Identity.Job != job ||
		!isAlarming(turned.Verdict.Class) {
		t.Errorf("turned: %+v", turned)
	}

	done := a.await(t, EventTraceDone)
	mustSay(t, done.Result, "LEAK SUSPECTED", "train.py keeps", "train.py:5")
	mustSay(t, done.Folder, "/traces/agent-leak-3-")
	if lines := a.of(EventTraceLine); len(lines) != 1 || lines[0].Line != "a line for the log" {
		t.Errorf("lines: %+v", lines)
	}

	eventually(t, "the leak is confirmed", func() bool {
		for _, p := range a.State().Processes {
			if p.Rank == 3 && p.Verdict == verdict.ClassLeak {
				return true
			}
		}
		return false
	})

	s := a.State()
	if s.Version != "v1" || s.Node == "" || s.Watched != 2 || len(s.Processes) != 2 || s.Traces[metrics.TraceDone] != 1 ||
		s.FolderBytes <= 0 {
		t.Errorf("state: %+v", s)
	}

	for _, p := range s.Processes {
		if p.Role != growth.RoleRank || p.Job != job || p.Count != 1 || p.RSS <= 8*mib ||
			p.RSS != p.Anonymous+p.File+p.Shmem || p.Headroom.Of == "" {
			t.Errorf("rank %d: %+v", p.Rank, p)
		}
		leaks := p.Rank == 3
		if leaks != (p.Trace != nil) || leaks != (p.Growth > mib) || leaks != isAlarming(p.Verdict) {
			t.Errorf("rank %d: %+v", p.Rank, p)
		}
	}

	for _, p := range s.Processes {
		if p.Trace == nil {
			continue
		}
		want := map[growth.Kind]int64{growth.KindHeap: 770, growth.KindFile: 30}
		if !reflect.DeepEqual(p.Trace.Rows, want) || p.Trace.Components["torch"] != 3 ||
			p.Trace.Losses[growth.LossEvents] != 5 || p.Trace.OwnShare != 0.1 || p.Trace.Duration != 5*time.Second ||
			p.Trace.Slowdown == p.Trace.Slowdown || time.Since(p.Trace.At) > guard {
			t.Errorf("the trace is %+v", p.Trace)
		}
	}

	if got := calls(t, executable); len(got) != 1 {
		t.Errorf("traced %d times: %v", len(got), got)
	} else {
		mustSay(t, got[0], "trace --pid "+itoa(target.PID())+" --duration 1s", "--no-children --no-tui --quiet", "--overhead 1%")
	}

	if err := a.Healthy(); err != nil {
		t.Error(err)
	}

	_ = still.Process.Kill()
	_, _ = still.Process.Wait()
	eventually(t, "the end is seen", func() bool { return len(a.of(EventEnded)) == 1 })
	if ended := a.of(EventEnded)[0]; ended.PID != still.PID() || a.State().Watched != 1 {
		t.Errorf("ended: %+v", ended)
	}
}

func TestRequestTrace(t *testing.T) {
	t.Parallel()
	const job = "agent-request"
	target := startLeaking(t, job, 5, "still")
	executable := newFakeTrace(t, "waits") // which writes no profiles
	options := testOptions(filepath.Join(t.TempDir(), "agent"), job)
	options.Push = &push.Options{URL: "http://127.0.0.1:1"}
	a := startAgent(t, options, executable)
	a.await(t, EventAppeared)

	rank, other := 5, 6
	ctx := context.Background()
	for _, r := range []serve.Request{{PID: 1}, {Job: "none"}, {Job: job, Rank: &other}, {}} {
		if _, err := a.RequestTrace(ctx, r); !errors.Is(err, ErrNotWatched) {
			t.Errorf("%+v: %v", r, err)
		}
	}

	answer, err := a.RequestTrace(ctx, serve.Request{Job: job, Rank: &rank})
	if err != nil || answer.PID != target.PID() || answer.LengthS != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}

	mustSay(t, answer.Folder, a.directory.path+"/traces/agent-request-5-")
	if _, err := a.RequestTrace(ctx, serve.Request{PID: target.PID()}); !errors.Is(err, ErrBusy) {
		t.Errorf("while it runs: %v", err)
	}

	// The process exits in the middle of its trace.
	start := a.watchedStart(t, target.PID())
	path := filepath.Join(filepath.Dir(executable), "start")
	tracertest.NoError(t, os.WriteFile(path, []byte(start), 0o600))

	_ = target.Process.Kill()
	_, _ = target.Process.Wait()
	a.await(t, EventEnded)
	tracertest.NoError(t, os.Remove(filepath.Join(filepath.Dir(executable), "waits")))

	if done := a.await(t, EventTraceDone); done.PID != target.PID() || done.Folder != answer.Folder {
		t.Errorf("done: %+v", done)
	}

	// A trace is good, whatever becomes of its profiles.
	mustSay(t, a.await(t, EventError).Err.Error(), "push profiles: ", "warmup.pb.gz")
}

// A trace refused for want of privileges counts as a trace: the next one waits.
func TestTraceFails(t *testing.T) {
	t.Parallel()
	const job = "agent-fails"
	target := startLeaking(t, job, 5)
	executable := newFakeTrace(t, "fails")
	a := startAgent(t, testOptions(filepath.Join(t.TempDir(), "agent"), job), executable)
	failed := a.await(t, EventTraceFailed)
	mustSay(t, failed.Err.Error(), "exit status 2")
	if lines := a.of(EventTraceLine); len(lines) != 2 || lines[1].Line != "no privilege" {
		t.Errorf("lines: %+v", lines)
	}

	refused := a.await(t, EventTraceRefused)
	if refused.PID != target.PID() || refused.Wait > time.Hour || refused.Wait < 50*time.Minute {
		t.Errorf("refused: %+v", refused)
	}

	if _, err := a.RequestTrace(context.Background(), serve.Request{PID: target.PID()}); !errors.Is(err, ErrTooSoon) {
		t.Errorf("a request: %v", err)
	}

	if s := a.State(); s.Traces[metrics.TraceFailed] != 1 || s.Traces[metrics.TraceRefused] != 2 || len(calls(t, executable)) != 1 {
		t.Errorf("%v traces, calls %q", s.Traces, calls(t, executable))
	}
}

// The bound of a day holds for all processes together.
func TestTracesPerDay(t *testing.T) {
	a := &allowance{perDay: 2, every: time.Hour}
	now := time.Now()
	w := &watchedProcess{}
	for i, c := range []struct {
		traces []time.Duration // ago
		own    time.Duration
		want   time.Duration
	}{
		{nil, 0, 0},
		{[]time.Duration{time.Minute}, 0, 0},
		{[]time.Duration{3 * time.Hour, time.Hour}, 0, 21 * time.Hour},
		{[]time.Duration{25 * time.Hour, time.Hour}, 0, 0},
		{[]time.Duration{20 * time.Minute}, 20 * time.Minute, 40 * time.Minute},
		{[]time.Duration{23 * time.Hour, 20 * time.Minute}, 20 * time.Minute, time.Hour},
	} {
		a.at, w.tracedAt = nil, time.Time{}
		for _, ago := range c.traces {
			a.at = append(a.at, now.Add(-ago))
		}
		if c.own != 0 {
			w.tracedAt = now.Add(-c.own)
		}
		if got := a.wait(w, now); got != c.want {
			t.Errorf("case %d: wait %s, want %s", i, got, c.want)
		}
	}

	a.perDay, a.at, w.tracedAt = 0, nil, time.Time{}
	if got := a.wait(w, now); got != 24*time.Hour {
		t.Errorf("an agent that only watches: wait %s", got)
	}
}

// At the end of the agent the trace is interrupted, its files are kept, and its profiles pushed.
func TestEndWhileTracing(t *testing.T) {
	t.Parallel()
	const job = "agent-ends"
	target := startLeaking(t, job, 5, "still")
	var pushed atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		pushed.Add(1)
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)

	executable := newFakeTrace(t, "waits")
	putProfiles(t, executable)
	options := testOptions(filepath.Join(t.TempDir(), "agent"), job)
	options.Push = &push.Options{URL: server.URL, Jitter: time.Hour}
	a := startAgent(t, options, executable)
	a.await(t, EventAppeared)
	answer, err := a.RequestTrace(context.Background(), serve.Request{PID: target.PID()})
	tracertest.NoError(t, err)

	eventually(t, "the trace has its folder", func() bool { _, err := os.Stat(answer.Folder); return err == nil })
	a.end(t)
	if done := a.of(EventTraceDone); len(done) != 1 {
		t.Errorf("events: %+v", a.all)
	}

	if _, err := os.Stat(filepath.Join(answer.Folder, "summary.json")); err != nil {
		t.Error(err)
	}

	if got := pushed.Load(); got != 3 {
		t.Errorf("%d profiles are pushed, events %+v", got, a.all)
	}

	if _, err := a.RequestTrace(context.Background(), serve.Request{PID: target.PID()}); err == nil {
		t.Error("a trace is started after the end")
	}
}

// A trace cannot be started: it is wanted still.
func TestStartFails(t *testing.T) {
	options := testOptions(filepath.Join(t.TempDir(), "agent"), "none")
	options.Report = (&events{}).add
	a := tracertest.Must(New(options))(t)

	defer a.Close()
	a.executable = "/nowhere"
	w := &watchedProcess{key: processKey{1, 1}}
	w.begin(0, a.criteria, 1)
	w.judge(verdict.Verdict{Class: verdict.ClassLeak}, verdict.Findings{}, 1)
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.start(w, now); err == nil || !w.wantsTrace || a.running != nil {
		t.Errorf("%v; a trace is wanted: %v", err, w.wantsTrace)
	}
	if wait := a.allowance.wait(w, now); wait != options.TraceEvery {
		t.Errorf("the next try is in %s", wait)
	}
}

// Faults outside the sampling are not for a restart.
func TestHealth(t *testing.T) {
	a := &Agent{sampledAt: time.Now(), saveErr: errors.New("no space left")}
	if healthy, ready := a.Healthy(), a.Ready(); healthy != nil || !errors.Is(ready, a.saveErr) {
		t.Errorf("a full disk: %v, %v", healthy, ready)
	}

	a.sampledAt = time.Now().Add(-time.Hour)
	if healthy, ready := a.Healthy(), a.Ready(); healthy == nil || ready == nil {
		t.Errorf("late: %v, %v", healthy, ready)
	}
}
