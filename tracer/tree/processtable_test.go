package tree

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/reexec"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func readTable(t *testing.T) ProcessTable {
	t.Helper()
	return tracertest.Must(ReadProcessTable())(t)
}

// The oracle is status, up to the few pages that the kernel counts apart for each CPU.
func TestReadProcessTable(t *testing.T) {
	j := startJob(t)
	j.order("grow", 50)
	stat := tracertest.Must(process.ReadStat(j.PID()))(t)
	status, err := j.root.Status()
	got := readTable(t)[j.PID()]
	difference := got.private - status.Anonymous
	if err != nil || got.start != stat.Start || difference < -1<<20 || difference > 1<<20 {
		t.Errorf("%+v; status shows %d, %v", got, status.Anonymous, err)
	}
}

const ownName = "allocscope-test-own"

func init() {
	reexec.Register(ownName, func([]string) (status int) {
		_, _ = os.Stdin.Read(make([]byte, 1))
		return 0
	})
}

// TestIsOwn has a child process of allocscope, and a process that it has started.
func TestIsOwn(t *testing.T) {
	own := tracertest.StartCommand(t, &exec.Cmd{Path: reexec.Executable, Args: []string{ownName}})
	job := startJob(t)
	for pid, want := range map[int]bool{
		os.Getpid(): true, own.PID(): true, job.PID(): false, os.Getppid(): false,
	} {
		if got := isOwn(pid); got != want {
			t.Errorf("PID %d: %t, want %t", pid, got, want)
		}
	}
}

func TestTopGrowers(t *testing.T) {
	t.Run("real processes", func(t *testing.T) {
		member, old := startJob(t), startJob(t)
		var census Census
		census.Update(0, func() {})
		member.order("grow", 300)
		old.order("grow", 200)
		young := start(t, exec.Command(program(t), "young"))
		census.Update(time.Hour, func() {})
		young.order("grow", 100)
		after := readTable(t)
		growers := func(matters func(pid int) bool, limit int) []growth.OtherProcess {
			return census.TopGrowers(after, 2*time.Hour, matters, limit)
		}

		ours := []int{old.PID(), young.PID()} // others of this machine may grow by more
		grown := growers(func(pid int) bool { return slices.Contains(ours, pid) }, 10)
		find := func(pid int) growth.OtherProcess {
			i := slices.IndexFunc(grown, func(o growth.OtherProcess) bool { return o.PID == pid })
			if i < 0 {
				return growth.OtherProcess{}
			}
			return grown[i]
		}
		o := find(old.PID())
		if o.Growth < 200<<20 || o.Growth > 201<<20 || o.Command != "tree" {
			t.Errorf("%+v", grown)
		}
		o = find(young.PID())
		if o.Growth < 100<<20 || o.Growth > 102<<20 || o.Command != "tree young" {
			t.Errorf("%+v", grown)
		}
		if len(grown) != len(ours) {
			t.Errorf("%+v", grown)
		}
		all := growers(func(pid int) bool { return pid != member.PID() }, 10)
		if len(all) > 10 || slices.ContainsFunc(all,
			func(o growth.OtherProcess) bool { return o.PID == member.PID() || o.PID == os.Getpid() }) {
			t.Errorf("%+v", all)
		}

		one := growers(func(pid int) bool { return pid == young.PID() }, 1)
		if len(one) != 1 || one[0].PID != young.PID() {
			t.Errorf("%+v", one)
		}
	})

	t.Run("reused PID", func(t *testing.T) {
		const pid = 1 << 22 // beyond the largest PID
		c := Census{tables: []timedTable{
			{ProcessTable{pid: {1, 1000, 0, 1}, pid + 1: {1, 500, 0, 1}}, 0},
			{ProcessTable{pid: {2, 300, 0, 1}, pid + 1: {1, 550, 0, 1}}, 60 * time.Second},
		}}
		after := ProcessTable{pid: {2, 900, 0, 1}, pid + 1: {1, 600, 0, 1}, pid + 2: {3, 50, 0, 1}}
		got := c.TopGrowers(after, 2*time.Minute, func(int) bool { return true }, 2)
		want := []growth.OtherProcess{
			{PID: pid, Command: "?", Growth: 600, Since: 60}, {PID: pid + 1, Command: "?", Growth: 100},
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestLastingRate has the private memory of a process in MiB at tables 20 s apart.
func TestLastingRate(t *testing.T) {
	for name, c := range map[string]struct {
		mib  []int64
		want float64 // bytes per second
	}{
		"steady":               {[]int64{0, 10, 20, 30, 40, 50, 60}, .5 * mib},
		"after a fast start":   {[]int64{0, 300, 310, 320, 330, 340, 350}, .5 * mib},
		"a jump":               {[]int64{5, 5, 5, 500, 500, 500, 500}, 0},
		"slows down and stops": {[]int64{0, 40, 60, 70, 75, 75, 75}, 0},
		"shrinks":              {[]int64{60, 50, 40, 30, 20, 10, 0}, 0},
		"too short":            {[]int64{0, 10, 20}, 0},
	} {
		var tables []timedTable
		for i, private := range c.mib {
			tables = append(tables, timedTable{
				ProcessTable{5: {private: private * mib}}, time.Duration(i) * tablePeriod,
			})
		}
		if got := lastingRate(5, tables); got != c.want {
			t.Errorf("%s: %v bytes/s, want %v", name, got, c.want)
		}
	}
}

func TestCensusIsBounded(t *testing.T) {
	var c Census
	for i := range 10 * maxTables {
		c.add(timedTable{ProcessTable{}, time.Duration(i)})
	}
	if n := len(c.tables); n > maxTables+1 || c.tables[0].elapsed != 0 ||
		c.tables[n-1].elapsed != 10*maxTables-1 {
		t.Errorf("%d tables from %d to %d", n, c.tables[0].elapsed, c.tables[n-1].elapsed)
	}
}
