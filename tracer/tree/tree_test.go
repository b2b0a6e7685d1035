package tree

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

func mustBe(t *testing.T, what string, got, want []int) {
	t.Helper()
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestChildrenAreFoundWhenTheyComeAndGo(t *testing.T) {
	f := startFamily(t)
	mustBe(t, "at first", pidsOf(f.scan(0).New), []int{f.PID()})
	children := f.order("fork 3")
	mustBe(t, "new", pidsOf(f.scan(0).New), children)
	quiet := f.scan(0)
	if len(quiet.New)+len(quiet.Gone)+len(quiet.Executed) != 0 {
		t.Errorf("nothing has happened, but %+v", quiet)
	}
	f.order(fmt.Sprint("end ", children[1]))
	changes := f.scan(0)
	mustBe(t, "gone", pidsOf(changes.Gone), children[1:2])
	mustBe(t, "new", pidsOf(changes.New), nil)
	mustBe(t, "left", pidsOf(f.Members()), []int{f.PID(), children[0], children[2]})
	if changes.Gone[0].Process.Alive() {
		t.Error("what is gone is alive")
	}
}

func TestWithoutChildrenTheRootIsAlone(t *testing.T) {
	f := startFamily(t)
	f.children = false
	f.order("fork 3")
	mustBe(t, "members", pidsOf(f.scan(0).New), []int{f.PID()})
}

func TestAChainOfProcessesIsFoundAtOnce(t *testing.T) {
	f := startFamily(t)
	chain := f.order("deep 32")
	changes := f.scan(0)
	if got, want := pidsOf(changes.New), append([]int{f.PID()}, chain...); !slices.Equal(got, want) {
		t.Errorf("%v, want %v: parents before children", got, want)
	}
	for i, m := range changes.New[1:] {
		if want := changes.New[i].Process.PID; m.Facts.Parent != want {
			t.Errorf("the parent of %d is %d, want %d", m.Facts.PID, m.Facts.Parent, want)
		}
	}
}

func TestAnOrphanStaysAMember(t *testing.T) {
	f := startFamily(t)
	chain := f.order("deep 3")
	f.scan(0)
	f.order(fmt.Sprint("end ", chain[0]))
	mustBe(t, "gone", pidsOf(f.scan(0).Gone), chain[:1])
	f.scan(0)
	mustBe(t, "members", pidsOf(f.Members()), []int{f.PID(), chain[1], chain[2]})
	stat, err := process.ReadStat(chain[1])
	if err != nil || stat.Parent == chain[0] {
		t.Fatalf("parent %d, %v: it is no orphan, the test is wrong", stat.Parent, err)
	}
	if orphan := f.Members()[1]; orphan.Facts.Parent != chain[0] || orphan.Facts.Role != growth.RoleLoaderWorker {
		t.Errorf("%+v", orphan.Facts)
	}
}

// A process whose parent was born and had gone between two scans is somebody else's child by then.
func TestAStrangersChildIsNoMember(t *testing.T) {
	f := startFamily(t)
	f.scan(0)
	chain := f.order("deep 2")
	f.order(fmt.Sprint("end ", chain[0]))
	f.scan(0)
	mustBe(t, "members", pidsOf(f.Members()), []int{f.PID()})
	other := startFamily(t)
	other.order("fork 2")
	f.scan(0)
	mustBe(t, "members", pidsOf(f.Members()), []int{f.PID()})
}

func TestAChildThatIsRestartedIsAnotherMember(t *testing.T) {
	f := startFamily(t)
	first := f.order("run cat")[0]
	f.await("the first one", func(Changes) bool { return f.role(first) == growth.RoleOther })
	f.order(fmt.Sprint("end ", first))
	second := f.order("run cat")[0]
	changes := f.scan(7 * time.Second)
	mustBe(t, "gone", pidsOf(changes.Gone), []int{first})
	mustBe(t, "new", pidsOf(changes.New), []int{second})
	if born := changes.New[0].Facts.Born; born > 7*time.Second || born < 0 {
		t.Errorf("born at %v", born)
	}
}

func TestAnExecutionInPlaceIsSeen(t *testing.T) {
	f := start(t, exec.Command("/bin/sh", "-c", "echo ready; read line; exec "+program(t)))
	before := f.scan(0).New[0]
	if before.Facts.Role != growth.RoleLauncher {
		t.Errorf("%+v before", before.Facts)
	}
	f.Say("go")
	f.Await("ready")
	changes := f.scan(9 * time.Second)
	mustBe(t, "executed", pidsOf(changes.Executed), []int{f.PID()})
	if after := before.Facts; after.Role != growth.RoleTrainer || after.Command != "family" || after.Born != 9*time.Second {
		t.Errorf("%+v after", after)
	}
	if again := f.scan(0); len(again.Executed)+len(again.New)+len(again.Gone) != 0 {
		t.Errorf("then %+v", again)
	}
}

// While the memory of a large process is taken down, it is still there and has no program.
func TestALargeProcessThatIsEndingExecutesNothing(t *testing.T) {
	f := startFamily(t)
	f.order("grow 1000")
	f.scan(0)
	if err := unix.Kill(f.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ending := false
	f.await("it has gone", func(changes Changes) bool {
		if len(changes.Executed) > 0 {
			t.Fatalf("it has executed %q", changes.Executed[0].Facts.Command)
		}
		stat, err := process.ReadStat(f.PID())
		ending = ending || err == nil && stat.Image.HasEnded()
		return len(changes.Gone) > 0
	})
	if !ending {
		t.Error("it was not seen ending: the test is wrong")
	}
}

func TestBornIsRelativeToTheTrace(t *testing.T) {
	f := startFamily(t)
	stat, err := f.root.Stat()
	age := stat.Age()
	if err != nil {
		t.Fatal(err)
	}
	born := f.scan(time.Hour).New[0].Facts.Born
	if later := stat.Age(); born > time.Hour-age || born < time.Hour-later {
		t.Errorf("born %v, one hour into the trace, %v old; %v", born, age, err)
	}
}

func TestTheRootsEndIsSeenAndItsChildrenStay(t *testing.T) {
	f := start(t, exec.Command("/bin/sh", "-c", program(t)+"; :"))
	f.scan(0)
	child := f.Members()[1]
	f.Process.Kill()
	awaitEnd(t, f.PID())
	mustBe(t, "gone", pidsOf(f.scan(0).Gone), []int{f.PID()})
	mustBe(t, "members", pidsOf(f.Members()), []int{child.Process.PID})
	if moment := f.Sample(0); len(moment.Processes) != 1 || moment.Around.Available <= 0 {
		t.Errorf("%+v", moment)
	}
}

// awaitEnd waits for a child to end, and leaves it so.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

func TestForeignWordsAreMadePrintableAndCut(t *testing.T) {
	f := startFamily(t)
	f.scan(0)
	hostile := exec.Command(program(t))
	hostile.Args = []string{"\x1b]0;x\x07\nfamily", "a\xff\nb", strings.Repeat("\x1b[31m", 20<<10)}
	for range 10 { // 1 MB
		hostile.Args = append(hostile.Args, strings.Repeat("x", 100<<10))
	}
	hostile.Env = []string{"RANK=\xff1\n", "LOCAL_RANK"}
	g := start(t, hostile)
	facts := g.scan(0).New[0].Facts
	var size int
	for _, argument := range facts.Arguments {
		size += len(argument) + 1
		if argument != process.Printable(argument) {
			t.Errorf("%.50q is not printable", argument)
		}
	}
	if size < 60<<10 || size > 70<<10 || facts.Role != growth.RoleTrainer || facts.Rank != growth.Unknown {
		t.Errorf("%d bytes of arguments, %s, rank %d", size, facts.Role, facts.Rank)
	}
	if g.order("grow 1"); len(Focus(g.Candidates(none)).Reason) > 1000 {
		t.Error("the reason quotes all of it")
	}
}

func TestRanksAreReadFromTheEnvironment(t *testing.T) {
	command := exec.Command(program(t))
	command.Env = []string{"X=1", "RANK=3", "WORLD_SIZE=4"}
	if facts := start(t, command).scan(0).New[0].Facts; facts.Role != growth.RoleRank || facts.Rank != 3 {
		t.Errorf("%+v", facts)
	}
}

func TestTheTreeIsBounded(t *testing.T) {
	f := startFamily(t)
	const more = 9
	f.order(fmt.Sprint("fork ", MaxMembers-1+more))
	f.scan(0)
	if n := len(f.Members()); n != MaxMembers || f.LeftOut() != more {
		t.Errorf("%d members, %d left out", n, f.LeftOut())
	}
	if f.scan(0); f.LeftOut() != more {
		t.Errorf("then %d left out", f.LeftOut())
	}
	for _, m := range f.Members()[1 : more+1] {
		f.order(fmt.Sprint("end ", m.Process.PID))
	}
	for range relook {
		f.scan(0)
	}
	if n := len(f.Members()); n != MaxMembers || f.LeftOut() != 0 {
		t.Errorf("in the end %d members, %d left out", n, f.LeftOut())
	}
}

func TestZombiesAreNoMembers(t *testing.T) {
	f := startFamily(t)
	ended := f.order("run true")[0]
	f.await("its end", func(Changes) bool {
		stat, err := process.ReadStat(ended)
		return err == nil && stat.State == 'Z'
	})
	fresh := newTree(t, f.PID())
	if _, err := fresh.Scan(0); err != nil || len(fresh.Members()) != 1 || fresh.LeftOut() != 0 {
		t.Errorf("%v, %d left out, %v", pidsOf(fresh.Members()), fresh.LeftOut(), err)
	}
}

// Processes come and go all the time while the tree is read.
func TestAStormOfShortLivedProcessesIsSurvived(t *testing.T) {
	storm := exec.Command("/bin/sh", "-c", "echo ready; while :; do (/bin/true & /bin/true) ; done")
	f := start(t, storm)
	var seen int
	for i := range 300 {
		changes := f.scan(time.Duration(i) * time.Second)
		seen += len(changes.New)
		for _, s := range f.Sample(time.Duration(i) * time.Second).Processes {
			if s.RSS == 0 && s.Virtual == 0 {
				t.Fatalf("zeros: %+v", s)
			}
		}
		Focus(f.Candidates(none))
	}
	if seen < 3 {
		t.Errorf("%d processes seen", seen)
	}
}

func TestThoseThatAreGoneAreClosed(t *testing.T) {
	f := startFamily(t)
	children := f.order("fork 2")
	f.scan(0)
	for _, pid := range children {
		f.order(fmt.Sprint("end ", pid))
	}
	before := descriptors(t)
	f.scan(0)
	if closed := before - descriptors(t); closed != 4 {
		t.Errorf("%d descriptors were closed, want two of each", closed)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
