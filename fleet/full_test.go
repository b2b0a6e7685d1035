package fleet

import (
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A process comes near the limit of its cgroup before it can be judged: it is traced. Then it meets
// the limit, and the agent says that the kernel has killed it.
func TestNearLimit(t *testing.T) {
	t.Parallel()
	const job, limit = "agent-full", 64 << 20
	target := startTarget(t, []string{"SLURM_JOB_ID=" + job}, "train.py")
	cgroup := tracertest.LimitMemory(t, target.PID(), limit)
	options := testOptions(filepath.Join(t.TempDir(), "agent"), job)
	options.NearLimit = 0.5
	a := startAgent(t, options, newFakeTrace(t))
	a.await(t, EventAppeared)

	target.Do("leak 10000 4096")
	full := a.await(t, EventFull)
	if full.PID != target.PID() || full.Limit != limit || full.Headroom.Of != growth.LimitCgroup ||
		full.Used < limit/2 || full.Used > limit {
		t.Errorf("full: %+v", full)
	}
	a.await(t, EventTraceStarted)

	target.Say("leak 10000 4096")
	ended := a.await(t, EventEnded)
	if k := ended.OOM; k == nil || k.PID != target.PID() || k.Limit != limit || k.Cgroup != cgroup {
		t.Errorf("ended: %+v", k)
	}
	if n := a.State().OOMKills; n != 1 {
		t.Errorf("%d kills are counted", n)
	}
	if n := len(a.of(EventFull)); n != 1 {
		t.Errorf("it was near its limit %d times", n)
	}
}

func TestFill(t *testing.T) {
	const gib = 1 << 30
	at := func(used int64) limitUse { return limitUse{used: used, limit: 100 * gib, private: 20 * gib} }
	w := &watchedProcess{}
	if w.fill(at(84*gib), 0.85, false) || w.wantsTrace {
		t.Error("84 of 100 GiB are near the limit")
	}
	if !w.fill(at(85*gib), 0.85, false) || !w.wantsTrace {
		t.Error("85 of 100 GiB are not near the limit")
	}

	// Once a climb.
	w.wantsTrace = false
	for _, used := range []int64{99 * gib, 81 * gib, 90 * gib} {
		if w.fill(at(used), 0.85, false) || w.wantsTrace {
			t.Errorf("traced again at %d GiB", used/gib)
		}
	}
	w.fill(at(79*gib), 0.85, false)
	if !w.fill(at(86*gib), 0.85, true) || w.wantsTrace {
		t.Error("the next climb is not seen, or a trace is wanted beside one that runs")
	}

	// Not: others hold the memory; it is turned off; there is no limit.
	little := limitUse{used: 90 * gib, limit: 100 * gib, private: 9 * gib}
	for name, begins := range map[string]bool{
		"others hold it": new(watchedProcess).fill(little, 0.85, false),
		"turned off":     new(watchedProcess).fill(at(90*gib), 0, false),
		"no limit":       new(watchedProcess).fill(limitUse{private: gib}, 0.85, false),
	} {
		if begins {
			t.Errorf("%s: near the limit", name)
		}
	}

	// Page cache on the active list can be dropped, too.
	m := growth.SystemMemory{CgroupUsed: 90 * gib, CgroupActive: 30 * gib}
	first := growth.Headroom{Left: 10 * gib, Bytes: 100 * gib, Of: growth.LimitCgroup}
	if use := useOf(m, first, gib); use.used != 60*gib || use.limit != 100*gib {
		t.Errorf("with page cache %+v", use)
	}
	first.Left += 20 * gib // free swap
	if use := useOf(m, first, gib); use.used != 60*gib || use.limit != 120*gib {
		t.Errorf("with swap %+v", use)
	}
	if use := useOf(m, growth.Headroom{Left: gib, Of: growth.LimitMachine}, gib); use.limit <= gib ||
		use.used != use.limit-gib {
		t.Errorf("of the machine %+v", use)
	}

	// Growth since the limits were read counts at once.
	w = &watchedProcess{use: at(80 * gib)}
	w.last = growth.UnknownSample()
	for anonymous, want := range map[int64]bool{24 * gib: false, 26 * gib: true} {
		w.last.Anonymous, w.last.Shared = anonymous, 0
		if w.mayBeFull(0.85) != want {
			t.Errorf("%d GiB: may be full: %t", anonymous/gib, !want)
		}
	}
}
