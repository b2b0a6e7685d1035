package tree

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// listed returns a process as ListMachine does, but for its role.
func listed(pid, parent int, command string) Listed {
	arguments := strings.Fields(command)
	return Listed{
		PID: pid, Parent: parent, Arguments: arguments,
		IsPython: parseCommand(arguments).isPython,
		program:  Program{Arguments: arguments},
	}
}

func TestClassifyMachine(t *testing.T) {
	forked := listed(22, 21, "python train.py")
	forked.program.Forked = true
	rank := listed(31, 30, "python train.py")
	rank.program.Environment = map[string]string{"RANK": "3", "WORLD_SIZE": "8"}

	worker := func(pid, parent int) Listed {
		return listed(pid, parent, "python -c x --multiprocessing-fork")
	}
	named, hog := listed(67, 1, "python hog.py"), listed(68, 1, "./hog")
	named.program.Name, hog.program.Name = "pt_data_worker", "pt_data_worker"
	compiler := listed(69, 1, "python -m torch._inductor.compile_worker")

	all := []Listed{
		listed(1, 0, "/sbin/init"),
		listed(10, 1, "sshd: somebody"),
		listed(11, 10, "-bash"),
		listed(12, 11, "vim train.py"),
		listed(20, 11, "uv run train.py"), listed(21, 20, "python train.py"), forked,
		listed(30, 11, "torchrun train.py"), rank,
		listed(40, 11, "nohup ./simulate"), listed(41, 40, "./simulate"),
		worker(60, 21), worker(61, 60), worker(62, 11), worker(63, 1), worker(64, 40), worker(65, 31),
		worker(66, 99), named, hog, compiler,
		listed(50, 51, "a"), listed(51, 50, "b"), // PIDs that were used again
	}
	classifyMachine(all)

	want := map[int]growth.Role{
		1: growth.RoleLauncher, 10: growth.RoleOther, 11: growth.RoleLauncher,
		12: growth.RoleOther,
		20: growth.RoleLauncher, 21: growth.RoleTrainer, 22: growth.RoleWorker,
		30: growth.RoleLauncher, 31: growth.RoleRank,
		40: growth.RoleLauncher, 41: growth.RoleTrainer,
		50: growth.RoleOther, 51: growth.RoleOther,
		// Workers of a trainer, of a worker and of a rank; the others have only their names.
		60: growth.RoleWorker, 61: growth.RoleWorker, 65: growth.RoleWorker,
		62: growth.RoleTrainer, 63: growth.RoleTrainer, 64: growth.RoleTrainer,
		66: growth.RoleTrainer, 67: growth.RoleTrainer, 68: growth.RoleOther,
		69: growth.RoleTrainer,
	}
	for _, l := range all {
		if l.Role != want[l.PID] {
			t.Errorf("%s is %q, want %q", l.Command(), l.Role, want[l.PID])
		}
		if (l.PID == 31) != (l.Rank == 3) {
			t.Errorf("%s has rank %d", l.Command(), l.Rank)
		}
	}
}

func TestMatch(t *testing.T) {
	worker := listed(22, 21, "python train.py")
	worker.program.Forked = true
	all := []Listed{
		listed(1, 0, "/sbin/init"),
		listed(10, 1, "tmux new train.py"),
		listed(11, 10, "-bash"),
		listed(20, 11, "uv run train.py"), listed(21, 20, "python train.py"), worker,
		listed(30, 11, "sudo allocscope trace --name train.py"),
		listed(31, 30, "/usr/bin/allocscope trace --name train.py"),
		listed(os.Getpid(), 32, "python train.py"), listed(32, 11, "sudo python train.py"),
		listed(40, 11, "python other.py"), listed(41, 11, "python other.py --fast"),
	}
	classifyMachine(all)

	for text, want := range map[string][]int{
		"train.py":  {20},
		"train":     {20},
		"n train.p": {20},
		"tr.in.py":  nil, // a text, no pattern
		"TRAIN.PY":  nil,
		"other.py":  {40, 41},
		"--fast":    {41},
		"run t":     {20},
	} {
		found, err := Match(all, text)
		var pids []int
		for _, l := range found {
			pids = append(pids, l.PID)
		}
		if !slices.Equal(pids, want) || (len(want) == 0) != errors.Is(err, ErrNoMatch) {
			t.Errorf("%q matches %v, %v; want %v", text, pids, err, want)
		}
	}
}

func TestListMachine(t *testing.T) {
	const code = "import sys; print('ready', flush=True); sys.stdin.read()"
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", code,
		"\x1b[31mred\n"))
	target.Await("ready")

	all := tracertest.Must(ListMachine())(t)
	i := slices.IndexFunc(all, func(l Listed) bool { return l.PID == target.PID() })
	if i < 0 {
		t.Fatal("the process is not in the list")
	}

	l := all[i]
	if l.Parent != os.Getpid() || !l.IsPython || !l.IsReadable || l.RSS <= 0 ||
		l.Allocator != "glibc" || strings.ContainsAny(l.Command(), "\x1b\n") {
		t.Errorf("listed %+v", l)
	}
	stalled := map[uint32]bool{uint32(os.Geteuid()): true}
	short, _, ok := list(target.PID(), stalled)
	if !ok || short.Command() != "python3" || short.Allocator != "" || short.RSS <= 0 {
		t.Errorf("beside a process that does not answer: %+v, %t", short, ok)
	}

	if rss := l.ReadRSS(); rss <= 0 {
		t.Errorf("RSS is %d", rss)
	}
	l.Start++
	if rss := l.ReadRSS(); rss != growth.Unknown {
		t.Errorf("RSS of another process with its PID is %d", rss)
	}
}
