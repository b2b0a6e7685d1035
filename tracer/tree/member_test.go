package tree

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

func TestMembersThatVanishLeaveGapsAndNoZeros(t *testing.T) {
	f := startFamily(t)
	child := f.order("fork 1")[0]
	f.scan(0)
	f.order(fmt.Sprint("end ", child))
	moment := f.Sample(5 * time.Second)
	if len(moment.Processes) != 2 || moment.Elapsed != 5*time.Second {
		t.Fatalf("%+v", moment)
	}
	want := growth.UnknownSample()
	want.Elapsed = 5 * time.Second
	if got := moment.Processes[1]; got.PID != int64(child) || got.Sample != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestASampleHasWhatTheKernelSays(t *testing.T) {
	f := startFamily(t)
	f.order("fork 2")
	f.order("grow 64")
	f.scan(0)
	moment := f.Sample(time.Second)
	root := moment.Processes[0]
	status, err := f.root.Status()
	if err != nil || root.RSS != status.RSS || root.Anonymous != status.Anonymous || root.Anonymous < 64<<20 || root.Threads != 1 {
		t.Errorf("%+v, want %+v, %v", root, status, err)
	}
	if root.Private < 64<<20 || root.PSS < root.Private || root.PSS > root.RSS {
		t.Errorf("PSS %d, private %d, resident %d: the root is read at once", root.PSS, root.Private, root.RSS)
	}
	var read int
	for second := 2; second < 100; second++ {
		for _, s := range f.Sample(time.Duration(second) * time.Second).Processes[1:] {
			if s.PSS != growth.Unknown {
				read++
			}
		}
	}
	if read < 10 {
		t.Errorf("the children's PSS was read %d times in 98 s", read)
	}
}

func TestOnlyTheLastSecondsCountAsGrowth(t *testing.T) {
	f := startFamily(t)
	f.scan(0)
	f.Sample(0)
	f.order("grow 20")
	for second := range 60 {
		f.Sample(time.Duration(second) * time.Second)
	}
	if c := f.Candidates(none)[0]; c.grown() != 0 || c.Private < 20<<20 {
		t.Errorf("grown by %d to %d", c.grown(), c.Private)
	}
	if n := len(f.Members()[0].readings); n > 12 {
		t.Errorf("%d readings are kept", n)
	}
}

// The price of one second of a tree of thirty, in milliseconds: that of looking for its processes, and that of sampling them.
func BenchmarkThirtyProcesses(b *testing.B) {
	f := start(b, exec.Command(program(b)))
	f.order("grow 100")
	f.order("fork 29")
	f.scan(0)
	var scans, samples time.Duration
	var second int
	for b.Loop() {
		second++
		scans += process.ProcessorTime(func() { f.scan(time.Duration(second) * time.Second) })
		samples += process.ProcessorTime(func() { f.Sample(time.Duration(second) * time.Second) })
	}
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(second) }
	b.ReportMetric(milliseconds(scans), "ms/scan")
	b.ReportMetric(milliseconds(samples), "ms/sample")
}
