package tree

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
)

func census(t *testing.T) Census {
	t.Helper()
	census, err := TakeCensus()
	if err != nil {
		t.Fatal(err)
	}
	return census
}

func TestTheOutsiderThatGrowsIsNamed(t *testing.T) {
	member, outsider := startFamily(t), startFamily(t)
	before := census(t)
	member.order("grow 300")
	outsider.order("grow 200")
	young := start(t, exec.Command(program(t), "young"))
	young.order("grow 100")
	after := census(t)

	grown := before.Grown(after, func(pid int) bool { return pid == member.PID() }, 10)
	if len(grown) < 2 || len(grown) > 10 {
		t.Fatalf("%+v", grown)
	}
	find := func(pid int) Outsider {
		if i := slices.IndexFunc(grown, func(o Outsider) bool { return o.PID == pid }); i >= 0 {
			return grown[i]
		}
		return Outsider{}
	}
	if o := find(outsider.PID()); o.Growth < 200<<20 || o.Growth > 201<<20 || o.Command != "family" {
		t.Errorf("%+v", grown)
	}
	if o := find(young.PID()); o.Growth < 100<<20 || o.Growth > 102<<20 || o.Command != "family young" {
		t.Errorf("%+v", grown)
	}
	if find(member.PID()) != (Outsider{}) || find(os.Getpid()) != (Outsider{}) {
		t.Errorf("%+v", grown)
	}
	if one := before.Grown(after, func(pid int) bool { return pid != young.PID() }, 1); len(one) != 1 || one[0].PID != young.PID() {
		t.Errorf("%+v", one)
	}
}

func TestAPIDThatWasUsedAgainIsAnotherProcess(t *testing.T) {
	const none = 1 << 22 // no PID is as large
	before, after := Census{none: {1, 1000}, none + 1: {1, 500}}, Census{none: {2, 900}, none + 1: {1, 600}, none + 2: {3, 50}}
	got := before.Grown(after, func(int) bool { return false }, 2)
	want := []Outsider{{PID: none, Command: "?", Growth: 900}, {PID: none + 1, Command: "?", Growth: 100}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What statm says of private memory is what status says, to the few pages that the kernel counts apart for each processor.
func TestACensusSaysWhatStatusSays(t *testing.T) {
	f := startFamily(t)
	f.order("grow 50")
	stat, err := process.ReadStat(f.PID())
	if err != nil {
		t.Fatal(err)
	}
	status, err := f.root.Status()
	got := census(t)[f.PID()]
	if err != nil || got.start != stat.Start || got.bytes < status.Anonymous-1<<20 || got.bytes > status.Anonymous+1<<20 {
		t.Errorf("%+v; status says %d, %v", got, status.Anonymous, err)
	}
}

func BenchmarkCensus(b *testing.B) {
	for b.Loop() {
		if _, err := TakeCensus(); err != nil {
			b.Fatal(err)
		}
	}
}
