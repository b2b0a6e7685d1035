package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/tracertest"
	"github.com/allocscope/allocscope/tracer/tree"
)

// testFinder finds processes at once.
func testFinder(t *testing.T, minRSS int64, rules ...Rule) *finder {
	t.Helper()
	matchers := tracertest.Must(newMatchers(rules))(t)

	f := newFinder(matchers, minRSS, 1e9)
	f.share = guard // a busy machine takes long to read the other processes of root
	return f
}

// scanFor scans until nothing waits for its turn, and returns the PIDs that were found.
func scanFor(t *testing.T, f *finder, room int) (found []candidate, ignored int) {
	t.Helper()
	for range waitingRounds {
		some, n, err := f.scan(func(a tree.Arrival) bool {
			return slices.ContainsFunc(found, func(c candidate) bool { return c.PID == a.PID })
		}, roomFor(room-len(found)))
		tracertest.NoError(t, err)
		for _, c := range some {
			t.Cleanup(func() { c.process.Close() })
		}
		found, ignored = append(found, some...), n
	}

	return found, ignored
}

// roomFor are free places.
func roomFor(n int) *places { return &places{free: n, counts: make(map[string]int)} }

func TestFinder(t *testing.T) {
	t.Run("ranks, and not what starts them", func(t *testing.T) {
		marker := "finder-ranks"
		program := tracertest.Build(t, "steps.c")
		shell := exec.Command("/bin/sh", "-c", `exec 3<&0; "$0" "$1" <&3 & wait`, program, marker)
		shell.Env = append(os.Environ(), "RANK=7", "LOCAL_RANK=1", "WORLD_SIZE=8", "SLURM_JOB_ID=99")
		tracertest.StartCommand(t, shell).Await("ready")

		found, _ := scanFor(t, testFinder(t, 1, Rule{Command: marker}), 10)
		if len(found) != 1 {
			t.Fatalf("found %d", len(found))
		}
		id := found[0].identity
		if id.Role != growth.RoleRank || id.Rank != 7 || id.LocalRank != 1 || id.WorldSize != 8 || id.Job != "99" {
			t.Errorf("%+v", id)
		}
	})

	t.Run("one that grows later", func(t *testing.T) {
		target := startTarget(t, nil, "finder-grows")
		f := testFinder(t, 16*mib, Rule{Command: "finder-grows", Job: "by-rule"})
		if found, _ := scanFor(t, f, 10); len(found) != 0 {
			t.Errorf("found %+v", found)
		}
		target.Say("leak 8192 4096")
		target.Await("done")
		found, _ := scanFor(t, f, 10)
		if len(found) != 1 || found[0].PID != target.PID() || found[0].identity.Job != "by-rule" {
			t.Errorf("found %+v", found)
		}
	})

	t.Run("too many", func(t *testing.T) {
		for range 5 {
			startTarget(t, nil, "finder-many")
		}
		f := testFinder(t, 1, Rule{Command: "finder-many"})
		found, ignored := scanFor(t, f, 3)
		if len(found) != 3 || ignored != 2 {
			t.Errorf("found %d, ignored %d", len(found), ignored)
		}
		if found, ignored = scanFor(t, f, 1); len(found) != 1 || ignored != 1 {
			t.Errorf("with room: found %d, ignored %d", len(found), ignored)
		}
	})

	t.Run("another program", func(t *testing.T) {
		target := startTarget(t, nil, "finder-before")
		f := testFinder(t, 1, Rule{Command: "finder-after"})
		if found, _ := scanFor(t, f, 10); len(found) != 0 {
			t.Errorf("found %+v", found)
		}
		target.Say("exec " + tracertest.Build(t, "steps.c") + " finder-after")
		target.Await("ready")
		var found []candidate
		for range 4 {
			more, _ := scanFor(t, f, 10)
			found = append(found, more...)
		}
		if len(found) != 1 || found[0].PID != target.PID() {
			t.Errorf("found %+v", found)
		}
	})

	t.Run("hostile texts", func(t *testing.T) {
		hostile := "finder-\x1b]0;title\x07\n\xff" + strings.Repeat("x", 100_000)
		startTarget(t, []string{
			"RANK=1", "WORLD_SIZE=2", "SLURM_JOB_ID=\x1b[31m\"}\n\xfe" + strings.Repeat("j", 100_000),
		}, hostile, "finder-hostile")
		startTarget(t, []string{"RANK=99999999999999999999", "WORLD_SIZE=-1", "SLURM_JOB_ID="}, "finder-hostile")

		found, _ := scanFor(t, testFinder(t, 1, Rule{Command: "finder-"}), 10)
		if len(found) != 2 {
			t.Fatalf("found %d", len(found))
		}
		for _, c := range found {
			w := (&Agent{options: Options{Speed: 1}}).newProcess(c)
			texts := fmt.Sprintf("%s %+v", w.command, w.identity)
			if texts != growth.Printable(texts) || len(texts) > 2000 {
				t.Errorf("%d bytes: %.200q", len(texts), texts)
			}
		}
	})
}

// Processes that come and go by the hundred are no error, and nothing is kept of them.
func TestChurn(t *testing.T) {
	f := testFinder(t, 1, Rule{Command: "finder-churn"})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 300 {
			_ = exec.Command("/bin/true", "finder-churn").Run()
		}
	}()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		found, _, err := f.scan(func(tree.Arrival) bool { return false }, roomFor(10))
		tracertest.NoError(t, err)
		for _, c := range found {
			c.process.Close()
		}
	}

	scanFor(t, f, 10)
	for pid, w := range f.waiting {
		if rss, _ := w.Memory(); rss == growth.Unknown {
			t.Errorf("PID %d is gone, and waits", pid)
		}
	}
}

// The processes of allocscope are not watched. Others cannot hide behind their name, nor behind the
// argument of a worker that no trainer has started.
func TestHidingNames(t *testing.T) {
	f := testFinder(t, 1, Rule{Command: "allocscope-reader"})
	if _, err := hostile.Open(nil, "/proc/self/exe", 0, 0); err != nil { // starts the reader
		t.Fatal(err)
	}
	command := exec.Command(tracertest.Build(t, "steps.c"))
	command.Args = []string{hostile.Name, "--multiprocessing-fork"}
	target := tracertest.StartCommand(t, command)
	target.Await("ready")

	var children []int // others test at the same time
	found, _ := scanFor(t, f, 1000)
	for _, c := range found {
		if c.Parent == os.Getpid() {
			children = append(children, c.PID)
		}
	}
	if !slices.Equal(children, []int{target.PID()}) {
		t.Errorf("found %d, not %d alone", children, target.PID())
	}
}

// A watched process executes another program: it is watched once, and its history begins then.
func TestExecuted(t *testing.T) {
	target := startTarget(t, []string{"SLURM_JOB_ID=agent-executes"}, "train.py")
	options := testOptions(filepath.Join(t.TempDir(), "agent"), "agent-executes")
	options.Speed = 1e9
	a := tracertest.Must(New(options))(t)

	defer a.Close()
	eventually(t, "it is watched", func() bool { a.findOnce(); return len(a.watched) == 1 })
	before := a.watched[0]
	target.Say("exec " + tracertest.Build(t, "steps.c") + " train.py")
	target.Await("ready")
	for range 30 {
		a.findOnce() // also reads processes that execute another program
		if len(a.watched) != 1 || a.watched[0] != before {
			t.Fatalf("%d are watched", len(a.watched))
		}
	}

	a.check(before, bootTime())
	eventually(t, "it is watched again", func() bool { a.findOnce(); return len(a.watched) == 1 })
	if born := a.watched[0].history.born; born <= 0 {
		t.Errorf("it executed its program at %v s", born)
	}
}
