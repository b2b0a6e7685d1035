package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func mustNotKnowTensors(t *testing.T, s *tracer.Session) {
	t.Helper()
	if count, bytes := tensorsOf(s); count != growth.Unknown || bytes != growth.Unknown {
		t.Errorf("%d tensors of %d bytes, want them unknown", count, bytes)
	}
}

// awaitTensors waits until the session knows of tensors: libraries that are loaded are found in the background.
func awaitTensors(s *tracer.Session) {
	for count := int64(growth.Unknown); count == growth.Unknown; count, _ = tensorsOf(s) {
		time.Sleep(10 * time.Millisecond)
	}
}

func TestTensorsAreWatchedFromWhenTorchIsImported(t *testing.T) {
	h := startTensors(t, "late")
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Sources: []string{"tensor"}})
	mustNotKnowTensors(t, s)
	if said := sourceOf(t, s, "tensor"); said.Attached || !strings.Contains(said.Reason, "no library that exports c10::alloc_cpu") {
		t.Errorf("before the import: %+v", said)
	}
	h.do("import")
	awaitTensors(s)
	h.do("age", "keep 300 1234", "churn 10 1234", "forget")
	mustHoldTensors(t, s, h)
	if said := sourceOf(t, s, "tensor"); !said.Attached || said.Reason != "" || !strings.Contains(said.Details[0], "c10::free_cpu in /") {
		t.Errorf("after the import: %+v", said)
	}
}

// What was freed while nobody looked is not known afterwards.
func TestWhoHasNotWatchedAllTheTimeKnowsNoTotals(t *testing.T) {
	h := startTensors(t)
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1})
	h.do("keep 10 1000")
	mustHoldTensors(t, s, h)
	if err := s.OpenTensors(); err != nil { // it is open
		t.Fatal(err)
	}
	mustHoldTensors(t, s, h)
	for range 2 {
		if err := s.CloseTensors(); err != nil {
			t.Fatal(err)
		}
		if links := s.TensorLinks(); len(links) > 0 {
			t.Errorf("%d links are left", len(links))
		}
		mustNotKnowTensors(t, s)
	}
	before := s.Counted(bpf.CountTensorEntries)
	h.do("keep 10 1000")
	if after := s.Counted(bpf.CountTensorEntries); after != before {
		t.Errorf("%d calls were seen by closed probes", after-before)
	}
	if err := s.OpenTensors(); err != nil {
		t.Fatal(err)
	}
	h.do("fill 20 1000")
	mustNotKnowTensors(t, s)
	if got := ofTensors(snapshot(t, s))[fmt.Sprintf("heap c10::alloc_cpu Holder.order_fill:%d", lineWith(t, "fills"))]; got != [2]int64{20, 20_000} {
		t.Errorf("after the second opening %d are held, want 20 of 20000 bytes", got)
	}
}

// A program that waits for its baseline holds its probes back.
func TestAProbeThatIsHeldAttachesWhenItIsOpened(t *testing.T) {
	h := startTensors(t)
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Sources: []string{"mapping", "fault"}})
	p, err := tracer.HeldTensors(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name    string
		do      func() error
		watches bool
	}{{"found", p.Update, false}, {"opened", p.Open, true}, {"shut down", p.Shutdown, false}, {"opened again", p.Open, false}, {"shut down again", p.Shutdown, false}} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if p.Watches() != step.watches || !p.Source().Attached {
			t.Errorf("%s: it watches: %t; %+v", step.name, p.Watches(), p.Source())
		}
	}
}

func TestNothingOfTensorsIsLeftInTheKernel(t *testing.T) {
	h, other := startTensors(t), startTensors(t)
	s := open(t, tracer.Options{PID: other.PID(), Interval: 1, Sources: []string{"tensor"}})
	if err := s.Attach(h.PID()); err != nil {
		t.Fatal(err)
	}
	h.do("keep 30 100")
	other.do("keep 7 100")
	if n := entries(t, s, h.PID())["tensors"]; n != 30 {
		t.Errorf("the kernel has %d tensors, want 30", n)
	}
	mustHoldTensors(t, s, other)
	if err := s.Detach(h.PID()); err != nil {
		t.Fatal(err)
	}
	if left := entries(t, s, h.PID()); len(left) != 0 {
		t.Errorf("the kernel still has %v", left)
	}
	mustHoldTensors(t, s, other)
}

func TestAProgramWithoutTorchHasNoSourceTensor(t *testing.T) {
	target := startStepper(t)
	s := open(t, tracer.Options{PID: target.PID()})
	for _, said := range s.Sources() {
		if said.Name == "tensor" {
			t.Errorf("%+v", said)
		}
	}
	mustNotKnowTensors(t, s)
}

// copied gives a copy of a library under another name.
func copied(t *testing.T, library, name string) string {
	t.Helper()
	content, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheFunctionsAreFoundInWhicheverLibrariesHaveThem(t *testing.T) {
	usual := tracertest.Build(t, "c10.cc", "-shared", "-fPIC")
	others := tracertest.Build(t, "c10.cc", "-shared", "-fPIC", "-DPARAMETERS")
	without := tracertest.Build(t, "c10.cc", "-shared", "-fPIC", "-DWITHOUT")
	target := tracertest.StartCommand(t, exec.Command(python, tracertest.Source("tensors.py"), "late"))
	h := tensorHolder{target, t}
	h.Await("ready")
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1})
	h.do("library " + without + " 5 100")
	for !strings.Contains(s.TensorSource().Reason, "find c10::free_cpu in "+without+": it exports no c10::alloc_cpu and c10::free_cpu") {
		time.Sleep(10 * time.Millisecond)
	}
	if said := sourceOf(t, s, "tensor"); said.Attached {
		t.Errorf("%+v", said)
	}
	var want int64
	for _, library := range []string{usual, others, copied(t, usual, "libtorch_all.so"), copied(t, others, "libc10.so.2")} {
		before := len(s.TensorLinks())
		h.do("library " + library + " 0 0")
		for len(s.TensorLinks()) == before {
			time.Sleep(10 * time.Millisecond)
		}
		h.do("library " + library + " 100 5000")
		want += 100
		if count, bytes := tensorsOf(s); count != want || bytes != 5000*want {
			t.Errorf("%s: %d tensors of %d bytes, want %d of 5000", library, count, bytes, want)
		}
	}
	if said := sourceOf(t, s, "tensor"); !said.Attached || said.Reason != "" || len(said.Details) != 8+2 {
		t.Errorf("%+v", said)
	}
	_, losses, err := s.Counters()
	for _, l := range losses {
		if !strings.HasPrefix(l.Reason, "stacks cut") { // as they are in code that has just been loaded
			t.Errorf("lost: %d %s", l.Count, l.Reason)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
