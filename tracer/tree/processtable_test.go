package tree

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
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
	difference := got.bytes - status.Anonymous
	if err != nil || got.start != stat.Start || difference < -1<<20 || difference > 1<<20 {
		t.Errorf("%+v; status shows %d, %v", got, status.Anonymous, err)
	}
}

func TestTopGrowers(t *testing.T) {
	t.Run("real processes", func(t *testing.T) {
		member, old := startJob(t), startJob(t)
		before := readTable(t)
		member.order("grow", 300)
		old.order("grow", 200)
		young := start(t, exec.Command(program(t), "young"))
		young.order("grow", 100)
		after := readTable(t)

		ours := []int{old.PID(), young.PID()} // others of this machine may grow by more
		grown := before.TopGrowers(after, func(pid int) bool { return slices.Contains(ours, pid) }, 10)
		find := func(pid int) OtherProcess {
			i := slices.IndexFunc(grown, func(o OtherProcess) bool { return o.PID == pid })
			if i < 0 {
				return OtherProcess{}
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
		all := before.TopGrowers(after, func(pid int) bool { return pid != member.PID() }, 10)
		if len(all) > 10 || slices.ContainsFunc(all,
			func(o OtherProcess) bool { return o.PID == member.PID() || o.PID == os.Getpid() }) {
			t.Errorf("%+v", all)
		}

		one := before.TopGrowers(after, func(pid int) bool { return pid == young.PID() }, 1)
		if len(one) != 1 || one[0].PID != young.PID() {
			t.Errorf("%+v", one)
		}
	})

	t.Run("reused PID", func(t *testing.T) {
		const pid = 1 << 22 // beyond the largest PID
		before := ProcessTable{pid: {1, 1000, 1}, pid + 1: {1, 500, 1}}
		after := ProcessTable{pid: {2, 900, 1}, pid + 1: {1, 600, 1}, pid + 2: {3, 50, 1}}
		got := before.TopGrowers(after, func(int) bool { return true }, 2)
		want := []OtherProcess{{pid, "?", 900}, {pid + 1, "?", 100}}
		if !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
