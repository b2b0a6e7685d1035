package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
	"github.com/allocscope/allocscope/tracer/tree"
)

func TestPlaces(t *testing.T) {
	of := func(owner string, private ...int64) (taken []place) {
		for _, bytes := range private {
			taken = append(taken, place{owner: owner, private: bytes})
		}
		return taken
	}
	for _, test := range []struct {
		name    string
		taken   []place
		owner   string
		private int64
		want    int64 // private memory of the place that is given up; 0: there is no place
	}{
		{"the first one of an owner", of("a", 500, 300, 400), "b", 1, 300},
		{"one that is much larger", of("a", 500, 300, 400), "a", 600, 300},
		{"one that is a little larger", of("a", 500, 300, 400), "a", 599, 0},
		{"of who has most", slices.Concat(of("a", 5), of("b", 50, 40, 30), of("c", 6)), "c", 1, 30},
		{"of who has as many", slices.Concat(of("a", 50, 20), of("b", 60, 70)), "b", 30, 0},
		{"of as many, larger", slices.Concat(of("a", 50, 20), of("b", 60, 70)), "b", 120, 60},
		{"of who has one less", slices.Concat(of("a", 50, 20), of("b", 60)), "b", 30, 0},
		{"of one less, much larger", slices.Concat(of("a", 50, 20), of("b", 60)), "b", 40, 20},
		{"nobody can give one up", nil, "a", 1000, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &places{counts: make(map[string]int), taken: test.taken}
			for _, one := range test.taken {
				p.counts[one.owner]++
			}

			givenUp, ok := p.offer(test.owner, test.private)
			if ok != (test.want != 0) || ok && givenUp.private != test.want {
				t.Fatalf("%+v, %v", givenUp, ok)
			}
			if ok {
				before := p.counts[test.owner]
				isOwn := givenUp.owner == test.owner
				p.take(test.owner, givenUp)
				if len(p.taken) != len(test.taken)-1 || !isOwn && p.counts[test.owner] != before+1 {
					t.Errorf("after that: %+v", p)
				}
			}
		})
	}
}

// Users of nothing else.
const nobody, somebody = 65534, 65533

// sharing is a program whose RSS is shared memory.
const sharing = `
import mmap, time
m = mmap.mmap(-1, 32 << 20)
m.write(b"x" * (32 << 20))
print("ready", flush=True)
time.sleep(1000)
`

// startStrangers starts programs of a job as a user. It returns the PID of the last one.
func startStrangers(t *testing.T, n int, uid uint32, job string) (pid int) {
	t.Helper()
	tracertest.NeedsRoot(t)
	for range n {
		command := exec.Command("/usr/bin/python3", "-c", sharing, "train.py")
		command.Env = append(os.Environ(), "SLURM_JOB_ID="+job)
		command.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uid, Gid: uid},
		}

		target := tracertest.StartCommand(t, command)
		target.Await("ready")
		pid = target.PID()
	}
	return pid
}

// A stranger who has all places gives some up for the jobs of others.
func TestStranger(t *testing.T) {
	const job = "agent-stranger"
	startStrangers(t, 6, nobody, job)
	options := testOptions(filepath.Join(t.TempDir(), "agent"), job)
	options.Speed = 1e9
	a := tracertest.Must(New(options))(t)

	defer a.Close()
	a.most, a.finder.share = 4, guard // it also reads all other processes of root
	byOwner := func() map[string]int {
		for range 2 * waitingRounds {
			a.findOnce()
		}
		p, _ := a.watched.places(a.most, a.running)
		return p.counts
	}
	stranger, own := ownerNamed(t, nobody), ownerNamed(t, 0)
	if got := byOwner(); got[stranger] != 4 || a.ignored != 2 {
		t.Fatalf("%v are watched, %d ignored", got, a.ignored)
	}

	var targets []int
	for range 3 {
		targets = append(targets, startTarget(t, []string{"SLURM_JOB_ID=" + job}, "train.py").PID())
	}
	if got := byOwner(); got[stranger] != 2 || got[own] != 2 || a.ignored != 5 {
		t.Errorf("%v are watched, %d ignored", got, a.ignored)
	}

	now := bootTime()
	for _, w := range slices.Clone(a.watched) {
		isReplaced := w.replaced
		if a.sample(w, now) == isReplaced {
			t.Errorf("PID %d is sampled: %v", w.key.pid, !isReplaced)
		}
	}

	for _, w := range a.watched {
		if isOwn := slices.Contains(targets, w.key.pid); isOwn != (w.owner == own) {
			t.Errorf("the owner of PID %d is %q", w.key.pid, w.owner)
		}
	}
	if len(a.watched) != 4 {
		t.Errorf("%d are watched", len(a.watched))
	}
}

// ownerNamed is the owner of the tests' processes with a UID.
func ownerNamed(t *testing.T, uid uint32) string {
	t.Helper()
	command := exec.Command("/bin/sleep", "1000")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}

	target := tracertest.StartCommand(t, command)
	owner, err := process.ReadOwner(target.PID())
	if err != nil || owner.UID != uid {
		t.Fatalf("%+v, %v", owner, err)
	}
	return owner.Name
}

// Processes that are slow to answer hold up a scan once, and not the processes of others.
func TestSlowOwner(t *testing.T) {
	const job = "agent-slow"
	startStrangers(t, 3, nobody, job)
	other := startStrangers(t, 1, somebody, job)
	f := testFinder(t, 1, Rule{Command: "train.py", User: "65534"},
		Rule{Command: "train.py", User: "65533"})
	slow := ownerNamed(t, nobody)
	asked := 0
	f.share = 10 * time.Millisecond
	f.open = func(pid int) (*process.Process, error) {
		if owner, err := process.ReadOwner(pid); err == nil && owner.Name == slow {
			asked++
			time.Sleep(2 * f.share)
		}
		return process.OpenAny(pid)
	}

	isFound := false
	for range waitingRounds {
		found, _, err := f.scan(func(tree.Arrival) bool { return false }, roomFor(10))
		tracertest.NoError(t, err)
		for _, c := range found {
			isFound = isFound || c.PID == other
			c.process.Close()
		}
	}
	if !isFound || asked != 1 {
		t.Errorf("the process of another user is found: %v; %d slow ones were asked", isFound,
			asked)
	}
}
