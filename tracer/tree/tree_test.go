package tree

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestScan(t *testing.T) {
	t.Run("children come and go", func(t *testing.T) {
		j := startJob(t)
		mustBe(t, "at first", pidsOf(j.scan(0).New), j.PID())
		children := j.order("fork", 3)
		mustBe(t, "new", pidsOf(j.scan(0).New), children...)
		idle := j.scan(0)
		if len(idle.New)+len(idle.Exited)+len(idle.Executed) != 0 {
			t.Errorf("nothing has happened, but %+v", idle)
		}

		j.order("end", children[1])
		before := tracertest.OpenFiles(t)
		changes := j.scan(0)
		mustBe(t, "exited", pidsOf(changes.Exited), children[1])
		mustBe(t, "new", pidsOf(changes.New))
		mustBe(t, "left", pidsOf(j.Members()), j.PID(), children[0], children[2])
		if changes.Exited[0].Process.Alive() {
			t.Error("an exited member is alive")
		}
		if closed := before - tracertest.OpenFiles(t); closed != 2 {
			t.Errorf("%d descriptors were closed, want 2", closed)
		}
	})

	t.Run("without children", func(t *testing.T) {
		j := startJob(t)
		j.children = false
		j.order("fork", 3)
		mustBe(t, "members", pidsOf(j.scan(0).New), j.PID())
	})

	t.Run("the process that reads the tree", func(t *testing.T) {
		p := tracertest.Must(process.Open(os.Getppid()))(t) // as of a shell that has started it
		defer p.Close()
		child := startJob(t)
		own := New(p, true, nil)
		defer own.Close()
		tracertest.Must(own.Scan(0))(t)
		for _, m := range own.Members() {
			if m.Process.PID == os.Getpid() || m.Process.PID == child.PID() {
				t.Errorf("%d is a member", m.Process.PID)
			}
		}
	})

	t.Run("orphan", func(t *testing.T) {
		j := startJob(t)
		chain := j.order("deep", 3)
		j.scan(0)
		j.order("end", chain[0])
		mustBe(t, "exited", pidsOf(j.scan(0).Exited), chain[0])
		j.scan(0)
		mustBe(t, "members", pidsOf(j.Members()), j.PID(), chain[1], chain[2])

		stat, err := process.ReadStat(chain[1])
		if err != nil || stat.Parent == chain[0] {
			t.Fatalf("parent %d, %v: it is no orphan, the test is wrong", stat.Parent, err)
		}
		orphan := j.Members()[1].Info
		if orphan.Parent != chain[0] || orphan.Role != growth.RoleWorker {
			t.Errorf("%+v", orphan)
		}
	})

	t.Run("adopted", func(t *testing.T) {
		j, other := startJob(t), startJob(t)
		j.scan(0)
		for range 2 {
			if m := j.Adopt(other.PID(), 0); m == nil || m.Process.PID != other.PID() {
				t.Fatalf("adopted %+v", m)
			}
		}
		mustBe(t, "members", pidsOf(j.Members()), j.PID(), other.PID())
		children := other.order("fork", 2)
		mustBe(t, "new", pidsOf(j.scan(0).New), children...)
		other.Hangup()
		if m := j.Adopt(other.PID(), 0); m != nil && m.Process.Alive() {
			t.Error("a process that has ended was adopted")
		}
	})

	// If a parent lives between two scans only, its child has another parent by then.
	t.Run("other process's child", func(t *testing.T) {
		j := startJob(t)
		j.scan(0)
		chain := j.order("deep", 2)
		j.order("end", chain[0])
		startJob(t).order("fork", 2)
		j.scan(0)
		mustBe(t, "members", pidsOf(j.Members()), j.PID())
	})

	t.Run("zombie", func(t *testing.T) {
		j := startJob(t)
		ended := j.order("run true")[0]
		j.await("its end", func(Changes) bool {
			stat, err := process.ReadStat(ended)
			return err == nil && stat.State == 'Z'
		})
		tree := newTree(t, j.PID())
		if _, err := tree.Scan(0); err != nil || len(tree.Members()) != 1 || tree.LeftOut() != 0 {
			t.Errorf("%v, %d left out, %v", pidsOf(tree.Members()), tree.LeftOut(), err)
		}
	})

	t.Run("root exits", func(t *testing.T) {
		j := startWrapped(t)
		j.scan(0)
		child := j.Members()[1]
		j.Process.Kill()
		const exited = unix.WEXITED | unix.WNOWAIT
		tracertest.NoError(t, unix.Waitid(unix.P_PID, j.PID(), nil, exited, nil))
		mustBe(t, "exited", pidsOf(j.scan(0).Exited), j.PID())
		mustBe(t, "members", pidsOf(j.Members()), child.Process.PID)
		if sample := j.Sample(0); len(sample.Processes) != 1 || sample.System.Available <= 0 {
			t.Errorf("%+v", sample)
		}
	})

	t.Run("born", func(t *testing.T) {
		j := startJob(t)
		stat := tracertest.Must(j.root.Stat())(t)
		age := stat.Age()
		born := j.scan(time.Hour).New[0].Info.Born
		if later := stat.Age(); born > time.Hour-age || born < time.Hour-later {
			t.Errorf("born %v, one hour after tracing started, %v old", born, age)
		}
	})

	t.Run("too many", func(t *testing.T) {
		j := startJob(t)
		const excess = 9
		j.order("fork", MaxMembers-1+excess)
		for range 2 {
			j.scan(0)
			if n := len(j.Members()); n != MaxMembers || j.LeftOut() != excess {
				t.Errorf("%d members, %d left out", n, j.LeftOut())
			}
		}

		for _, m := range j.Members()[1 : excess+1] {
			j.order("end", m.Process.PID)
		}
		for range scansPerFullScan {
			j.scan(0)
		}
		if n := len(j.Members()); n != MaxMembers || j.LeftOut() != 0 {
			t.Errorf("in the end %d members, %d left out", n, j.LeftOut())
		}
	})

	// Processes come and go all the time while the tree is read.
	t.Run("many short-lived processes", func(t *testing.T) {
		const script = "echo ready; while :; do (/bin/true & /bin/true) ; done"
		j := start(t, exec.Command("/bin/sh", "-c", script))
		var found int
		for i := range 300 {
			elapsed := time.Duration(i) * time.Second
			found += len(j.scan(elapsed).New)
			for _, s := range j.Sample(elapsed).Processes {
				if s.RSS == 0 && s.Virtual == 0 {
					t.Fatalf("zeros: %+v", s)
				}
			}
			SelectTraced(j.Candidates(nothingTraced))
		}
		if found < 3 {
			t.Errorf("%d processes found", found)
		}
	})
}

func TestExecuted(t *testing.T) {
	t.Run("in place", func(t *testing.T) {
		script := "echo ready; read line; exec " + program(t)
		j := start(t, exec.Command("/bin/sh", "-c", script))
		member := j.scan(0).New[0]
		if member.Info.Role != growth.RoleLauncher {
			t.Errorf("%+v before", member.Info)
		}

		j.Say("go")
		j.Await("ready")
		mustBe(t, "executed", pidsOf(j.scan(9*time.Second).Executed), j.PID())
		after := member.Info
		isTrainer := after.Role == growth.RoleTrainer && after.Command == "tree"
		if !isTrainer || after.Born != 9*time.Second {
			t.Errorf("%+v after", after)
		}
		if again := j.scan(0); len(again.Executed)+len(again.New)+len(again.Exited) != 0 {
			t.Errorf("then %+v", again)
		}
	})

	// While the kernel unmaps a large process, the process exists and has no program.
	t.Run("exiting", func(t *testing.T) {
		j := startJob(t)
		j.order("grow", 1000)
		j.scan(0)
		tracertest.NoError(t, unix.Kill(j.PID(), unix.SIGKILL))
		wasExiting := false
		j.await("it has exited", func(changes Changes) bool {
			if len(changes.Executed) > 0 {
				t.Fatalf("it has executed %q", changes.Executed[0].Info.Command)
			}
			stat, err := process.ReadStat(j.PID())
			wasExiting = wasExiting || err == nil && stat.Image.IsZero()
			return len(changes.Exited) > 0
		})
		if !wasExiting {
			t.Error("no scan saw it exiting: the test is wrong")
		}
	})
}

func TestHostileCommandLine(t *testing.T) {
	command := exec.Command(program(t))
	command.Args = []string{"\x1b]0;x\x07\nfamily", "a\xff\nb", strings.Repeat("\x1b[31m", 20<<10)}
	for range 10 { // 1 MB
		command.Args = append(command.Args, strings.Repeat("x", 100<<10))
	}
	command.Env = []string{"RANK=\xff1\n", "LOCAL_RANK"}

	j := start(t, command)
	info := j.scan(0).New[0].Info
	var size int
	for _, argument := range info.Arguments {
		size += len(argument) + 1
		if argument != growth.Printable(argument) {
			t.Errorf("%.50q is not printable", argument)
		}
	}
	isTrainer := info.Role == growth.RoleTrainer && info.Rank == growth.Unknown
	if size < 60<<10 || size > 70<<10 || !isTrainer {
		t.Errorf("%d bytes of arguments, %s, rank %d", size, info.Role, info.Rank)
	}
}

func TestRelate(t *testing.T) {
	tree := New(nil, true, nil)
	tree.byPID[100] = &Member{}
	tree.others = map[int]relation{0: unrelated, 5: leftOut}
	parents := map[int]int{
		1: 0, 2: 0, 30: 1, // of the machine
		101: 100, 90: 101, 80: 90, 70: 80, // PIDs have wrapped around
		6: 5, 102: 100, // below one that was left out; a zombie
		200: 999, 201: 200, // the parent was not listed
		300: 300, // impossible
	}
	unknown := make(map[int]process.Stat)
	for pid, parent := range parents {
		unknown[pid] = process.Stat{Parent: parent, State: 'S'}
	}
	unknown[102] = process.Stat{Parent: 100, State: 'Z'}

	var got []int
	for _, n := range tree.relate(unknown) {
		got = append(got, n.pid)
		parent := n.stat.Parent
		if parent < 100 && parent != 5 && len(got) > 1 && !slices.Contains(got, parent) {
			t.Errorf("%d comes before its parent", n.pid)
		}
	}
	mustBe(t, "inside", got, 6, 70, 80, 90, 101)
	for pid, want := range map[int]relation{
		1: unrelated, 2: unrelated, 30: unrelated, 102: zombie, 200: 0, 201: 0, 300: 0, 70: 0,
	} {
		if tree.others[pid] != want {
			t.Errorf("relation of %d is %d, want %d", pid, tree.others[pid], want)
		}
	}
}
