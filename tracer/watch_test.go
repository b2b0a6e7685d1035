package tracer_test

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// startWindows runs a program that allocates on command, and traces it in windows, of which none is open yet. Tests of windows are
// not parallel: a program that another test starts inherits the probes of the last window until it is executed, and an allocation at
// which two windows have probes seems to be two.
func startWindows(t *testing.T) (*tracertest.Target, *tracer.Session) {
	t.Helper()
	target := tracertest.Start(t, tracertest.Build(t, "windows.c"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	s.Mature(time.Nanosecond)
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
	return target, s
}

// within carries out orders in one window.
func within(t *testing.T, target *tracertest.Target, s *tracer.Session, orders ...string) {
	t.Helper()
	if err := s.OpenWindow(1); err != nil {
		t.Fatal(err)
	}
	carryOut(target, orders...)
	if err := s.CloseHeap(); err != nil {
		t.Fatal(err)
	}
}

func carryOut(target *tracertest.Target, orders ...string) {
	for _, order := range orders {
		target.Say(order)
		target.Await("done")
	}
}

// mustStand fails unless what a function holds stands for so many objects of that size, each as often as the factor says.
func mustStand(t *testing.T, s *growth.Snapshot, function string, objects, size int64, factor float64) {
	t.Helper()
	got := held(s)[function]
	want := factor * float64(objects)
	if math.Abs(float64(got[0])-want) > 2 || math.Abs(float64(got[1])-want*float64(size)) > 0.5*float64(objects)+1 {
		t.Errorf("%s holds %d objects of %d bytes in all, want %.1f of %d each", function, got[0], got[1], want, size)
	}
}

func TestWhatIsAllocatedInAWindowStandsForTheTimeSinceTheLast(t *testing.T) {
	target, s := startWindows(t)
	carryOut(target, "keep 700 100") // nobody watches
	time.Sleep(300 * time.Millisecond)
	within(t, target, s, "keep 1000 100", "churn 5000 100")
	factor := s.Factor()
	if factor < 2 {
		t.Fatalf("the window stands for %.2f times itself", factor)
	}
	taken := snapshot(t, s)
	mustStand(t, taken, "kept_here", 1000, 100, factor)
	if churn, ok := held(taken)["churn_here"]; ok {
		t.Errorf("churn_here holds %d, want nothing", churn)
	}
	for _, h := range taken.Holdings {
		if h.Kind == growth.KindHeap && h.Stack.Frames[1].Function == "churn_here" && math.Abs(h.AllocObjects-5000*factor) > 2 {
			t.Errorf("churn_here has allocated %.1f objects, want %.1f", h.AllocObjects, 5000*factor)
		}
	}
	if taken.Heap.Bursts != 1 || math.Abs(taken.Heap.Extrapolation-factor) > 1e-9 {
		t.Errorf("%+v, factor %.2f", taken.Heap, factor)
	}
}

func TestWhatIsFreedOutsideOfWindowsIsFoundFromOutside(t *testing.T) {
	for _, size := range []string{"24", "100", "1000", "20000", "300000"} {
		t.Run(size, func(t *testing.T) {
			target, s := startWindows(t)
			within(t, target, s, "keep 400 "+size)
			s.PollSurvivors()
			if n := s.Followed(); n != 400 {
				t.Errorf("%d objects are followed, want 400", n)
			}
			carryOut(target, "drop 150")
			s.PollSurvivors()
			if n := s.Followed(); n != 250 {
				t.Errorf("%d objects are followed after the release of 150 of 400, want 250", n)
			}
			within(t, target, s, "drop 100") // seen by the probe
			if n := s.Followed(); n != 150 {
				t.Errorf("%d objects are followed after the release of 100 of 250, want 150", n)
			}
			sightings := 0
			for _, h := range snapshot(t, s).Holdings {
				if h.Evidence != nil {
					sightings++
					if fate := h.Evidence.Hazard.Mature(0); h.Evidence.Bursts != 1 || fate.Deaths != 100 || fate.ExposureSeconds <= 0 {
						t.Errorf("%+v, want 1 window and 100 deaths", *h.Evidence)
					}
				}
			}
			if sightings != 1 {
				t.Errorf("%d stacks were seen in windows, want 1", sightings)
			}
		})
	}
}

func TestWhatIsYoungIsNotInTheBooksYet(t *testing.T) {
	target, s := startWindows(t)
	s.Mature(time.Hour)
	within(t, target, s, "keep 1000 100")
	if got := held(snapshot(t, s)); len(got) != 0 {
		t.Errorf("%v, want nothing", got)
	}
	s.Mature(time.Nanosecond)
	mustStand(t, snapshot(t, s), "kept_here", 1000, 100, s.Factor())
}

// What is alive, and too young to be told or born when nobody watched, is not what the allocator keeps.
func TestWhatWindowsDoNotTellOfAHeapIsNotSaidToBeFree(t *testing.T) {
	target, s := startWindows(t)
	s.Mature(time.Hour)
	within(t, target, s, "keep 2000 10000")
	carryOut(target, "keep 2000 10000")
	rows := rowsOf(balanced(t, s), target.PID())
	if rows[growth.KindRetained] != 0 {
		t.Errorf("%d bytes are said to be free, of rows %v", rows[growth.KindRetained], rows)
	}
	mustBeNear(t, "not told", rows[growth.KindUnclassified], 2*2000*10000)
}

func allocations(t *testing.T, s *tracer.Session) uint64 {
	t.Helper()
	events, _, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return events.Allocations
}

func TestACallThatWasCutByTheEndOfAWindowIsForgotten(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "leak.c", "-pthread"), "4", "200000", "64", "2000")
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	s.Mature(time.Nanosecond)
	target.Say("go")
	for range 20 { // while calls are under way
		if err := s.CloseHeap(); err != nil {
			t.Fatal(err)
		}
		if err := s.OpenWindow(1); err != nil {
			t.Fatal(err)
		}
		for before := allocations(t, s); allocations(t, s) < before+10_000; {
			runtime.Gosched()
		}
	}
	_, losses, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range losses {
		if l.Reason == "allocations whose return was not seen" {
			t.Errorf("lost: %d %s", l.Count, l.Reason)
		}
	}
	if got := held(snapshot(t, s)); got["leak_here"][0] == 0 {
		t.Errorf("nothing is seen any more: %v, %+v, %d followed", got, s.Watched(), s.Followed())
	}
}

func TestAnAddressHandedOutAgainIsALossUnlessItWasFreedBetweenWindows(t *testing.T) {
	const reason = "addresses handed out again whose free was not seen"
	for _, in := range []struct {
		name string
		open func(*tracer.Session, uint64) error
		told bool
	}{{"bursts", (*tracer.Session).OpenWindow, false}, {"all the time", (*tracer.Session).OpenFully, true}} {
		target, s := startWindows(t)
		for range 2 {
			if err := in.open(s, 1); err != nil {
				t.Fatal(err)
			}
			carryOut(target, "keep 300 1000")
			if err := s.CloseHeap(); err != nil {
				t.Fatal(err)
			}
			carryOut(target, "drop 300")
		}
		_, losses, err := s.Counters()
		if err != nil {
			t.Fatal(err)
		}
		told := slices.ContainsFunc(losses, func(l tracer.Loss) bool { return l.Reason == reason })
		if told != in.told {
			t.Errorf("%s: lost: %v", in.name, losses)
		}
	}
}
