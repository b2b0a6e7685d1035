package process

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestLivingThread reads a process whose main thread has ended, opened before or after that, and
// compares with the kernel's files of the thread that lives.
func TestLivingThread(t *testing.T) {
	for _, when := range []string{"opened before", "opened after"} {
		t.Run(when, func(t *testing.T) {
			target := tracertest.Start(t, tracertest.Build(t, "steps.c"))
			target.Await("ready")
			before := open(t, target.PID())
			began := must(before.Stat())

			target.Do("move")
			awaitMainEnd(t, target.PID())
			p := before
			if when == "opened after" {
				p = open(t, target.PID())
			}
			mustReadLiving(t, p, began)

			target.Hangup()
			if <-p.Exited(t.Context().Done()); p.Alive() {
				t.Error("it lives on without a thread")
			}
		})
	}
}

func awaitMainEnd(t *testing.T, pid int) {
	t.Helper()
	tracertest.Eventually(t, "the main thread has ended", func() bool {
		return parseStatus(readFile(t, "/proc/"+strconv.Itoa(pid)+"/status")).State == 'Z'
	})
}

func mustReadLiving(t *testing.T, p *Process, began Stat) {
	t.Helper()
	status, stat := must(p.Status()), must(p.Stat())
	living := parseStatus(readFile(t, "/proc/"+strconv.Itoa(p.TID())+"/status"))
	if p.TID() == p.PID || living.TGID != p.PID {
		t.Fatalf("follows thread %d of process %d", p.TID(), living.TGID)
	}
	if !status.MainEnded || status.Threads != 1 || status.RSS <= 0 || status.Virtual != living.Virtual {
		t.Errorf("status is %+v, its thread has %+v", status, living)
	}
	if stat.Start != began.Start || stat.Image != began.Image || stat.Parent != began.Parent ||
		stat.TID != p.TID() {
		t.Errorf("stat is %+v, was %+v", stat, began)
	}
	if known := must(ReadStat(p.PID)); known.Image != began.Image || known.TID != p.TID() {
		t.Errorf("ReadStat says %+v", known)
	}

	maps := must(p.Maps())
	if want := must(ParseMaps(readFile(t, "/proc/"+strconv.Itoa(p.TID())+"/maps"))); !slices.Equal(
		maps, want,
	) {
		t.Errorf("maps are %v, want %v", maps, want)
	}
	code := slices.IndexFunc(maps, func(m Mapping) bool { return m.Execute && m.IsFile() })
	file := must(p.OpenMapped(maps[code]))
	defer file.Close()
	var word [8]byte
	if err := p.ReadMemory(maps[code].Start, word[:]); err != nil {
		t.Error(err)
	}
	if err := p.Refresh(); err != nil || p.Executable == "" || len(p.Arguments) == 0 {
		t.Errorf("%v: executable %q, arguments %q", err, p.Executable, p.Arguments)
	}
	if path := p.HoldRoot(); path == "" {
		t.Error("no root directory")
	}
	if threads := must(p.Threads()); len(threads) != 1 || threads[0].TID != p.TID() {
		t.Errorf("threads are %+v", threads)
	}
	if c := p.Condition(); c != (growth.Condition{Remaining: 1}) {
		t.Errorf("condition is %+v", c)
	}
}

// TestCondition stops a process, and has it go on.
func TestCondition(t *testing.T) {
	p := startEcho(t, exec.Command("cat"))
	if c := p.Condition(); c != (growth.Condition{}) {
		t.Errorf("runs as %+v", c)
	}
	tracertest.NoError(t, unix.Kill(p.PID, unix.SIGSTOP))
	tracertest.Eventually(t, "it is stopped", func() bool {
		return p.Condition().Halt == growth.HaltStopped
	})
	tracertest.NoError(t, unix.Kill(p.PID, unix.SIGCONT))
	tracertest.Eventually(t, "it runs", func() bool { return p.Condition() == growth.Condition{} })
}

// TestFrozen reads folders as the kernel has them, of both versions of cgroups.
func TestFrozen(t *testing.T) {
	for _, c := range []struct {
		name, membership, file, text string
		files                        memoryFiles
		want                         bool
	}{
		{"v1 frozen", "6:freezer:/job\n0::/\n", "freezer.state", "FROZEN\n", memoryFilesV1, true},
		{"v1 thawed", "6:freezer:/job\n0::/\n", "freezer.state", "THAWED\n", memoryFilesV1, false},
		{"v2 frozen", "0::/job\n", "cgroup.events", "populated 1\nfrozen 1\n", memoryFilesV2, true},
		{"v2 runs", "0::/job\n", "cgroup.events", "populated 1\nfrozen 0\n", memoryFilesV2, false},
		{"another cgroup", "0::/other\n", "cgroup.events", "frozen 1\n", memoryFilesV2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mount := t.TempDir()
			tracertest.NoError(t, os.Mkdir(mount+"/job", 0o700))
			tracertest.NoError(t, os.WriteFile(mount+"/job/"+c.file, []byte(c.text), 0o600))

			mounts := []hierarchy{{memoryFiles: c.files, controller: "freezer", mountPoint: mount}}
			if got := isFrozen(mounts, []byte(c.membership)); got != c.want {
				t.Errorf("frozen: %v, want %v", got, c.want)
			}
		})
	}
}
