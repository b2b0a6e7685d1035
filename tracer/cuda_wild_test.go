package tracer_test

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// lossOf is how often something was lost whose reason begins so.
func lossOf(t testing.TB, s *tracer.Session, reason string) (n uint64) {
	t.Helper()
	_, losses, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range losses {
		if strings.HasPrefix(l.Reason, reason) {
			n += l.Count
		}
	}
	return n
}

// A program may call whatever it likes by the driver's names, with whatever arguments.
func TestArgumentsOfWhichNothingIsTrueDoNoHarm(t *testing.T) {
	t.Parallel()
	target := tracertest.Start(t, tracertest.Build(t, "wild.c", "-DPROGRAM"), tracertest.BuildLibrary(t, "wild.c", "libcuda.so.1"))
	target.Await("ready")
	g := gpuProgram{target, t}
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	if said := sourceOf(t, s, "cuda"); !said.Attached || !strings.Contains(strings.Join(said.Details, "\n"), "cuMemAllocAsync is not in this driver") {
		t.Errorf("%+v", said)
	}

	g.do("unreadable 5")
	mustAmount(t, "held", heldByCaller(snapshot(t, s)), amounts{})
	if n := lossOf(t, s, "results of allocations that could not be read"); n != 5 {
		t.Errorf("%d results could not be read, want 5", n)
	}
	g.do("properties 3")
	if got := sumOfKind(snapshot(t, s), growth.KindCudaSegment); got != [2]int64{3, 3 * 2 * mib} {
		t.Errorf("%d are held, want 3 on a GPU that is not known", got)
	}
	g.do("twice 4")
	if got, n := sumOfKind(snapshot(t, s), growth.KindCudaSegment), lossOf(t, s, "addresses handed out again"); got != [2]int64{4, 3*2*mib + 100} || n != 3 {
		t.Errorf("%d are held, and %d handed out twice, want 4 and 3", got, n)
	}
	for _, orders := range []string{"huge 1", "map 50", "huge 20"} {
		g.do(orders)
		for _, h := range onDevices(balanced(t, s)) {
			if h.InuseBytes < 0 || h.AllocBytes < 0 || h.InuseObjects < 0 || h.Variance < 0 {
				t.Errorf("%s: %s holds %d bytes, has allocated %g", orders, holderIn(h.Stack, "h"), h.InuseBytes, h.AllocBytes)
			}
		}
		if sample := s.Sample().Processes[0]; sample.CudaDriver <= 0 || sample.Pinned <= 0 {
			t.Errorf("%s: %d bytes on GPUs, %d pinned", orders, sample.CudaDriver, sample.Pinned)
		}
	}
}
