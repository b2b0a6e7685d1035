package fleet

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// watchedStart is the start of a watched process in ticks, as /proc/PID/stat has it.
func (a *testAgent) watchedStart(t *testing.T, pid int) string {
	t.Helper()
	a.Agent.mu.Lock()
	defer a.Agent.mu.Unlock()
	for _, w := range a.watched {
		if w.key.pid == pid {
			return strconv.FormatInt(w.key.start, 10)
		}
	}

	t.Fatalf("PID %d is not watched", pid)
	return ""
}

func TestSaved(t *testing.T) {
	w := &watchedProcess{key: processKey{17, 4711}, tracedAt: time.Now().Round(0).UTC(), folder: "j-20261126T021500Z"}
	w.begin(2.5, verdict.InSeconds().Repeated(), 1)
	w.history.watch(time.Hour, 2*time.Hour, func(s float64) (float64, float64) { return 1000*mib + 8192*s, 4096 })
	w.history.add(3*3600, growth.Sample{RSS: mib})
	w.history.add(3*3600+0.0004, growth.Sample{RSS: mib}) // after a late tick
	w.judge(verdict.Verdict{Class: verdict.ClassLeak}, verdict.Findings{}, 1)

	raw := tracertest.Must(json.Marshal(w.saved()))(t)

	var s savedProcess
	tracertest.NoError(t, json.Unmarshal(raw, &s))
	tracertest.NoError(t, s.check())

	if perSample := len(raw) / len(w.history.points); perSample > 16 {
		t.Errorf("%d bytes a sample", perSample)
	}

	again := &watchedProcess{key: w.key}
	again.begin(0, verdict.InSeconds().Repeated(), 1)
	again.restore(s)
	if !reflect.DeepEqual(again.history.points, w.history.points) || again.history.born != 2.5 ||
		again.history.began != w.history.began || again.history.thinning.Stride() != w.history.thinning.Stride() {
		t.Errorf("the history is another one")
	}

	if again.rechecks.Progress() != w.rechecks.Progress() || !again.tracedAt.Equal(w.tracedAt) ||
		again.folder != w.folder || again.verdict.Class != verdict.ClassSuspected || !again.wantsTrace || !again.isDue() {
		t.Errorf("%+v, want %+v", again, w)
	}
}

// Whatever the state is, it is taken or moved aside.
func TestDamagedState(t *testing.T) {
	valid := func() map[string]any {
		s := savedState{Schema: stateSchema, BootID: bootID(t), Processes: []savedProcess{{
			PID: 1, StartTicks: 1, Stride: 1, AgeMS: []int64{5, 1}, RSSKiB: []int64{5, 1}, PrivateKiB: []int64{5, -1},
		}}}
		raw := tracertest.Must(json.Marshal(s))(t)
		var m map[string]any
		tracertest.NoError(t, json.Unmarshal(raw, &m))
		return m
	}

	text := func(change func(state, process map[string]any)) string {
		m := valid()
		change(m, m["processes"].([]any)[0].(map[string]any))
		raw := tracertest.Must(json.Marshal(m))(t)
		return string(raw)
	}

	for name, c := range map[string]struct {
		text    string
		damaged bool
	}{
		"valid":          {text(func(_, _ map[string]any) {}), false},
		"another boot":   {text(func(s, _ map[string]any) { s["boot_id"] = "x" }), false},
		"empty":          {"", true},
		"cut off":        {text(func(_, _ map[string]any) {})[:40], true},
		"another schema": {text(func(s, _ map[string]any) { s["schema"] = "x/\x1b2" }), true},
		"out of order":   {text(func(_, p map[string]any) { p["age_ms"] = []int{5, 0} }), true},
		"lengths":        {text(func(_, p map[string]any) { p["rss_kib"] = []int{5} }), true},
		"negative size":  {text(func(_, p map[string]any) { p["rss_kib"] = []int{5, -6} }), true},
		"huge size":      {text(func(_, p map[string]any) { p["rss_kib"] = []int64{5, 1 << 60} }), true},
		"stride":         {text(func(_, p map[string]any) { p["stride"] = 0 }), true},
		"time":           {text(func(_, p map[string]any) { p["born_s"] = -1 }), true},
		"folder":         {text(func(_, p map[string]any) { p["folder"] = "../../etc" }), true},
		"running":        {text(func(s, _ map[string]any) { s["running"] = map[string]any{"folder": "/"} }), true},
		"samples": {text(func(_, p map[string]any) {
			many := make([]int, maxSamples+2)
			for i := range many {
				many[i] = 1
			}
			p["age_ms"], p["rss_kib"], p["private_kib"] = many, many, many
		}), true},
		"processes": {text(func(s, p map[string]any) {
			all := []any{}
			for range MaxWatched + 1 {
				all = append(all, p)
			}
			s["processes"] = all
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirectory(t)
			path := filepath.Join(d.path, stateFile)
			tracertest.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			d.close()

			reported := &events{}
			options := testOptions(d.path, "none")
			options.Report = reported.add
			a := tracertest.Must(New(options))(t)
			defer a.Close()
			moved, _ := os.ReadFile(path + ".damaged")
			if isDamaged := len(reported.of(EventStateDamaged)) == 1; isDamaged != c.damaged || (string(moved) == c.text) != c.damaged {
				t.Errorf("events %+v, moved %.40q", reported.all, moved)
			}
			if wants := 0; name == "valid" {
				wants = 1
				if len(a.saved) != wants {
					t.Errorf("%d processes are known", len(a.saved))
				}
			}
		})
	}

	t.Run("a symbolic link", func(t *testing.T) {
		d := newDirectory(t)
		secret := filepath.Join(t.TempDir(), "secret")
		tracertest.NoError(t, os.WriteFile(secret, []byte("{}"), 0o600))
		tracertest.NoError(t, os.Symlink(secret, filepath.Join(d.path, stateFile)))
		if _, err := d.readState(); err == nil {
			t.Error("it is followed")
		}
		if err := d.writeState(&savedState{}); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("it is written: %v", err)
		}
	})
}

func bootID(t *testing.T) string {
	t.Helper()
	raw := tracertest.Must(os.ReadFile("/proc/sys/kernel/random/boot_id"))(t)

	return strings.TrimSpace(string(raw))
}

// A later agent goes on where the one before was, and takes over the trace that it left.
func TestRestart(t *testing.T) {
	t.Parallel()
	const job = "agent-restart"
	target := startLeaking(t, job, 2)
	dir := filepath.Join(t.TempDir(), "agent")
	executable := newFakeTrace(t)
	first := startAgent(t, testOptions(dir, job), executable)
	first.await(t, EventTraceDone)
	eventually(t, "the leak is confirmed", func() bool { return first.State().Processes[0].Verdict == verdict.ClassLeak })
	start := first.watchedStart(t, target.PID())
	first.end(t)

	// As if it had been killed while a trace ran, which ends in order.
	d := tracertest.Must(openDirectory(dir))(t)
	s := tracertest.Must(d.readState())(t)

	before := len(s.Processes[0].AgeMS)
	ticks := tracertest.Must(strconv.ParseInt(start, 10, 64))(t)

	left := startTarget(t, nil)
	s.Running = &savedTrace{target.PID(), ticks, "agent-restart-2-20991126T021500Z", left.PID(), keyOf(left.PID()).start}
	tracertest.NoError(t, d.writeState(s))

	d.close()

	second := startAgent(t, testOptions(dir, job), executable)
	restored := second.await(t, EventRestored)
	if restored.PID != target.PID() || restored.Identity.Rank != 2 {
		t.Errorf("restored: %+v", restored)
	}

	eventually(t, "it is judged again", func() bool { return second.State().Processes[0].Growth > mib })
	p := second.State().Processes[0]
	if p.Verdict != verdict.ClassLeak || p.Trace == nil || p.Trace.Rows[growth.KindHeap] != 770 {
		t.Errorf("%+v", p)
	}

	second.Agent.mu.Lock()
	points := second.watched[0].history.points
	second.Agent.mu.Unlock()
	if len(points) <= before {
		t.Errorf("%d samples, %d before the restart", len(points), before)
	}

	if n := len(calls(t, executable)); n != 1 || len(second.of(EventAppeared)) != 0 || len(second.of(EventTurned)) != 0 {
		t.Errorf("%d traces, events %+v", n, second.all)
	}

	made := filepath.Join(dir, "traces", first.of(EventTraceDone)[0].Folder[len(dir+"/traces/"):])
	tracertest.NoError(t, os.CopyFS(filepath.Join(dir, "traces", s.Running.Folder), os.DirFS(made)))

	if len(second.of(EventTraceDone)) != 0 {
		t.Error("it does not wait for the end of the trace")
	}
	left.Say("exit")
	_ = left.Wait()
	if done := second.await(t, EventTraceDone); filepath.Base(done.Folder) != s.Running.Folder {
		t.Errorf("done: %+v", done)
	}
}

// A trace that the agent before has left ends with this one, and its folder is not removed meanwhile.
func TestEndWhileResumed(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	const folder = "agent-resumes-2-20200101T000000Z"
	for _, name := range []string{folder, "agent-resumes-2-20210101T000000Z"} {
		putTrace(t, d, name, 1000)
	}

	left := startTarget(t, nil)
	s := savedState{Schema: stateSchema, BootID: bootID(t)}
	s.Running = &savedTrace{1, 1, folder, left.PID(), keyOf(left.PID()).start}
	tracertest.NoError(t, d.writeState(&s))
	d.close()

	options := testOptions(d.path, "agent-resumes")
	options.Keep = 1
	a := startAgent(t, options, newFakeTrace(t))
	eventually(t, "the newer folder is removed", func() bool { return len(a.of(EventFolderGone)) > 0 })
	if _, err := os.Stat(d.tracePath(folder)); err != nil {
		t.Error(err)
	}

	a.end(t)
	var ended *exec.ExitError
	if err := left.Wait(); !errors.As(err, &ended) ||
		ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("the trace that was left ends with %v", err)
	}
	if failed := a.of(EventTraceFailed); len(failed) != 1 || failed[0].Folder != d.tracePath(folder) {
		t.Errorf("events: %+v", a.all)
	}
}
